//! Analytic functions against a brute-force oracle: for any call, rows and chunks, the values are those of the rules
//! applied to all earlier rows.

use crate::by_hand::{Drive, Row, Shown, column, compare, expr, int, plan, run, show, ticks};
use highwater_engine::eval::{compare as order, encode_key};
use highwater_engine::{Record, Value};
use highwater_query::Span;
use highwater_query::plan::{
    Aggregate, AggregateFunction, Analytic, AnalyticCall, AnalyticColumn, AnalyticNode, BinaryOp,
    CompareOp, Expr, ExprKind, Literal, Node, NodeId, OrderKey, Plan, Pred,
};
use highwater_time::{Duration, Instant};
use proptest::prelude::*;

/// Columns of the input: a key, a value, and what WHEN looks at.
const READS: [&str; 3] = ["k", "v", "w"];

#[derive(Clone, Debug)]
struct CallSpec {
    kind: CallKind,
    keyed: bool,
    limit: i64,
    when: bool,
}

#[derive(Clone, Debug)]
enum CallKind {
    Lag(usize, Option<i64>),
    Last(Option<i64>),
    IsFirst,
    Count(bool),
    Sum,
    Avg,
    Min,
    Max,
    Collect,
    CollectTop(usize),
    TopOne,
}

fn call(spec: &CallSpec) -> AnalyticCall {
    let aggregate = |function, argument| {
        Analytic::Aggregate(Aggregate {
            function,
            argument,
            order: vec![OrderKey {
                expr: column(1),
                descending: true,
                as_text: false,
            }],
            as_text: false,
            strict_types: false,
            span: Span::default(),
        })
    };
    let v = || Some(column(1));
    AnalyticCall {
        function: match spec.kind {
            CallKind::Lag(offset, default) => Analytic::Lag {
                of: column(1),
                offset,
                default: default.map(int),
            },
            CallKind::Last(default) => Analytic::Last {
                of: column(1),
                default: default.map(int),
            },
            CallKind::IsFirst => Analytic::IsFirst,
            CallKind::Count(all) => aggregate(AggregateFunction::Count, v().filter(|_| !all)),
            CallKind::Sum => aggregate(AggregateFunction::Sum, v()),
            CallKind::Avg => aggregate(AggregateFunction::Avg, v()),
            CallKind::Min => aggregate(AggregateFunction::Min, v()),
            CallKind::Max => aggregate(AggregateFunction::Max, v()),
            CallKind::Collect => aggregate(AggregateFunction::Collect, v()),
            CallKind::CollectTop(most) => aggregate(AggregateFunction::CollectTop(most), v()),
            CallKind::TopOne => aggregate(AggregateFunction::TopOne, v()),
        },
        partition: if spec.keyed { vec![column(0)] } else { vec![] },
        limit: Duration::from_secs(spec.limit),
        when: spec.when.then(|| compare(CompareOp::Gt, column(2), int(0))),
        span: Span::default(),
    }
}

fn plan_of(calls: Vec<AnalyticCall>) -> Plan {
    let carried = [AnalyticColumn::Carried(2), AnalyticColumn::Carried(0)];
    let called = (0..calls.len()).map(AnalyticColumn::Call);
    let node = AnalyticNode {
        from: NodeId(0),
        columns: carried.into_iter().chain(called).collect(),
        calls,
        by_partition: false,
        span: Span::default(),
    };
    plan(&READS, Node::Analytic(node))
}

fn key_of(row: &Row, keyed: bool) -> (Option<u32>, Vec<u8>) {
    let mut key = Vec::new();
    if keyed {
        encode_key(row.values[0].view(), &mut key);
    }
    (row.lane, key)
}

fn passes(row: &Row, spec: &CallSpec) -> bool {
    !spec.when || matches!(row.values[2], Value::Int(w) if w > 0)
}

