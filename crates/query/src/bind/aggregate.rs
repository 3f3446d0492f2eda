//! Aggregates: where they may stand, and their place in the window node.

use super::Bound;
use super::expr::Exprs;
use super::scope::Clause;
use crate::Span;
use crate::ast::{self, Call, ExprKind as Ast};
use crate::diagnostic::{Diagnostic, code};
use crate::parser::Reported;
use crate::plan::{Aggregate, AggregateFunction, Expr, ExprKind};

impl Exprs<'_, '_> {
    pub fn aggregate(
        &mut self,
        function: AggregateFunction,
        name: &str,
        call: &Call,
        span: Span,
    ) -> Bound<Expr> {
        self.check_aggregate(name, call, span)?;
        if call.distinct.is_some() {
            return Err(self.binder.unsupported("COUNT(DISTINCT ..)", span));
        }
        let argument = self.aggregate_argument(&function, name, call, span)?;
        let text = argument
            .as_ref()
            .is_some_and(|arg| self.binder.is_text(self.scope.node, arg));
        let as_text = text && matches!(function, AggregateFunction::Min | AggregateFunction::Max);
        let Some(grouping) = &mut self.grouping else {
            return Err(Reported);
        };
        let index = grouping.aggregate(Aggregate {
            order: Vec::new(),
            function,
            argument,
            as_text,
            span,
        });
        Ok(Expr {
            kind: ExprKind::Column(index),
            span,
        })
    }

    /// Everything that the language forbids, whether or not the aggregate can run.
    pub fn check_aggregate(&mut self, name: &str, call: &Call, span: Span) -> Bound<()> {
        if let Some(distinct) = call.distinct {
            if name != "COUNT" {
                let error =
                    Diagnostic::error(code::AGGREGATE, distinct, "DISTINCT exists for COUNT only");
                return Err(self.binder.report(error));
            }
            if call.over.is_some() {
                let message = "COUNT(DISTINCT ..) cannot have an OVER";
                return Err(self
                    .binder
                    .report(Diagnostic::error(code::AGGREGATE, span, message)));
            }
        }
        if let Some(over) = &call.over {
            let ranked = matches!(
                name,
                "TopOne" | "CollectTop" | "PERCENTILE_CONT" | "PERCENTILE_DISC"
            );
            if over.limit.is_none() && !ranked {
                return Err(self.missing_limit(name, span));
            }
            if over.limit.is_some() {
                return Err(self.binder.unsupported(&format!("{name} with OVER"), span));
            }
        }
        self.check_aggregate_place(name, span)
    }

    fn check_aggregate_place(&mut self, name: &str, span: Span) -> Bound<()> {
        let (message, help) = match self.clause {
            Clause::Aggregate => (
                format!("{name} cannot stand inside another aggregate"),
                "aggregate in a first step, and again in a second one".to_string(),
            ),
            Clause::Where => (
                format!("WHERE cannot use {name}"),
                "WHERE picks events before they are grouped; HAVING picks groups".to_string(),
            ),
            Clause::GroupBy | Clause::Timestamp | Clause::PartitionBy => (
                format!("{} cannot use {name}", self.clause.name()),
                "aggregate in an earlier step".to_string(),
            ),
            Clause::Select | Clause::Having if self.grouping.is_none() => (
                format!("{name} needs a GROUP BY with a window"),
                "add for example GROUP BY TumblingWindow(second, 10)".to_string(),
            ),
            Clause::Select | Clause::Having => return Ok(()),
        };
        Err(self
            .binder
            .report(Diagnostic::error(code::AGGREGATE, span, message).help(help)))
    }

    fn aggregate_argument(
        &mut self,
        function: &AggregateFunction,
        name: &str,
        call: &Call,
        span: Span,
    ) -> Bound<Option<Expr>> {
        let count = *function == AggregateFunction::Count;
        match call.args.as_slice() {
            [] if count => Ok(None),
            [only] if count && !call.star && self.is_whole_source(only) => Ok(None),
            [only] if !call.star => self.inside_aggregate(only).map(Some),
            _ => {
                let takes = if count {
                    "at most one argument"
                } else {
                    "one argument"
                };
                let error =
                    Diagnostic::error(code::ARGUMENTS, span, format!("{name} takes {takes}"));
                Err(self.binder.report(error))
            }
        }
    }

    /// COUNT(source) is COUNT(*).
    fn is_whole_source(&self, expr: &ast::Expr) -> bool {
        match &expr.kind {
            Ast::Path(path) => path.len() == 1 && self.scope.is_source(path),
            _ => false,
        }
    }

    /// The argument is over the events of the group, not over its keys.
    fn inside_aggregate(&mut self, expr: &ast::Expr) -> Bound<Expr> {
        let grouping = self.grouping.take();
        let clause = std::mem::replace(&mut self.clause, Clause::Aggregate);
        let bound = self.value(expr);
        self.clause = clause;
        self.grouping = grouping;
        bound
    }
}
