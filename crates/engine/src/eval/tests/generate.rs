//! Random values, chunks and expressions, with many corner cases of the rules.

use highwater_query::Span;
use highwater_query::plan::{
    BinaryOp, CompareOp, Expr, ExprKind, Literal, Pred, PredKind, Type, UnaryOp,
};
use highwater_time::Instant;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::build::{array, column, record};
use crate::chunk::Chunk;
use crate::value::Value;

pub(crate) const COLUMNS: usize = 4;

pub(crate) fn ints() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => -4_i64..5,
        1 => select(vec![
            i64::MAX, i64::MIN, i64::MAX - 1, 1 << 53, (1 << 53) + 1, -(1 << 53) - 1, 1 << 62,
        ]),
        1 => any::<i64>(),
    ]
}

pub(crate) fn floats() -> impl Strategy<Value = f64> {
    prop_oneof![
        3 => (-8_i32..9).prop_map(|i| f64::from(i) / 2.0),
        2 => select(vec![
            -0.0, 9007199254740992.0, 9007199254740994.0, 9223372036854775808.0,
            -9223372036854775808.0, 1e300, -1e300, 5e-324, 0.1, 1e16, 9223372036854774784.0,
        ]),
        1 => any::<f64>().prop_filter("floats are finite", |f| f.is_finite()),
    ]
}

pub(crate) fn texts() -> impl Strategy<Value = String> {
    let corners = [
        "",
        " ",
        "a",
        "ab",
        "b",
        "A",
        "aB",
        "é",
        "É",
        "straße",
        "1",
        "0",
        "2",
        " 2 ",
        "-1",
        "1.5",
        "1e2",
        "NaN",
        "true",
        "FALSE",
        "9007199254740993",
        "1e999",
        "99999999999999999999",
        "2024-01-01",
        "x",
        "2024-01-01T00:00:01Z",
        "0001-01-01",
        "a%",
        "_",
        "[ab]%",
        "%b",
        "[^a]",
        "%",
    ];
    select(corners.to_vec()).prop_map(str::to_owned)
}

pub(crate) fn times() -> impl Strategy<Value = Instant> {
    let day = Instant::parse_iso(b"2024-01-01")
        .expect("a valid date")
        .ticks();
    (0_i64..3).prop_map(move |seconds| Instant::from_ticks(day + seconds * 10_000_000))
}

fn scalars() -> impl Strategy<Value = Value> {
    prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::Bit),
        3 => ints().prop_map(Value::Int),
        3 => floats().prop_map(Value::Float),
        3 => texts().prop_map(|text| Value::text(&text)),
        1 => times().prop_map(Value::Time),
    ]
}

pub(crate) fn values() -> BoxedStrategy<Value> {
    scalars()
        .prop_recursive(2, 6, 3, |inner| {
            let fields = vec((select(vec!["a", "b", "c"]), inner.clone()), 0..3);
            prop_oneof![
                fields.prop_map(|fields| record(&fields)),
                vec(inner, 0..3).prop_map(|items| array(&items)),
            ]
        })
        .boxed()
}

/// Values of one type, or of any.
fn column_values(rows: usize) -> impl Strategy<Value = Vec<Value>> {
    let of = |strategy: BoxedStrategy<Value>| vec(strategy, rows);
    let typed = |strategy: BoxedStrategy<Value>| {
        prop_oneof![
            2 => vec(strategy.clone(), rows),
            1 => vec(prop_oneof![4 => strategy, 1 => Just(Value::Null)], rows),
        ]
    };
    prop_oneof![
        3 => typed(ints().prop_map(Value::Int).boxed()),
        3 => typed(floats().prop_map(Value::Float).boxed()),
        2 => typed(texts().prop_map(|text| Value::text(&text)).boxed()),
        1 => typed(any::<bool>().prop_map(Value::Bit).boxed()),
        1 => typed(times().prop_map(Value::Time).boxed()),
        1 => of(Just(Value::Null).boxed()),
        3 => of(values()),
    ]
}

/// Up to a few words of rows, so that words of answers begin and end everywhere.
pub(crate) fn chunks() -> impl Strategy<Value = Chunk> {
    prop_oneof![4 => 0_usize..8, 1 => 60_usize..70, 1 => 120_usize..140].prop_flat_map(|rows| {
        vec(column_values(rows), COLUMNS).prop_map(move |columns| {
            let times: Vec<i64> = (0..rows as i64).collect();
            Chunk::new(
                times.into(),
                columns.iter().map(|values| column(values)).collect(),
            )
        })
    })
}

fn spans() -> impl Strategy<Value = Span> {
    (0_usize..1000).prop_map(|start| Span::new(start, start + 1))
}

