//! Parses text to a syntax tree, by recursive descent.
//!
//! The whole grammar of the language is accepted, including unsupported clauses, so that the binder can name the clause
//! instead of calling it a syntax error. After an error the parser continues at the next statement: one run reports at
//! least one error per broken statement.
//!
//! Recursion is bounded twice: `NESTING_MAX` limits the nesting of parentheses and queries while parsing, `DEPTH_MAX`
//! the depth of expression trees for their visitors.

mod call;
mod cursor;
mod expr;
mod foreign;
mod from;
mod pattern;
mod select;
#[cfg(test)]
mod tests;
mod types;

pub(crate) use cursor::is_reserved;

use crate::ast::{CreateTable, Script, Step};
use crate::diagnostic::{Diagnostic, code};
use crate::lexer::{Token, TokenKind, lex};

/// Steps can build on each other, so their number bounds recursion over the plan.
const STEPS_MAX: usize = 200;

/// An error that has been reported already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrorReported;
pub(crate) type ParseResult<T> = Result<T, ErrorReported>;

/// The parsed part of the script, and its errors and warnings.
pub(crate) fn parse(source: &str) -> (Script, Vec<Diagnostic>) {
    let (tokens, diagnostics) = lex(source);
    let mut parser = Parser {
        source,
        tokens,
        at: 0,
        nesting: 0,
        no_over: false,
        diagnostics,
    };
    let script = parser.script();
    let mut diagnostics = parser.diagnostics;
    diagnostics.sort_by_key(|d| d.span.start);
    (script, diagnostics)
}

pub(crate) struct Parser<'a> {
    source: &'a str,
    tokens: Vec<Token>,
    at: usize,
    nesting: usize,
    /// Inside TIMESTAMP BY, where a following OVER does not belong to the function before it.
    no_over: bool,
    diagnostics: Vec<Diagnostic>,
}

impl Parser<'_> {
    fn script(&mut self) -> Script {
        let mut script = Script::default();
        while !self.at_end() {
            let start = self.at;
            if self.eat_symbol(";") {
                continue;
            }
            if self.script_part(&mut script).is_err() {
                self.resync(start);
            }
        }
        if script.statements.is_empty() && !self.diagnostics.iter().any(Diagnostic::is_error) {
            let error = Diagnostic::error(
                code::SYNTAX,
                self.span(),
                "there is no SELECT in this query",
            );
            self.diagnostics.push(error.label("expected SELECT"));
        }
        script
    }

    fn script_part(&mut self, script: &mut Script) -> ParseResult<()> {
        if self.at_word("CREATE") {
            let start = self.span();
            let table = self.create_table()?;
            if !script.statements.is_empty() || !script.steps.is_empty() {
                let message = "CREATE TABLE must come before WITH and the first SELECT";
                let error = Diagnostic::error(code::SYNTAX, start, message);
                self.diagnostics
                    .push(error.help("move it to the start of the query"));
            }
            script.tables.push(table);
        } else if self.at_word("WITH") {
            self.with(script)?;
        } else if self.at_word("SELECT") || self.at_symbol("(") {
            let query = self.query()?;
            script.statements.push(query);
            self.statement_end()?;
        } else {
            return Err(self.unexpected("SELECT"));
        }
        Ok(())
    }

    fn statement_end(&mut self) -> ParseResult<()> {
        let starts = ["SELECT", "WITH", "CREATE"]
            .iter()
            .any(|word| self.at_word(word));
        if self.at_end() || starts || self.eat_symbol(";") || self.at_symbol("(") {
            return Ok(());
        }
        Err(self.unexpected("the end of the statement"))
    }

    /// WITH name AS (query), ..
    fn with(&mut self, script: &mut Script) -> ParseResult<()> {
        let span = self.bump().span;
        if self.at_word("RECURSIVE") && self.name_ahead(1) {
            return Err(self.unexpected("the name of a step"));
        }
        if !script.steps.is_empty() || !script.statements.is_empty() {
            let message = "there is one WITH block, before the first SELECT";
            let help = "move these steps into that block; every SELECT sees them";
            return Err(self.report(Diagnostic::error(code::SYNTAX, span, message).help(help)));
        }
        loop {
            let start = self.at;
            match self.step() {
                Ok(step) => script.steps.push(step),
                Err(ErrorReported) => self.skip_step(start),
            }
            if script.steps.len() > STEPS_MAX {
                let message = format!("a query has at most {STEPS_MAX} steps");
                return Err(self.report(Diagnostic::error(code::LIMIT, span, message)));
            }
            if !self.eat_symbol(",") {
                return Ok(());
            }
        }
    }

    fn step(&mut self) -> ParseResult<Step> {
        let name = self.ident("the name of a step")?;
        self.expect_word("AS")?;
        self.expect_symbol("(")?;
        let query = self.nested(Self::query)?;
        self.expect_symbol(")")?;
        Ok(Step { name, query })
    }

    /// Skips to the comma before the next step, or past the broken one.
    fn skip_step(&mut self, start: usize) {
        let mut depth = self.open_parens(start);
        while !self.at_end() && !(depth == 0 && (self.at_symbol(",") || self.at_word("SELECT"))) {
            depth = self.skip_token(depth);
        }
        self.nesting = 0;
    }

    /// Skips to where the next statement may start.
    fn resync(&mut self, start: usize) {
        let mut depth = self.open_parens(start);
        if self.at == start {
            depth = self.skip_token(depth);
        }
        while !(self.at_end() || depth == 0 && self.at_statement()) {
            depth = self.skip_token(depth);
        }
        self.nesting = 0;
        self.no_over = false;
    }

    fn at_statement(&self) -> bool {
        self.at_symbol(";") || self.at_word("SELECT") || self.at_word("WITH")
    }

    fn open_parens(&self, start: usize) -> usize {
        self.tokens[start..self.at].iter().fold(0, paren_depth)
    }

    fn skip_token(&mut self, depth: usize) -> usize {
        paren_depth(depth, &self.bump())
    }

    /// CREATE TABLE name (column type, ..)
    fn create_table(&mut self) -> ParseResult<CreateTable> {
        self.bump();
        self.expect_word("TABLE")?;
        let name = self.ident("the name of an input")?;
        self.expect_symbol("(")?;
        let mut columns = Vec::new();
        loop {
            let name = self.ident("the name of a column")?;
            columns.push((name, self.data_type()?));
            if !self.eat_symbol(",") {
                break;
            }
        }
        self.expect_symbol(")")?;
        Ok(CreateTable { name, columns })
    }
}

fn paren_depth(depth: usize, token: &Token) -> usize {
    match token.kind {
        TokenKind::Symbol("(") => depth + 1,
        TokenKind::Symbol(")") => depth.saturating_sub(1),
        _ => depth,
    }
}
