//! JOIN and UNION of substreams: every key by its own clock, on both sides.
//!
//! Two oracles. Pairs are tried by brute force; and a query over one clock, given the timestamps that the substreams
//! gave, must find the same rows. For any cuts and speeds of the streams, and restarts anywhere, exactly the same
//! sequence must come out, in order within each key.

use std::collections::HashMap;
use std::sync::Arc;

use highwater_engine::eval::{encode_key, write_text};
use highwater_engine::{Chunk, ChunkLanes, ColumnBuilder, Item, PhysicalPlan, Value, ValueRef};
use highwater_query::plan::{Plan, Read};
use highwater_query::{Catalog, compile, lookback};
use highwater_time::{
    Arrivals, Duration, EventBatch, EventKeys, Instant, JudgedEvent, ReleasedLaneEvents,
    Substreams, TICKS_PER_SECOND, TimePolicy, ViolationAction,
};
use proptest::prelude::*;

use crate::running::Running;

#[derive(Clone, Debug)]
struct Event {
    arrival: i64,
    second: i64,
    key: i64,
    number: i64,
}

/// A query over A and B with `{over}` where OVER stands, and whether `k` leads its rows.
const QUERIES: &[&str] = &[
    "SELECT a.k AS k, a.n AS a, b.n AS b FROM A a TIMESTAMP BY t {over} JOIN B b TIMESTAMP BY t {over}
     ON a.k = b.k AND DATEDIFF(s, a, b) BETWEEN -2 AND 3",
    "SELECT a.k AS k, a.n AS a, b.n AS b FROM A a TIMESTAMP BY t {over} LEFT JOIN B b TIMESTAMP BY t {over}
     ON a.k = b.k AND DATEDIFF(s, a, b) BETWEEN 0 AND 4",
    "SELECT k, n FROM A TIMESTAMP BY t {over} UNION SELECT k, n FROM B TIMESTAMP BY t {over}",
    "SELECT a.k AS k, a.n AS a, b.n AS b FROM A a TIMESTAMP BY t {over} JOIN A b TIMESTAMP BY t {over}
     ON a.k = b.k AND DATEDIFF(s, a, b) BETWEEN 1 AND 5",
    "WITH odd AS (SELECT k, n FROM A TIMESTAMP BY t {over} WHERE n % 2 = 1)
     SELECT odd.k AS k, COUNT(*) AS c, SUM(b.n) AS s FROM odd LEFT JOIN B b TIMESTAMP BY t {over}
     ON odd.k = b.k AND DATEDIFF(s, odd, b) BETWEEN -1 AND 2 GROUP BY odd.k, Tumbling(s, 3)",
    "WITH both AS (SELECT k, n FROM A TIMESTAMP BY t {over} WHERE n % 3 <> 0
     UNION SELECT k, n FROM B TIMESTAMP BY t {over})
     SELECT k, COUNT(*) AS c, MAX(n) AS m FROM both GROUP BY k, Hopping(s, 6, 2)",
    "WITH counts AS (SELECT k, COUNT(*) AS c FROM A TIMESTAMP BY t {over} GROUP BY k, Tumbling(s, 4)),
     met AS (SELECT counts.k AS k, counts.c AS c, b.n AS n FROM counts JOIN B b TIMESTAMP BY t {over}
     ON counts.k = b.k AND DATEDIFF(s, counts, b) BETWEEN -4 AND 4)
     SELECT k, c, n FROM met UNION SELECT k, n AS c, n FROM A TIMESTAMP BY t {over}",
    "SELECT a.k AS k, a.n AS a, b.n AS b, c.n AS c FROM A a TIMESTAMP BY t {over}
     LEFT JOIN B b TIMESTAMP BY t {over} ON a.k = b.k AND DATEDIFF(s, a, b) BETWEEN 0 AND 2
     LEFT JOIN A c TIMESTAMP BY t {over} ON a.k = c.k AND DATEDIFF(s, a, c) BETWEEN 1 AND 3",
];

fn plan(query: &str, over: &str) -> Arc<Plan> {
    let text = query.replace("{over}", over);
    let compiled = compile(&text, &Catalog::streams(["A", "B"]));
    Arc::new(compiled.unwrap_or_else(|e| panic!("{text}: {e:?}")).plan)
}

