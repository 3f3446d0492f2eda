//! Walks through the expressions inside an expression or a condition.

use crate::plan::{Expr, ExprKind, Pred, PredKind};

/// The same walk for shared and for mutable references.
macro_rules! walk {
    ($visit:ident, $expr:ident, $pred:ident $(, $mut:ident)?) => {
        impl Expr {
            /// Calls back for every expression inside this one, itself last.
            pub fn $visit(&$($mut)? self, mut visit: impl FnMut(&$($mut)? Expr)) {
                $expr(self, &mut visit);
            }
        }

        impl Pred {
            /// Calls back for every expression inside this condition.
            pub fn $visit(&$($mut)? self, mut visit: impl FnMut(&$($mut)? Expr)) {
                $pred(self, &mut visit);
            }
        }

        fn $expr(expr: &$($mut)? Expr, visit: &mut dyn FnMut(&$($mut)? Expr)) {
            match &$($mut)? expr.kind {
                ExprKind::Column(_) | ExprKind::Literal(_) | ExprKind::Timestamp => {}
                ExprKind::Field { of, .. }
                | ExprKind::Unary { of, .. }
                | ExprKind::Cast { of, .. }
                | ExprKind::Fold(of) => $expr(of, visit),
                ExprKind::Binary { left, right, .. } => {
                    $expr(left, visit);
                    $expr(right, visit);
                }
                ExprKind::Case { branches, otherwise } => {
                    for (when, then) in branches {
                        $pred(when, visit);
                        $expr(then, visit);
                    }
                    $expr(otherwise, visit);
                }
                ExprKind::Coalesce(args)
                | ExprKind::Call { args, .. }
                | ExprKind::User { args, .. } => {
                    for arg in args {
                        $expr(arg, visit);
                    }
                }
                ExprKind::Record(items) => {
                    for item in items {
                        $expr(&$($mut)? item.expr, visit);
                    }
                }
            }
            visit(expr);
        }

        fn $pred(pred: &$($mut)? Pred, visit: &mut dyn FnMut(&$($mut)? Expr)) {
            let mut all = |exprs: &mut dyn Iterator<Item = &$($mut)? Expr>| {
                exprs.for_each(|expr| $expr(expr, visit));
            };
            match &$($mut)? pred.kind {
                PredKind::And(left, right) | PredKind::Or(left, right) => {
                    $pred(left, visit);
                    $pred(right, visit);
                }
                PredKind::Not(of) => $pred(of, visit),
                PredKind::Compare { left, right, .. } => all(&mut [left, right].into_iter()),
                PredKind::Like { of, pattern, .. } => all(&mut [of, pattern].into_iter()),
                PredKind::In { of, list, .. } => all(&mut [of].into_iter().chain(list)),
                PredKind::Between { of, low, high, .. } => all(&mut [of, low, high].into_iter()),
                PredKind::IsNull { of, .. } => $expr(of, visit),
            }
        }
    };
}

walk!(visit, visit_expr, visit_pred);
walk!(visit_mut, visit_expr_mut, visit_pred_mut, mut);

/// Whether the value is the same in every row.
pub(crate) fn is_constant(expr: &Expr) -> bool {
    let mut constant = true;
    expr.visit(|e| {
        constant &= !matches!(
            e.kind,
            ExprKind::Column(_) | ExprKind::Timestamp | ExprKind::User { .. }
        );
    });
    constant
}

/// The number of nodes of an expression tree.
pub(crate) fn size(expr: &Expr) -> usize {
    let mut count = 0;
    expr.visit(|_| count += 1);
    count
}