fn literals() -> impl Strategy<Value = Literal> {
    prop_oneof![
        1 => Just(Literal::Null),
        4 => ints().prop_map(Literal::Int),
        3 => floats().prop_map(Literal::Float),
        3 => texts().prop_map(Literal::Text),
    ]
}

fn types() -> impl Strategy<Value = Type> {
    select(vec![
        Type::Bigint,
        Type::Float,
        Type::Text,
        Type::Datetime,
        Type::Bit,
        Type::Record,
        Type::Array,
    ])
}

fn unary_ops() -> impl Strategy<Value = UnaryOp> {
    select(vec![UnaryOp::Plus, UnaryOp::Minus, UnaryOp::BitNot])
}

pub(crate) fn binary_ops() -> impl Strategy<Value = BinaryOp> {
    use BinaryOp::*;
    select(vec![
        Add, Subtract, Multiply, Divide, Modulo, BitAnd, BitOr, BitXor,
    ])
}

pub(crate) fn compare_ops() -> impl Strategy<Value = CompareOp> {
    use CompareOp::*;
    select(vec![Eq, Ne, Lt, Le, Gt, Ge])
}

/// Expressions over [`COLUMNS`] columns, that many operations deep.
pub(crate) fn exprs(depth: usize) -> BoxedStrategy<Expr> {
    let leaf = prop_oneof![
        6 => (0..COLUMNS).prop_map(ExprKind::Column),
        3 => literals().prop_map(ExprKind::Literal),
        1 => Just(ExprKind::Timestamp),
    ];
    if depth == 0 {
        return (leaf, spans())
            .prop_map(|(kind, span)| Expr { kind, span })
            .boxed();
    }
    let inner = exprs(depth - 1);
    let conditions = preds(depth - 1);
    let boxed = || inner.clone().prop_map(Box::new);
    let kind = prop_oneof![
        1 => leaf,
        1 => (boxed(), select(vec!["a", "b", "missing"]))
            .prop_map(|(of, name)| ExprKind::Field { of, name: name.into() }),
        1 => (unary_ops(), boxed()).prop_map(|(op, of)| ExprKind::Unary { op, of }),
        5 => (binary_ops(), boxed(), boxed())
            .prop_map(|(op, left, right)| ExprKind::Binary { op, left, right }),
        2 => (vec((conditions, inner.clone()), 1..3), boxed())
            .prop_map(|(branches, otherwise)| ExprKind::Case { branches, otherwise }),
        3 => (boxed(), types(), any::<bool>())
            .prop_map(|(of, to, lenient)| ExprKind::Cast { of, to, lenient }),
        1 => vec(inner.clone(), 2..4).prop_map(ExprKind::Coalesce),
        3 => boxed().prop_map(ExprKind::Fold),
    ];
    (kind, spans())
        .prop_map(|(kind, span)| Expr { kind, span })
        .boxed()
}

/// Conditions over [`COLUMNS`] columns, that many operations deep.
pub(crate) fn preds(depth: usize) -> BoxedStrategy<Pred> {
    let operand = exprs(depth.saturating_sub(1));
    let compare = (compare_ops(), operand.clone(), operand.clone())
        .prop_map(|(op, left, right)| PredKind::Compare { op, left, right });
    let is_null =
        (operand.clone(), any::<bool>()).prop_map(|(of, negated)| PredKind::IsNull { of, negated });
    let like =
        (operand.clone(), operand.clone(), any::<bool>()).prop_map(|(of, pattern, negated)| {
            PredKind::Like {
                of,
                pattern,
                negated,
            }
        });
    let in_list = (operand.clone(), vec(operand.clone(), 1..4), any::<bool>())
        .prop_map(|(of, list, negated)| PredKind::In { of, list, negated });
    let between = (operand.clone(), operand.clone(), operand, any::<bool>()).prop_map(
        |(of, low, high, negated)| PredKind::Between {
            of,
            low,
            high,
            negated,
        },
    );
    let simple = prop_oneof![6 => compare, 1 => is_null, 1 => like, 2 => in_list, 2 => between];
    if depth == 0 {
        return (simple, spans())
            .prop_map(|(kind, span)| Pred { kind, span })
            .boxed();
    }
    let inner = preds(depth - 1).prop_map(Box::new);
    let kind = prop_oneof![
        4 => simple,
        2 => (inner.clone(), inner.clone()).prop_map(|(left, right)| PredKind::And(left, right)),
        2 => (inner.clone(), inner.clone()).prop_map(|(left, right)| PredKind::Or(left, right)),
        1 => inner.prop_map(PredKind::Not),
    ];
    (kind, spans())
        .prop_map(|(kind, span)| Pred { kind, span })
        .boxed()
}