fn instant(second: i64) -> Instant {
    Instant::from_ticks((63_000_000_000 + second) * TICKS_PER_SECOND)
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = (0..4i64, -3..12i64, 0..4i64);
    prop::collection::vec(event, 0..24).prop_map(|drawn| {
        let mut arrival = 0;
        let numbered = drawn.into_iter().zip(0..);
        let events = numbered.map(|((wait, age, key), number)| {
            arrival += wait;
            Event {
                arrival,
                second: arrival - age,
                key,
                number,
            }
        });
        events.collect()
    })
}

fn policies() -> impl Strategy<Value = TimePolicy> {
    let action = || prop_oneof![Just(ViolationAction::Adjust), Just(ViolationAction::Drop)];
    (0..14i64, 0..5i64, action(), action()).prop_map(
        |(late, out_of_order, late_events, out_of_order_events)| TimePolicy {
            late_arrival: Duration::from_secs(late),
            out_of_order: Duration::from_secs(out_of_order),
            early_arrival: Some(Duration::from_secs(2)),
            late_events,
            out_of_order_events,
            early_events: ViolationAction::Drop,
        },
    )
}

/// A result: its time and its values as text.
type Shown = (i64, Vec<String>);

fn shown(value: ValueRef<'_>) -> String {
    let mut text = String::new();
    match value {
        ValueRef::Null => text.push_str("NULL"),
        value => write_text(value, &mut text),
    }
    text
}

/// A plan over one partition of each input.
struct Engine {
    running: Running,
    rows: Vec<Shown>,
    /// The floor, and the watermark of each lane.
    floor: i64,
    clocks: HashMap<u32, i64>,
    ended: bool,
}

impl Engine {
    fn new(plan: Arc<Plan>) -> Engine {
        let inputs = plan.inputs.len();
        let physical = PhysicalPlan::new(plan).expect("the plan can run");
        Engine {
            running: Running::new(Arc::new(physical), &vec![1; inputs]),
            rows: Vec::new(),
            floor: i64::MIN,
            clocks: HashMap::new(),
            ended: false,
        }
    }

    fn chunk(&self, input: usize, events: &[Event], times: &[Instant]) -> Chunk {
        let value = |read: &Read, event: &Event| match read {
            Read::Path(path) if path[0] == "k" => Value::Int(event.key),
            Read::Path(path) if path[0] == "n" => Value::Int(event.number),
            _ => Value::Null,
        };
        let reads = self.running.plan().inputs[input].reads.iter();
        let columns = reads.map(|read| {
            let mut builder = ColumnBuilder::default();
            events
                .iter()
                .for_each(|e| builder.push_owned(value(read, e)));
            builder.finish()
        });
        Chunk::new(
            times.iter().map(|time| time.ticks()).collect(),
            columns.collect(),
        )
    }

    fn push(&mut self, input: usize, item: Item) {
        for item in self.running.push(input, 0, item) {
            match item {
                Item::Rows(chunk) => self.take(&chunk),
                Item::Watermark(watermark) => self.ended |= watermark == Instant::AFTER_ALL,
                Item::PartialPanes(_) => panic!("rows come out"),
            }
        }
    }

    fn take(&mut self, chunk: &Chunk) {
        let lanes = chunk.lanes.clone().unwrap_or_default();
        let mut watermarks = lanes.watermarks.iter().peekable();
        for row in 0..=chunk.rows() {
            while let Some(mark) = watermarks.next_if(|mark| mark.before_row <= row) {
                let clock = match mark.lane {
                    None => &mut self.floor,
                    Some(lane) => self.clocks.entry(lane).or_insert(i64::MIN),
                };
                assert!(*clock <= mark.watermark.ticks(), "clocks go forward");
                *clock = mark.watermark.ticks();
            }
            if row == chunk.rows() {
                break;
            }
            let time = chunk.times[row];
            if let Some(lane) = lanes.of_row.get(row) {
                let clock = self.clocks.get(lane).copied().unwrap_or(i64::MIN);
                assert!(
                    time >= clock.max(self.floor),
                    "nothing comes after its watermark"
                );
            }
            let values = chunk.columns.iter().map(|column| shown(column.get(row)));
            self.rows.push((time, values.collect()));
        }
    }

    fn restart(&mut self) {
        self.running.restart();
    }
}

