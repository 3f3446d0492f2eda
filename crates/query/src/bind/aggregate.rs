//! Aggregates: where they are allowed, their arguments, and their column in the window node.
//!
//! An aggregate with LIMIT DURATION in its OVER is an analytic function and not an aggregate of a group; see
//! [`super::analytic`].

use super::BindResult;
use super::expr::ExprBinder;
use super::scope::Clause;
use super::units::{constant, whole_number};
use crate::Span;
use crate::ast::{self, Call, ExprKind as Ast, Order, Over};
use crate::diagnostic::{Diagnostic, code};
use crate::functions::{AggregateKind, FunctionInfo};
use crate::parser::ErrorReported;
use crate::plan::{Aggregate, AggregateFunction, Expr, OrderKey};

impl AggregateKind {
    /// Whether it orders values.
    fn ranks(self) -> bool {
        self.is_percentile() || matches!(self, AggregateKind::CollectTop | AggregateKind::TopOne)
    }

    fn is_percentile(self) -> bool {
        matches!(
            self,
            AggregateKind::PercentileCont | AggregateKind::PercentileDisc
        )
    }

    /// Whether it can be computed over the events before each event.
    fn has_over(self) -> bool {
        use AggregateKind::*;
        matches!(
            self,
            Count | Sum | Avg | Min | Max | Collect | CollectTop | TopOne
        )
    }
}

impl ExprBinder<'_, '_> {
    pub(super) fn aggregate(
        &mut self,
        kind: AggregateKind,
        info: &FunctionInfo,
        call: &Call,
        span: Span,
    ) -> BindResult<Expr> {
        self.check_distinct(kind, call, span)?;
        let limit = call.over.as_ref().and_then(|over| over.limit.as_ref());
        if limit.is_some() && kind.has_over() {
            return self.aggregate_over(kind, info, call, span);
        }
        self.check_over(kind, info, call, span)?;
        self.check_aggregate_place(info.name, span)?;
        self.in_group(span, |exprs| exprs.aggregate_of(kind, info, call, span))
    }

    /// uda.name(x)
    pub(super) fn user_aggregate(&mut self, call: &Call, span: Span) -> BindResult<Expr> {
        let name = format!("uda.{}", call.name.name);
        self.check_no_distinct(call)?;
        self.check_own_function(call, "uda")?;
        if let Some(over) = &call.over {
            let message = format!("{name} has no OVER");
            let error = Diagnostic::error(code::AGGREGATE, over.span, message);
            return Err(self.report(error.help("group by SlidingWindow(..)")));
        }
        let [argument] = call.args.as_slice() else {
            let message = format!("{name} takes one argument");
            return Err(self.report(Diagnostic::error(code::ARGUMENTS, span, message)));
        };
        self.check_aggregate_place(&name, span)?;
        let function = AggregateFunction::User(call.name.name.clone());
        self.in_group(span, |exprs| {
            let argument = Some(exprs.value(argument)?);
            Ok(exprs.plain_aggregate(function, argument, span))
        })
    }

    /// Binds an aggregate over the events of the group, and reads it from the window node.
    fn in_group(
        &mut self,
        span: Span,
        bind: impl FnOnce(&mut Self) -> BindResult<Aggregate>,
    ) -> BindResult<Expr> {
        let grouping = self.grouping.take();
        let clause = std::mem::replace(&mut self.clause, Clause::Aggregate);
        let bound = bind(self);
        self.clause = clause;
        self.grouping = grouping;
        let Some(grouping) = &mut self.grouping else {
            return Err(ErrorReported);
        };
        Ok(Expr::column(grouping.aggregate(bound?), span))
    }

    // Restrictions of the language.

    fn check_distinct(&mut self, kind: AggregateKind, call: &Call, span: Span) -> BindResult<()> {
        if kind != AggregateKind::Count {
            return self.check_no_distinct(call);
        }
        if call.distinct.is_none() || call.over.is_none() {
            return Ok(());
        }
        let message = "COUNT(DISTINCT ..) cannot have an OVER";
        let error = Diagnostic::error(code::AGGREGATE, span, message);
        Err(self.report(error.help("group by SlidingWindow(..)")))
    }

