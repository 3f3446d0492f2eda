//! UNION, SELECT and the clauses that hold expressions.

use super::cursor::DEPTH_MAX;
use super::{ErrorReported, ParseResult, Parser};
use crate::Span;
use crate::ast::{Expr, ExprKind, Group, Ident, Query, Quote, Select, SelectItem};
use crate::diagnostic::{Diagnostic, code};
use crate::lexer::TokenKind;

impl Parser<'_> {
    pub(super) fn query(&mut self) -> ParseResult<Query> {
        let start = self.span();
        let mut branches = vec![self.query_term()?];
        while self.eat_word("UNION") {
            self.eat_word("ALL");
            branches.push(match self.name_ahead(0) {
                true => Query::Select(Box::new(self.whole_source()?)),
                false => self.query_term()?,
            });
        }
        let span = start.to(self.last_span());
        match (branches.pop(), branches.is_empty()) {
            (Some(only), true) => Ok(only),
            (last, _) => {
                branches.extend(last);
                Ok(Query::Union { branches, span })
            }
        }
    }

    fn query_term(&mut self) -> ParseResult<Query> {
        if self.eat_symbol("(") {
            let query = self.nested(Self::query)?;
            self.expect_symbol(")")?;
            return Ok(query);
        }
        Ok(Query::Select(Box::new(self.select()?)))
    }

    /// A source after UNION, which stands for all of its rows.
    fn whole_source(&mut self) -> ParseResult<Select> {
        let span = self.span();
        let path = Vec::new();
        let from = self.sources()?;
        Ok(Select {
            items: vec![SelectItem::Star { path, span }],
            into: None,
            from,
            filter: None,
            group: None,
            having: None,
            head: span,
            span: span.to(self.last_span()),
        })
    }

    fn select(&mut self) -> ParseResult<Select> {
        let start = self.expect_word("SELECT")?;
        self.select_modifier();
        let mut items = vec![self.select_item()?];
        while self.eat_symbol(",") {
            if self.at_word("FROM") {
                let help = "remove the comma before FROM".to_string();
                return Err(self.unexpected_with("another column", Some(help)));
            }
            items.push(self.select_item()?);
        }
        let head = start.to(self.last_span());
        let into = if self.eat_word("INTO") {
            Some(self.output_name()?)
        } else {
            None
        };
        if !self.eat_word("FROM") {
            return Err(self.missing_from(head));
        }
        let from = self.sources()?;
        let filter = if self.eat_word("WHERE") {
            Some(self.expr()?)
        } else {
            None
        };
        let group = self.group()?;
        let having = if self.eat_word("HAVING") {
            Some(self.expr()?)
        } else {
            None
        };
        let span = start.to(self.last_span());
        Ok(Select {
            items,
            into,
            from,
            filter,
            group,
            having,
            head,
            span,
        })
    }

    fn output_name(&mut self) -> ParseResult<Ident> {
        self.ident("the name of an output")
    }

    fn missing_from(&mut self, head: Span) -> ErrorReported {
        let done =
            self.at_end() || self.at_symbol(";") || self.at_symbol(")") || self.at_word("SELECT");
        if !done {
            return self.unexpected("`,` or FROM");
        }
        let error = Diagnostic::error(code::SYNTAX, head, "every SELECT needs a FROM");
        self.report(error.label("expected FROM after this"))
    }

    fn group(&mut self) -> ParseResult<Option<Group>> {
        if !self.at_word("GROUP") {
            return Ok(None);
        }
        let start = self.bump().span;
        self.expect_word("BY")?;
        let items = self.expr_list()?;
        Ok(Some(Group {
            items,
            span: start.to(self.last_span()),
        }))
    }

    pub(super) fn expr_list(&mut self) -> ParseResult<Vec<Expr>> {
        let mut list = vec![self.expr()?];
        while self.eat_symbol(",") {
            list.push(self.expr()?);
        }
        Ok(list)
    }

    fn select_item(&mut self) -> ParseResult<SelectItem> {
        if let Some(star) = self.star() {
            return Ok(star);
        }
        let text = matches!(self.token().kind, TokenKind::Text(_));
        if (text || self.name_ahead(0)) && self.symbol_ahead(1, "=") {
            let alias = Some(self.any_ident());
            self.bump();
            return Ok(SelectItem::Expr {
                expr: self.expr()?,
                alias,
            });
        }
        let expr = self.expr()?;
        let alias = self.alias(&expr)?;
        Ok(SelectItem::Expr { expr, alias })
    }

    /// `*`, `a.*`, `a.b.*`: found by looking ahead, because a path alone never ends in a star.
    fn star(&mut self) -> Option<SelectItem> {
        let mut ahead = 0;
        while self.name_ahead(ahead) && self.symbol_ahead(ahead + 1, ".") {
            ahead += 2;
            // As an expression it is reported as too deep.
            if ahead > 2 * usize::from(DEPTH_MAX) {
                return None;
            }
        }
        if !self.symbol_ahead(ahead, "*") {
            return None;
        }
        let start = self.span();
        let mut path = Vec::new();
        while !self.at_symbol("*") {
            path.push(self.any_ident());
            self.bump();
        }
        self.bump();
        Some(SelectItem::Star {
            path,
            span: start.to(self.last_span()),
        })
    }

    fn alias(&mut self, expr: &Expr) -> ParseResult<Option<Ident>> {
        let text = matches!(self.token().kind, TokenKind::Text(_));
        if self.eat_word("AS") {
            if matches!(self.token().kind, TokenKind::Text(_)) {
                return Ok(Some(self.any_ident()));
            }
            return self.ident("an alias").map(Some);
        }
        if !text && !self.name_ahead(0) || self.at_foreign_clause() {
            return Ok(None);
        }
        let alias = self.any_ident();
        self.warn_about_subscript(expr, &alias);
        Ok(Some(alias))
    }

    /// `a[0]` is column `a` with the alias `0`, which is never intended.
    fn warn_about_subscript(&mut self, expr: &Expr, alias: &Ident) {
        let digits = !alias.name.is_empty() && alias.name.bytes().all(|b| b.is_ascii_digit());
        let path = matches!(expr.kind, ExprKind::Path(_));
        if alias.quote != Quote::Bracket || !digits || !path {
            return;
        }
        let message = format!(
            "[{0}] gives the column the name `{0}`; it takes no array element",
            alias.name
        );
        let of = expr.span.text(self.source);
        let help = format!(
            "for the element write GetArrayElement({of}, {})",
            alias.name
        );
        self.diagnostics
            .push(Diagnostic::warning(code::ALIAS, alias.span, message).help(help));
    }
}
