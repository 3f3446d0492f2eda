//! Units of time and constant durations, in windows, joins and LIMIT DURATION.

use highwater_time::{
    Duration, TICKS_PER_DAY, TICKS_PER_HOUR, TICKS_PER_MILLI, TICKS_PER_MINUTE, TICKS_PER_SECOND,
};

use highwater_spelling::nearest;

use super::{BindResult, Binder};
use crate::Span;
use crate::ast::{BinaryOp, Expr, ExprKind, Ident, UnaryOp};
use crate::diagnostic::{Diagnostic, code};
use crate::functions::DatePart;
use crate::parser::ErrorReported;
use crate::print::duration_in_words;

/// The longest lookback.
const LIMIT_MAX: i64 = 7 * TICKS_PER_DAY;

/// The units of windows.
const UNITS: [DatePart; 6] = [
    DatePart::Day,
    DatePart::Hour,
    DatePart::Minute,
    DatePart::Second,
    DatePart::Millisecond,
    DatePart::Microsecond,
];

impl<'a> Binder<'a> {
    pub(super) fn unit_of(&mut self, expr: &Expr) -> BindResult<i64> {
        let name = bare_word(expr);
        let known = name.and_then(unit);
        known.ok_or_else(|| self.unknown_unit(name, expr.span))
    }

    fn unknown_unit(&mut self, name: Option<&str>, span: Span) -> ErrorReported {
        let help = match name.and_then(|name| nearest(name, names(&UNITS))) {
            Some(near) => format!("did you mean {near}?"),
            None => {
                "the units are day, hour, minute, second, millisecond and microsecond".to_string()
            }
        };
        let text = self.text(span);
        let message = match text.trim_matches('\'') {
            bare if unit(bare).is_some() => format!("the unit is a bare word: {bare}"),
            _ => format!("`{text}` is not a unit for a window"),
        };
        self.report(Diagnostic::error(code::SIZE, span, message).help(help))
    }

    /// The datepart argument of a date function.
    pub(super) fn date_part(&mut self, expr: &Expr) -> BindResult<DatePart> {
        let name = bare_word(expr);
        if let Some(part) = name.and_then(DatePart::find) {
            return Ok(part);
        }
        let text = self.text(expr.span);
        let message = match text.trim_matches('\'') {
            bare if DatePart::find(bare).is_some() => {
                format!("the datepart is a bare word: {bare}")
            }
            _ => format!("`{text}` is not a datepart"),
        };
        let help = match name.and_then(|name| nearest(name, names(&DatePart::ALL))) {
            Some(near) => format!("did you mean {near}?"),
            None => {
                let names: Vec<&str> = DatePart::ALL.iter().map(|part| part.name()).collect();
                format!("the dateparts are {}", names.join(", "))
            }
        };
        Err(self.report(Diagnostic::error(code::ARGUMENTS, expr.span, message).help(help)))
    }

    /// `(unit, n)` of LIMIT DURATION.
    pub(super) fn limit(&mut self, (unit, size): &(Ident, Box<Expr>)) -> BindResult<Duration> {
        self.length(&unit.name, unit.span, size)
    }

    /// A constant lookback: positive, at most 7 days.
    pub(super) fn length(&mut self, unit: &str, at: Span, size: &Expr) -> BindResult<Duration> {
        let Some(part) = DatePart::find(unit) else {
            return Err(self.unknown_unit(Some(unit), at));
        };
        let Some(unit) = ticks(part) else {
            let message = format!("a {} has no fixed length", part.name());
            let error = Diagnostic::error(code::SIZE, at, message);
            return Err(self.report(error.help("count in days or shorter units; 7 days at most")));
        };
        let Some(count) = constant(size) else {
            let message = "the lookback must be a constant";
            let error = Diagnostic::error(code::SIZE, size.span, message);
            return Err(self.report(error.label("expected a number")));
        };
        let exact = count * unit as f64;
        let problem = if exact <= 0.0 {
            "the lookback must be positive"
        } else if exact < 1.0 {
            "this is shorter than a tick of 100 ns"
        } else if exact > LIMIT_MAX as f64 {
            "the lookback is at most 7 days"
        } else {
            return Ok(Duration::from_ticks(exact.round() as i64));
        };
        let shown = exact.abs() < 10_000.0 * TICKS_PER_DAY as f64 && exact.abs() >= 1.0;
        let label = match shown {
            true => format!(
                "this is {}",
                duration_in_words(Duration::from_ticks(exact.round() as i64))
            ),
            false => String::new(),
        };
        Err(self.report(Diagnostic::error(code::SIZE, size.span, problem).label(label)))
    }
}

/// The names of the parts, abbreviations last.
fn names(parts: &[DatePart]) -> impl Iterator<Item = &'static str> {
    let short = parts.iter().flat_map(|part| part.abbreviations());
    let names = parts.iter().map(|part| part.name());
    names.chain(short.copied())
}

pub(super) fn bare_word(expr: &Expr) -> Option<&str> {
    match &expr.kind {
        ExprKind::Path(path) => match path.as_slice() {
            [name] => Some(name.name.as_str()),
            _ => None,
        },
        _ => None,
    }
}

/// The ticks of a unit of windows.
pub(super) fn unit(name: &str) -> Option<i64> {
    let part = DatePart::find(name).filter(|part| UNITS.contains(part));
    part.and_then(ticks)
}

/// The length of the part, if it is fixed.
pub(super) fn ticks(part: DatePart) -> Option<i64> {
    match part {
        DatePart::Year | DatePart::Quarter | DatePart::Month => None,
        DatePart::Week => Some(7 * TICKS_PER_DAY),
        DatePart::Day | DatePart::DayOfYear | DatePart::Weekday => Some(TICKS_PER_DAY),
        DatePart::Hour => Some(TICKS_PER_HOUR),
        DatePart::Minute => Some(TICKS_PER_MINUTE),
        DatePart::Second => Some(TICKS_PER_SECOND),
        DatePart::Millisecond => Some(TICKS_PER_MILLI),
        DatePart::Microsecond => Some(TICKS_PER_MILLI / 1000),
    }
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

/// A constant whole number, such as an offset or a count.
pub(super) fn whole_number(expr: &Expr) -> Option<i64> {
    match &expr.kind {
        ExprKind::Int(value) => Some(*value),
        ExprKind::Unary {
            op: UnaryOp::Minus,
            of,
        } => whole_number(of).and_then(i64::checked_neg),
        ExprKind::Unary {
            op: UnaryOp::Plus,
            of,
        } => whole_number(of),
        _ => None,
    }
}
