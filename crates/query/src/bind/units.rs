//! Units of time and constant numbers of them, as windows and joins write them.

use highwater_time::{
    TICKS_PER_DAY, TICKS_PER_HOUR, TICKS_PER_MILLI, TICKS_PER_MINUTE, TICKS_PER_SECOND,
};

use super::{Binder, Bound};
use crate::Span;
use crate::ast::{BinaryOp, Expr, ExprKind, UnaryOp};
use crate::diagnostic::{Diagnostic, code};
use crate::nearest::nearest;
use crate::parser::Reported;

const UNITS: [(&str, i64); 15] = [
    ("day", TICKS_PER_DAY),
    ("dd", TICKS_PER_DAY),
    ("d", TICKS_PER_DAY),
    ("hour", TICKS_PER_HOUR),
    ("hh", TICKS_PER_HOUR),
    ("minute", TICKS_PER_MINUTE),
    ("mi", TICKS_PER_MINUTE),
    ("n", TICKS_PER_MINUTE),
    ("second", TICKS_PER_SECOND),
    ("ss", TICKS_PER_SECOND),
    ("s", TICKS_PER_SECOND),
    ("millisecond", TICKS_PER_MILLI),
    ("ms", TICKS_PER_MILLI),
    ("microsecond", TICKS_PER_MILLI / 1000),
    ("mcs", TICKS_PER_MILLI / 1000),
];

impl<'a> Binder<'a> {
    pub(super) fn unit_of(&mut self, expr: &Expr) -> Bound<i64> {
        let name = match &expr.kind {
            ExprKind::Path(path) => match path.as_slice() {
                [name] => Some(name.name.as_str()),
                _ => None,
            },
            _ => None,
        };
        let known = name.and_then(unit);
        known.ok_or_else(|| self.unknown_unit(name, expr.span))
    }

    fn unknown_unit(&mut self, name: Option<&str>, span: Span) -> Reported {
        let near = name.and_then(|name| nearest(name, UNITS.iter().map(|(unit, _)| *unit)));
        let help = match near {
            Some(near) => format!("did you mean {near}?"),
            None => {
                "the units are day, hour, minute, second, millisecond and microsecond".to_string()
            }
        };
        let text = self.text(span);
        let message = match text.trim_matches('\'') {
            bare if unit(bare).is_some() => format!("the unit is a bare word: {bare}"),
            _ => format!("`{text}` is no unit for a window"),
        };
        self.report(Diagnostic::error(code::SIZE, span, message).help(help))
    }
}

/// Full names also in the plural.
pub(super) fn unit(name: &str) -> Option<i64> {
    let find = |name: &str| {
        UNITS
            .iter()
            .find(|(unit, _)| unit.eq_ignore_ascii_case(name))
    };
    let plural = || {
        name.strip_suffix(['s', 'S'])
            .filter(|one| one.len() >= 3 && *one != "mcs")
            .and_then(find)
    };
    find(name).or_else(plural).map(|(_, ticks)| *ticks)
}

pub(super) fn constant(expr: &Expr) -> Option<f64> {
    match &expr.kind {
        ExprKind::Int(value) => Some(*value as f64),
        ExprKind::Float(value) => Some(*value),
        ExprKind::Unary {
            op: UnaryOp::Minus,
            of,
        } => constant(of).map(|value| -value),
        ExprKind::Unary {
            op: UnaryOp::Plus,
            of,
        } => constant(of),
        ExprKind::Binary { op, left, right } => {
            let (left, right) = (constant(left)?, constant(right)?);
            let value = match op {
                BinaryOp::Add => left + right,
                BinaryOp::Subtract => left - right,
                BinaryOp::Multiply => left * right,
                _ => return None,
            };
            value.is_finite().then_some(value)
        }
        _ => None,
    }
}