    /// The OVER of a group's aggregate.
    fn check_over(
        &mut self,
        kind: AggregateKind,
        info: &FunctionInfo,
        call: &Call,
        span: Span,
    ) -> BindResult<()> {
        let order = call.over.as_ref().map_or(0, |over| over.order.len());
        if kind.ranks() && order == 0 {
            let message = format!("{} needs OVER (ORDER BY ..)", info.name);
            let error = Diagnostic::error(code::AGGREGATE, span, message);
            return Err(self.report(error.help(format!("write {}", info.signature))));
        }
        let Some(over) = &call.over else {
            return Ok(());
        };
        if !kind.has_over() && !kind.ranks() {
            let message = format!("{} has no OVER", info.name);
            let error = Diagnostic::error(code::AGGREGATE, over.span, message);
            return Err(self.report(error.help("group by SlidingWindow(..)")));
        }
        if !kind.ranks() {
            return Err(self.missing_limit(info.name, span));
        }
        let only_order = over.partition.is_empty() && over.when.is_none() && over.limit.is_none();
        if !only_order {
            let message = format!("{} of a group takes OVER (ORDER BY ..) alone", info.name);
            let error = Diagnostic::error(code::AGGREGATE, over.span, message);
            let help = match kind.is_percentile() {
                true => "the keys of the group belong to GROUP BY",
                false => {
                    "the keys of the group belong to GROUP BY; without a group add LIMIT DURATION(unit, n)"
                }
            };
            return Err(self.report(error.help(help)));
        }
        if kind.is_percentile() && order > 1 {
            let message = format!("{} is over one value", info.name);
            let error = Diagnostic::error(code::AGGREGATE, over.order[1].of.span, message);
            return Err(self.report(error.label("the second one")));
        }
        Ok(())
    }

    fn check_aggregate_place(&mut self, name: &str, span: Span) -> BindResult<()> {
        let (message, help) = match self.clause {
            Clause::Aggregate => (
                format!("{name} cannot be inside another aggregate"),
                "aggregate in a first step, and again in a second one".to_string(),
            ),
            Clause::Where => (
                format!("WHERE cannot use {name}"),
                "WHERE filters events before they are grouped; HAVING filters groups".to_string(),
            ),
            Clause::Select | Clause::Having if self.grouping.is_none() => (
                format!("{name} needs a GROUP BY with a window"),
                "add for example GROUP BY TumblingWindow(second, 10)".to_string(),
            ),
            Clause::Select | Clause::Having => return Ok(()),
            _ => (
                format!("{} cannot use {name}", self.clause.name()),
                "aggregate in an earlier step".to_string(),
            ),
        };
        Err(self.report(Diagnostic::error(code::AGGREGATE, span, message).help(help)))
    }

    // Arguments of aggregates; the clause is that of the argument.

    pub(super) fn aggregate_of(
        &mut self,
        kind: AggregateKind,
        info: &FunctionInfo,
        call: &Call,
        span: Span,
    ) -> BindResult<Aggregate> {
        self.check_count(info, call, span)?;
        if call.star && kind != AggregateKind::Count {
            return Err(self.wrong_count(info, call, span));
        }
        let order = call
            .over
            .as_ref()
            .map_or(&[][..], |over: &Over| &over.order);
        let (function, argument) = match kind {
            AggregateKind::Count => return self.count(call, span),
            AggregateKind::PercentileCont | AggregateKind::PercentileDisc => {
                return self.percentile(kind, info, call, order, span);
            }
            AggregateKind::CollectTop => {
                let (count, of) = self.top_count(call)?;
                (AggregateFunction::CollectTop(count), of)
            }
            AggregateKind::Collect => (AggregateFunction::Collect, call.args.first()),
            AggregateKind::TopOne => (AggregateFunction::TopOne, call.args.first()),
            AggregateKind::Sum => (AggregateFunction::Sum, call.args.first()),
            AggregateKind::Avg => (AggregateFunction::Avg, call.args.first()),
            AggregateKind::Min => (AggregateFunction::Min, call.args.first()),
            AggregateKind::Max => (AggregateFunction::Max, call.args.first()),
            AggregateKind::StDev => (AggregateFunction::StDev, call.args.first()),
            AggregateKind::StDevP => (AggregateFunction::StDevP, call.args.first()),
            AggregateKind::Var => (AggregateFunction::Var, call.args.first()),
            AggregateKind::VarP => (AggregateFunction::VarP, call.args.first()),
        };
        let argument = match argument {
            Some(argument) => self.value(argument),
            None => self.row(info.name, span),
        };
        let order = self.order_keys(order);
        let mut aggregate = self.plain_aggregate(function, Some(argument?), span);
        aggregate.order = order?;
        Ok(aggregate)
    }