/// Runs the query with substreams, as `choices` says. Gives the rows and the fates of the events of each input.
fn by_key(
    query: &str,
    policy: TimePolicy,
    streams: &[Vec<Event>],
    choices: &[u8],
) -> (Vec<Shown>, Vec<Vec<JudgedEvent>>) {
    let mut engine = Engine::new(plan(query, "OVER k"));
    let inputs = engine.running.plan().inputs.len();
    let linger = lookback(engine.running.plan());
    let mut orders: Vec<Substreams> = (0..inputs)
        .map(|_| Substreams::new(policy, linger))
        .collect();
    let mut fates = vec![Vec::new(); inputs];
    let mut at = vec![0; inputs];
    let mut open: Vec<usize> = (0..inputs).collect();
    let mut choices = choices.iter().copied().cycle();
    let mut choose = move |below: usize| usize::from(choices.next().unwrap_or(0)) % below;
    while !open.is_empty() {
        let input = open[choose(open.len())];
        let rest = &streams[input][at[input]..];
        let mut released = ReleasedLaneEvents::default();
        if rest.is_empty() {
            orders[input].end(&mut released);
            deliver(&mut engine, input, &streams[input], released);
            engine.push(input, Item::Watermark(Instant::AFTER_ALL));
            open.retain(|other| *other != input);
            continue;
        }
        let batch = &rest[..1 + choose(rest.len())];
        let times: Vec<Instant> = batch.iter().map(|e| instant(e.second)).collect();
        let arrivals: Vec<Instant> = batch.iter().map(|e| instant(e.arrival)).collect();
        let (mut bytes, mut offsets) = (Vec::new(), vec![0]);
        for event in batch {
            encode_key(ValueRef::Int(event.key), &mut bytes);
            offsets.push(bytes.len() as u32);
        }
        let incoming = EventBatch {
            first_row: at[input] as u64,
            times: &times,
            arrivals: Arrivals::Each(&arrivals),
        };
        let keys = EventKeys {
            offsets: &offsets,
            bytes: &bytes,
        };
        orders[input].push(incoming, &keys, &mut released, &mut fates[input]);
        at[input] += batch.len();
        deliver(&mut engine, input, &streams[input], released);
        if choose(6) == 0 {
            engine.restart();
        }
    }
    assert!(engine.ended, "the end of time arrives at the exit");
    (engine.rows, fates)
}

fn deliver(engine: &mut Engine, input: usize, stream: &[Event], released: ReleasedLaneEvents) {
    let events: Vec<Event> = released
        .rows
        .iter()
        .map(|r| stream[*r as usize].clone())
        .collect();
    let mut chunk = engine.chunk(input, &events, &released.times);
    chunk.lanes = Some(ChunkLanes {
        of_row: released.lanes,
        watermarks: released.watermarks,
        names: Vec::new(),
    });
    engine.push(input, Item::Rows(chunk));
}

/// The events that were kept, with the timestamps they were given, by time.
fn kept(stream: &[Event], fates: &[JudgedEvent]) -> Vec<(Instant, Event)> {
    let mut kept: Vec<(Instant, Event)> = fates
        .iter()
        .filter_map(|fate| Some((fate.timestamp?, stream[fate.row as usize].clone())))
        .collect();
    kept.sort_by_key(|(time, event)| (*time, event.number));
    kept
}

/// The same query over one clock.
fn by_one_clock(query: &str, streams: &[Vec<(Instant, Event)>]) -> Vec<Shown> {
    let mut engine = Engine::new(plan(query, ""));
    let inputs = engine.running.plan().inputs.len();
    for (input, stream) in streams.iter().enumerate().take(inputs) {
        let (times, events): (Vec<Instant>, Vec<Event>) = stream.iter().cloned().unzip();
        if !events.is_empty() {
            let chunk = engine.chunk(input, &events, &times);
            engine.push(input, Item::Rows(chunk));
        }
        engine.push(input, Item::Watermark(Instant::AFTER_ALL));
    }
    engine.rows
}

