//! Laws of the timeline, against an oracle that takes one event at a time and sorts a vector.

use highwater_codec::Reader;
use highwater_time::*;
use proptest::prelude::*;

use crate::streams::*;

/// All that can be seen of a timeline's life.
#[derive(PartialEq, Default, Debug)]
struct RunResult {
    released: ReleasedEvents,
    fates: Vec<JudgedEvent>,
    counts: VerdictCounts,
    watermark: Option<Instant>,
    snapshot: Vec<u8>,
}

fn run(
    policy: TimePolicy,
    clock: TimeDomain,
    known: Known,
    steps: &[Step],
    cuts: &Cuts,
) -> RunResult {
    let mut timeline = Timeline::new(policy, clock);
    let mut seen = RunResult::default();
    for act in acts(steps, cuts) {
        let before = timeline.watermark();
        match act {
            Act::Push(batch) => timeline.push(batch.events(known), &mut seen.fates),
            Act::Punctuate(estimate) => timeline.punctuate(estimate),
            Act::Restart => {
                let mut bytes = Vec::new();
                timeline.snapshot(&mut bytes);
                let mut rest = Reader::new(&bytes);
                timeline = Timeline::restore(policy, clock, &mut rest).expect("a good snapshot");
                assert!(rest.is_done());
                continue;
            }
        }
        assert!(
            timeline.watermark() >= before,
            "the watermark never goes back"
        );
        timeline.release(&mut seen.released);
        assert!(
            seen.released
                .times
                .iter()
                .all(|time| *time <= timeline.watermark())
        );
        let kept = seen.fates.iter().filter(|fate| fate.verdict.kept()).count();
        assert_eq!(kept, seen.released.len() + timeline.buffered());
    }
    timeline.snapshot(&mut seen.snapshot);
    seen.watermark = Some(timeline.watermark());
    timeline.end();
    timeline.release(&mut seen.released);
    assert_eq!(timeline.buffered(), 0);
    seen.counts = *timeline.counts();
    seen
}

fn oracle(policy: TimePolicy, clock: TimeDomain, known: Known, steps: &[Step]) -> Vec<JudgedEvent> {
    let mut watermark = Instant::BEFORE_ALL;
    let mut fates = Vec::new();
    for step in steps {
        let met = watermark;
        let (time, arrival) = match (*step, clock) {
            (Step::Silence { estimated_arrival }, TimeDomain::EventTime) => {
                watermark = watermark.max(estimated_arrival - policy.late_arrival);
                continue;
            }
            (Step::Silence { estimated_arrival }, TimeDomain::ArrivalTime) => {
                watermark = watermark.max(estimated_arrival);
                continue;
            }
            (Step::Event { time, .. }, TimeDomain::ArrivalTime) => (time, Some(time)),
            (Step::Event { time, arrival, .. }, TimeDomain::EventTime) => match known {
                Known::Each => (time, Some(arrival)),
                Known::All => (time, Some(ALL_ARRIVED)),
                Known::Nothing => (time, None),
            },
        };
        let (verdict, timestamp) = if clock == TimeDomain::ArrivalTime {
            watermark = watermark.max(time);
            let behind = time < met;
            let verdict = Verdict::adjusted_for(Violation::OutOfOrder);
            (
                if behind { verdict } else { Verdict::ON_TIME },
                Some(time.max(met)),
            )
        } else {
            let (verdict, timestamp, floor) = judge(&policy, time, arrival, met);
            watermark = watermark.max(floor.unwrap_or(met));
            if let Some(timestamp) = timestamp {
                watermark = watermark.max(timestamp - policy.out_of_order);
            }
            (verdict, timestamp)
        };
        let row = fates.len() as u64;
        let lane = None;
        let event_time = time;
        fates.push(JudgedEvent {
            row,
            arrival,
            event_time,
            verdict,
            watermark_before: met,
            timestamp,
            watermark_after: watermark,
            lane,
        });
    }
    fates
}

fn clocks() -> impl Strategy<Value = TimeDomain> {
    prop_oneof![5 => Just(TimeDomain::EventTime), 1 => Just(TimeDomain::ArrivalTime)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    // proves T2, T3, T4, T5, T6, T7
    #[test]
    fn every_event_gets_the_fate_that_the_rules_give_it(
        policy in policies(), clock in clocks(), known in known(), steps in streams(1), cuts in cuts()
    ) {
        let seen = run(policy, clock, known, &steps, &cuts);
        let expected = oracle(policy, clock, known, &steps);
        prop_assert_eq!(&seen.fates, &expected);
        prop_assert_eq!(seen.counts, count(&expected));
        prop_assert_eq!(seen.counts.kept + seen.counts.dropped(), seen.counts.read);
    }

    // proves T4, T13
    #[test]
    fn what_is_released_is_what_was_kept_sorted_by_time_and_handle(
        policy in policies(), clock in clocks(), known in known(), steps in streams(1), cuts in cuts()
    ) {
        let seen = run(policy, clock, known, &steps, &cuts);
        let kept = |fate: &JudgedEvent| fate.timestamp.map(|time| (time, fate.row));
        let mut expected: Vec<_> = seen.fates.iter().filter_map(kept).collect();
        expected.sort();
        let released: Vec<_> =
            seen.released.times.iter().copied().zip(seen.released.rows.iter().copied()).collect();
        prop_assert_eq!(released, expected);
    }

    // proves T8
    #[test]
    fn cutting_and_restarting_anywhere_changes_nothing(
        policy in policies(), clock in clocks(), known in known(), steps in streams(1), cuts in cuts()
    ) {
        let whole = run(policy, clock, known, &steps, &no_cuts());
        prop_assert_eq!(run(policy, clock, known, &steps, &cuts), whole);
    }

    // proves T6
    #[test]
    fn no_watermark_overtakes_the_event_that_raised_it(
        policy in policies(), known in known(), steps in streams(1)
    ) {
        for fate in run(policy, TimeDomain::EventTime, known, &steps, &no_cuts()).fates {
            prop_assert!(fate.watermark_before <= fate.watermark_after);
            prop_assert!(fate.timestamp.is_none_or(|time| time >= fate.watermark_after));
        }
    }

    #[test]
    fn a_damaged_snapshot_is_refused_or_read_but_never_panics(
        policy in policies(), steps in streams(1), at in 0..400usize, byte: u8, length in 0..400usize
    ) {
        let mut bytes = run(policy, TimeDomain::EventTime, Known::Each, &steps, &no_cuts()).snapshot;
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        bytes.truncate(length);
        let restored = Timeline::restore(policy, TimeDomain::EventTime, &mut Reader::new(&bytes));
        if let Ok(mut timeline) = restored {
            timeline.end();
            timeline.release(&mut ReleasedEvents::default());
        }
    }
}