    fn plain_aggregate(
        &mut self,
        function: AggregateFunction,
        argument: Option<Expr>,
        span: Span,
    ) -> Aggregate {
        let text = argument
            .as_ref()
            .is_some_and(|arg| self.binder.is_text(self.scope.node, arg));
        let as_text = text && matches!(function, AggregateFunction::Min | AggregateFunction::Max);
        Aggregate {
            function,
            argument,
            order: Vec::new(),
            as_text,
            strict_types: self.binder.catalog.strict_types,
            span,
        }
    }

    /// COUNT(*), COUNT() and COUNT(source) count events.
    fn count(&mut self, call: &Call, span: Span) -> BindResult<Aggregate> {
        let function = match call.distinct {
            Some(_) => AggregateFunction::CountDistinct,
            None => AggregateFunction::Count,
        };
        let argument = match call.args.as_slice() {
            [] => None,
            [only] if call.distinct.is_none() && self.is_whole_source(only) => None,
            [only, ..] => Some(self.value(only)?),
        };
        Ok(self.plain_aggregate(function, argument, span))
    }

    /// COUNT(source) is COUNT(*).
    fn is_whole_source(&self, expr: &ast::Expr) -> bool {
        match &expr.kind {
            Ast::Path(path) => path.len() == 1 && self.scope.is_row(path),
            _ => false,
        }
    }

    fn percentile(
        &mut self,
        kind: AggregateKind,
        info: &FunctionInfo,
        call: &Call,
        order: &[Order],
        span: Span,
    ) -> BindResult<Aggregate> {
        let at = match call.args.first().map(|at| (constant(at), at.span)) {
            Some((Some(at), _)) if (0.0..=1.0).contains(&at) => at,
            Some((_, at)) => {
                let message = format!("{} takes a constant from 0 to 1", info.name);
                let error = Diagnostic::error(code::ARGUMENTS, at, message);
                return Err(self.report(error.help(format!("write {}", info.signature))));
            }
            None => return Err(self.wrong_count(info, call, span)),
        };
        let function = match kind {
            AggregateKind::PercentileCont => AggregateFunction::PercentileCont(at),
            _ => AggregateFunction::PercentileDisc(at),
        };
        let order = self.order_keys(order)?;
        let argument = order.first().map(|key| key.expr.clone());
        let mut aggregate = self.plain_aggregate(function, argument, span);
        aggregate.order = order;
        Ok(aggregate)
    }

    /// The first argument of CollectTop, and the one after it.
    fn top_count<'q>(&mut self, call: &'q Call) -> BindResult<(usize, Option<&'q ast::Expr>)> {
        let Some(count) = call.args.first() else {
            return Err(ErrorReported);
        };
        match whole_number(count).and_then(|count| usize::try_from(count).ok()) {
            Some(number @ 1..) => Ok((number, call.args.get(1))),
            _ => {
                let message = "CollectTop takes a constant number of values, at least 1";
                let error = Diagnostic::error(code::ARGUMENTS, count.span, message);
                let help = "write CollectTop(3) OVER (ORDER BY x DESC)";
                Err(self.report(error.help(help)))
            }
        }
    }

    fn order_keys(&mut self, order: &[Order]) -> BindResult<Vec<OrderKey>> {
        let mut keys = Vec::new();
        for Order { of, descending } in order {
            let constant = matches!(of.kind, Ast::Null | Ast::Text(_)) || constant(of).is_some();
            if constant {
                let message = "ORDER BY takes a column, not a constant";
                return Err(self.report(Diagnostic::error(code::AGGREGATE, of.span, message)));
            }
            let expr = self.value(of)?;
            keys.push(OrderKey {
                as_text: self.binder.is_text(self.scope.node, &expr),
                expr,
                descending: *descending,
            });
        }
        Ok(keys)
    }
}
