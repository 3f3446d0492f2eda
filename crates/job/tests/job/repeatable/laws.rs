//! Laws of every job.

use std::collections::BTreeMap;

use highwater_job::why::{Fate, why};
use highwater_job::{Report, short_time};
use highwater_time::{Duration, TimePolicy, VerdictCounts};
use proptest::prelude::*;

use crate::repeatable::oracle::{Expected, fates};
use crate::repeatable::world::{
    Flaw, InputLine, PARTITIONED_SUBSTREAMS, PROJECTION, QUERIES, TUMBLING, World, instant,
    outputs, worlds,
};

fn any_query() -> impl Strategy<Value = crate::repeatable::world::Query> {
    prop::sample::select(&QUERIES[..])
}

/// Each bound's count, from the verdicts; see [`VerdictCounts`].
fn counts(verdicts: impl Iterator<Item = String>) -> VerdictCounts {
    let mut counts = VerdictCounts::default();
    for verdict in verdicts.filter(|verdict| !verdict.starts_with("lost")) {
        counts.read += 1;
        let dropped = verdict.ends_with("dropped");
        counts.kept += u64::from(!dropped);
        let causes = verdict.split(':').next().unwrap_or_default();
        let causes: Vec<&str> = causes.split(" and ").collect();
        for (at, cause) in causes.iter().enumerate() {
            let by_this = dropped && at + 1 == causes.len();
            *match (*cause, by_this) {
                ("early", false) => &mut counts.early_adjusted,
                ("early", true) => &mut counts.early_dropped,
                ("late", false) => &mut counts.late_adjusted,
                ("late", true) => &mut counts.late_dropped,
                ("out of order", false) => &mut counts.out_of_order_adjusted,
                ("out of order", true) => &mut counts.out_of_order_dropped,
                _ => continue,
            } += 1;
        }
    }
    counts
}

/// Every event read is kept, dropped or lost, and the report agrees with the verdicts.
fn check_report(world: &World, report: &Report, expected: &[Expected]) {
    for (index, input) in report.inputs.iter().enumerate() {
        let is_b = |e: &&Expected| (e.file + 1 == world.files.len()) == (index == 1);
        let verdicts = || expected.iter().filter(is_b).map(|e| e.verdict.clone());
        let lost = verdicts()
            .filter(|verdict| verdict.starts_with("lost"))
            .count() as u64;
        assert_eq!(input.events(), verdicts().count() as u64);
        assert_eq!(
            input.events(),
            input.time.kept + input.time.dropped() + lost
        );
        assert_eq!(input.errors.count(), lost);
        assert_eq!(input.time, counts(verdicts()));
    }
}

