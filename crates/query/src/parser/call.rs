//! Function calls and their OVER.

use super::{ParseResult, Parser};
use crate::ast::{Call, Expr, ExprKind, Ident, Order, Over};
use crate::diagnostic::{Diagnostic, code};
use crate::lexer::TokenKind;

impl Parser<'_> {
    /// `prefix.name(args) [OVER (..)]`; the name has been read, the parenthesis has not.
    pub(super) fn call(&mut self, mut path: Vec<Ident>) -> ParseResult<Expr> {
        let start = path[0].span;
        let Some(name) = path.pop() else {
            return Err(self.unexpected("a function"));
        };
        self.expect_symbol("(")?;
        let mut call = Call {
            prefix: path,
            name,
            distinct: None,
            star: false,
            args: Vec::new(),
            over: None,
        };
        self.nested(|p| p.arguments(&mut call))?;
        if !self.eat_symbol(")") {
            return Err(self.unexpected("`,` or `)`"));
        }
        if self.foreign_clause().is_some() && (self.at_word("FILTER") || self.at_word("WITHIN")) {
            return Err(self.unexpected("the end of the call"));
        }
        if self.at_word("OVER") && !self.no_over {
            call.over = Some(self.over()?);
        }
        self.build(ExprKind::Call(Box::new(call)), start.to(self.last_span()))
    }

    fn arguments(&mut self, call: &mut Call) -> ParseResult<()> {
        if self.at_symbol(")") {
            return Ok(());
        }
        if self.at_word("SELECT") {
            return Err(self.subquery(self.span()));
        }
        let value_follows = self.name_ahead(1)
            || self.word_ahead(1, "CASE")
            || self.symbol_ahead(1, "(")
            || matches!(self.peek(1).kind, TokenKind::Int(_) | TokenKind::Text(_));
        if self.at_word("DISTINCT") && value_follows {
            call.distinct = Some(self.bump().span);
        } else if self.at_word("ALL") && value_follows {
            self.bump();
        }
        if self.eat_symbol("*") {
            call.star = true;
        } else {
            call.args.push(self.expr()?);
        }
        while self.eat_symbol(",") {
            call.args.push(self.expr()?);
        }
        Ok(())
    }

    fn over(&mut self) -> ParseResult<Over> {
        let start = self.bump().span;
        self.expect_symbol("(")?;
        let mut over = Over {
            partition: Vec::new(),
            order: Vec::new(),
            limit: None,
            when: None,
            span: start,
        };
        self.nested(|p| p.over_parts(&mut over))?;
        self.expect_symbol(")")?;
        over.span = start.to(self.last_span());
        Ok(over)
    }

    fn over_parts(&mut self, over: &mut Over) -> ParseResult<()> {
        if self.eat_words("PARTITION", "BY") {
            over.partition = self.expr_list()?;
        }
        if self.eat_words("ORDER", "BY") {
            loop {
                let of = self.expr()?;
                let descending = !self.eat_word("ASC") && self.eat_word("DESC");
                over.order.push(Order { of, descending });
                if !self.eat_symbol(",") {
                    break;
                }
            }
        }
        if self.eat_words("LIMIT", "DURATION") {
            over.limit = Some(self.duration()?);
        }
        if self.eat_word("WHEN") {
            over.when = Some(Box::new(self.expr()?));
        }
        if self.at_word("ROWS") || self.at_word("RANGE") {
            let error = Diagnostic::error(code::FOREIGN, self.span(), "there are no window frames");
            return Err(self.report(error.help("write LIMIT DURATION(minute, 5)")));
        }
        Ok(())
    }

    /// `(unit, n)`
    pub(super) fn duration(&mut self) -> ParseResult<(Ident, Box<Expr>)> {
        self.expect_symbol("(")?;
        let unit = self.ident("a unit of time")?;
        self.expect_symbol(",")?;
        let size = self.nested(Self::expr)?;
        self.expect_symbol(")")?;
        Ok((unit, Box::new(size)))
    }
}
