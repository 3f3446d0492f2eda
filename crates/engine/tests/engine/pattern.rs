//! MATCH_RECOGNIZE against a backtracking oracle: for any pattern, conditions, events and chunks, the rows are those of
//! the preferred match from every event, emitted when it is decided.

use crate::by_hand::{Drive, Row, Shown, column, compare, int, plan, run, show, ticks};
use highwater_engine::Value;
use highwater_query::Span;
use highwater_query::plan::{
    CompareOp, Item, Key, MatchNode, MatchRef, Name, Node, NodeId, Pattern, Pick, Plan, Pred,
    PredKind,
};
use highwater_time::{Duration, Instant};
use proptest::prelude::*;

/// Columns of the input: a key and a value.
const READS: [&str; 2] = ["k", "v"];
const VARIABLES: [&str; 3] = ["A", "B", "C"];
const A: Pattern = Pattern::Variable(0);
const B: Pattern = Pattern::Variable(1);

/// The inputs of a variable's condition, and the MEASURES.
fn refs() -> Vec<MatchRef> {
    let mut refs = Vec::new();
    for variable in 0..VARIABLES.len() {
        for pick in PICKS {
            let of = column(1);
            refs.push(MatchRef::Picked {
                variable,
                pick,
                of,
                as_text: false,
            });
        }
    }
    refs.push(MatchRef::Classifier);
    refs
}

const PICKS: [Pick; 5] = [Pick::Current, Pick::First, Pick::Last, Pick::Min, Pick::Max];

/// Which of [`refs`] it is.
fn place(variable: usize, pick: Pick) -> usize {
    let pick = PICKS.iter().position(|other| *other == pick);
    variable * PICKS.len() + pick.expect("it is one of them")
}

/// A condition of a variable: the event's value, or something picked, compared with something else.
#[derive(Clone, Debug)]
struct Condition {
    left: (usize, Pick),
    op: CompareOp,
    right: Side,
}

#[derive(Clone, Debug)]
enum Side {
    Constant(i64),
    Picked(usize, Pick),
}

#[derive(Clone, Debug)]
struct Query {
    pattern: Pattern,
    conditions: Vec<Option<Condition>>,
    limit: i64,
    keyed: bool,
}

fn pred(condition: &Condition) -> Pred {
    let picked = |variable, pick| column(place(variable, pick));
    let (variable, pick) = condition.left;
    let right = match condition.right {
        Side::Constant(value) => int(value),
        Side::Picked(variable, pick) => picked(variable, pick),
    };
    compare(condition.op, picked(variable, pick), right)
}

fn plan_of(query: &Query) -> Plan {
    let refs = refs();
    let item = |name: &str, at: usize| Item {
        name: Name::Field(name.into()),
        expr: column(at),
    };
    let mut measures = vec![item("vars", refs.len() - 1)];
    measures.push(item("a", place(0, Pick::First)));
    measures.push(item("b", place(1, Pick::Last)));
    measures.push(item("c", place(2, Pick::Max)));
    measures.push(item("d", place(0, Pick::Min)));
    // A bare field in MEASURES is that of the last event.
    measures.push(item("e", place(1, Pick::Current)));
    let key = Key {
        name: "k".into(),
        expr: column(0),
    };
    let node = MatchNode {
        from: NodeId(0),
        limit: Duration::from_secs(query.limit),
        partition: if query.keyed { vec![key] } else { vec![] },
        pattern: query.pattern.clone(),
        variables: VARIABLES.iter().map(|name| (*name).into()).collect(),
        defines: query
            .conditions
            .iter()
            .map(|condition| condition.as_ref().map(pred))
            .collect(),
        measures,
        refs,
        by_partition: false,
        span: Span::default(),
    };
    plan(&READS, Node::Match(node))
}

/// The events of a match: who took them and their values.
type Taken = Vec<(Option<usize>, Value)>;

fn picked(taken: &Taken, variable: usize, pick: Pick) -> Value {
    let own = taken.iter().filter(|(by, _)| *by == Some(variable));
    let values: Vec<&Value> = own.map(|(_, value)| value).collect();
    let known = values.iter().filter_map(|value| match value {
        Value::Int(i) => Some(*i),
        _ => None,
    });
    match pick {
        Pick::First => values.first().map(|value| (*value).clone()),
        Pick::Last | Pick::Current => values.last().map(|value| (*value).clone()),
        Pick::Min => known.min().map(Value::Int),
        Pick::Max => known.max().map(Value::Int),
    }
    .unwrap_or_default()
}

