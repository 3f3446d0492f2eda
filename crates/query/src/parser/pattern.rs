//! MATCH_RECOGNIZE: its clauses, which have a fixed order, and the pattern, which has a grammar of its own.

use super::{ErrorReported, ParseResult, Parser};
use crate::Span;
use crate::ast::{Expr, Ident, MatchRecognize, Pattern, Repeat};
use crate::diagnostic::{Diagnostic, code};
use crate::lexer::TokenKind;

const ORDER: &str = "the clauses are, in this order: LIMIT DURATION, [PARTITION BY,] MEASURES, AFTER MATCH SKIP, PATTERN, DEFINE";

/// Clauses of other dialects between these: first word, second word, help.
const FOREIGN: [(&str, &str, &str, &str); 6] = [
    (
        "ORDER",
        "BY",
        "ORDER BY",
        "events are matched in time order",
    ),
    (
        "ONE",
        "ROW",
        "ONE ROW PER MATCH",
        "leave it out: a match is always one row",
    ),
    (
        "ALL",
        "ROWS",
        "ALL ROWS PER MATCH",
        "a match is one row; First(..) and Last(..) reach into it",
    ),
    (
        "SUBSET",
        "",
        "SUBSET",
        "name the variables one by one in MEASURES",
    ),
    (
        "WITHIN",
        "",
        "WITHIN",
        "LIMIT DURATION, the first clause, says how long a match may be",
    ),
    (
        "INTERVAL",
        "",
        "INTERVAL",
        "write LIMIT DURATION(minute, 5)",
    ),
];

