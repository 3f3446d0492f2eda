//! Failures of single rows: a failing row is dropped with a reason, the others continue.
//!
//! One bad event must not stop a job, so a kernel returns no error: it records the row here and continues. Of several
//! faults in one row the first in evaluation order is kept. That order follows the text of the query and not the
//! representation of the data, so a row always fails for the same reason.

use std::collections::BTreeMap;

use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use highwater_query::Span;
use highwater_time::Instant;

use crate::value::ValueRef;

use super::text::write_text;

/// The maximum length of a value in an error message.
const SHOWN_CHARS: usize = 60;

/// The failed rows of a chunk with their reasons. Costs nothing without failures.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    rows: usize,
    by_row: BTreeMap<usize, Fault>,
    warnings: BTreeMap<usize, Warning>,
}

/// A correction of a value in a row that did not fail for it, and the position in the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warning {
    pub span: Span,
    pub text: &'static str,
}

/// The failure of a row, and the position in the query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub span: Span,
    pub reason: EvalError,
}

/// Why a value cannot be computed: always because of the data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    #[error(
        "{expression} is out of range for bigint; cast an operand to float to continue with less precision"
    )]
    Overflow { expression: String },
    #[error("{expression} divides by zero")]
    DivisionByZero { expression: String },
    #[error("{expression} is out of range for float")]
    NotFinite { expression: String },
    #[error(
        "cannot read the text {text} as a number; {}",
        instead_of_a_number(text)
    )]
    NotANumber { text: String },
    #[error(
        "cannot read the text {text} as a datetime; TRY_CAST(.. AS datetime) gives NULL instead"
    )]
    NotATime { text: String },
    #[error("expected a number, but the value is {of}")]
    NotNumeric { of: &'static str },
    #[error("operator {op} cannot take {left} and {right}")]
    Operands {
        op: &'static str,
        left: &'static str,
        right: &'static str,
    },
    #[error("operator {op} cannot take {of}")]
    Operand { op: &'static str, of: &'static str },
    #[error("operator {op} takes bit and bigint, but one operand is {of}; cast it to bigint first")]
    NotBits { op: &'static str, of: &'static str },
    #[error("cannot compare {left} with {right}; cast one of them")]
    Incomparable {
        left: &'static str,
        right: &'static str,
    },
    #[error("values of type {of} have no order; only = and != can compare them")]
    Unordered { of: &'static str },
    #[error("cannot cast {value} from {from} to {to}; TRY_CAST gives NULL instead")]
    Cast {
        value: String,
        from: &'static str,
        to: &'static str,
    },
    #[error("argument {position} of {function} is {found}, but it takes {allowed}")]
    Argument {
        function: &'static str,
        position: usize,
        found: &'static str,
        allowed: &'static str,
    },
    #[error(
        "argument {position} of {function}: cannot read the text {text} as a {wanted}; \
         TRY_CAST(.. AS {cast}) gives NULL instead"
    )]
    ArgumentText {
        function: &'static str,
        position: usize,
        text: String,
        wanted: &'static str,
        cast: &'static str,
    },
    #[error("argument {position} of {function} is {value}, but {rule}")]
    ArgumentValue {
        function: &'static str,
        position: usize,
        value: String,
        rule: &'static str,
    },
    #[error("{expression} lies outside of the years 0001 to 9999")]
    OffCalendar { expression: String },
    #[error("{function} would make a text of more than {bytes_max} bytes")]
    TooLong {
        function: &'static str,
        bytes_max: usize,
    },
    #[error("function '{name}': {message}")]
    Script { name: String, message: String },
    #[error("{reason}")]
    Aggregate {
        reason: std::borrow::Cow<'static, str>,
    },
}

/// JSON has times as text, and MIN and MAX read text as numbers, so the hint for a time differs.
fn instead_of_a_number(display_value: &str) -> &'static str {
    match Instant::parse_iso(display_value.trim_matches('\'').as_bytes()) {
        Some(_) => "CAST(.. AS datetime) reads it as a time",
        None => "TRY_CAST(.. AS float) gives NULL instead",
    }
}

