//! ON: time bounds, keys, and the remaining conditions.
//!
//! Time bounds are `DATEDIFF(unit, a, b)` conditions among the top-level ANDs, where `a` and `b` are sources. Elsewhere
//! such a condition bounds nothing, but is still evaluated. Keys are equalities between the two sides.

use super::expr::ExprBinder;
use super::join_time_bounds::{DISTANCE_MAX, DistanceRange};
use super::scope::{Aliases, Clause, Scope, is_timestamp};
use super::units::{bare_word, constant, ticks};
use super::{BindResult, Binder};
use crate::Span;
use crate::ast::{CompareOp, Expr, ExprKind};
use crate::diagnostic::{Diagnostic, code};
use crate::functions::{DatePart, Function};
use crate::parser::ErrorReported;
use crate::plan::{self, Literal, Node, Pred, PredKind};

/// DATEDIFF(unit, from, to) over two sources.
#[derive(Clone, Copy, Debug)]
pub(super) struct Distance {
    pub from: usize,
    pub to: usize,
    part: DatePart,
    unit: i64,
}

/// A distance in time compared with a constant.
#[derive(Clone, Copy, Debug)]
struct TimePred {
    distance: Distance,
    op: CompareOp,
    count: f64,
    span: Span,
}

/// The conditions of ON by kind.
#[derive(Default)]
pub(super) struct OnClause {
    /// Between two sources, by their index in the scope.
    pub bounds: Vec<(usize, usize, DistanceRange)>,
    pub keys: Vec<(plan::Expr, plan::Expr)>,
    pub residual: Vec<Pred>,
}

/// ON as written.
pub(super) struct Conditions<'q> {
    /// Conditions on every pair, by the sources they involve.
    bounds: Vec<TimePred>,
    others: Vec<&'q Expr>,
}

impl<'q> Conditions<'q> {
    pub(super) fn bounds(&self) -> impl Iterator<Item = (usize, usize, DistanceRange)> {
        let range = |pred: &TimePred| {
            let range = DistanceRange::of(pred.op, pred.ticks())?;
            Some((pred.distance.from, pred.distance.to, range))
        };
        self.bounds.iter().filter_map(range)
    }
}

impl TimePred {
    fn ticks(&self) -> f64 {
        self.count * self.distance.unit as f64
    }
}

impl Scope {
    /// Whether the expression is DATEDIFF(unit, source, source).
    pub(super) fn distance(&self, expr: &Expr) -> Option<Distance> {
        let ExprKind::Call(call) = &expr.kind else {
            return None;
        };
        let [part, from, to] = call.args.as_slice() else {
            return None;
        };
        let source = |expr: &Expr| match &expr.kind {
            ExprKind::Path(path) => match path.as_slice() {
                [name] => self.named(name),
                _ => None,
            },
            _ => None,
        };
        let part = bare_word(part).and_then(DatePart::find)?;
        let datediff = call.prefix.is_empty() && call.name.is("DATEDIFF");
        datediff.then_some(Distance {
            from: source(from)?,
            to: source(to)?,
            part,
            unit: ticks(part)?,
        })
    }

    /// The comparisons of a distance with constants; none if the condition is something else.
    fn time_preds(&self, expr: &Expr) -> Vec<TimePred> {
        let pred = |distance: &Expr, op, count: &Expr| {
            Some(TimePred {
                distance: self.distance(distance)?,
                op,
                count: constant(count)?,
                span: expr.span,
            })
        };
        let found = match &expr.kind {
            ExprKind::Compare { op, left, right } => {
                let swapped = || pred(right, flip(*op), left);
                pred(left, *op, right)
                    .or_else(swapped)
                    .map(|pred| vec![pred])
            }
            ExprKind::Between {
                of,
                low,
                high,
                negated: false,
            } => pred(of, CompareOp::Ge, low)
                .zip(pred(of, CompareOp::Le, high))
                .map(|(low, high)| vec![low, high]),
            _ => None,
        };
        found.unwrap_or_default()
    }

    /// The sources that an expression reads, if they are known and it reads nothing else.
    fn mentioned(&self, expr: &Expr) -> Option<Vec<usize>> {
        let mut sources = Vec::new();
        let mut clear = true;
        expr.walk(&mut |e| match &e.kind {
            _ if is_timestamp(e) => clear = false,
            ExprKind::Path(path) => match self.locate(path) {
                Ok(at) => sources.push(at.source),
                // Dateparts look like names.
                Err(_) if path.len() == 1 && DatePart::find(&path[0].name).is_some() => {}
                Err(_) => clear = false,
            },
            _ => {}
        });
        clear.then_some(sources)
    }
}

