//! Conditions. They are not values, and values are not conditions.

use super::BindResult;
use super::expr::ExprBinder;
use crate::Span;
use crate::ast::{self, ExprKind};
use crate::diagnostic::{Diagnostic, code};
use crate::parser::ErrorReported;
use crate::plan::{Expr, Pred, PredKind};

impl ExprBinder<'_, '_> {
    pub(super) fn condition(&mut self, expr: &ast::Expr) -> BindResult<Pred> {
        if let Some(distance) = self.distance_condition(expr) {
            return distance;
        }
        let kind = match &expr.kind {
            ExprKind::And(all) => return self.all(all, expr.span, PredKind::And),
            ExprKind::Or(all) => return self.all(all, expr.span, PredKind::Or),
            ExprKind::Not(of) => PredKind::Not(Box::new(self.condition(of)?)),
            ExprKind::Compare { op, left, right } => {
                self.hint_about_null(right, left);
                self.hint_about_null(left, right);
                let (left, right) = self.pair(left, right)?;
                PredKind::Compare {
                    op: *op,
                    left,
                    right,
                }
            }
            ExprKind::Like {
                of,
                pattern,
                negated,
            } => {
                let (of, pattern) = self.pair(of, pattern)?;
                PredKind::Like {
                    of,
                    pattern,
                    negated: *negated,
                }
            }
            ExprKind::In { of, list, negated } => {
                let (of, list) = (self.value(of), self.values(list));
                PredKind::In {
                    of: of?,
                    list: list?,
                    negated: *negated,
                }
            }
            ExprKind::Between {
                of,
                low,
                high,
                negated,
            } => {
                let (of, bounds) = (self.value(of), self.pair(low, high));
                let (of, (low, high)) = (of?, bounds?);
                PredKind::Between {
                    of,
                    low,
                    high,
                    negated: *negated,
                }
            }
            ExprKind::IsNull { of, negated } => PredKind::IsNull {
                of: self.value(of)?,
                negated: *negated,
            },
            _ => return Err(self.not_a_condition(expr)),
        };
        Ok(Pred {
            kind,
            span: expr.span,
        })
    }

    pub(super) fn values(&mut self, list: &[ast::Expr]) -> BindResult<Vec<Expr>> {
        let bound: Vec<_> = list.iter().map(|item| self.value(item)).collect();
        bound.into_iter().collect()
    }

    /// As a balanced tree: a thousand alternatives are ten levels deep, still evaluated left to right.
    fn all(&mut self, all: &[ast::Expr], span: Span, join: Join) -> BindResult<Pred> {
        let bound: Vec<_> = all.iter().map(|expr| self.condition(expr)).collect();
        let bound = bound.into_iter().collect::<BindResult<Vec<Pred>>>()?;
        balanced(bound, join)
            .map(|pred| Pred { span, ..pred })
            .ok_or(ErrorReported)
    }

    fn not_a_condition(&mut self, expr: &ast::Expr) -> ErrorReported {
        let text = self.binder.text(expr.span);
        let error = Diagnostic::error(code::BOOLEAN, expr.span, "a value is not a condition");
        let help = match text.len() {
            0..60 => format!("compare it: {text} = 1"),
            _ => "compare it with something: .. = 1".to_string(),
        };
        self.report(error.label("expected a condition").help(help))
    }

    /// `x = NULL` is never true.
    fn hint_about_null(&mut self, null: &ast::Expr, other: &ast::Expr) {
        if matches!(null.kind, ExprKind::Null) && !matches!(other.kind, ExprKind::Null) {
            let help = format!("write {} IS NULL", self.binder.text(other.span));
            let message = "a comparison with NULL is never true";
            self.binder
                .warn(Diagnostic::warning(code::BOOLEAN, null.span, message).help(help));
        }
    }
}

type Join = fn(Box<Pred>, Box<Pred>) -> PredKind;

pub(super) fn balanced(mut all: Vec<Pred>, join: Join) -> Option<Pred> {
    if all.len() < 2 {
        return all.pop();
    }
    let right = all.split_off(all.len() / 2);
    let (left, right) = (balanced(all, join)?, balanced(right, join)?);
    let span = left.span.to(right.span);
    Some(Pred {
        kind: join(Box::new(left), Box::new(right)),
        span,
    })
}
