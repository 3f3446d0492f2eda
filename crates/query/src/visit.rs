//! Visits the expressions of a plan, to renumber columns or to compare expressions without their spans.

use crate::Span;
use crate::plan::{Aggregate, Expr, ExprKind, Pred, PredKind};

/// Calls back for every expression and condition inside `expr`, itself last.
pub(crate) fn expr_mut(expr: &mut Expr, visit: &mut Visit) {
    match &mut expr.kind {
        ExprKind::Column(_) | ExprKind::Literal(_) | ExprKind::Timestamp => {}
        ExprKind::Field { of, .. }
        | ExprKind::Unary { of, .. }
        | ExprKind::Cast { of, .. }
        | ExprKind::Fold(of) => expr_mut(of, visit),
        ExprKind::Binary { left, right, .. } => {
            expr_mut(left, visit);
            expr_mut(right, visit);
        }
        ExprKind::Case {
            branches,
            otherwise,
        } => {
            for (when, then) in branches {
                pred_mut(when, visit);
                expr_mut(then, visit);
            }
            expr_mut(otherwise, visit);
        }
        ExprKind::Coalesce(args) | ExprKind::Call { args, .. } | ExprKind::User { args, .. } => {
            args.iter_mut().for_each(|e| expr_mut(e, visit))
        }
        ExprKind::Record(items) => items
            .iter_mut()
            .for_each(|item| expr_mut(&mut item.expr, visit)),
    }
    (visit.expr)(expr);
}

pub(crate) fn pred_mut(pred: &mut Pred, visit: &mut Visit) {
    match &mut pred.kind {
        PredKind::And(left, right) | PredKind::Or(left, right) => {
            pred_mut(left, visit);
            pred_mut(right, visit);
        }
        PredKind::Not(of) => pred_mut(of, visit),
        PredKind::Compare { left, right, .. } => {
            expr_mut(left, visit);
            expr_mut(right, visit);
        }
        PredKind::Like { of, pattern, .. } => {
            expr_mut(of, visit);
            expr_mut(pattern, visit);
        }
        PredKind::In { of, list, .. } => {
            expr_mut(of, visit);
            list.iter_mut().for_each(|e| expr_mut(e, visit));
        }
        PredKind::Between { of, low, high, .. } => {
            expr_mut(of, visit);
            expr_mut(low, visit);
            expr_mut(high, visit);
        }
        PredKind::IsNull { of, .. } => expr_mut(of, visit),
    }
    if let Some(span) = visit.span {
        pred.span = span;
    }
}

/// The callback for each expression, and a span to set on every condition, if any.
pub(crate) struct Visit<'v> {
    pub expr: &'v mut dyn FnMut(&mut Expr),
    pub span: Option<Span>,
}

/// Equal, ignoring spans.
pub(crate) fn same_expr(a: &Expr, b: &Expr) -> bool {
    without_spans(a) == without_spans(b)
}

pub(crate) fn same_pred(a: &Pred, b: &Pred) -> bool {
    let without_spans = |pred: &Pred| {
        let mut pred = pred.clone();
        pred_mut(
            &mut pred,
            &mut Visit {
                expr: &mut |e| e.span = Span::default(),
                span: Some(Span::default()),
            },
        );
        pred
    };
    without_spans(a) == without_spans(b)
}

pub(crate) fn same_aggregate(a: &Aggregate, b: &Aggregate) -> bool {
    let arguments = match (&a.argument, &b.argument) {
        (Some(a), Some(b)) => same_expr(a, b),
        (a, b) => a.is_none() && b.is_none(),
    };
    let order = a.order.len() == b.order.len()
        && a.order
            .iter()
            .zip(&b.order)
            .all(|(a, b)| a.descending == b.descending && same_expr(&a.expr, &b.expr));
    a.function == b.function && a.as_text == b.as_text && arguments && order
}

fn without_spans(expr: &Expr) -> Expr {
    let mut expr = expr.clone();
    expr_mut(
        &mut expr,
        &mut Visit {
            expr: &mut |e| e.span = Span::default(),
            span: Some(Span::default()),
        },
    );
    expr
}

/// Whether the value is the same in every row.
pub(crate) fn is_constant(expr: &Expr) -> bool {
    let mut constant = true;
    let look = &mut |e: &mut Expr| {
        constant &= !matches!(
            e.kind,
            ExprKind::Column(_) | ExprKind::Timestamp | ExprKind::User { .. }
        );
    };
    expr_mut(
        &mut expr.clone(),
        &mut Visit {
            expr: look,
            span: None,
        },
    );
    constant
}

/// The number of nodes of an expression tree.
pub(crate) fn size(expr: &Expr) -> usize {
    let mut count = 0;
    let mut expr = expr.clone();
    expr_mut(
        &mut expr,
        &mut Visit {
            expr: &mut |_| count += 1,
            span: None,
        },
    );
    count
}
