//! Syntax of other SQL dialects and its replacement here; also misspelled keywords.

use highwater_spelling::nearest;

use super::{ErrorReported, Parser, is_reserved};
use crate::Span;
use crate::diagnostic::{Diagnostic, code};
use crate::lexer::TokenKind;

const RANK: &str = "rows come out in time order; to rank within a window use TopOne or CollectTop";
const WRITE: &str = "a query only reads: SELECT .. INTO output FROM input";
const SUBQUERY: &str = "name the inner query as a step (WITH s AS (..)) and join it";
const LEFT_ONLY: &str = "use INNER JOIN or LEFT JOIN; swap the two sides of a RIGHT JOIN";
const SETS: &str =
    "use LEFT JOIN .. WHERE right.key IS NULL for a difference, JOIN for an intersection";

const PIVOT: &str = "write one SUM(CASE WHEN k = 'x' THEN v ELSE NULL END) per column";
const UNPIVOT: &str = "use CROSS APPLY GetRecordProperties(..)";
const FILTER: &str = "write SUM(CASE WHEN condition THEN x ELSE NULL END)";
const PERCENTILE: &str = "write PERCENTILE_CONT(p) OVER (ORDER BY x)";
const ESCAPE: &str = "put the wildcard in brackets: LIKE '100[%]'";
const VARIABLES: &str = "there are no variables: write the constant where it is used";
const RECURSIVE: &str = "steps read inputs and the steps before them";

/// One or two tokens that start the syntax, its name, and its replacement.
const CLAUSES: [(&str, &str, &str); 29] = [
    ("ORDER BY", "ORDER BY", RANK),
    ("LIMIT", "LIMIT", RANK),
    ("OFFSET", "OFFSET", RANK),
    ("FETCH", "FETCH", RANK),
    ("INTERSECT", "INTERSECT", SETS),
    ("EXCEPT", "EXCEPT", SETS),
    ("PIVOT (", "PIVOT", PIVOT),
    ("UNPIVOT (", "UNPIVOT", UNPIVOT),
    ("RIGHT JOIN", "RIGHT JOIN", LEFT_ONLY),
    ("RIGHT OUTER", "RIGHT JOIN", LEFT_ONLY),
    ("FULL JOIN", "FULL JOIN", LEFT_ONLY),
    ("FULL OUTER", "FULL JOIN", LEFT_ONLY),
    ("NATURAL JOIN", "NATURAL JOIN", "write the equality in ON"),
    ("EXISTS (", "EXISTS", SUBQUERY),
    ("ANY (", "ANY", SUBQUERY),
    ("ALL (", "ALL", SUBQUERY),
    ("SOME (", "SOME", SUBQUERY),
    ("FILTER (", "FILTER (WHERE ..)", FILTER),
    ("WITHIN GROUP", "WITHIN GROUP", PERCENTILE),
    ("ESCAPE", "LIKE .. ESCAPE", ESCAPE),
    ("INSERT", "INSERT", WRITE),
    ("UPDATE", "UPDATE", WRITE),
    ("DELETE", "DELETE", WRITE),
    ("MERGE", "MERGE", WRITE),
    ("DECLARE", "DECLARE", VARIABLES),
    ("SET", "SET", VARIABLES),
    ("DROP", "DROP", WRITE),
    ("ALTER", "ALTER", WRITE),
    ("RECURSIVE", "recursive WITH", RECURSIVE),
];

const KEYWORDS: [&str; 19] = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "HAVING",
    "UNION",
    "JOIN",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "INTO",
    "WITH",
    "OVER",
    "LIKE",
    "BETWEEN",
    "TIMESTAMP",
    "PARTITION",
    "END",
];

impl Parser<'_> {
    pub(super) fn foreign_clause(&self) -> Option<Diagnostic> {
        CLAUSES.iter().find_map(|(tokens, name, help)| {
            let (first, second) = tokens.split_once(' ').unwrap_or((tokens, ""));
            let is_word = self.word_ahead(1, second);
            let matches = self.at_word(first)
                && (second.is_empty() || is_word || self.symbol_ahead(1, second));
            let end = self.peek(usize::from(is_word)).span;
            matches.then(|| foreign(name, self.span().to(end), help))
        })
    }

    /// A word that would be an alias if it did not start such a clause.
    pub(super) fn at_foreign_clause(&self) -> bool {
        let starts_expr = matches!(
            self.peek(1).kind,
            TokenKind::Int(_)
                | TokenKind::Word(_)
                | TokenKind::Symbol("(")
                | TokenKind::Bracketed(_)
        );
        self.foreign_clause().is_some() && starts_expr
    }

    /// SELECT DISTINCT and SELECT TOP: reported, then skipped, so that the rest is still checked.
    pub(super) fn select_modifier(&mut self) {
        let name_follows = self.name_ahead(1) && !self.symbol_ahead(2, "=");
        let star_follows = self.symbol_ahead(1, "*") && self.word_ahead(2, "FROM");
        let help = "GROUP BY a window removes duplicates";
        if self.at_word("DISTINCT") && (name_follows || star_follows) {
            let span = self.bump().span;
            self.report(foreign("SELECT DISTINCT", span, help));
        }
        if self.at_word("TOP") && matches!(self.peek(1).kind, TokenKind::Int(_)) {
            let span = self.bump().span;
            self.report(foreign("SELECT TOP", span.to(self.span()), RANK));
            self.bump();
        }
        if self.at_word("ALL") && (name_follows || star_follows) {
            self.bump();
        }
    }

    pub(super) fn subquery(&mut self, span: Span) -> ErrorReported {
        self.report(foreign("a subquery inside an expression", span, SUBQUERY))
    }

    /// A misspelled keyword is read as a name, so the error often comes one word later.
    pub(super) fn keyword_hint(&self) -> Option<String> {
        let places = [Some(self.at), self.at.checked_sub(1)];
        places.into_iter().flatten().find_map(|at| {
            let TokenKind::Word(word) = &self.tokens[at].kind else {
                return None;
            };
            if word.len() < 3 || is_reserved(word) {
                return None;
            }
            let near = nearest(word, KEYWORDS).filter(|near| !near.eq_ignore_ascii_case(word));
            near.map(|near| format!("did you mean {near} instead of `{word}`?"))
        })
    }

    /// For operators that other languages have.
    pub(super) fn symbol_hint(&self) -> Option<String> {
        let TokenKind::Symbol(symbol) = self.token().kind else {
            return None;
        };
        let last = match self.at.checked_sub(1).map(|at| &self.tokens[at].kind) {
            Some(TokenKind::Symbol(last)) => *last,
            _ => "",
        };
        let hint = match (last, symbol) {
            ("=", "=") => "equality is a single =",
            ("&", "&") => "write AND",
            ("|", "|") => "write OR, or + to join texts",
            _ => return None,
        };
        Some(hint.to_string())
    }
}

pub(super) fn foreign(name: &str, span: Span, help: &str) -> Diagnostic {
    let message = format!("{name} does not exist in this language");
    Diagnostic::error(code::FOREIGN, span, message).help(help)
}