fn file_name(fate: &Fate) -> String {
    fate.file.rsplit('/').next().unwrap_or_default().to_string()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    // proves T8 T17
    #[test]
    fn threads_change_nothing_and_every_event_is_accounted_for(world in worlds(any_query(), 24)) {
        let folder = tempfile::tempdir().unwrap();
        world.write(folder.path(), &[0]);
        let job = world.job(folder.path());
        let (one, outcome) = outputs(&job, 1);
        let (four, threaded) = outputs(&job, 4);
        prop_assert_eq!(&one, &four);
        prop_assert_eq!(format!("{:?}", outcome.report), format!("{:?}", threaded.report));
        check_report(&world, &outcome.report, &fates(&world));
        // Rows of one output are in time order, unless every key has its own time.
        if !world.query.substreams {
            for (_, text) in &one {
                let time = |line: &str| line.split("\"ts\":").nth(1).unwrap_or_default()[..29].to_string();
                prop_assert!(text.lines().map(time).is_sorted(), "{}", text);
            }
        }
    }

    // proves T3 T4 T5 T6 T11 T18
    #[test]
    fn every_event_has_one_fate_and_it_is_the_oracles(world in worlds(any_query(), 24)) {
        let folder = tempfile::tempdir().unwrap();
        world.write(folder.path(), &[0]);
        let told = why(&world.job(folder.path()), None).unwrap();
        let expected = fates(&world);
        let shown: Vec<_> = told
            .iter()
            .map(|f| (file_name(f), f.line, f.verdict.clone(), f.timestamp.clone()))
            .collect();
        let wanted: Vec<_> = expected
            .into_iter()
            .map(|e| (world.name(e.file), e.line, e.verdict, e.timestamp.map(short_time)))
            .collect();
        prop_assert_eq!(shown, wanted);
    }

    // proves T4 T9 T12
    #[test]
    fn events_come_out_sorted_and_ties_by_partition_and_place(
        world in worlds(Just(PROJECTION), 24)
    ) {
        let folder = tempfile::tempdir().unwrap();
        world.write(folder.path(), &[0]);
        let (rows, _) = outputs(&world.job(folder.path()), 1);
        let mut kept: Vec<Expected> =
            fates(&world).into_iter().filter(|e| e.timestamp.is_some()).collect();
        kept.sort_by_key(|e| (e.timestamp, e.partition, e.line));
        let expected: String = kept
            .iter()
            .filter_map(|e| Some(format!("{{\"id\":{},\"ts\":\"{}\"}}\n", e.id, e.timestamp?)))
            .collect();
        prop_assert_eq!(rows.first().map_or("", |(_, text)| text), expected);
    }

    // proves T18
    #[test]
    fn the_windows_of_an_event_are_told(world in worlds(Just(TUMBLING), 16)) {
        let folder = tempfile::tempdir().unwrap();
        world.write(folder.path(), &[0]);
        let expected: BTreeMap<(String, u64), Expected> = fates(&world)
            .into_iter()
            .map(|e| ((world.name(e.file), e.line), e))
            .collect();
        for fate in why(&world.job(folder.path()), None).unwrap() {
            let timestamp = expected[&(file_name(&fate), fate.line)].timestamp;
            let spans: Vec<_> = fate.windows.iter().map(|w| (w.start.clone(), w.end.clone())).collect();
            // The window ends at the first multiple of five seconds that is not before the event.
            let wanted: Vec<_> = timestamp
                .and_then(|t| (-40..200).map(|s| instant(s * 5)).find(|end| *end >= t))
                .map(|end| (short_time(end - Duration::from_secs(5)), short_time(end)))
                .into_iter()
                .collect();
            prop_assert_eq!(spans, wanted);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// A block is about a megabyte, so long lines cut the same events into other blocks.
    // proves T8
    #[test]
    fn blocks_change_nothing(
        world in worlds(any_query(), 16),
        pads in prop::collection::vec(prop_oneof![Just(0usize), Just(400_000), Just(700_000)], 1..8)
    ) {
        same_in_other_blocks(&world, &pads);
    }

    // proves T8 T11
    #[test]
    fn blocks_change_nothing_for_substreams_of_partitions(
        world in worlds(Just(PARTITIONED_SUBSTREAMS), 16),
        pads in prop::collection::vec(prop_oneof![Just(0usize), Just(400_000), Just(700_000)], 1..8)
    ) {
        same_in_other_blocks(&world, &pads);
    }
}

/// Time that one partition shows reaches the others at the end of a block. With a clock for every key that would show
/// in the order of the rows.
// proves T8 T11
#[test]
fn the_end_of_a_block_does_not_move_the_clocks_of_keys() {
    let line = |id: usize, p: usize, k: usize, time: i64| InputLine {
        flaw: Flaw::None,
        id,
        time,
        arrival: time,
        k,
        p,
        v: 0,
    };
    let lines = vec![
        line(0, 0, 0, 1),
        line(1, 0, 1, 1),
        line(2, 1, 0, 20),
        line(3, 0, 1, 30),
    ];
    let world = World {
        query: PARTITIONED_SUBSTREAMS,
        policy: TimePolicy {
            late_arrival: Duration::from_secs(1),
            ..TimePolicy::default()
        },
        arrivals: true,
        by_column: true,
        files: vec![lines, Vec::new()],
    };
    same_in_other_blocks(&world, &[0, 0, 0, 1_100_000]);
}

fn same_in_other_blocks(world: &World, pads: &[usize]) {
    let (short, long) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    world.write(short.path(), &[0]);
    world.write(long.path(), pads);
    let (one, outcome) = outputs(&world.job(short.path()), 1);
    let (other, padded) = outputs(&world.job(long.path()), 1);
    assert_eq!(one, other);
    let counts = |report: &Report| -> Vec<(VerdictCounts, u64)> {
        report
            .inputs
            .iter()
            .map(|input| (input.time, input.errors.count()))
            .collect()
    };
    assert_eq!(counts(&outcome.report), counts(&padded.report));
}
