//! JavaScript aggregates that retract events.
//!
//! `queue` keeps the events of the window in a closure and checks that they leave in the order in which they entered;
//! `list` is the same without retraction. `calls` returns its whole history of calls, so it shows every difference.

use std::sync::{Arc, OnceLock};

use highwater_engine::Scripts;
use highwater_query::lookback;
use highwater_time::TICKS_PER_SECOND;
use proptest::prelude::*;

use crate::windows::drive::{Drive, Step, cut, interleave};
use crate::windows::oracle::Row;
use crate::windows::query::{Event, Query, Window, events, queries};

const QUEUE: &str = "function main() {
    var items;
    this.init = function () { items = []; this.items = items; };
    this.accumulate = function (value, time) { items.push(value + '@' + time.getTime()); };
    this.deaccumulate = function (value, time) { take([value + '@' + time.getTime()]); };
    this.deaccumulateState = function (other) { take(other.items); };
    this.computeResult = function () { return items.join(); };
    function take(left) {
        for (const item of left) {
            const first = items.shift();
            if (first !== item) throw new Error(first + ' is first, and not ' + item);
        }
    }
}";

const LIST: &str = "function main() {
    this.init = function () { this.items = []; };
    this.accumulate = function (value, time) { this.items.push(value + '@' + time.getTime()); };
    this.computeResult = function () { return this.items.join(); };
}";

const CALLS: &str = "function main() {
    this.init = function () { this.calls = ''; };
    this.accumulate = function (value, time) { this.calls += '+' + value + '@' + time.getTime(); };
    this.deaccumulate = function (value, time) { this.calls += '-' + value + '@' + time.getTime(); };
    this.deaccumulateState = function (other) { this.calls += '-(' + other.calls + ')'; };
    this.computeResult = function () { return this.calls += '=' + Date.now() + Math.random(); };
}";

fn scripts() -> Arc<Scripts> {
    static SCRIPTS: OnceLock<Arc<Scripts>> = OnceLock::new();
    let make = || {
        let functions = [("queue", QUEUE), ("list", LIST), ("calls", CALLS)];
        let functions = functions.map(|(name, source)| (name.to_string(), source.to_string()));
        Scripts::new(functions).expect("the scripts are whole")
    };
    SCRIPTS.get_or_init(make).clone()
}

fn drive(query: &Query, shown: &str, partitions: usize) -> Drive {
    Drive::of(&query.sql_of(shown, ""), Some(scripts()), partitions)
}

fn run(query: &Query, shown: &str, partitions: usize, steps: &[(usize, Step)]) -> Vec<Row> {
    let mut drive = drive(query, shown, partitions);
    let steps = steps.iter();
    steps.for_each(|(partition, step)| drive.step(*partition, step));
    drive.rows
}

const SHOWN: &str = "uda.calls(v) AS calls, COUNT(*) AS n, uda.queue(j) AS queue";

fn choices() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..24)
}

