//! MATCH_RECOGNIZE: checked clause by clause, kept only as a place in the text until it can run.

use super::{Parsed, Parser};
use crate::Span;
use crate::diagnostic::{Diagnostic, code};

impl Parser<'_> {
    pub(super) fn match_recognize(&mut self) -> Parsed<Span> {
        let span = self.bump().span;
        self.expect_symbol("(")?;
        self.nested(Self::pattern_clauses)?;
        self.expect_symbol(")")?;
        self.expect_word("AS")?;
        self.ident("an alias for the matches")?;
        Ok(span)
    }

    fn pattern_clauses(&mut self) -> Parsed<()> {
        self.expect_word("LIMIT")?;
        self.expect_word("DURATION")?;
        self.duration()?;
        if self.eat_words("PARTITION", "BY") {
            self.expr_list()?;
        }
        self.expect_word("MEASURES")?;
        self.measures()?;
        self.after_match()?;
        self.expect_word("PATTERN")?;
        self.expect_symbol("(")?;
        self.nested(Self::alternatives)?;
        self.expect_symbol(")")?;
        self.expect_word("DEFINE")?;
        self.definitions()
    }

    fn measures(&mut self) -> Parsed<()> {
        loop {
            self.expr()?;
            self.expect_word("AS")?;
            self.ident("the name of a measure")?;
            if !self.eat_symbol(",") {
                return Ok(());
            }
        }
    }

    fn after_match(&mut self) -> Parsed<()> {
        let start = self.expect_word("AFTER")?;
        self.expect_word("MATCH")?;
        self.expect_word("SKIP")?;
        let next = ["TO", "NEXT", "ROW"].iter().all(|word| self.eat_word(word));
        if next {
            return Ok(());
        }
        let span = start.to(self.span());
        let error = Diagnostic::error(code::FOREIGN, span, "matches only skip to the next row");
        Err(self.report(error.help("write AFTER MATCH SKIP TO NEXT ROW")))
    }

    fn alternatives(&mut self) -> Parsed<()> {
        loop {
            self.sequence()?;
            if !self.eat_symbol("|") {
                return Ok(());
            }
        }
    }

    fn sequence(&mut self) -> Parsed<()> {
        loop {
            if self.eat_symbol("(") {
                self.nested(Self::alternatives)?;
                self.expect_symbol(")")?;
            } else if !self.eat_symbol(".") {
                self.ident("a pattern variable")?;
            }
            let _ = self.eat_symbol("*") || self.eat_symbol("+") || self.eat_symbol("?");
            if self.at_symbol(")") || self.at_symbol("|") {
                return Ok(());
            }
        }
    }

    fn definitions(&mut self) -> Parsed<()> {
        loop {
            self.ident("a pattern variable")?;
            self.expect_word("AS")?;
            self.expr()?;
            if !self.eat_symbol(",") {
                return Ok(());
            }
        }
    }
}
