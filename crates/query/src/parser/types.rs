//! Names of types, in CAST and CREATE TABLE.

use highwater_spelling::nearest;

use super::{ParseResult, Parser};
use crate::ast::Type;
use crate::diagnostic::{Diagnostic, code};
use crate::lexer::TokenKind;

const TYPES: [(&str, Type); 7] = [
    ("bigint", Type::Bigint),
    ("float", Type::Float),
    ("nvarchar", Type::Text),
    ("datetime", Type::Datetime),
    ("bit", Type::Bit),
    ("record", Type::Record),
    ("array", Type::Array),
];

/// Types of other dialects, and the type that holds their values here.
const OTHER_TYPES: [(&str, &str); 20] = [
    ("int", "bigint"),
    ("integer", "bigint"),
    ("smallint", "bigint"),
    ("tinyint", "bigint"),
    ("long", "bigint"),
    ("real", "float"),
    ("double", "float"),
    ("decimal", "float"),
    ("numeric", "float"),
    ("money", "float"),
    ("varchar", "nvarchar(max)"),
    ("char", "nvarchar(max)"),
    ("nchar", "nvarchar(max)"),
    ("text", "nvarchar(max)"),
    ("string", "nvarchar(max)"),
    ("datetime2", "datetime"),
    ("date", "datetime"),
    ("timestamp", "datetime"),
    ("bool", "bit"),
    ("boolean", "bit"),
];

impl Parser<'_> {
    pub(super) fn data_type(&mut self) -> ParseResult<Type> {
        let name = self.ident("a type")?;
        let Some((_, found)) = TYPES.iter().find(|(known, _)| name.is(known)) else {
            let other = OTHER_TYPES
                .iter()
                .find(|(other, _)| name.is(other))
                .map(|(_, here)| *here);
            let near = other.or_else(|| nearest(&name.name, TYPES.iter().map(|(known, _)| *known)));
            let known =
                "the types are bigint, float, nvarchar(max), datetime, bit, record and array";
            let help = near.map_or(known.to_string(), |near| format!("use {near}"));
            let message = format!("there is no type `{}`", name.name);
            let error = Diagnostic::error(code::UNKNOWN_TYPE, name.span, message);
            return Err(self.report(error.help(help)));
        };
        if *found == Type::Text {
            self.text_length(name.span)?;
        }
        Ok(*found)
    }

    fn text_length(&mut self, start: crate::Span) -> ParseResult<()> {
        let max =
            self.symbol_ahead(0, "(") && self.word_ahead(1, "max") && self.symbol_ahead(2, ")");
        if max {
            self.at += 3;
            return Ok(());
        }
        if self.eat_symbol("(") && matches!(self.token().kind, TokenKind::Int(_)) {
            self.bump();
            self.eat_symbol(")");
        }
        let span = start.to(self.last_span());
        let error = Diagnostic::error(code::UNKNOWN_TYPE, span, "text has one type, nvarchar(max)");
        Err(self.report(error.help("write nvarchar(max)")))
    }
}