/// The value of a call in row `at`.
fn oracle(spec: &CallSpec, rows: &[Row], at: usize) -> Value {
    let row = &rows[at];
    let seen = |other: &&Row| {
        key_of(other, spec.keyed) == key_of(row, spec.keyed)
            && other.second > row.second - spec.limit
            && passes(other, spec)
    };
    let value = |row: &Row| row.values[1].clone();
    let before: Vec<Value> = rows[..at].iter().filter(seen).map(value).collect();
    let all: Vec<Value> = rows[..=at].iter().filter(seen).map(value).collect();
    let default = |default: Option<i64>| default.map_or(Value::Null, Value::Int);
    let known: Vec<&Value> = all.iter().filter(|value| !value.is_null()).collect();
    match &spec.kind {
        CallKind::Lag(offset, or) => {
            let index = before.len().checked_sub(*offset);
            index.map_or(default(*or), |index| before[index].clone())
        }
        CallKind::Last(or) => all.last().cloned().unwrap_or(default(*or)),
        CallKind::IsFirst => {
            let end = |row: &Row| {
                let time = Instant::from_ticks(ticks(row.second));
                time.ceil_to(Duration::from_secs(spec.limit), Duration::ZERO)
            };
            let mut earlier = rows[..at].iter();
            let met = earlier.any(|other| {
                key_of(other, spec.keyed) == key_of(row, spec.keyed)
                    && passes(other, spec)
                    && end(other) == end(row)
            });
            Value::Int((passes(row, spec) && !met).into())
        }
        CallKind::Count(true) => Value::Int(all.len() as i64),
        CallKind::Count(false) => Value::Int(known.len() as i64),
        CallKind::Sum => sum(&known),
        CallKind::Avg => match sum(&known) {
            Value::Int(sum) => Value::Float(sum as f64 / known.len() as f64),
            Value::Float(sum) => Value::Float(sum / known.len() as f64),
            _ => Value::Null,
        },
        CallKind::Min => extreme(&known, std::cmp::Ordering::Less),
        CallKind::Max => extreme(&known, std::cmp::Ordering::Greater),
        CallKind::Collect => Value::Array(known.into_iter().cloned().collect()),
        CallKind::TopOne => ranked(all).into_iter().next().unwrap_or_default(),
        CallKind::CollectTop(most) => {
            let first = ranked(all).into_iter().take(*most).enumerate();
            let records = first.map(|(at, value)| {
                let mut record = Record::with_capacity(2);
                record.set("rank".into(), Value::Int(at as i64 + 1));
                record.set("value".into(), value);
                Value::Record(record.into())
            });
            Value::Array(records.collect())
        }
    }
}

/// Largest first, NULL last, of equal ones the earlier first.
fn ranked(mut values: Vec<Value>) -> Vec<Value> {
    values.sort_by(|a, b| match (a.is_null(), b.is_null()) {
        (false, false) => order(b.view(), a.view())
            .expect("numbers compare")
            .expect("neither is NULL"),
        (a, b) => a.cmp(&b),
    });
    values
}

/// All numbers here are small multiples of a quarter, which floats add without rounding.
fn sum(values: &[&Value]) -> Value {
    let float = |value: &&Value| match value {
        Value::Int(i) => *i as f64,
        Value::Float(f) => *f,
        _ => unreachable!("only numbers are drawn"),
    };
    let total: f64 = values.iter().map(float).sum();
    match values {
        [] => Value::Null,
        _ if values.iter().all(|value| matches!(value, Value::Int(_))) => Value::Int(total as i64),
        _ => Value::Float(total),
    }
}

fn extreme(values: &[&Value], wanted: std::cmp::Ordering) -> Value {
    let mut best = Value::Null;
    for value in values {
        let better = order(value.view(), best.view()).expect("numbers compare");
        if best.is_null() || better == Some(wanted) {
            best = (*value).clone();
        }
    }
    best
}

fn call_spec() -> impl Strategy<Value = CallSpec> {
    let default = || prop_oneof![Just(None), (90..92i64).prop_map(Some)];
    let kind = prop_oneof![
        (1..4usize, default()).prop_map(|(offset, default)| CallKind::Lag(offset, default)),
        default().prop_map(CallKind::Last),
        Just(CallKind::IsFirst),
        any::<bool>().prop_map(CallKind::Count),
        Just(CallKind::Sum),
        Just(CallKind::Avg),
        Just(CallKind::Min),
        Just(CallKind::Max),
        Just(CallKind::Collect),
        (1..4usize).prop_map(CallKind::CollectTop),
        Just(CallKind::TopOne),
    ];
    (kind, any::<bool>(), 1..8i64, any::<bool>()).prop_map(|(kind, keyed, limit, when)| CallSpec {
        kind,
        keyed,
        limit,
        when,
    })
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        1 => Just(Value::Null),
        3 => (-9..9i64).prop_map(Value::Int),
        2 => (-9..9i64).prop_map(|quarters| Value::Float(quarters as f64 / 4.0)),
    ]
}

fn keys() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(Value::Int(1)),
        Just(Value::Float(1.0)),
        Just(Value::text(
            "a key that is longer than what is kept in place"
        )),
    ]
}

