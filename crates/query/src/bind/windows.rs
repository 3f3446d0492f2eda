//! Windows(..): several windows in one GROUP BY. Cannot run yet; what is wrong with it in any case
//! is told first.

use super::Binder;
use super::scope::is_timestamp;
use super::window::window_name;
use crate::Span;
use crate::ast::{Call, Expr, ExprKind};
use crate::diagnostic::{Diagnostic, code};
use crate::parser::Reported;

impl<'a> Binder<'a> {
    pub(super) fn windows(&mut self, call: &Call, span: Span) -> Reported {
        let mut ids = Vec::new();
        for arg in &call.args {
            if let Some(problem) = problem(arg, &mut ids) {
                return self.report(Diagnostic::error(code::WINDOW, arg.span, problem));
            }
        }
        if !ids.is_empty() && ids.len() < call.args.len() {
            let message = "either all windows have an id or none has";
            return self.report(Diagnostic::error(code::WINDOW, span, message));
        }
        self.unsupported("Windows(..)", span)
    }
}

fn problem<'q>(arg: &'q Expr, ids: &mut Vec<&'q str>) -> Option<&'static str> {
    match (window_name(arg), &arg.kind) {
        (Some("Windows"), _) => Some("Windows(..) cannot stand inside Windows(..)"),
        (Some("Window"), ExprKind::Call(window)) => {
            let Some(ExprKind::Text(id)) = window.args.first().map(|id| &id.kind) else {
                return Some("the id of a window is a text, as in Window('1 minute', ..)");
            };
            let known = ids.iter().any(|known| known.eq_ignore_ascii_case(id));
            ids.push(id);
            known.then_some("two windows have this id; ids ignore case")
        }
        (Some(_), _) => None,
        (None, _) if is_timestamp(arg) => None,
        (None, _) => Some("expected a window function"),
    }
}
