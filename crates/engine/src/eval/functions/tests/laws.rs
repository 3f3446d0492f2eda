//! Laws of every function over every layout of its arguments.

use highwater_query::functions::{DatePart, Function, Kind, table};
use proptest::prelude::*;

use super::*;

/// Values that some function or other looks at closely.
fn values() -> impl Strategy<Value = Value> {
    let texts = prop::sample::select(vec![
        "",
        " ",
        "a",
        "ab",
        "Ab ",
        "é😀x",
        "5",
        "-2.5",
        "1e400",
        "2024-03-05",
        "%a%",
        "[a-z]+",
        "(",
        "POINT(1 2)",
        "POLYGON((0 0, 4 0, 4 4, 0 4))",
        "{\"a\":[1]}",
        "ab[",
        "\u{a0}x",
    ]);
    let structures = prop::sample::select(vec![
        "{}",
        "[]",
        "[1,\"x\"]",
        "{\"a\":1}",
        r#"{"type":"Point","coordinates":[1,2.5]}"#,
        r#"{"type":"LineString","coordinates":[[0,0],[3,3]]}"#,
    ]);
    prop_oneof![
        2 => Just(NULL),
        4 => texts.prop_map(Value::text),
        3 => (-4_i64..6).prop_map(Value::Int),
        1 => prop::sample::select(vec![i64::MIN, i64::MAX, 1 << 53]).prop_map(Value::Int),
        2 => (-8_i32..12).prop_map(|n| Value::Float(f64::from(n) / 4.0)),
        1 => prop::sample::select(vec![1e300, -1e300, 5e-324, 1e15]).prop_map(Value::Float),
        1 => any::<bool>().prop_map(Value::Bit),
        2 => (0..=Instant::CALENDAR_END.ticks()).prop_map(|t| Value::Time(Instant::from_ticks(t))),
        2 => structures.prop_map(json),
    ]
}

/// Columns of mostly one type, as data has them, or of anything.
fn columns(rows: usize) -> impl Strategy<Value = Vec<Value>> {
    let one_type =
        (0..6_usize, prop::collection::vec(values(), rows * 5)).prop_map(move |(kind, all)| {
            let fits = |value: &Value| match value {
                Value::Null => true,
                Value::Text(_) => kind <= 1,
                Value::Int(_) => kind == 2,
                Value::Float(_) => kind == 3,
                Value::Time(_) => kind == 4,
                Value::Record(_) => kind == 5,
                _ => false,
            };
            let mut fitting: Vec<Value> = all.into_iter().filter(fits).take(rows).collect();
            fitting.resize(rows, NULL);
            fitting
        });
    prop_oneof![3 => one_type, 1 => prop::collection::vec(values(), rows)]
}

#[derive(Clone, Debug)]
struct Case {
    function: Function,
    part: Option<DatePart>,
    /// Column by column; one that is the same in all rows may be a scalar too.
    args: Vec<(Vec<Value>, bool)>,
}

const ROWS: usize = 6;

fn cases() -> impl Strategy<Value = Case> {
    let functions: Vec<_> = table()
        .iter()
        .filter_map(|info| match info.kind {
            Kind::Scalar(function) => Some((function, info.arguments)),
            _ => None,
        })
        .collect();
    let argument = (columns(ROWS), any::<bool>());
    (
        prop::sample::select(functions),
        prop::sample::select(DatePart::ALL.to_vec()),
        prop::collection::vec(argument, 7),
        0..3_usize,
    )
        .prop_map(|((function, (least, most)), part, mut args, more)| {
            let count = (least + more).min(most.unwrap_or(least + more));
            args.truncate(count - usize::from(function.takes_part()));
            for (values, fixed) in &mut args {
                if *fixed {
                    let first = values.iter().find(|value| !value.is_null()).cloned();
                    values.fill(first.unwrap_or(NULL));
                }
            }
            let part = function.takes_part().then_some(part);
            Case {
                function,
                part,
                args,
            }
        })
}

impl Case {
    fn run(
        &self,
        rows: std::ops::Range<usize>,
        layout: impl Fn(&[Value], bool) -> Datum,
    ) -> Vec<Answer> {
        let args: Vec<Datum> = self
            .args
            .iter()
            .map(|(values, fixed)| layout(&values[rows.clone()], *fixed && !rows.is_empty()))
            .collect();
        run(self.function, self.part, &args, rows.len())
    }
}

fn typed(values: &[Value], _: bool) -> Datum {
    Datum::Column(column(values))
}

fn dynamic(values: &[Value], _: bool) -> Datum {
    Datum::Column(column(values).to_dynamic())
}

fn scalars(values: &[Value], fixed: bool) -> Datum {
    match fixed {
        true => Datum::Scalar(values[0].clone()),
        false => Datum::Column(column(values)),
    }
}

fn is_sound(answer: &Answer) -> bool {
    !matches!(answer, Ok(text) if text.contains("NaN") || text.contains("inf"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    // proves S1
    #[test]
    fn answers_do_not_depend_on_the_layout(case in cases()) {
        let answers = case.run(0..ROWS, typed);
        prop_assert!(answers.iter().all(is_sound), "{:?}", answers);
        prop_assert_eq!(&answers, &case.run(0..ROWS, dynamic));
        prop_assert_eq!(&answers, &case.run(0..ROWS, scalars));
    }

    // proves S1
    #[test]
    fn a_chunk_and_its_pieces_give_the_same(case in cases(), cut in 0..=ROWS) {
        let whole = case.run(0..ROWS, scalars);
        let pieces = [case.run(0..cut, scalars), case.run(cut..ROWS, scalars)].concat();
        prop_assert_eq!(whole, pieces);
    }

    // proves S1
    #[test]
    fn a_piece_of_a_column_gives_what_it_gives_in_the_column(case in cases(), cut in 0..ROWS) {
        let sliced = |values: &[Value], fixed: bool| match fixed {
            true => Datum::Scalar(values[0].clone()),
            false => Datum::Column(column(values).slice(cut, ROWS - cut)),
        };
        let args: Vec<Datum> = case.args.iter().map(|(values, fixed)| sliced(values, *fixed)).collect();
        let piece = run(case.function, case.part, &args, ROWS - cut);
        prop_assert_eq!(piece, &case.run(0..ROWS, typed)[cut..]);
    }
}
