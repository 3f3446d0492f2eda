//! FROM: sources with their TIMESTAMP BY and PARTITION BY, joins and APPLY.

use super::{ParseResult, Parser};
use crate::ast::{
    Apply, Each, From, FromPart, Ident, Join, PartitionBy, Source, SourceExpr, TimestampBy,
};
use crate::diagnostic::{Diagnostic, code};
use crate::lexer::TokenKind;

impl Parser<'_> {
    pub(super) fn sources(&mut self) -> ParseResult<From> {
        let first = self.source_item()?;
        let mut from = From {
            first,
            rest: Vec::new(),
            pattern: None,
        };
        loop {
            if self.at_word("MATCH_RECOGNIZE") && from.pattern.is_none() {
                from.pattern = Some(Box::new(self.match_recognize()?));
            } else if self.at_join() {
                from.rest.push(self.join()?);
            } else if self.word_ahead(1, "APPLY")
                && (self.at_word("CROSS") || self.at_word("OUTER"))
            {
                from.rest.push(self.apply()?);
            } else {
                break;
            }
        }
        if self.at_symbol(",") {
            let error =
                Diagnostic::error(code::JOIN, self.span(), "a comma cannot join two sources");
            let help = "write JOIN .. ON with a DATEDIFF bound, or UNION to merge the streams";
            return Err(self.report(error.help(help)));
        }
        Ok(from)
    }

    fn source_item(&mut self) -> ParseResult<Source> {
        let start = self.span();
        let of = if self.eat_symbol("(") {
            self.nested(Self::parenthesized)?
        } else {
            SourceExpr::Name(self.ident("the name of an input or step")?)
        };
        let nested = matches!(of, SourceExpr::Nested(_));
        let alias = if nested { None } else { self.source_alias()? };
        let mut source = Source {
            of,
            alias,
            timestamp: None,
            partition: None,
            span: start,
        };
        while !nested && self.stream_modifier(&mut source)? {}
        source.span = start.to(self.last_span());
        Ok(source)
    }

    /// A derived table or a FROM clause in parentheses; the parenthesis has been read.
    fn parenthesized(&mut self) -> ParseResult<SourceExpr> {
        let mut ahead = 0;
        while self.symbol_ahead(ahead, "(") {
            ahead += 1;
        }
        let of = if self.word_ahead(ahead, "SELECT") {
            SourceExpr::Query(Box::new(self.query()?))
        } else {
            SourceExpr::Nested(Box::new(self.sources()?))
        };
        self.expect_symbol(")")?;
        Ok(of)
    }

    fn source_alias(&mut self) -> ParseResult<Option<Ident>> {
        if self.eat_word("AS") {
            return self.ident("an alias").map(Some);
        }
        let free = self.name_ahead(0) && !self.at_source_clause() && !self.at_foreign_clause();
        Ok(free.then(|| self.any_ident()))
    }

    /// Words that may be names, but not here: TIMESTAMP BY, LEFT JOIN, ..
    fn at_source_clause(&self) -> bool {
        let pairs = [
            ("TIMESTAMP", "BY"),
            ("PARTITION", "BY"),
            ("INNER", "JOIN"),
            ("LEFT", "JOIN"),
            ("LEFT", "OUTER"),
            ("CROSS", "APPLY"),
            ("CROSS", "JOIN"),
            ("OUTER", "APPLY"),
            ("CREATE", "TABLE"),
        ];
        pairs
            .iter()
            .any(|(first, second)| self.at_word(first) && self.word_ahead(1, second))
            || (self.at_word("MATCH_RECOGNIZE") && self.symbol_ahead(1, "("))
    }

    /// TIMESTAMP BY and PARTITION BY, in either order, each once.
    fn stream_modifier(&mut self, source: &mut Source) -> ParseResult<bool> {
        let start = self.span();
        let again = if self.eat_words("TIMESTAMP", "BY") {
            let again = source.timestamp.is_some();
            source.timestamp = Some(self.timestamp_by(start)?);
            again
        } else if self.eat_words("PARTITION", "BY") {
            let again = source.partition.is_some();
            source.partition = Some(self.partition_by(start)?);
            again
        } else {
            return Ok(false);
        };
        if again {
            let error = Diagnostic::error(code::SYNTAX, start, "this clause is repeated");
            return Err(self.report(error.label("the second one")));
        }
        Ok(true)
    }

    fn timestamp_by(&mut self, start: crate::Span) -> ParseResult<TimestampBy> {
        self.no_over = true;
        let expr = self.expr();
        self.no_over = false;
        let expr = expr?;
        let over = if self.eat_word("OVER") {
            self.expr_list()?
        } else {
            Vec::new()
        };
        Ok(TimestampBy {
            expr,
            over,
            span: start.to(self.last_span()),
        })
    }

    fn partition_by(&mut self, start: crate::Span) -> ParseResult<PartitionBy> {
        let keys = self.expr_list()?;
        let mut count = None;
        if self.at_word("INTO") && !self.name_ahead(1) {
            self.bump();
            count = Some(match self.token().kind {
                TokenKind::Int(count) => count,
                _ => return Err(self.unexpected("a number of partitions")),
            });
            self.bump();
        }
        Ok(PartitionBy {
            keys,
            count,
            span: start.to(self.last_span()),
        })
    }

    fn at_join(&self) -> bool {
        self.at_word("JOIN")
            || ((self.at_word("INNER") || self.at_word("CROSS")) && self.word_ahead(1, "JOIN"))
            || (self.at_word("LEFT") && (self.word_ahead(1, "JOIN") || self.word_ahead(1, "OUTER")))
    }

    fn join(&mut self) -> ParseResult<FromPart> {
        let start = self.span();
        let cross = self.eat_word("CROSS");
        let outer = !cross && self.eat_word("LEFT");
        let _ = match outer {
            true => self.eat_word("OUTER"),
            false => !cross && self.eat_word("INNER"),
        };
        self.expect_word("JOIN")?;
        let span = start.to(self.last_span());
        let source = self.source_item()?;
        let on = match cross {
            true => None,
            false => {
                self.expect_word("ON")?;
                Some(self.expr()?)
            }
        };
        Ok(FromPart::Join(Box::new(Join {
            source,
            on,
            cross,
            outer,
            span,
        })))
    }

    fn apply(&mut self) -> ParseResult<FromPart> {
        let outer = self.at_word("OUTER");
        self.bump();
        self.bump();
        let function = self.ident("GetArrayElements or GetRecordProperties")?;
        let each = if function.is("GetArrayElements") || function.is("GetElements") {
            Each::Element
        } else if function.is("GetRecordProperties") {
            Each::Property
        } else {
            let message = format!("`{}` returns no rows for APPLY", function.name);
            let error = Diagnostic::error(code::SYNTAX, function.span, message);
            return Err(
                self.report(error.label("expected GetArrayElements or GetRecordProperties"))
            );
        };
        self.expect_symbol("(")?;
        let of = self.nested(Self::expr)?;
        self.expect_symbol(")")?;
        self.eat_word("AS");
        let alias = self.ident("an alias for the elements")?;
        Ok(FromPart::Apply(Box::new(Apply {
            each,
            of,
            outer,
            alias,
        })))
    }
}
