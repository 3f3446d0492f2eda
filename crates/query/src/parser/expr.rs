//! Expressions, from OR down to literals, with T-SQL's precedence.

use super::{ParseResult, Parser, foreign};
use crate::ast::{BinaryOp, CompareOp, Expr, ExprKind, UnaryOp};
use crate::diagnostic::{Diagnostic, code};
use crate::lexer::TokenKind;

impl Parser<'_> {
    pub(super) fn expr(&mut self) -> ParseResult<Expr> {
        self.chain("OR", ExprKind::Or, |p| {
            p.chain("AND", ExprKind::And, Self::not)
        })
    }

    fn chain(
        &mut self,
        word: &str,
        kind: fn(Vec<Expr>) -> ExprKind,
        operand: impl Fn(&mut Self) -> ParseResult<Expr>,
    ) -> ParseResult<Expr> {
        let first = operand(self)?;
        if !self.at_word(word) {
            return Ok(first);
        }
        let mut all = vec![first];
        while self.eat_word(word) {
            all.push(operand(self)?);
        }
        let span = all[0].span.to(self.last_span());
        self.build(kind(all), span)
    }

    fn not(&mut self) -> ParseResult<Expr> {
        let mut spans = Vec::new();
        while self.at_word("NOT") {
            spans.push(self.bump().span);
        }
        let mut expr = self.predicate()?;
        while let Some(span) = spans.pop() {
            let span = span.to(expr.span);
            expr = self.build(ExprKind::Not(Box::new(expr)), span)?;
        }
        Ok(expr)
    }

    fn predicate(&mut self) -> ParseResult<Expr> {
        let left = self.sum()?;
        let start = left.span;
        let of = Box::new(left);
        let negated = self.at_word("NOT")
            && ["LIKE", "IN", "BETWEEN"]
                .iter()
                .any(|word| self.word_ahead(1, word));
        if negated {
            self.bump();
        }
        let kind = if let Some(op) = self.compare_op() {
            ExprKind::Compare {
                op,
                left: of,
                right: self.operand()?,
            }
        } else if self.eat_word("LIKE") {
            ExprKind::Like {
                of,
                pattern: self.operand()?,
                negated,
            }
        } else if self.eat_word("BETWEEN") {
            let low = self.operand()?;
            self.expect_word("AND")?;
            ExprKind::Between {
                of,
                low,
                high: self.operand()?,
                negated,
            }
        } else if self.eat_word("IN") {
            ExprKind::In {
                of,
                list: self.in_list()?,
                negated,
            }
        } else if self.eat_word("IS") {
            let negated = self.eat_word("NOT");
            self.expect_word("NULL")?;
            ExprKind::IsNull { of, negated }
        } else {
            return Ok(*of);
        };
        if self.at_word("ESCAPE") {
            return Err(self.unexpected("the end of the condition"));
        }
        self.build(kind, start.to(self.last_span()))
    }

    fn operand(&mut self) -> ParseResult<Box<Expr>> {
        let quantifier = ["ANY", "ALL", "SOME"].iter().any(|word| self.at_word(word));
        if quantifier && self.symbol_ahead(1, "(") && self.word_ahead(2, "SELECT") {
            return Err(self.unexpected("a value"));
        }
        self.sum().map(Box::new)
    }

    fn compare_op(&mut self) -> Option<CompareOp> {
        let TokenKind::Symbol(symbol) = self.token().kind else {
            return None;
        };
        let op = match symbol {
            "=" => CompareOp::Eq,
            "<>" | "!=" => CompareOp::Ne,
            "<" => CompareOp::Lt,
            "<=" | "!>" => CompareOp::Le,
            ">" => CompareOp::Gt,
            ">=" | "!<" => CompareOp::Ge,
            _ => return None,
        };
        self.bump();
        Some(op)
    }

    fn in_list(&mut self) -> ParseResult<Vec<Expr>> {
        let open = self.expect_symbol("(")?;
        if self.at_word("SELECT") {
            return Err(self.subquery(open.to(self.span())));
        }
        let list = self.nested(Self::expr_list)?;
        self.expect_symbol(")")?;
        Ok(list)
    }

    fn sum(&mut self) -> ParseResult<Expr> {
        let mut left = self.product()?;
        loop {
            let op = match self.token().kind {
                TokenKind::Symbol("+") => BinaryOp::Add,
                TokenKind::Symbol("-") => BinaryOp::Subtract,
                TokenKind::Symbol("&") => BinaryOp::BitAnd,
                TokenKind::Symbol("|") => BinaryOp::BitOr,
                TokenKind::Symbol("^") => BinaryOp::BitXor,
                _ => return Ok(left),
            };
            self.bump();
            let right = self.product()?;
            left = self.binary(op, left, right)?;
        }
    }

    fn product(&mut self) -> ParseResult<Expr> {
        let mut left = self.unary()?;
        loop {
            let op = match self.token().kind {
                TokenKind::Symbol("*") => BinaryOp::Multiply,
                TokenKind::Symbol("/") => BinaryOp::Divide,
                TokenKind::Symbol("%") => BinaryOp::Modulo,
                _ => return Ok(left),
            };
            self.bump();
            let right = self.unary()?;
            left = self.binary(op, left, right)?;
        }
    }

    fn binary(&mut self, op: BinaryOp, left: Expr, right: Expr) -> ParseResult<Expr> {
        let span = left.span.to(right.span);
        self.build(
            ExprKind::Binary {
                op,
                left: Box::new(left),
                right: Box::new(right),
            },
            span,
        )
    }

    fn unary(&mut self) -> ParseResult<Expr> {
        let mut ops = Vec::new();
        loop {
            let op = match self.token().kind {
                TokenKind::Symbol("+") => UnaryOp::Plus,
                TokenKind::Symbol("-") => UnaryOp::Minus,
                TokenKind::Symbol("~") => UnaryOp::BitNot,
                _ => break,
            };
            ops.push((op, self.bump().span));
        }
        // The smallest bigint has no positive counterpart, so its minus is part of the literal.
        let smallest = self.token().kind == TokenKind::Int(1 << 63);
        let mut expr = match ops.last() {
            Some(&(UnaryOp::Minus, span)) if smallest => {
                ops.pop();
                let span = span.to(self.bump().span);
                self.build(ExprKind::Int(i64::MIN), span)?
            }
            _ => self.postfix()?,
        };
        while let Some((op, span)) = ops.pop() {
            let span = span.to(expr.span);
            expr = self.build(
                ExprKind::Unary {
                    op,
                    of: Box::new(expr),
                },
                span,
            )?;
        }
        Ok(expr)
    }

    fn postfix(&mut self) -> ParseResult<Expr> {
        let mut expr = self.primary()?;
        while self.at_symbol(".") {
            self.bump();
            if !matches!(self.token().kind, TokenKind::Word(_)) && !self.name_ahead(0) {
                return Err(self.unexpected("the name of a field"));
            }
            let name = self.any_ident();
            let span = expr.span.to(name.span);
            expr = self.build(
                ExprKind::Field {
                    of: Box::new(expr),
                    name,
                },
                span,
            )?;
        }
        Ok(expr)
    }

    fn primary(&mut self) -> ParseResult<Expr> {
        let span = self.span();
        let kind = match self.token().kind.clone() {
            TokenKind::Int(value) => ExprKind::Int(self.int(value)?),
            TokenKind::Float(value) => ExprKind::Float(value),
            TokenKind::Text(text) => ExprKind::Text(text),
            TokenKind::Word(word) if word.eq_ignore_ascii_case("NULL") => ExprKind::Null,
            TokenKind::Symbol("(") => return self.parentheses(),
            _ if self.at_word("CASE") => return self.nested(Self::case),
            _ if self.symbol_ahead(1, "(")
                && (self.at_word("CAST") || self.at_word("TRY_CAST")) =>
            {
                return self.cast();
            }
            _ if self.at_word("EXISTS")
                && self.symbol_ahead(1, "(")
                && self.word_ahead(2, "SELECT") =>
            {
                return Err(self.unexpected("a value"));
            }
            _ if self.name_ahead(0) => return self.path_or_call(),
            _ => return Err(self.unexpected("a value")),
        };
        self.bump();
        self.build(kind, span)
    }

    fn int(&mut self, value: u64) -> ParseResult<i64> {
        i64::try_from(value).map_err(|_| {
            let message = "this number does not fit into a bigint";
            let error = Diagnostic::error(code::NUMBER, self.span(), message);
            self.report(error.help(format!("write {value}.0 for a float")))
        })
    }

    fn parentheses(&mut self) -> ParseResult<Expr> {
        let open = self.bump().span;
        if self.at_word("SELECT") {
            return Err(self.subquery(open.to(self.span())));
        }
        let mut expr = self.nested(Self::expr)?;
        let close = self.expect_symbol(")")?;
        expr.span = open.to(close);
        Ok(expr)
    }

    fn case(&mut self) -> ParseResult<Expr> {
        let start = self.bump().span;
        let operand = if self.at_word("WHEN") {
            None
        } else {
            Some(Box::new(self.expr()?))
        };
        let mut branches = Vec::new();
        while self.eat_word("WHEN") {
            let when = self.expr()?;
            self.expect_word("THEN")?;
            branches.push((when, self.expr()?));
        }
        if branches.is_empty() {
            return Err(self.unexpected("WHEN"));
        }
        if self.at_word("END") {
            let span = start.to(self.bump().span);
            let error = Diagnostic::error(code::CASE, span, "CASE must have an ELSE");
            return Err(self.report(error.help("write ELSE NULL END if nothing else applies")));
        }
        self.expect_word("ELSE")?;
        let otherwise = Box::new(self.expr()?);
        self.expect_word("END")?;
        let kind = ExprKind::Case {
            operand,
            branches,
            otherwise,
        };
        self.build(kind, start.to(self.last_span()))
    }

    fn cast(&mut self) -> ParseResult<Expr> {
        let start = self.span();
        let lenient = self.at_word("TRY_CAST");
        self.bump();
        self.expect_symbol("(")?;
        let of = Box::new(self.nested(Self::expr)?);
        self.expect_word("AS")?;
        let to = self.data_type()?;
        self.expect_symbol(")")?;
        self.build(
            ExprKind::Cast { of, to, lenient },
            start.to(self.last_span()),
        )
    }

    fn path_or_call(&mut self) -> ParseResult<Expr> {
        let mut path = vec![self.any_ident()];
        while self.at_symbol(".")
            && (self.name_ahead(1) || matches!(self.peek(1).kind, TokenKind::Word(_)))
        {
            self.bump();
            path.push(self.any_ident());
        }
        if self.at_symbol("(") {
            return self.call(path);
        }
        if self.at_symbol(".") && self.symbol_ahead(1, "*") {
            let span = path[0].span.to(self.peek(1).span);
            let error = Diagnostic::error(
                code::STAR,
                span,
                "`.*` is allowed only as an item of a SELECT list",
            );
            return Err(self.report(error));
        }
        let span = path[0].span.to(self.last_span());
        if path.len() == 1 && path[0].is("EXISTS") {
            let error = foreign::foreign("EXISTS", span, "use a JOIN");
            return Err(self.report(error));
        }
        self.build(ExprKind::Path(path), span)
    }
}