fn holds(condition: &Condition, taken: &Taken) -> bool {
    let (variable, pick) = condition.left;
    let left = picked(taken, variable, pick);
    let right = match condition.right {
        Side::Constant(value) => Value::Int(value),
        Side::Picked(variable, pick) => picked(taken, variable, pick),
    };
    match (left, right, condition.op) {
        (Value::Int(a), Value::Int(b), CompareOp::Lt) => a < b,
        (Value::Int(a), Value::Int(b), CompareOp::Ge) => a >= b,
        _ => false,
    }
}

/// The preferred outcome, given the events so far.
#[derive(Clone, Debug)]
enum Outcome {
    Matched(Taken),
    /// An event yet to come decides.
    Open,
}

struct Backtrack<'a> {
    query: &'a Query,
    events: &'a [&'a Row],
    /// Whether more events may follow.
    more: bool,
}

type Then<'a> = &'a mut dyn FnMut(usize, &Taken) -> Option<Outcome>;

impl Backtrack<'_> {
    fn preferred(&self) -> Option<Outcome> {
        self.walk(&self.query.pattern, 0, &Vec::new(), &mut |_, taken| {
            Some(Outcome::Matched(taken.clone()))
        })
    }

    fn walk(&self, pattern: &Pattern, at: usize, taken: &Taken, then: Then<'_>) -> Option<Outcome> {
        match pattern {
            Pattern::Variable(variable) => self.take(Some(*variable), at, taken, then),
            Pattern::Any => self.take(None, at, taken, then),
            Pattern::Sequence(parts) => match parts.split_first() {
                None => then(at, taken),
                Some((first, rest)) => self.walk(first, at, taken, &mut |at, taken| {
                    self.walk(&Pattern::Sequence(rest.to_vec()), at, taken, then)
                }),
            },
            Pattern::Either(branches) => branches
                .iter()
                .find_map(|branch| self.walk(branch, at, taken, then)),
            Pattern::Repeat {
                of,
                at_least_one,
                at_most_one,
            } => {
                let round = if *at_most_one {
                    self.walk(of, at, taken, then)
                } else {
                    self.rounds(of, at, taken, then)
                };
                match round {
                    None if !at_least_one => then(at, taken),
                    round => round,
                }
            }
        }
    }

    /// One or more rounds; one that takes nothing is the last.
    fn rounds(&self, of: &Pattern, from: usize, taken: &Taken, then: Then<'_>) -> Option<Outcome> {
        self.walk(of, from, taken, &mut |at, taken| {
            let again = match at > from {
                true => self.rounds(of, at, taken, then),
                false => None,
            };
            again.or_else(|| then(at, taken))
        })
    }

    fn take(
        &self,
        variable: Option<usize>,
        at: usize,
        taken: &Taken,
        then: Then<'_>,
    ) -> Option<Outcome> {
        let Some(event) = self.events.get(at) else {
            return self.more.then_some(Outcome::Open);
        };
        let mut taken = taken.clone();
        taken.push((variable, event.values[1].clone()));
        let condition = variable.and_then(|variable| self.query.conditions[variable].as_ref());
        match condition.is_none_or(|condition| holds(condition, &taken)) {
            true => then(at + 1, &taken),
            false => None,
        }
    }
}

