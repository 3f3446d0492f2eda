//! Windows over substreams: every key by its own clock.

use highwater_codec::Reader;
use highwater_engine::eval::encode_key;
use highwater_engine::{Chunk, ChunkLanes, Item, Value};
use highwater_query::lookback;
use highwater_time::{
    Arrivals, Duration, EventBatch, EventKeys, Instant, JudgedEvent, ReleasedLaneEvents,
    Substreams, TICKS_PER_SECOND, TimePolicy, ViolationAction,
};
use proptest::prelude::*;

use crate::windows::drive::{Choices, Drive};
use crate::windows::oracle::{self, Row};
use crate::windows::query::{Event, Query, from_origin, instant, keys, numbers, windows};

/// An event as it comes in: `event.second` is its own time.
#[derive(Clone, Debug)]
struct Arrived {
    arrival: i64,
    event: Event,
}

fn queries() -> impl Strategy<Value = Query> {
    (windows(), 1..3usize).prop_map(|(window, keys)| Query {
        window,
        keys,
        apart: false,
        substreams: true,
        ignore_case: false,
    })
}

fn policies() -> impl Strategy<Value = TimePolicy> {
    let action = || prop_oneof![Just(ViolationAction::Adjust), Just(ViolationAction::Drop)];
    let early = prop_oneof![
        Just(None),
        (0..5i64).prop_map(|s| Some(Duration::from_secs(s)))
    ];
    (0..20i64, 0..7i64, early, action(), action(), action()).prop_map(
        |(late, out_of_order, early_arrival, late_events, out_of_order_events, early_events)| {
            TimePolicy {
                late_arrival: Duration::from_secs(late),
                out_of_order: Duration::from_secs(out_of_order),
                early_arrival,
                late_events,
                out_of_order_events,
                early_events,
            }
        },
    )
}

fn arrivals() -> impl Strategy<Value = Vec<Arrived>> {
    let key = keys().prop_filter("a NULL key never gets here", |key| !key.is_null());
    let event = (0..4i64, -4..16i64, key, keys(), numbers());
    prop::collection::vec(event, 0..24).prop_map(|drawn| {
        let mut arrival = 0;
        let arrived = drawn
            .into_iter()
            .enumerate()
            .map(|(number, (wait, age, k, j, v))| {
                arrival += wait;
                let event = Event {
                    partition: 0,
                    number,
                    second: arrival - age,
                    k,
                    j,
                    v,
                };
                Arrived { arrival, event }
            });
        arrived.collect()
    })
}

fn key_of(value: &Value) -> Vec<u8> {
    let mut key = Vec::new();
    encode_key(value.view(), &mut key);
    key
}

/// A run over substreams: the time half and the query half.
struct Lane<'a> {
    policy: TimePolicy,
    linger: Duration,
    arrived: &'a [Arrived],
    substreams: Substreams,
    drive: Drive,
    fates: Vec<JudgedEvent>,
}