impl Parser<'_> {
    pub(super) fn match_recognize(&mut self) -> ParseResult<MatchRecognize> {
        let span = self.bump().span;
        self.expect_symbol("(")?;
        let clauses = self.nested(|p| p.pattern_clauses(span))?;
        if !self.at_symbol(")") {
            return Err(self.out_of_order("`,` or `)`"));
        }
        self.bump();
        self.expect_word("AS")?;
        self.ident("an alias for the matches")?;
        Ok(clauses)
    }

    fn pattern_partition(&mut self) -> ParseResult<Vec<Expr>> {
        match self.eat_words("PARTITION", "BY") {
            true => self.expr_list(),
            false => Ok(Vec::new()),
        }
    }

    fn pattern_clauses(&mut self, span: Span) -> ParseResult<MatchRecognize> {
        // The product's pages have both orders of these two.
        let mut partition = self.pattern_partition()?;
        self.clause("LIMIT")?;
        self.expect_word("DURATION")?;
        let limit = self.duration()?;
        if partition.is_empty() {
            partition = self.pattern_partition()?;
        }
        self.clause("MEASURES")?;
        let measures = self.measures()?;
        self.after_match()?;
        self.clause("PATTERN")?;
        self.expect_symbol("(")?;
        let pattern = self.nested(Self::alternatives)?;
        self.expect_symbol(")")?;
        self.clause("DEFINE")?;
        let defines = self.definitions()?;
        Ok(MatchRecognize {
            limit,
            partition,
            measures,
            pattern,
            defines,
            span,
        })
    }

    /// The first word of the clause that must come next.
    fn clause(&mut self, word: &str) -> ParseResult<Span> {
        if self.at_word(word) {
            return Ok(self.bump().span);
        }
        Err(self.out_of_order(word))
    }

    fn out_of_order(&mut self, expected: &str) -> ErrorReported {
        let foreign = FOREIGN.iter().find(|(first, second, _, _)| {
            self.at_word(first) && (second.is_empty() || self.word_ahead(1, second))
        });
        match foreign {
            Some((_, _, name, help)) => {
                let error = super::foreign::foreign(name, self.span(), help);
                self.report(error)
            }
            None => self.unexpected_with(expected, Some(ORDER.to_string())),
        }
    }

    fn measures(&mut self) -> ParseResult<Vec<(Expr, Ident)>> {
        let mut measures = Vec::new();
        loop {
            let measure = self.expr()?;
            self.expect_word("AS")?;
            measures.push((measure, self.ident("the name of a measure")?));
            if !self.eat_symbol(",") {
                return Ok(measures);
            }
        }
    }

    fn after_match(&mut self) -> ParseResult<()> {
        let start = self.clause("AFTER")?;
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

    fn alternatives(&mut self) -> ParseResult<Pattern> {
        let mut all = vec![self.sequence()?];
        while self.eat_symbol("|") {
            all.push(self.sequence()?);
        }
        Ok(only(all, Pattern::Either))
    }

    fn sequence(&mut self) -> ParseResult<Pattern> {
        let mut all = vec![self.repeated()?];
        while !self.at_symbol(")") && !self.at_symbol("|") {
            all.push(self.repeated()?);
        }
        Ok(only(all, Pattern::Sequence))
    }

    fn repeated(&mut self) -> ParseResult<Pattern> {
        let atom = self.atom()?;
        let repeat = if self.eat_symbol("*") {
            Repeat::Any
        } else if self.eat_symbol("+") {
            Repeat::AtLeastOnce
        } else if self.eat_symbol("?") {
            Repeat::AtMostOnce
        } else if self.at_symbol("{") {
            self.counted()?
        } else {
            return Ok(atom);
        };
        let signs = ["*", "+", "?", "{"];
        if signs.iter().any(|symbol| self.at_symbol(symbol)) {
            let help = "patterns take as many events as they can; group a repeated part: (A B)*";
            return Err(self.no_pattern("a second repetition sign", help));
        }
        Ok(Pattern::Repeat(Box::new(atom), repeat))
    }

    /// `{n}`, `{n,}`, `{n,m}` or `{,m}`
    fn counted(&mut self) -> ParseResult<Repeat> {
        let start = self.bump().span;
        let least = self.count();
        let most = match self.eat_symbol(",") {
            true => self.count(),
            false => least,
        };
        if !self.at_symbol("}") || (least.is_none() && most.is_none()) {
            return Err(self.unexpected("a count: {2}, {2,}, {2,5} or {,5}"));
        }
        let span = start.to(self.bump().span);
        let least = least.unwrap_or(0);
        let message = match most {
            Some(0) => "a part of a pattern is repeated at least once",
            Some(most) if most < least => "the second count is below the first",
            _ => return Ok(Repeat::Counted { least, most }),
        };
        Err(self.report(Diagnostic::error(code::PATTERN, span, message)))
    }

    /// A number in a count; one that does not fit is too large in any case.
    fn count(&mut self) -> Option<usize> {
        let TokenKind::Int(count) = self.token().kind else {
            return None;
        };
        self.bump();
        Some(usize::try_from(count).unwrap_or(usize::MAX))
    }

    fn atom(&mut self) -> ParseResult<Pattern> {
        if self.at_word("PERMUTE") && self.symbol_ahead(1, "(") {
            return Err(self.no_pattern("PERMUTE", "write the orders out: (A B | B A)"));
        }
        if self.at_word("DEFINE") && self.name_ahead(1) && self.word_ahead(2, "AS") {
            return Err(self.unexpected("`)`"));
        }
        if self.at_symbol("^") {
            let help = "a match starts at any event and spans at most the LIMIT DURATION";
            return Err(self.no_pattern("anchors", help));
        }
        if self.eat_symbol("(") {
            let inner = self.nested(Self::alternatives)?;
            self.expect_symbol(")")?;
            return Ok(inner);
        }
        if self.eat_symbol(".") {
            return Ok(Pattern::Any);
        }
        self.ident("a pattern variable").map(Pattern::Variable)
    }

    fn no_pattern(&mut self, what: &str, help: &str) -> ErrorReported {
        let message = format!("patterns do not have {what}");
        let error = Diagnostic::error(code::FOREIGN, self.span(), message);
        self.report(error.help(help))
    }

    fn definitions(&mut self) -> ParseResult<Vec<(Ident, Expr)>> {
        let mut defines = Vec::new();
        loop {
            let variable = self.ident("a pattern variable")?;
            self.expect_word("AS")?;
            defines.push((variable, self.expr()?));
            if !self.eat_symbol(",") {
                return Ok(defines);
            }
        }
    }
}

/// A sequence or choice of one is that one.
fn only(mut all: Vec<Pattern>, around: fn(Vec<Pattern>) -> Pattern) -> Pattern {
    match (all.pop(), all.is_empty()) {
        (Some(one), true) => one,
        (last, _) => {
            all.extend(last);
            around(all)
        }
    }
}