/// Rows in order of time; with lanes, in order within each.
fn rows(lanes: bool) -> impl Strategy<Value = Vec<Row>> {
    let lane = if lanes { 1..4u32 } else { 0..1 };
    let w = (0..2i64).prop_map(Value::Int);
    let row = (0..3i64, 0..3i64, lane, keys(), values(), w);
    prop::collection::vec(row, 0..40).prop_map(move |drawn| {
        let mut at = 0;
        let rows = drawn.into_iter().map(|(step, drift, lane, k, v, w)| {
            at += step * drift / 2;
            Row {
                // Lanes are apart by as much as a few seconds.
                second: at - i64::from(lane) * 2,
                lane: lanes.then_some(lane),
                values: vec![k, v, w],
            }
        });
        rows.collect()
    })
}

fn expected(spec: &[CallSpec], rows: &[Row]) -> Vec<Shown> {
    let rows_out = rows.iter().enumerate().map(|(at, row)| {
        let carried = [&row.values[2], &row.values[0]];
        let carried = carried.iter().map(|value| show(value.view()));
        let called = spec.iter().map(|spec| show(oracle(spec, rows, at).view()));
        (row.second, row.lane, carried.chain(called).collect())
    });
    rows_out.collect()
}

fn cuts() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    // proves S1 T8
    #[test]
    fn values_are_those_of_the_oracle(
        spec in prop::collection::vec(call_spec(), 1..4), rows in rows(false), cuts in cuts()
    ) {
        let drive = run(&plan_of(spec.iter().map(call).collect()), &rows, &cuts);
        prop_assert_eq!(&drive.rows, &expected(&spec, &rows), "{:?}", spec);
        prop_assert_eq!(drive.errors().count, 0);
    }

    // proves S1 T8 T11
    #[test]
    fn every_lane_is_on_its_own(
        spec in prop::collection::vec(call_spec(), 1..3), rows in rows(true), cuts in cuts()
    ) {
        let drive = run(&plan_of(spec.iter().map(call).collect()), &rows, &cuts);
        prop_assert_eq!(&drive.rows, &expected(&spec, &rows), "{:?}", spec);
    }
}

fn row(second: i64, k: i64, v: Value, w: i64) -> Row {
    Row {
        second,
        lane: None,
        values: vec![Value::Int(k), v, Value::Int(w)],
    }
}

fn quotient() -> Expr {
    expr(ExprKind::Binary {
        op: BinaryOp::Divide,
        left: Box::new(column(1)),
        right: Box::new(column(2)),
    })
}

fn lag(of: Expr, when: Option<Pred>) -> AnalyticCall {
    AnalyticCall {
        function: Analytic::Lag {
            of,
            offset: 1,
            default: None,
        },
        partition: vec![column(0)],
        limit: Duration::from_secs(10),
        when,
        span: Span::default(),
    }
}

fn last_column(drive: &Drive) -> Vec<String> {
    let rows = drive.rows.iter();
    rows.map(|(_, _, values)| values.last().cloned().unwrap_or_default())
        .collect()
}

// proves S2
#[test]
fn a_row_that_fails_is_left_out_and_seen_by_no_other() {
    let rows = [
        row(0, 1, Value::Int(8), 2),
        row(1, 1, Value::Int(9), 0),
        row(2, 1, Value::Int(6), 2),
    ];
    let drive = run(&plan_of(vec![lag(quotient(), None)]), &rows, &[0]);
    assert_eq!(last_column(&drive), ["Null", "Int(4)"]);
    assert_eq!(drive.errors().count, 1);
}

// proves S1 S2
#[test]
fn when_guards_the_argument() {
    let rows = [
        row(0, 1, Value::Int(8), 2),
        row(1, 1, Value::Int(9), 0),
        row(2, 1, Value::Int(6), 2),
    ];
    let when = compare(CompareOp::Ne, column(2), int(0));
    let drive = run(&plan_of(vec![lag(quotient(), Some(when))]), &rows, &[0]);
    assert_eq!(last_column(&drive), ["Null", "Int(4)", "Int(4)"]);
    assert_eq!(drive.errors().count, 0);
}

// proves S2
#[test]
fn a_result_that_overflows_leaves_out_its_row_alone() {
    let rows = [
        row(0, 1, Value::Int(i64::MAX), 1),
        row(1, 1, Value::Int(1), 1),
        row(2, 1, Value::Int(-1), 1),
        row(3, 1, Value::text("none"), 1),
        row(4, 1, Value::text(" 1 "), 1),
    ];
    let spec = CallSpec {
        kind: CallKind::Sum,
        keyed: true,
        limit: 3,
        when: false,
    };
    let drive = run(&plan_of(vec![call(&spec)]), &rows, &[0]);
    let max = format!("Int({})", i64::MAX);
    // Text is read as a float.
    let expected = [max.as_str(), max.as_str(), "Float(0.0)"];
    assert_eq!(last_column(&drive), expected);
    assert_eq!(drive.errors().count, 2);
}