impl<'a> Lane<'a> {
    fn new(query: &Query, policy: TimePolicy, arrived: &'a [Arrived]) -> Lane<'a> {
        let drive = Drive::new(query, 1);
        let linger = lookback(drive.plan());
        let substreams = Substreams::new(policy, linger);
        Lane {
            policy,
            linger,
            arrived,
            substreams,
            drive,
            fates: Vec::new(),
        }
    }

    fn push(&mut self, from: usize, to: usize) {
        let batch = &self.arrived[from..to];
        let times: Vec<Instant> = batch.iter().map(|a| instant(a.event.second)).collect();
        let arrivals: Vec<Instant> = batch.iter().map(|a| instant(a.arrival)).collect();
        let (mut bytes, mut offsets) = (Vec::new(), vec![0]);
        for arrived in batch {
            bytes.extend(key_of(&arrived.event.k));
            offsets.push(bytes.len() as u32);
        }
        let events = EventBatch {
            first_row: from as u64,
            times: &times,
            arrivals: Arrivals::Each(&arrivals),
        };
        let keys = EventKeys {
            offsets: &offsets,
            bytes: &bytes,
        };
        let mut released = ReleasedLaneEvents::default();
        self.substreams
            .push(events, &keys, &mut released, &mut self.fates);
        self.deliver(released);
    }

    fn end(&mut self) {
        let mut released = ReleasedLaneEvents::default();
        self.substreams.end(&mut released);
        self.deliver(released);
        self.drive.push(0, Item::Watermark(Instant::AFTER_ALL));
    }

    fn deliver(&mut self, released: ReleasedLaneEvents) {
        let events: Vec<Event> = released
            .rows
            .iter()
            .map(|row| self.arrived[*row as usize].event.clone())
            .collect();
        let chunk = self.drive.chunk(&events);
        let chunk = Chunk {
            times: released.times.iter().map(|time| time.ticks()).collect(),
            lanes: Some(ChunkLanes {
                of_row: released.lanes,
                watermarks: released.watermarks,
                names: Vec::new(),
            }),
            ..chunk
        };
        self.drive.push(0, Item::Rows(chunk));
    }

    fn restart(&mut self) {
        let mut bytes = Vec::new();
        self.substreams.snapshot(&mut bytes);
        self.substreams = Substreams::restore(self.policy, self.linger, &mut Reader::new(&bytes))
            .expect("it is whole");
        self.drive.restart();
    }

    fn run(mut self, choices: &[u8], restart_at: Option<usize>) -> (Vec<Row>, Vec<JudgedEvent>) {
        let mut choices = Choices::new(choices);
        let (mut from, mut batches) = (0, 0);
        while from < self.arrived.len() {
            if restart_at == Some(batches) {
                self.restart();
            }
            let left = self.arrived.len() - from;
            let to = from + left - choices.below(left);
            self.push(from, to);
            from = to;
            batches += 1;
        }
        self.end();
        (self.drive.rows, self.fates)
    }
}

/// The kept events with the timestamps that they were given.
fn stamped(arrived: &[Arrived], fates: &[JudgedEvent]) -> Vec<Event> {
    let kept = arrived.iter().zip(fates).filter_map(|(arrived, fate)| {
        let second = fate.timestamp?.ticks() / TICKS_PER_SECOND - from_origin(0);
        assert_eq!(Some(instant(second)), fate.timestamp);
        Some(Event {
            second,
            ..arrived.event.clone()
        })
    });
    kept.collect()
}

fn choices() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    // proves T11 T13
    #[test]
    fn every_key_has_the_rows_that_it_would_have_alone(
        query in queries(), policy in policies(), arrived in arrivals(), cuts in choices()
    ) {
        let (mut rows, fates) = Lane::new(&query, policy, &arrived).run(&cuts, None);
        let events = stamped(&arrived, &fates);
        let mut expected = Vec::new();
        let mut left = events;
        while let Some(first) = left.first().cloned() {
            let same = |e: &Event| key_of(&e.k) == key_of(&first.k);
            let own: Vec<Event> = left.iter().filter(|e| same(e)).cloned().collect();
            left.retain(|e| !same(e));
            expected.extend(oracle::rows(&query, 1, &own));
            // Rows of one key come in time order, however the keys interleave.
            let of_key = |row: &&Row| own.iter().any(|e| row.1[0] == oracle::show(&e.k));
            prop_assert!(rows.iter().filter(of_key).is_sorted_by_key(|row| row.0), "{:?}", rows);
        }
        rows.sort();
        expected.sort();
        prop_assert_eq!(rows, expected, "{}", query.sql());
    }

    // proves T8 T11
    #[test]
    fn batches_change_nothing(
        query in queries(), policy in policies(), arrived in arrivals(),
        cuts in choices(), others in choices()
    ) {
        let one = Lane::new(&query, policy, &arrived).run(&cuts, None);
        let two = Lane::new(&query, policy, &arrived).run(&others, None);
        prop_assert_eq!(one, two, "{}", query.sql());
    }

    // proves T8 T11
    #[test]
    fn snapshot_and_restore_change_nothing(
        query in queries(), policy in policies(), arrived in arrivals(),
        cuts in choices(), stop in 0..8usize
    ) {
        let one = Lane::new(&query, policy, &arrived).run(&cuts, None);
        let two = Lane::new(&query, policy, &arrived).run(&cuts, Some(stop));
        prop_assert_eq!(one, two, "{}", query.sql());
    }
}

/// Keys come and go; what is kept is in proportion to those that are active, in every kind of window.
// proves T11
#[test]
fn a_key_that_has_gone_leaves_nothing_behind() {
    use crate::windows::query::Window;
    let policy = TimePolicy {
        late_arrival: Duration::from_secs(2),
        ..TimePolicy::default()
    };
    for window in [
        Window::Tumbling { size: 2, offset: 0 },
        Window::Hopping {
            size: 3,
            hop: 2,
            offset: 0,
        },
        Window::Sliding { size: 2 },
        Window::Session {
            timeout: 1,
            max: 3,
            over: true,
        },
        Window::Snapshot,
    ] {
        let query = Query {
            window,
            keys: 1,
            apart: false,
            substreams: true,
            ignore_case: false,
        };
        // Four keys a second, each heard of once.
        let arrived = |keys: usize| -> Vec<Arrived> {
            let one = |number: usize| {
                let second = number as i64 / 4;
                let (k, v) = (Value::Int(number as i64), Value::Int(1));
                let event = Event {
                    partition: 0,
                    number,
                    second,
                    k,
                    j: Value::Null,
                    v,
                };
                Arrived {
                    arrival: second,
                    event,
                }
            };
            (0..keys).map(one).collect()
        };
        let state = |keys: usize| {
            let arrived = arrived(keys);
            let mut lane = Lane::new(&query, policy, &arrived);
            for from in (0..keys).step_by(50) {
                lane.push(from, from + 50);
            }
            let mut bytes = Vec::new();
            lane.substreams.snapshot(&mut bytes);
            (
                bytes.len() + lane.drive.snapshot().len(),
                lane.substreams.lane_count(),
            )
        };
        let (few, many) = (state(400), state(4_000));
        assert!(many.0 < few.0 + few.0 / 4, "{window:?}: {few:?} {many:?}");
        assert!(many.1 < 60, "{window:?}: {} keys are remembered", many.1);
    }
}