/// Rows with what they are ordered by: time, whether an event decided it and which, and the first event.
fn expected(query: &Query, rows: &[Row]) -> Vec<Shown> {
    let mut found: Vec<((i64, usize, usize), Vec<String>)> = Vec::new();
    for (number, first) in rows.iter().enumerate() {
        let reachable = |row: &Row| row.second - first.second < query.limit;
        let same =
            |row: &Row| !query.keyed || show(row.values[0].view()) == show(first.values[0].view());
        let own = rows.iter().enumerate().skip(number);
        let own = own.filter(|(_, row)| same(row) && reachable(row));
        let (numbers, events): (Vec<usize>, Vec<&Row>) = own.unzip();
        let mut outcome = None;
        for count in 1..=events.len() {
            let backtrack = Backtrack {
                query,
                events: &events[..count],
                more: true,
            };
            let last = events[count - 1].second;
            match backtrack.preferred() {
                Some(Outcome::Open) => {}
                Some(Outcome::Matched(taken)) => {
                    outcome = Some(((last, numbers[count - 1] + 1, number), taken));
                    break;
                }
                None => {
                    outcome = Some(((last, 0, number), Vec::new()));
                    break;
                }
            }
        }
        if outcome.is_none() {
            let backtrack = Backtrack {
                query,
                events: &events,
                more: false,
            };
            if let Some(Outcome::Matched(taken)) = backtrack.preferred() {
                outcome = Some(((first.second + query.limit, 0, number), taken));
            }
        }
        if let Some((place, taken)) = outcome.filter(|(_, taken)| !taken.is_empty()) {
            found.push((place, shown(query, first, &taken)));
        }
    }
    found.sort();
    let found = found.into_iter();
    found
        .map(|((second, ..), values)| (second, None, values))
        .collect()
}

fn shown(query: &Query, first: &Row, taken: &Taken) -> Vec<String> {
    let names = taken.iter().map(|(by, _)| {
        let name = by.map_or(".", |variable| VARIABLES[variable]);
        show(Value::text(name).view())
    });
    let names = format!("[{}]", names.collect::<Vec<_>>().join(", "));
    let key = query.keyed.then(|| show(first.values[0].view()));
    let measured = [
        (0, Pick::First),
        (1, Pick::Last),
        (2, Pick::Max),
        (0, Pick::Min),
        (1, Pick::Last),
    ];
    let measured = measured
        .iter()
        .map(|(variable, pick)| show(picked(taken, *variable, *pick).view()));
    key.into_iter().chain([names]).chain(measured).collect()
}

fn repeat(of: Pattern, at_least_one: bool, at_most_one: bool) -> Pattern {
    Pattern::Repeat {
        of: Box::new(of),
        at_least_one,
        at_most_one,
    }
}

fn patterns() -> impl Strategy<Value = Pattern> {
    let leaf = prop_oneof![
        6 => (0..VARIABLES.len()).prop_map(Pattern::Variable),
        1 => Just(Pattern::Any),
    ];
    leaf.prop_recursive(3, 8, 3, |inner| {
        let few = || prop::collection::vec(inner.clone(), 1..4);
        let quantifiers = prop_oneof![
            Just((false, false)),
            Just((true, false)),
            Just((false, true))
        ];
        prop_oneof![
            3 => few().prop_map(Pattern::Sequence),
            2 => few().prop_map(Pattern::Either),
            3 => (inner, quantifiers).prop_map(|(of, (least, most))| repeat(of, least, most)),
        ]
    })
}

fn conditions(variable: usize) -> impl Strategy<Value = Option<Condition>> {
    let op = || prop_oneof![Just(CompareOp::Lt), Just(CompareOp::Ge)];
    let pick = || prop::sample::select(PICKS.to_vec());
    let foreign = prop_oneof![
        Just(Pick::First),
        Just(Pick::Last),
        Just(Pick::Min),
        Just(Pick::Max)
    ];
    let constant = (0..4i64).prop_map(Side::Constant);
    let back = (0..=variable, foreign).prop_map(|(variable, pick)| Side::Picked(variable, pick));
    prop_oneof![
        1 => Just(None),
        3 => (op(), constant.clone()).prop_map(move |(op, right)| Some(Condition {
            left: (variable, Pick::Current), op, right
        })),
        1 => (pick(), op(), constant).prop_map(move |(pick, op, right)| Some(Condition {
            left: (variable, pick), op, right
        })),
        2 => (pick(), op(), back).prop_map(move |(pick, op, right)| Some(Condition {
            left: (variable, pick), op, right
        })),
    ]
}

fn queries() -> impl Strategy<Value = Query> {
    let conditions = (conditions(0), conditions(1), conditions(2));
    (patterns(), conditions, 1..9i64, any::<bool>()).prop_map(
        |(pattern, (a, b, c), limit, keyed)| Query {
            pattern,
            conditions: vec![a, b, c],
            limit,
            keyed,
        },
    )
}