// proves T11
#[test]
fn keys_that_have_gone_leave_nothing_behind() {
    let all = [
        CallKind::Lag(1, None),
        CallKind::Lag(3, None),
        CallKind::IsFirst,
        CallKind::Sum,
        CallKind::Min,
    ];
    let calls = all.into_iter().map(|kind| CallSpec {
        kind,
        keyed: true,
        limit: 5,
        when: false,
    });
    let plan = plan_of(calls.map(|spec| call(&spec)).collect());
    let state = |seconds: i64| {
        let mut drive = Drive::new(plan.clone(), 1);
        for second in 0..seconds {
            let keys = 0..10;
            let rows: Vec<Row> = keys
                .map(|k| row(second, second * 10 + k, Value::Float(0.5), 1))
                .collect();
            drive.rows(0, &rows, Vec::new());
            drive.watermark(0, Instant::from_ticks(ticks(second)));
        }
        let most = drive.snapshot().len();
        drive.watermark(0, Instant::AFTER_ALL);
        (most, drive.snapshot().len())
    };
    let (few, many) = (state(50), state(1_000));
    assert!(many.0 < few.0 * 2, "{few:?} {many:?}");
    assert!(many.1 * 3 < many.0, "{many:?}");
}

/// A plain generator of noise, for streams that look like measurements.
struct Noise(u64);

impl Noise {
    /// About normal, with mean 0 and standard deviation 1.
    fn next(&mut self) -> f64 {
        let uniform = |seed: &mut u64| {
            *seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (*seed >> 11) as f64 / (1u64 << 53) as f64
        };
        (0..12).map(|_| uniform(&mut self.0)).sum::<f64>() - 6.0
    }
}

fn spikes(mode: &str, confidence: f64) -> AnalyticCall {
    let literal = |literal| expr(ExprKind::Literal(literal));
    AnalyticCall {
        function: Analytic::SpikeAndDip {
            of: column(1),
            confidence: literal(Literal::Float(confidence)),
            history: 120,
            mode: literal(Literal::Text(mode.into())),
        },
        ..lag(column(1), None)
    }
}

fn changes(confidence: f64, history: usize) -> AnalyticCall {
    AnalyticCall {
        function: Analytic::ChangePoint {
            of: column(1),
            confidence: expr(ExprKind::Literal(Literal::Float(confidence))),
            history,
        },
        limit: Duration::from_hours(1),
        ..lag(column(1), None)
    }
}

/// The rows at which a detector raises an alarm.
fn alarms(call: AnalyticCall, values: &[f64]) -> Vec<usize> {
    let call = AnalyticCall {
        limit: Duration::from_hours(1),
        ..call
    };
    let rows = values.iter().enumerate();
    let rows: Vec<Row> = rows
        .map(|(at, &value)| row(at as i64, 1, Value::Float(value), 1))
        .collect();
    let drive = run(&plan_of(vec![call]), &rows, &[7, 200, 31, 4]);
    assert_eq!(drive.rows.len(), values.len());
    let verdicts = last_column(&drive).into_iter().enumerate();
    verdicts
        .filter(|(_, verdict)| verdict.contains("IsAnomaly: Int(1)"))
        .map(|(at, _)| at)
        .collect()
}

// proves S1
#[test]
fn spikes_and_dips_stand_out_of_noise() {
    let mut noise = Noise(1);
    let mut values: Vec<f64> = (0..600).map(|_| 20.0 + noise.next()).collect();
    (values[300], values[450]) = (35.0, 5.0);
    assert_eq!(alarms(spikes("spikesanddips", 99.9), &values), [300, 450]);
    assert_eq!(alarms(spikes("Spikes", 99.9), &values), [300]);
    assert_eq!(alarms(spikes("dips", 99.9), &values), [450]);
    assert_eq!(alarms(spikes("spikesanddips", 100.0), &values), []);
    let loose = alarms(spikes("spikesanddips", 90.0), &values);
    assert!(loose.len() > 10, "a lower confidence finds more: {loose:?}");
}

