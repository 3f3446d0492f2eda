//! Laws of every window over one timeline per partition.

use std::collections::HashSet;

use proptest::prelude::*;

use crate::windows::drive::{Drive, cut, interleave, run};
use crate::windows::oracle;
use crate::windows::query::{Query, Window, cased_keys, events, events_of, queries};

fn choices() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    // proves S1 T9 T10 T13
    #[test]
    fn rows_are_those_of_the_oracle(
        query in queries(), (partitions, events) in events(), cuts in choices(), picks in choices()
    ) {
        let steps = interleave(cut(partitions, &events, &cuts), &picks);
        let mut rows = run(&query, partitions, &steps);
        rows.sort();
        prop_assert_eq!(rows, oracle::rows(&query, partitions, &events), "{}", query.sql());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Keys that differ only in case are one group, shown as the first of them is spelled; typed columns or not, and
    /// however often the state was written down.
    // proves S1
    #[test]
    fn without_regard_to_case_rows_are_those_of_the_oracle(
        query in queries(), (partitions, events) in events_of(cased_keys().boxed()), cuts in choices(),
        picks in choices(), dynamic in any::<bool>(), stop in any::<prop::sample::Index>()
    ) {
        let query = Query { ignore_case: true, ..query };
        let steps = interleave(cut(partitions, &events, &cuts), &picks);
        let stop = stop.index(steps.len());
        let mut drive = Drive::new(&query, partitions);
        drive.dynamic = dynamic;
        for (number, (partition, step)) in steps.iter().enumerate() {
            if number == stop {
                drive.restart();
            }
            drive.step(*partition, step);
        }
        drive.rows.sort();
        prop_assert_eq!(drive.rows, oracle::rows(&query, partitions, &events), "{}", query.sql());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    // proves T8
    #[test]
    fn cuts_and_watermarks_change_nothing(
        query in queries(), (partitions, events) in events(), cuts in choices(), others in choices()
    ) {
        let one = run(&query, partitions, &interleave(cut(partitions, &events, &cuts), &[0]));
        let two = run(&query, partitions, &interleave(cut(partitions, &events, &others), &[0]));
        prop_assert_eq!(one, two, "{}", query.sql());
    }

    // proves T8 T9
    #[test]
    fn which_partition_is_faster_changes_nothing(
        query in queries(), (partitions, events) in events(), cuts in choices(),
        picks in choices(), others in choices()
    ) {
        let lists = cut(partitions, &events, &cuts);
        let one = run(&query, partitions, &interleave(lists.clone(), &picks));
        let two = run(&query, partitions, &interleave(lists, &others));
        prop_assert_eq!(one, two, "{}", query.sql());
    }

    // proves T8
    #[test]
    fn snapshot_and_restore_change_nothing(
        query in queries(), (partitions, events) in events(), cuts in choices(),
        picks in choices(), stop in any::<prop::sample::Index>()
    ) {
        let steps = interleave(cut(partitions, &events, &cuts), &picks);
        let stop = stop.index(steps.len());
        let mut drive = Drive::new(&query, partitions);
        for (number, (partition, step)) in steps.iter().enumerate() {
            if number == stop {
                drive.restart();
            }
            drive.step(*partition, step);
        }
        prop_assert_eq!(drive.rows, run(&query, partitions, &steps), "{}", query.sql());
    }

    // proves S1
    #[test]
    fn dynamic_columns_change_nothing(
        query in queries(), (partitions, events) in events(), cuts in choices(), picks in choices()
    ) {
        let steps = interleave(cut(partitions, &events, &cuts), &picks);
        let mut drive = Drive::new(&query, partitions);
        drive.dynamic = true;
        steps.iter().for_each(|(partition, step)| drive.step(*partition, step));
        prop_assert_eq!(drive.rows, run(&query, partitions, &steps), "{}", query.sql());
    }

    /// That no row comes before the watermark has passed its window is asserted by the driver, row by row.
    // proves T13
    #[test]
    fn rows_come_in_time_order_after_their_window_and_never_twice(
        query in queries(), (partitions, events) in events(), cuts in choices(), picks in choices()
    ) {
        let rows = run(&query, partitions, &interleave(cut(partitions, &events, &cuts), &picks));
        prop_assert!(rows.is_sorted_by_key(|(end, _)| *end), "{:?}", rows);
        // The keys of sessions may be left out of GROUP BY; then a row does not show whose it is.
        if query.keys > 0 || !query.window.has_sessions_of_keys() {
            let mut seen = HashSet::new();
            for (end, row) in &rows {
                let identity = (*end, row[..query.shown_keys()].to_vec());
                prop_assert!(seen.insert(identity), "{:?} {:?} came twice", end, row);
            }
        }
    }
}

/// The displayed key must not depend on how early the group was removed.
// proves T8
#[test]
fn sliding_shows_the_first_of_equal_keys_in_the_window() {
    let query = Query {
        window: Window::Sliding { size: 5 },
        keys: 1,
        apart: false,
        substreams: false,
        ignore_case: false,
    };
    let event =
        |number: usize, second: i64, k: highwater_engine::Value| crate::windows::query::Event {
            partition: 0,
            number,
            second,
            k,
            j: highwater_engine::Value::Null,
            v: highwater_engine::Value::Int(1),
        };
    use highwater_engine::Value::{Float, Int};
    let events = [event(0, 0, Int(1)), event(1, 20, Float(1.0))];
    // In one chunk; and one by one, with a watermark after each.
    let at_once = run(&query, 1, &interleave(cut(1, &events, &[0]), &[0]));
    let one_by_one = run(&query, 1, &interleave(cut(1, &events, &[1]), &[0]));
    assert_eq!(at_once, one_by_one);
}
