//! The token cursor of all clauses: peeks at tokens, takes them, and reports expected ones.

use super::{ErrorReported, ParseResult, Parser};
use crate::Span;
use crate::ast::{Expr, ExprKind, Ident, Quote};
use crate::diagnostic::{Diagnostic, code};
use crate::lexer::{Token, TokenKind};

/// The nesting limit of parentheses and queries, which bounds the recursion of the parser.
const NESTING_MAX: usize = 100;
/// The depth limit of expression trees, which bounds the recursion of their visitors.
pub(super) const DEPTH_MAX: u16 = 200;

/// Words that cannot be names without brackets.
const RESERVED: [&str; 26] = [
    "SELECT", "FROM", "WHERE", "GROUP", "BY", "HAVING", "UNION", "JOIN", "ON", "AND", "OR", "NOT",
    "CASE", "WHEN", "THEN", "ELSE", "END", "AS", "INTO", "WITH", "OVER", "NULL", "IN", "LIKE",
    "BETWEEN", "IS",
];

impl Parser<'_> {
    pub(super) fn token(&self) -> &Token {
        self.peek(0)
    }

    /// The list always ends with `End`, which is never consumed.
    pub(super) fn peek(&self, ahead: usize) -> &Token {
        let last = self.tokens.len() - 1;
        &self.tokens[(self.at + ahead).min(last)]
    }

    pub(super) fn span(&self) -> Span {
        self.token().span
    }

    pub(super) fn last_span(&self) -> Span {
        self.tokens[self.at.saturating_sub(1)].span
    }

    pub(super) fn bump(&mut self) -> Token {
        let token = self.token().clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    pub(super) fn at_end(&self) -> bool {
        self.token().kind == TokenKind::End
    }

    pub(super) fn at_word(&self, word: &str) -> bool {
        self.word_ahead(0, word)
    }

    pub(super) fn word_ahead(&self, ahead: usize, word: &str) -> bool {
        matches!(&self.peek(ahead).kind, TokenKind::Word(w) if w.eq_ignore_ascii_case(word))
    }

    pub(super) fn at_symbol(&self, symbol: &str) -> bool {
        self.symbol_ahead(0, symbol)
    }

    pub(super) fn symbol_ahead(&self, ahead: usize, symbol: &str) -> bool {
        matches!(self.peek(ahead).kind, TokenKind::Symbol(s) if s == symbol)
    }

    pub(super) fn eat_word(&mut self, word: &str) -> bool {
        let found = self.at_word(word);
        if found {
            self.bump();
        }
        found
    }

    /// Takes two words in a row, or neither.
    pub(super) fn eat_words(&mut self, first: &str, second: &str) -> bool {
        let found = self.at_word(first) && self.word_ahead(1, second);
        if found {
            self.bump();
            self.bump();
        }
        found
    }

    pub(super) fn eat_symbol(&mut self, symbol: &str) -> bool {
        let found = self.at_symbol(symbol);
        if found {
            self.bump();
        }
        found
    }

    pub(super) fn expect_word(&mut self, word: &str) -> ParseResult<Span> {
        if self.at_word(word) {
            Ok(self.bump().span)
        } else {
            Err(self.unexpected(word))
        }
    }

    pub(super) fn expect_symbol(&mut self, symbol: &str) -> ParseResult<Span> {
        if self.at_symbol(symbol) {
            return Ok(self.bump().span);
        }
        Err(self.unexpected(&format!("`{symbol}`")))
    }

    /// A name that is allowed without brackets.
    pub(super) fn name_ahead(&self, ahead: usize) -> bool {
        match &self.peek(ahead).kind {
            TokenKind::Word(word) => !is_reserved(word),
            TokenKind::Bracketed(_) | TokenKind::Quoted(_) => true,
            _ => false,
        }
    }

    pub(super) fn ident(&mut self, what: &str) -> ParseResult<Ident> {
        if self.name_ahead(0) {
            return Ok(self.any_ident());
        }
        if let TokenKind::Word(word) = &self.token().kind {
            let help = format!("if `{word}` is the name, write [{word}]");
            return Err(self.unexpected_with(what, Some(help)));
        }
        Err(self.unexpected(what))
    }

    /// The current token as a name, reserved or not; the caller has checked that it is one.
    pub(super) fn any_ident(&mut self) -> Ident {
        let token = self.bump();
        let (name, quote) = match token.kind {
            TokenKind::Word(name) => (name, Quote::Bare),
            TokenKind::Bracketed(name) => (name, Quote::Bracket),
            TokenKind::Quoted(name) => (name, Quote::Double),
            TokenKind::Text(name) => (name, Quote::Text),
            _ => (String::new(), Quote::Bare),
        };
        Ident {
            name,
            quote,
            span: token.span,
        }
    }

    pub(super) fn nested<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> ParseResult<T>,
    ) -> ParseResult<T> {
        if self.nesting >= NESTING_MAX {
            let message = format!("the query nests more than {NESTING_MAX} levels deep");
            let error = Diagnostic::error(code::LIMIT, self.span(), message);
            return Err(self.report(error.help("move inner parts into steps of their own")));
        }
        self.nesting += 1;
        let no_over = std::mem::replace(&mut self.no_over, false);
        let result = parse(self);
        self.no_over = no_over;
        self.nesting = self.nesting.saturating_sub(1);
        result
    }

    pub(super) fn build(&mut self, kind: ExprKind, span: Span) -> ParseResult<Expr> {
        let expr = Expr::new(kind, span);
        if expr.depth <= DEPTH_MAX {
            return Ok(expr);
        }
        let message = format!("this expression is more than {DEPTH_MAX} operators deep");
        let error = Diagnostic::error(code::LIMIT, span, message);
        Err(self.report(error.help("compute parts of it in an earlier step")))
    }

    pub(super) fn report(&mut self, diagnostic: Diagnostic) -> ErrorReported {
        self.diagnostics.push(diagnostic);
        ErrorReported
    }

    pub(super) fn unexpected(&mut self, expected: &str) -> ErrorReported {
        self.unexpected_with(expected, None)
    }

    pub(super) fn unexpected_with(
        &mut self,
        expected: &str,
        help: Option<String>,
    ) -> ErrorReported {
        if let Some(error) = self.foreign_clause() {
            return self.report(error);
        }
        let message = match &self.token().kind {
            TokenKind::End => "the query ends too early".to_string(),
            _ => format!("unexpected `{}`", shorten(self.span().text(self.source))),
        };
        let error = Diagnostic::error(code::SYNTAX, self.span(), message);
        let help = help
            .or_else(|| self.symbol_hint())
            .or_else(|| self.keyword_hint());
        self.report(error.label(format!("expected {expected}")).help_if(help))
    }
}

pub(crate) fn is_reserved(word: &str) -> bool {
    RESERVED
        .iter()
        .any(|reserved| reserved.eq_ignore_ascii_case(word))
}

fn shorten(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= 40 && line.len() == text.len() {
        return line.to_string();
    }
    format!("{}..", line.chars().take(40).collect::<String>())
}