// proves S1
#[test]
fn a_change_of_level_is_found_and_steady_noise_and_lone_spikes_are_not() {
    let mut noise = Noise(2);
    for history in [20, 120, 1_200] {
        let steady: Vec<f64> = (0..4_000).map(|_| noise.next()).collect();
        let found = alarms(changes(99.0, history), &steady);
        assert!(found.len() <= 1, "false alarms with {history}: {found:?}");
        let mut values = steady.clone();
        values[..2_000].fill_with(|| noise.next());
        values[1_000] = 50.0;
        values[2_000..].iter_mut().for_each(|value| *value += 10.0);
        values[3_000..].iter_mut().for_each(|value| *value -= 20.0);
        let found = alarms(changes(99.0, history), &values);
        let up = found.iter().filter(|at| (2_000..2_030).contains(*at));
        let down = found.iter().filter(|at| (3_000..3_030).contains(*at));
        assert_eq!((up.count(), down.count()), (1, 1), "{history}: {found:?}");
        assert!(found.len() <= 3, "{history}: {found:?}");
    }
}

// proves S1 S2
#[test]
fn the_first_value_has_a_neutral_score_and_nonsense_is_counted() {
    let rows = [
        row(0, 1, Value::Int(5), 1),
        row(1, 1, Value::Null, 1),
        row(2, 1, Value::text("x"), 1),
    ];
    let drive = run(&plan_of(vec![spikes("dips", 95.0)]), &rows, &[0]);
    assert_eq!(
        last_column(&drive),
        ["{IsAnomaly: Int(0), Score: Float(1.0)}", "Null"]
    );
    assert_eq!(drive.errors().count, 1);
    let drive = run(&plan_of(vec![changes(95.0, 9)]), &rows[..1], &[0]);
    assert_eq!(
        last_column(&drive),
        ["{IsAnomaly: Int(0), Score: Float(0.0)}"]
    );
    let drive = run(&plan_of(vec![spikes("dips", 0.5)]), &rows[..1], &[0]);
    assert_eq!((drive.rows.len(), drive.errors().count), (0, 1));
    let drive = run(&plan_of(vec![spikes("up", 95.0)]), &rows[..1], &[0]);
    assert_eq!((drive.rows.len(), drive.errors().count), (0, 1));
}

// proves T8
#[test]
fn partitions_meet_unless_they_are_kept_apart() {
    let values = |by_partition: bool| {
        let mut plan = plan_of(vec![lag(column(1), None)]);
        if let Node::Analytic(node) = &mut plan.nodes[1] {
            node.by_partition = by_partition;
        }
        let mut drive = Drive::new(plan, 2);
        drive.rows(
            0,
            &[row(0, 1, Value::Int(10), 1), row(2, 1, Value::Int(12), 1)],
            vec![],
        );
        drive.rows(
            1,
            &[row(1, 1, Value::Int(11), 1), row(2, 1, Value::Int(13), 1)],
            vec![],
        );
        (0..2).for_each(|partition| drive.watermark(partition, Instant::AFTER_ALL));
        last_column(&drive)
    };
    assert_eq!(values(false), ["Null", "Int(10)", "Int(11)", "Int(12)"]);
    assert_eq!(values(true), ["Null", "Null", "Int(10)", "Int(11)"]);
}

// proves S1
#[test]
fn queries_run_from_their_text() {
    let plan = crate::by_hand::compiled(
        "SELECT v, LAG(v, 1, -1) OVER (PARTITION BY k LIMIT DURATION(second, 5)) AS before,
             LAST(v) OVER (LIMIT DURATION(second, 5) WHEN v > 2) AS big,
             ISFIRST(second, 10) AS first,
             SUM(v) OVER (PARTITION BY k LIMIT DURATION(second, 3)) AS total
         FROM input TIMESTAMP BY t",
    );
    let row = |second, k, v| {
        crate::by_hand::row_for(&plan, second, &[("k", Value::Int(k)), ("v", Value::Int(v))])
    };
    let rows = [
        row(0, 1, 3),
        row(1, 2, 1),
        row(2, 1, 2),
        row(6, 1, 1),
        row(7, 1, 5),
    ];
    let drive = run(&plan, &rows, &[3, 1, 200]);
    let values: Vec<String> = drive.rows.iter().map(|row| row.2.join(" ")).collect();
    let values: Vec<String> = values
        .iter()
        .map(|row| row.replace("Int(", "").replace(')', ""))
        .collect();
    assert_eq!(
        values,
        [
            "3 -1 3 1 3",
            "1 -1 3 0 1",
            "2 3 3 0 5",
            "1 2 Null 0 1",
            "5 1 5 0 6"
        ]
    );
}