impl Binder<'_> {
    /// Separates time bounds from other conditions.
    pub(super) fn conditions<'q>(
        &mut self,
        on: Option<&'q Expr>,
        both: &Scope,
    ) -> BindResult<Conditions<'q>> {
        let mut conditions = Conditions {
            bounds: Vec::new(),
            others: Vec::new(),
        };
        let mut todo: Vec<&Expr> = on.into_iter().collect();
        while let Some(next) = todo.pop() {
            if let ExprKind::And(all) = &next.kind {
                todo.extend(all.iter().rev());
                continue;
            }
            let preds = both.time_preds(next);
            let bound = |pred: &TimePred| pred.op != CompareOp::Ne && pred.distance.is_proper();
            for pred in &preds {
                self.check_distance(pred, both)?;
            }
            match preds.iter().all(bound) && !preds.is_empty() {
                true => conditions.bounds.extend(preds),
                false => conditions.others.push(next),
            }
        }
        Ok(conditions)
    }

    fn check_distance(&mut self, pred: &TimePred, both: &Scope) -> BindResult<()> {
        let Distance { from, to, .. } = pred.distance;
        self.check_timed(both, from, to, pred.span)?;
        if pred.ticks().abs() > DISTANCE_MAX {
            let message = "joined events are at most 7 days apart";
            return Err(self.report(Diagnostic::error(code::JOIN, pred.span, message)));
        }
        Ok(())
    }

    fn check_timed(&mut self, scope: &Scope, from: usize, to: usize, span: Span) -> BindResult<()> {
        if scope.sources[from].time.is_some() && scope.sources[to].time.is_some() {
            return Ok(());
        }
        let message = "reference data has no time to measure from";
        Err(self.report(Diagnostic::error(code::JOIN, span, message)))
    }

    /// The conditions on pairs of rows of `left` and `right`. Bounds for which `direct` returns false are evaluated
    /// like any other condition.
    pub(super) fn on(
        &mut self,
        conditions: &Conditions,
        left: &Scope,
        right: &Scope,
        both: &Scope,
        direct: impl Fn(usize, usize) -> bool,
    ) -> BindResult<OnClause> {
        let mut on = OnClause::default();
        let mut failed = false;
        for pred in &conditions.bounds {
            let Distance { from, to, .. } = pred.distance;
            let range = DistanceRange::of(pred.op, pred.ticks());
            match range.filter(|_| direct(from, to)) {
                Some(range) => on.bounds.push((from, to, range)),
                None => on.residual.push(self.distance_pred(both, pred)?),
            }
        }
        for other in &conditions.others {
            failed |= self
                .condition_on(other, left, right, both, &mut on)
                .is_err();
        }
        match failed {
            true => Err(ErrorReported),
            false => Ok(on),
        }
    }

    fn condition_on(
        &mut self,
        condition: &Expr,
        left: &Scope,
        right: &Scope,
        both: &Scope,
        on: &mut OnClause,
    ) -> BindResult<()> {
        if let ExprKind::Compare {
            op: CompareOp::Eq,
            left: a,
            right: b,
        } = &condition.kind
        {
            let side = |expr: &Expr| {
                let mentioned = both.mentioned(expr).filter(|all| !all.is_empty())?;
                let is_left = |source: &usize| *source < left.sources.len();
                let lefts = mentioned.iter().filter(|source| is_left(source)).count();
                (lefts == mentioned.len())
                    .then_some(true)
                    .or((lefts == 0).then_some(false))
            };
            let sides = match (side(a), side(b)) {
                (Some(true), Some(false)) => Some((a, b)),
                (Some(false), Some(true)) => Some((b, a)),
                _ => None,
            };
            if let Some((a, b)) = sides {
                let (a, b) = (
                    self.value_over(left, Clause::On, a),
                    self.value_over(right, Clause::On, b),
                );
                on.keys.push((a?, b?));
                return Ok(());
            }
        }
        let aliases = Aliases::default();
        let pred = self
            .exprs(both, Clause::On, &aliases)
            .condition(condition)?;
        on.residual.push(pred);
        Ok(())
    }

    /// `time(to) op DATEADD(unit, count, time(from))`: elapsed time, like the bounds.
    fn distance_pred(&mut self, scope: &Scope, pred: &TimePred) -> BindResult<Pred> {
        let TimePred { distance, span, .. } = *pred;
        let micros = ticks(DatePart::Microsecond).unwrap_or(1) as f64;
        let (part, count) = match pred.count.fract() == 0.0 {
            true => (distance.part, pred.count),
            false => (DatePart::Microsecond, pred.ticks() / micros),
        };
        if count.fract() != 0.0 || count.abs() > i64::MAX as f64 {
            let message = "this distance is not a whole number of microseconds";
            return Err(self.report(Diagnostic::error(code::JOIN, span, message)));
        }
        let from = self.time_over(scope, distance.from, span);
        let right = plan::ExprKind::Call {
            function: Function::DateAdd,
            part: Some(part),
            args: vec![
                plan::Expr::new(plan::ExprKind::Literal(Literal::Int(count as i64)), span),
                from,
            ],
        };
        let kind = PredKind::Compare {
            op: pred.op,
            left: self.time_over(scope, distance.to, span),
            right: plan::Expr { kind: right, span },
        };
        Ok(Pred { kind, span })
    }

    /// The time of a source, over the node of the scope: its own, not that of the joined row.
    pub(super) fn time_over(&mut self, scope: &Scope, source: usize, span: Span) -> plan::Expr {
        let source = &scope.sources[source];
        let is_project =
            |node: &plan::NodeId| matches!(self.plan.nodes[node.0], Node::Project { .. });
        let own = source.above.iter().position(is_project);
        let mut expr = plan::Expr::new(plan::ExprKind::Timestamp, span);
        // A source without a projection has not been joined yet, and its rows still have its time.
        let Some(own) = own else {
            return expr;
        };
        expr.kind = plan::ExprKind::Column(0);
        for pair in source.above[own..].windows(2) {
            expr = self.rewrite_over_parent(pair[1], pair[0], &[], expr);
        }
        expr
    }

    pub(super) fn value_over(
        &mut self,
        scope: &Scope,
        clause: Clause,
        expr: &Expr,
    ) -> BindResult<plan::Expr> {
        self.exprs(scope, clause, &Aliases::default()).value(expr)
    }
}