fn overlapping() -> impl Strategy<Value = Query> {
    let windows = prop_oneof![
        (2..15i64, 1..8i64, -7..8i64).prop_map(|(size, hop, offset)| Window::Hopping {
            size,
            hop,
            offset
        }),
        (1..15i64).prop_map(|size| Window::Sliding { size }),
    ];
    (windows, 0..3usize, prop::bool::weighted(0.2)).prop_map(|(window, keys, apart)| Query {
        window,
        keys,
        apart,
        substreams: false,
        ignore_case: false,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    // proves S1
    #[test]
    fn taking_back_gives_what_running_anew_gives(
        query in queries(), (partitions, events) in events(), cuts in choices(), picks in choices()
    ) {
        let steps = interleave(cut(partitions, &events, &cuts), &picks);
        let back = run(&query, "uda.queue(v) AS x", partitions, &steps);
        let anew = run(&query, "uda.list(v) AS x", partitions, &steps);
        prop_assert_eq!(back, anew, "{}", query.sql());
    }

    // proves T8
    #[test]
    fn cuts_and_faster_partitions_change_nothing(
        query in overlapping(), (partitions, events) in events(), cuts in choices(), others in choices(),
        picks in choices(), other_picks in choices()
    ) {
        let one = interleave(cut(partitions, &events, &cuts), &picks);
        let two = interleave(cut(partitions, &events, &others), &other_picks);
        let (mut one, mut two) = (
            run(&query, SHOWN, partitions, &one),
            run(&query, SHOWN, partitions, &two),
        );
        one.sort();
        two.sort();
        prop_assert_eq!(one, two, "{}", query.sql());
    }

    // proves T8
    #[test]
    fn snapshot_and_restore_change_nothing(
        query in overlapping(), (partitions, events) in events(), cuts in choices(), picks in choices(),
        stop in any::<prop::sample::Index>()
    ) {
        let steps = interleave(cut(partitions, &events, &cuts), &picks);
        let stop = stop.index(steps.len());
        let mut drive = drive(&query, SHOWN, partitions);
        for (number, (partition, step)) in steps.iter().enumerate() {
            if number == stop {
                drive.restart();
            }
            drive.step(*partition, step);
        }
        prop_assert_eq!(drive.rows, run(&query, SHOWN, partitions, &steps), "{}", query.sql());
    }

    /// A job that starts late and reads back as far as the plan says has the rows of one that ran all the time.
    // proves T14
    #[test]
    fn where_a_job_starts_changes_nothing(
        query in overlapping(), (partitions, events) in events(), start in 0..60i64
    ) {
        let all = interleave(cut(partitions, &events, &[0]), &[0]);
        let late: Vec<Event> = events.iter().filter(|e| e.second > start).cloned().collect();
        let late = interleave(cut(partitions, &late, &[0]), &[0]);
        let back = lookback(drive(&query, SHOWN, 1).plan()).ticks() / TICKS_PER_SECOND;
        let whole = |mut rows: Vec<Row>| {
            rows.retain(|(end, _)| *end >= start + back);
            rows.sort();
            rows
        };
        // What is shown of equal keys is the first that was met; here only scripts are asked.
        let query = Query { keys: 0, ..query };
        prop_assert_eq!(
            whole(run(&query, SHOWN, partitions, &late)),
            whole(run(&query, SHOWN, partitions, &all)),
            "{}", query.sql()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    // proves T8
    #[test]
    fn threads_change_nothing(
        query in overlapping(), (partitions, events) in events(), cuts in choices()
    ) {
        let steps = interleave(cut(partitions, &events, &cuts), &[0]);
        let mut drive = drive(&query, SHOWN, partitions);
        for (number, (partition, step)) in steps.iter().enumerate() {
            if number % 2 == 0 {
                drive.step(*partition, step);
            } else {
                std::thread::scope(|scope| {
                    let there = scope.spawn(|| drive.step(*partition, step));
                    there.join().expect("the thread ends well");
                });
            }
        }
        prop_assert_eq!(drive.rows, run(&query, SHOWN, partitions, &steps), "{}", query.sql());
    }
}

/// What was said above is worth something only if events are really taken back.
#[test]
fn events_are_taken_back() {
    for window in [
        Window::Sliding { size: 9 },
        Window::Hopping {
            size: 9,
            hop: 2,
            offset: 0,
        },
    ] {
        let query = Query {
            window,
            keys: 0,
            apart: false,
            substreams: false,
            ignore_case: false,
        };
        let event = |number: usize| Event {
            partition: 0,
            number,
            second: number as i64,
            k: highwater_engine::Value::Null,
            j: highwater_engine::Value::Null,
            v: highwater_engine::Value::Int(number as i64),
        };
        let events: Vec<Event> = (0..40).map(event).collect();
        let steps = interleave(cut(1, &events, &[0]), &[0]);
        let rows = run(&query, "uda.calls(v) AS calls", 1, &steps);
        let back = rows.iter().filter(|(_, row)| row[0].contains('-')).count();
        assert!(back * 2 > rows.len(), "{rows:?}");
    }
}