impl Faults {
    /// No failures among that many rows.
    pub fn new(rows: usize) -> Faults {
        Faults {
            rows,
            by_row: BTreeMap::new(),
            warnings: BTreeMap::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.by_row.is_empty()
    }

    /// Whether there are neither failures nor warnings.
    pub(crate) fn is_silent(&self) -> bool {
        self.by_row.is_empty() && self.warnings.is_empty()
    }

    /// How many rows failed.
    pub fn len(&self) -> usize {
        self.by_row.len()
    }

    pub fn failed(&self, row: usize) -> bool {
        self.by_row.contains_key(&row)
    }

    /// Records a failure, unless the row already failed.
    pub fn add(&mut self, row: usize, span: Span, reason: EvalError) {
        debug_assert!(row < self.rows);
        self.by_row.entry(row).or_insert(Fault { span, reason });
    }

    /// Records a warning, unless the row already has one.
    pub fn warn(&mut self, row: usize, span: Span, text: &'static str) {
        debug_assert!(row < self.rows);
        self.warnings.entry(row).or_insert(Warning { span, text });
    }

    /// The warnings in row order.
    pub fn warnings(&self) -> impl Iterator<Item = (usize, Warning)> {
        self.warnings.iter().map(|(&row, &warn)| (row, warn))
    }

    /// The rows that did not fail.
    pub fn good(&self) -> BooleanBuffer {
        let mut good = BooleanBufferBuilder::new(self.rows);
        good.append_n(self.rows, true);
        for &row in self.by_row.keys() {
            good.set_bit(row, false);
        }
        good.finish()
    }

    /// The failures in row order.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Fault)> {
        self.by_row.iter().map(|(&row, fault)| (row, fault))
    }
}

/// A value in an error message: text quoted, long values truncated.
pub(super) fn display_value(value: ValueRef<'_>) -> String {
    let mut text = String::new();
    write_text(value, &mut text);
    let cut = text.char_indices().nth(SHOWN_CHARS).map(|(at, _)| at);
    if let Some(at) = cut {
        text.truncate(at);
        text.push_str("..");
    }
    match value {
        ValueRef::Null => "NULL".into(),
        ValueRef::Text(_) => format!("'{}'", text.replace('\'', "''")),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves S2
    #[test]
    fn the_first_fault_of_a_row_is_kept_and_rows_come_in_order() {
        let mut faults = Faults::new(4);
        assert!(faults.is_empty() && faults.good().count_set_bits() == 4);
        let zero = || EvalError::DivisionByZero {
            expression: "1 / 0".into(),
        };
        faults.add(3, Span::new(5, 6), zero());
        faults.add(1, Span::new(0, 5), zero());
        faults.add(3, Span::new(0, 9), EvalError::Unordered { of: "record" });
        let seen: Vec<_> = faults
            .iter()
            .map(|(row, fault)| (row, fault.span.start))
            .collect();
        assert_eq!(seen, [(1, 0), (3, 5)]);
        assert_eq!(
            faults.good(),
            BooleanBuffer::from(vec![true, false, true, false])
        );
        assert!(faults.failed(1) && !faults.failed(0));
    }

    // proves S2
    #[test]
    fn messages_show_the_value_and_the_way_out() {
        let long = "x".repeat(100);
        let error = EvalError::NotANumber {
            text: display_value(ValueRef::Text(&long)),
        };
        let expected = format!(
            "cannot read the text '{}..' as a number; TRY_CAST(.. AS float) gives NULL instead",
            "x".repeat(60)
        );
        assert_eq!(error.to_string(), expected);
        assert_eq!(display_value(ValueRef::Text("it's")), "'it''s'");

        let time = EvalError::NotANumber {
            text: display_value(ValueRef::Text("2026-01-01T00:00:01Z")),
        };
        assert_eq!(
            time.to_string(),
            "cannot read the text '2026-01-01T00:00:01Z' as a number; \
             CAST(.. AS datetime) reads it as a time"
        );
    }
}
