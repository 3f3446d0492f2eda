//! Polygon rings that do not end where they began: they are closed, with a warning.
//!
//! Only rings in the text of the query can be checked here; those of events are counted at run time.

use super::expr::ExprBinder;
use crate::Span;
use crate::diagnostic::{Diagnostic, code};
use crate::functions::Function;
use crate::plan::{Expr, ExprKind, Literal};
use crate::visit;

impl ExprBinder<'_, '_> {
    pub(super) fn warn_about_open_rings(&mut self, function: Function, args: &[Expr], span: Span) {
        match function {
            Function::CreatePolygon => {
                if let (Some(first), Some(last)) = (args.first(), args.last())
                    && visit::is_constant(first)
                    && visit::is_constant(last)
                    && !same_point(first, last)
                {
                    self.warn_about_open_ring(span);
                }
            }
            Function::StDistance
            | Function::StIntersects
            | Function::StOverlaps
            | Function::StWithin => {
                for arg in args {
                    if matches!(&arg.kind, ExprKind::Literal(Literal::Text(text)) if is_open(text))
                    {
                        self.warn_about_open_ring(arg.span);
                    }
                }
            }
            _ => {}
        }
    }

    fn warn_about_open_ring(&mut self, span: Span) {
        let message = "this ring does not end where it began, so it is closed";
        let warning = Diagnostic::warning(code::ARGUMENTS, span, message);
        self.binder
            .warn(warning.help("repeat the first point at the end"));
    }
}

/// Equal, taking 1 and 1.0 as equal.
fn same_point(a: &Expr, b: &Expr) -> bool {
    let in_floats = |point: &Expr| {
        let mut point = point.clone();
        point.visit_mut(|e| {
            if let ExprKind::Literal(Literal::Int(int)) = e.kind {
                e.kind = ExprKind::Literal(Literal::Float(int as f64));
            }
        });
        point
    };
    in_floats(a) == in_floats(b)
}

/// Whether a text is a polygon or multipolygon with an open ring. Invalid well-known text fails at run time.
fn is_open(text: &str) -> bool {
    let shape = text.trim_start().to_ascii_uppercase();
    if !shape.starts_with("POLYGON") && !shape.starts_with("MULTIPOLYGON") {
        return false;
    }
    let rings = text.split('(').filter_map(|part| part.split_once(')'));
    let point = |text: &str| -> Option<Vec<f64>> {
        let numbers = text.split_whitespace().take(2);
        numbers.map(|number| number.parse().ok()).collect()
    };
    rings.into_iter().any(|(ring, _)| {
        let mut points = ring.split(',');
        let (first, last) = (
            points.next().and_then(point),
            points.next_back().and_then(point),
        );
        matches!((first, last), (Some(first), Some(last)) if first != last)
    })
}