/// Every pair that the first two queries ask for.
fn pairs(streams: &[Vec<(Instant, Event)>], low: i64, high: i64, outer: bool) -> Vec<Shown> {
    let (low, high) = (low * TICKS_PER_SECOND, high * TICKS_PER_SECOND);
    let mut found = Vec::new();
    for (at, a) in &streams[0] {
        let before = found.len();
        for (bt, b) in &streams[1] {
            let distance = bt.ticks() - at.ticks();
            if a.key == b.key && low <= distance && distance <= high {
                let values = [a.key, a.number, b.number].map(|v| v.to_string());
                found.push((at.max(bt).ticks(), values.into()));
            }
        }
        if outer && found.len() == before {
            let values = vec![a.key.to_string(), a.number.to_string(), "NULL".into()];
            found.push((at.ticks() + high, values));
        }
    }
    found
}

fn sorted(mut rows: Vec<Shown>) -> Vec<Shown> {
    rows.sort();
    rows
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    // proves S1, T9, T11
    #[test]
    fn every_key_meets_by_its_own_clock(
        query in 0..QUERIES.len(),
        policy in policies(),
        a in events(),
        b in events(),
        choices in prop::collection::vec(any::<u8>(), 1..40),
        others in prop::collection::vec(any::<u8>(), 1..40),
    ) {
        let query = QUERIES[query];
        let streams = [a, b];
        let (rows, fates) = by_key(query, policy, &streams, &choices);
        let (again, _) = by_key(query, policy, &streams, &others);
        prop_assert_eq!(&rows, &again, "cuts, turns and restarts do not show");

        let kept: Vec<_> = streams.iter().zip(&fates).map(|(s, f)| kept(s, f)).collect();
        let one_clock = by_one_clock(query, &kept);
        prop_assert_eq!(sorted(rows.clone()), sorted(one_clock));
        let bounds = [(-2, 3, false), (0, 4, true)];
        let number = QUERIES.iter().position(|q| *q == query).unwrap_or_default();
        if let Some(&(low, high, outer)) = bounds.get(number) {
            prop_assert_eq!(sorted(rows.clone()), sorted(pairs(&kept, low, high, outer)));
        }

        let mut last: HashMap<String, i64> = HashMap::new();
        for (time, values) in &rows {
            let before = last.insert(values[0].clone(), *time);
            prop_assert!(before.is_none_or(|before| before <= *time), "in order within a key");
        }
    }
}

// proves S1
#[test]
fn a_key_does_not_wait_for_the_others() {
    let event = |second, key, number| Event {
        arrival: 100,
        second,
        key,
        number,
    };
    let policy = TimePolicy {
        late_arrival: Duration::from_secs(1_000),
        out_of_order: Duration::ZERO,
        early_arrival: None,
        late_events: ViolationAction::Drop,
        out_of_order_events: ViolationAction::Adjust,
        early_events: ViolationAction::Drop,
    };
    let mut engine = Engine::new(plan(QUERIES[0], "OVER k"));
    let linger = lookback(engine.running.plan());
    // Key 2 is at 95 in both streams; key 1 lags behind at 5, and the floor far behind both.
    let streams = [
        vec![
            event(5, 1, 0),
            event(90, 2, 1),
            event(95, 2, 2),
            event(97, 3, 3),
        ],
        vec![
            event(5, 1, 0),
            event(91, 2, 1),
            event(95, 2, 2),
            event(96, 3, 3),
        ],
    ];
    for (input, stream) in streams.iter().enumerate() {
        let mut order = Substreams::new(policy, linger);
        let times: Vec<Instant> = stream.iter().map(|e| instant(e.second)).collect();
        let arrivals: Vec<Instant> = stream.iter().map(|e| instant(e.arrival)).collect();
        let (mut bytes, mut offsets) = (Vec::new(), vec![0]);
        for event in stream {
            encode_key(ValueRef::Int(event.key), &mut bytes);
            offsets.push(bytes.len() as u32);
        }
        let events = EventBatch {
            first_row: 0,
            times: &times,
            arrivals: Arrivals::Each(&arrivals),
        };
        let keys = EventKeys {
            offsets: &offsets,
            bytes: &bytes,
        };
        let mut released = ReleasedLaneEvents::default();
        order.push(events, &keys, &mut released, &mut ());
        deliver(&mut engine, input, stream, released);
    }
    let pair = |second: i64, values: [&str; 3]| {
        (instant(second).ticks(), values.map(String::from).to_vec())
    };
    assert_eq!(engine.rows, [pair(91, ["2", "1", "1"])]);
}