fn events(lanes: bool) -> impl Strategy<Value = Vec<Row>> {
    let value = prop_oneof![1 => Just(Value::Null), 7 => (0..5i64).prop_map(Value::Int)];
    let event = (0..3i64, 0..2i64, 0..2u32, value);
    prop::collection::vec(event, 0..9).prop_map(move |drawn| {
        let mut at = 0;
        let rows = drawn.into_iter().map(|(step, key, lane, v)| {
            at += step;
            Row {
                second: at - if lanes { i64::from(lane) * 3 } else { 0 },
                lane: lanes.then_some(lane),
                values: vec![Value::Int(key), v],
            }
        });
        rows.collect()
    })
}

fn cuts() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    // proves S1 T8
    #[test]
    fn rows_are_those_of_the_oracle(query in queries(), rows in events(false), cuts in cuts()) {
        let drive = run(&plan_of(&query), &rows, &cuts);
        prop_assert_eq!(&drive.rows, &expected(&query, &rows), "{:?}", query);
        prop_assert_eq!(drive.errors().count, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    // proves S1 T8 T11
    #[test]
    fn every_lane_is_on_its_own(query in queries(), rows in events(true), cuts in cuts()) {
        let drive = run(&plan_of(&query), &rows, &cuts);
        for lane in 0..2 {
            let own: Vec<Row> = rows.iter().filter(|row| row.lane == Some(lane)).cloned().collect();
            let found = drive.rows.iter().filter(|row| row.1 == Some(lane));
            let found: Vec<Shown> = found.map(|row| (row.0, None, row.2.clone())).collect();
            prop_assert_eq!(found, expected(&query, &own), "{:?}", query);
        }
    }
}

fn row(second: i64, v: i64) -> Row {
    Row {
        second,
        lane: None,
        values: vec![Value::Int(1), Value::Int(v)],
    }
}

fn simple(pattern: Pattern, limit: i64, a: Option<Condition>, b: Option<Condition>) -> Query {
    Query {
        pattern,
        conditions: vec![a, b, None],
        limit,
        keyed: true,
    }
}

fn at_least(variable: usize, value: i64) -> Option<Condition> {
    Some(Condition {
        left: (variable, Pick::Current),
        op: CompareOp::Ge,
        right: Side::Constant(value),
    })
}

// proves S1
#[test]
fn a_match_is_as_long_as_it_can_be_and_comes_when_that_is_known() {
    // A+ B: B at 2 may still be an A of something longer; the event at 9 ends that.
    let pattern = Pattern::Sequence(vec![repeat(A, true, false), B]);
    let query = simple(pattern, 20, at_least(0, 10), at_least(1, 90));
    let rows = [row(0, 50), row(2, 95), row(9, 5)];
    let drive = run(&plan_of(&query), &rows, &[0]);
    let seconds: Vec<i64> = drive.rows.iter().map(|row| row.0).collect();
    assert_eq!(seconds, [9]);
    assert_eq!(drive.rows[0].2[1], "[Text(\"A\"), Text(\"B\")]");
    // Without that event, the limit ends it.
    let drive = run(&plan_of(&query), &rows[..2], &[0]);
    let seconds: Vec<i64> = drive.rows.iter().map(|row| row.0).collect();
    assert_eq!(seconds, [20]);
}

// proves T13
#[test]
fn a_match_that_runs_out_of_time_comes_with_the_watermark() {
    let query = simple(repeat(A, true, false), 10, None, None);
    let mut drive = Drive::new(plan_of(&query), 1);
    drive.rows(0, &[row(0, 1), row(3, 1)], Vec::new());
    drive.watermark(0, Instant::from_ticks(ticks(10) - 1));
    assert_eq!(drive.rows.len(), 0);
    drive.watermark(0, Instant::from_ticks(ticks(10)));
    assert_eq!(drive.rows.len(), 1);
    drive.watermark(0, Instant::from_ticks(ticks(14)));
    assert_eq!(drive.rows.len(), 2);
    assert_eq!(drive.rows[1].0, 13);
}

/// `(A | B)* C` where no condition looks back has few ways however long it gets.
// proves S2
#[test]
fn conditions_on_events_alone_never_blow_up() {
    let either = Pattern::Either(vec![A, B]);
    let pattern = Pattern::Sequence(vec![repeat(either, false, false), Pattern::Variable(2)]);
    let mut query = simple(pattern, 100_000, None, None);
    query.conditions[2] = at_least(2, 9);
    let mut rows: Vec<Row> = (0..400).map(|second| row(second, 1)).collect();
    rows.push(row(400, 9));
    let drive = run(&plan_of(&query), &rows, &[200, 3, 50]);
    assert_eq!((drive.rows.len(), drive.errors().count), (401, 0));
}

/// The same with a condition that can tell all ways apart.
// proves S2
#[test]
fn an_attempt_with_too_many_ways_is_given_up_and_counted() {
    let either = Pattern::Either(vec![A, B]);
    let pattern = Pattern::Sequence(vec![repeat(either, false, false), Pattern::Variable(2)]);
    let mut query = simple(pattern, 100_000, None, None);
    query.conditions[2] = Some(Condition {
        left: (2, Pick::Current),
        op: CompareOp::Ge,
        right: Side::Picked(0, Pick::Max),
    });
    let mut plan = plan_of(&query);
    // C also looks at every other value that A and B have kept, so that nearly all ways differ.
    if let Node::Match(node) = &mut plan.nodes[1] {
        for at in [
            place(0, Pick::First),
            place(0, Pick::Last),
            place(0, Pick::Min),
            place(1, Pick::First),
            place(1, Pick::Last),
            place(1, Pick::Min),
            place(1, Pick::Max),
        ] {
            let also = compare(CompareOp::Ge, column(place(2, Pick::Current)), column(at));
            let span = Span::default();
            node.defines[2] = node.defines[2].take().map(|pred| Pred {
                kind: PredKind::And(Box::new(pred), Box::new(also)),
                span,
            });
        }
    }
    let rows: Vec<Row> = (0..60)
        .map(|second| row(second, 1_000 - second * 7 % 13 * 10 - second))
        .collect();
    let drive = run(&plan, &rows, &[200, 3, 50]);
    let errors = drive.errors();
    assert!(
        errors.count > 0 && errors.samples[0].reason.contains("abandoned"),
        "{errors:?}"
    );
}

// proves T11
#[test]
fn keys_that_have_gone_leave_nothing_behind() {
    let pattern = Pattern::Sequence(vec![A, B]);
    let plan = plan_of(&simple(pattern, 5, None, at_least(1, 9)));
    let state = |seconds: i64| {
        let mut drive = Drive::new(plan.clone(), 1);
        for second in 0..seconds {
            let rows: Vec<Row> = (0..10)
                .map(|key| Row {
                    second,
                    lane: None,
                    values: vec![Value::Int(second * 10 + key), Value::Int(1)],
                })
                .collect();
            drive.rows(0, &rows, Vec::new());
            drive.watermark(0, Instant::from_ticks(ticks(second)));
        }
        drive.snapshot().len()
    };
    let (few, many) = (state(50), state(1_000));
    assert!(many < few * 2, "{few:?} {many:?}");
}

// proves S1
#[test]
fn queries_run_from_their_text() {
    let plan = crate::by_hand::compiled(
        "SELECT * INTO alerts FROM input TIMESTAMP BY t MATCH_RECOGNIZE (
           LIMIT DURATION (minute, 5) PARTITION BY id
           MEASURES First(Up.v) AS v0, Last(Hot.v) AS v1, Classifier() AS vars
           AFTER MATCH SKIP TO NEXT ROW
           PATTERN (Up+ Hot)
           DEFINE Up AS Up.v > 10, Hot AS Hot.v > 90 AND Hot.v > Last(Up.v) + 5 ) AS m",
    );
    let row = |second, v| {
        let fields = [("id", Value::text("x")), ("v", Value::Int(v))];
        crate::by_hand::row_for(&plan, second, &fields)
    };
    let rows = [
        row(0, 5),
        row(1, 20),
        row(2, 30),
        row(3, 95),
        row(4, 96),
        row(5, 1),
    ];
    let drive = run(&plan, &rows, &[3, 1, 200]);
    let values: Vec<String> = drive.rows.iter().map(|row| row.2.join(" ")).collect();
    assert_eq!(
        values,
        [
            "Text(\"x\") Int(20) Int(95) [Text(\"Up\"), Text(\"Up\"), Text(\"Hot\")]",
            "Text(\"x\") Int(30) Int(95) [Text(\"Up\"), Text(\"Hot\")]",
        ]
    );
    assert!(drive.rows.iter().all(|row| row.0 == 5));
}
