//! Tables of calls and their values, row by row of the reference; then laws, against independent oracles.

mod dates;
#[cfg(feature = "geo")]
mod geometries;
mod laws;
mod numbers;
mod patterns;
mod structures;
mod texts;

use highwater_query::Span;
use highwater_query::functions::{DatePart, Function};
use highwater_time::Instant;

use crate::column::{Column, ColumnBuilder};
use crate::eval::fault::{EvalError, Faults};
use crate::eval::operand::{Datum, KernelContext};
use crate::eval::rows::Rows;
use crate::value::Value;

/// Values of several types in one list.
macro_rules! args {
    ($($value:expr),* $(,)?) => {
        &[$($crate::eval::functions::tests::IntoValue::into_value($value)),*]
    };
}
use args;

pub(crate) const NULL: Value = Value::Null;

pub(crate) trait IntoValue {
    fn into_value(self) -> Value;
}

impl IntoValue for Value {
    fn into_value(self) -> Value {
        self
    }
}

impl IntoValue for i64 {
    fn into_value(self) -> Value {
        Value::Int(self)
    }
}

impl IntoValue for f64 {
    fn into_value(self) -> Value {
        Value::Float(self)
    }
}

impl IntoValue for bool {
    fn into_value(self) -> Value {
        Value::Bit(self)
    }
}

impl IntoValue for &str {
    fn into_value(self) -> Value {
        Value::text(self)
    }
}

pub(crate) fn time(text: &str) -> Value {
    Value::Time(Instant::parse_iso(text.as_bytes()).expect("test times are valid"))
}

/// The value of a JSON text.
pub(crate) fn json(text: &str) -> Value {
    super::json::parse(text).expect("test JSON is valid")
}

pub(crate) fn column(values: &[Value]) -> Column {
    let mut builder = ColumnBuilder::with_capacity(values.len());
    values.iter().for_each(|value| builder.push(value.view()));
    builder.finish()
}

/// The result of a row: its value to the last bit, or why it failed.
pub(crate) type Answer = Result<String, EvalError>;

/// A call over whole columns or scalars.
pub(crate) fn run(
    function: Function,
    part: Option<DatePart>,
    args: &[Datum],
    rows: usize,
) -> Vec<Answer> {
    let mut faults = Faults::new(rows);
    let context = &mut KernelContext {
        span: Span::default(),
        rows: &Rows::all(rows),
        faults: &mut faults,
    };
    let column = super::call(function, part, args, context).into_column(rows);
    assert_eq!(column.len(), rows);
    let mut answers: Vec<Answer> = (0..rows)
        .map(|row| Ok(format!("{:?}", column.get(row).to_value())))
        .collect();
    for (row, fault) in faults.iter() {
        answers[row] = Err(fault.reason.clone());
    }
    answers
}

/// One row, in every layout that its arguments can have: all of them must agree.
fn answer(function: Function, part: Option<DatePart>, args: &[Value]) -> Answer {
    let scalar = |value: &Value| Datum::Scalar(value.clone());
    let typed = |value: &Value| Datum::Column(column(std::slice::from_ref(value)));
    let dynamic = |value: &Value| Datum::Column(column(std::slice::from_ref(value)).to_dynamic());
    let layouts: Vec<Vec<Datum>> = vec![
        args.iter().map(scalar).collect(),
        args.iter().map(typed).collect(),
        args.iter().map(dynamic).collect(),
        args.iter()
            .take(1)
            .map(typed)
            .chain(args.iter().skip(1).map(scalar))
            .collect(),
        args.iter()
            .take(1)
            .map(scalar)
            .chain(args.iter().skip(1).map(typed))
            .collect(),
        args.iter()
            .take(1)
            .map(dynamic)
            .chain(args.iter().skip(1).map(scalar))
            .collect(),
    ];
    let mut answers = layouts
        .iter()
        .map(|args| run(function, part, args, 1).remove(0));
    let first = answers.next().expect("there are layouts");
    for (other, layout) in answers.zip(&layouts[1..]) {
        assert_eq!(first, other, "{} over {layout:?}", function.name());
    }
    first
}

#[track_caller]
pub(crate) fn check(function: Function, args: &[Value], expected: impl IntoValue) {
    check_answer(function, None, args, expected.into_value());
}

#[track_caller]
pub(crate) fn check_part(
    function: Function,
    part: DatePart,
    args: &[Value],
    expected: impl IntoValue,
) {
    check_answer(function, Some(part), args, expected.into_value());
}

#[track_caller]
fn check_answer(function: Function, part: Option<DatePart>, args: &[Value], expected: Value) {
    let found = answer(function, part, args);
    let call = format!("{}({part:?}, {args:?})", function.name());
    assert_eq!(found, Ok(format!("{expected:?}")), "{call}");
}

/// The call fails with this message.
#[track_caller]
pub(crate) fn fails(function: Function, args: &[Value], message: &str) {
    fails_part(function, None, args, message);
}

#[track_caller]
pub(crate) fn fails_part(
    function: Function,
    part: Option<DatePart>,
    args: &[Value],
    message: &str,
) {
    let found = answer(function, part, args).map_err(|error| error.to_string());
    assert_eq!(
        found,
        Err(message.to_string()),
        "{} {args:?}",
        function.name()
    );
}