impl Distance {
    /// The distance of a source from itself bounds nothing.
    fn is_proper(&self) -> bool {
        self.from != self.to
    }
}

impl ExprBinder<'_, '_> {
    /// A distance compared with constants, where it bounds nothing.
    pub(super) fn distance_condition(&mut self, expr: &Expr) -> Option<BindResult<Pred>> {
        if self.clause != Clause::On {
            return None;
        }
        let preds = self.scope.time_preds(expr);
        if preds.is_empty() {
            return None;
        }
        let preds: BindResult<Vec<Pred>> = preds
            .iter()
            .map(|pred| {
                self.binder.check_distance(pred, self.scope)?;
                self.binder.distance_pred(self.scope, pred)
            })
            .collect();
        let and = |preds| super::pred::balanced(preds, PredKind::And).ok_or(ErrorReported);
        Some(preds.and_then(and))
    }

    /// DATEDIFF over sources as a value.
    pub(super) fn forbid_distance(&mut self, expr: &Expr) -> BindResult<()> {
        let Some(distance) = self.scope.distance(expr).filter(|_| self.scope.is_joined()) else {
            return Ok(());
        };
        self.binder
            .check_timed(self.scope, distance.from, distance.to, expr.span)?;
        let (message, help) = match self.clause {
            Clause::On => (
                "DATEDIFF over sources can only be compared with a constant",
                "write for example DATEDIFF(second, a, b) BETWEEN 0 AND 10",
            ),
            _ => (
                "DATEDIFF over sources is allowed only in ON",
                "select System.Timestamp() of each source in an earlier step, and compare those",
            ),
        };
        Err(self.report(Diagnostic::error(code::JOIN, expr.span, message).help(help)))
    }
}

fn flip(op: CompareOp) -> CompareOp {
    match op {
        CompareOp::Lt => CompareOp::Gt,
        CompareOp::Le => CompareOp::Ge,
        CompareOp::Gt => CompareOp::Lt,
        CompareOp::Ge => CompareOp::Le,
        same => same,
    }
}
