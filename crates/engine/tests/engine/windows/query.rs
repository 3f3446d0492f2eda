//! Random windowed queries and random events.

use std::fmt::Write;

use highwater_engine::Value;
use highwater_time::{Instant, TICKS_PER_SECOND};
use proptest::prelude::*;

/// Where the seconds of events count from: no multiple of most window sizes, as no real time is.
const BASE_SECS: i64 = 63_900_000_001;

pub(crate) fn instant(second: i64) -> Instant {
    Instant::from_ticks(ticks(second))
}

pub(crate) fn ticks(second: i64) -> i64 {
    (BASE_SECS + second) * TICKS_PER_SECOND
}

/// Seconds from the common origin of all windows.
pub(crate) fn from_origin(second: i64) -> i64 {
    BASE_SECS + second
}

/// Sizes are in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Window {
    Tumbling { size: i64, offset: i64 },
    Hopping { size: i64, hop: i64, offset: i64 },
    Sliding { size: i64 },
    Session { timeout: i64, max: i64, over: bool },
    Snapshot,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    pub window: Window,
    /// How many of `k`, `j` it groups by.
    pub keys: usize,
    /// PARTITION BY PartitionId.
    pub apart: bool,
    /// TIMESTAMP BY .. OVER k.
    pub substreams: bool,
    pub ignore_case: bool,
}

impl Window {
    fn sql(&self) -> String {
        match *self {
            Window::Tumbling { size, offset: 0 } => format!("TumblingWindow(second, {size})"),
            Window::Tumbling { size, offset } => {
                format!("Tumbling(Duration(second, {size}), Offset(second, {offset}))")
            }
            Window::Hopping {
                size,
                hop,
                offset: 0,
            } => {
                format!("HoppingWindow(second, {size}, {hop})")
            }
            Window::Hopping { size, hop, offset } => format!(
                "Hopping(Duration(second, {size}), Hop(second, {hop}), Offset(second, {offset}))"
            ),
            Window::Sliding { size } => format!("SlidingWindow(second, {size})"),
            Window::Session { timeout, max, over } => {
                let over = if over { " OVER (PARTITION BY k)" } else { "" };
                format!("SessionWindow(second, {timeout}, {max}){over}")
            }
            Window::Snapshot => "System.Timestamp()".into(),
        }
    }

    pub(crate) fn has_sessions_of_keys(&self) -> bool {
        matches!(self, Window::Session { over: true, .. })
    }
}

impl Query {
    /// The columns of a row that come before the aggregates.
    pub(crate) fn shown_keys(&self) -> usize {
        usize::from(self.apart) + self.keys
    }

    pub(crate) fn sql(&self) -> String {
        self.sql_of(
            "COUNT(*) AS n, COUNT(v) AS c, SUM(v) AS s, AVG(v) AS a, MIN(v) AS lo, MAX(v) AS hi",
            "",
        )
    }

    /// The keys and `shown`, of groups for which `having` holds.
    pub(crate) fn sql_of(&self, shown: &str, having: &str) -> String {
        let mut keys = String::new();
        if self.apart {
            keys.push_str("PartitionId, ");
        }
        for key in &["k", "j"][..self.keys] {
            let _ = write!(keys, "{key}, ");
        }
        let over = if self.substreams { " OVER k" } else { "" };
        let apart = if self.apart {
            " PARTITION BY PartitionId"
        } else {
            ""
        };
        format!(
            "SELECT {keys}{shown} INTO out FROM input TIMESTAMP BY t{over}{apart} \
             GROUP BY {keys}{} {having}",
            self.window.sql()
        )
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub partition: usize,
    /// Its place among all events.
    pub number: usize,
    pub second: i64,
    pub k: Value,
    pub j: Value,
    pub v: Value,
}

pub(crate) fn windows() -> impl Strategy<Value = Window> {
    let tumbling = || (1..12i64, -7..8i64);
    prop_oneof![
        2 => (1..12i64).prop_map(|size| Window::Tumbling { size, offset: 0 }),
        1 => tumbling().prop_map(|(size, offset)| Window::Tumbling { size, offset }),
        3 => (1..15i64, 1..12i64, prop_oneof![Just(0i64), -7..8i64])
            .prop_map(|(size, hop, offset)| Window::Hopping { size, hop, offset }),
        3 => (1..15i64).prop_map(|size| Window::Sliding { size }),
        3 => (1..8i64, 1..16i64, any::<bool>())
            .prop_map(|(timeout, max, over)| Window::Session { timeout, max, over }),
        1 => Just(Window::Snapshot),
    ]
}

pub(crate) fn queries() -> impl Strategy<Value = Query> {
    (windows(), 0..3usize, prop::bool::weighted(0.2)).prop_map(|(window, keys, apart)| Query {
        window,
        keys,
        apart,
        substreams: false,
        ignore_case: false,
    })
}

pub(crate) fn keys() -> impl Strategy<Value = Value> {
    prop_oneof![
        2 => (0..3i64).prop_map(Value::Int),
        1 => (0..3i64).prop_map(|i| Value::Float(i as f64)),
        1 => Just(Value::Float(0.5)),
        2 => prop_oneof![Just("a"), Just("b"), Just("1")].prop_map(Value::text),
        1 => Just(Value::Null),
    ]
}

/// The same with texts that differ in case.
pub(crate) fn cased_keys() -> impl Strategy<Value = Value> {
    let texts = prop_oneof![
        Just("a"),
        Just("A"),
        Just("éa"),
        Just("Éa"),
        Just("b"),
        Just("ß")
    ];
    let text = texts.prop_map(Value::text).boxed();
    prop_oneof![
        6 => text.clone(),
        1 => text.prop_map(|text| Value::Array([text].into())),
        1 => keys(),
    ]
}

/// Numbers that add up exactly in any order.
pub(crate) fn numbers() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => (-9..10i64).prop_map(Value::Int),
        2 => (-30..31i64).prop_map(|quarters| Value::Float(quarters as f64 / 4.0 + 0.0)),
        1 => Just(Value::Null),
    ]
}

/// The events of up to three partitions, in time order.
pub(crate) fn events() -> impl Strategy<Value = (usize, Vec<Event>)> {
    events_of(keys().boxed())
}

pub(crate) fn events_of(keys: BoxedStrategy<Value>) -> impl Strategy<Value = (usize, Vec<Event>)> {
    let event = (0..3usize, 0..60i64, keys.clone(), keys, numbers());
    (1..4usize, prop::collection::vec(event, 0..24)).prop_map(|(partitions, drawn)| {
        let mut events: Vec<Event> = drawn
            .into_iter()
            .enumerate()
            .map(|(number, (partition, second, k, j, v))| {
                let partition = partition % partitions;
                Event {
                    partition,
                    number,
                    second,
                    k,
                    j,
                    v,
                }
            })
            .collect();
        events.sort_by_key(|event| event.second);
        events
            .iter_mut()
            .enumerate()
            .for_each(|(number, event)| event.number = number);
        (partitions, events)
    })
}
