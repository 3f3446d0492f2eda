//! Laws of substreams, against an oracle that looks through every key for every event.

use std::collections::BTreeMap;

use highwater_codec::Reader;
use highwater_time::*;
use proptest::prelude::*;

use crate::streams::*;

#[derive(PartialEq, Default, Debug)]
struct RunResult {
    released: ReleasedLaneEvents,
    fates: Vec<JudgedEvent>,
    counts: VerdictCounts,
    lanes: Vec<usize>,
    snapshot: Vec<u8>,
}

fn run(
    policy: TimePolicy,
    linger: Duration,
    known: Known,
    steps: &[Step],
    cuts: &Cuts,
) -> RunResult {
    let mut substreams = Substreams::new(policy, linger);
    let mut seen = RunResult::default();
    seen.released.keys = Some(KeyList::default());
    for act in acts(steps, cuts) {
        let floor = substreams.floor();
        let out = &mut seen.released;
        match act {
            Act::Push(batch) => {
                substreams.push(batch.events(known), &batch.keys(), out, &mut seen.fates);
            }
            Act::Punctuate(estimate) => substreams.punctuate(estimate, out),
            Act::Restart => {
                let mut bytes = Vec::new();
                substreams.snapshot(&mut bytes);
                let mut rest = Reader::new(&bytes);
                substreams =
                    Substreams::restore(policy, linger, &mut rest).expect("a good snapshot");
                assert!(rest.is_done());
            }
        }
        assert!(substreams.floor() >= floor, "the floor never goes back");
        let kept = seen.fates.iter().filter(|fate| fate.verdict.kept()).count();
        assert_eq!(kept, seen.released.rows.len() + substreams.buffered());
    }
    seen.lanes.push(substreams.lane_count());
    substreams.snapshot(&mut seen.snapshot);
    substreams.end(&mut seen.released);
    seen.lanes.push(substreams.lane_count());
    seen.counts = *substreams.counts();
    seen
}

struct OracleLane {
    key: u8,
    latest: Instant,
    held: Vec<(Instant, u64)>,
}

#[derive(Default)]
struct Oracle {
    lanes: BTreeMap<u32, OracleLane>,
    floor: Option<Instant>,
    seen: RunResult,
}

impl Oracle {
    fn give_out(&mut self, only: Option<u32>, watermark: Instant) {
        let mut due = Vec::new();
        for (&id, lane) in &mut self.lanes {
            if only.is_none_or(|only| only == id) {
                let reached = lane.held.extract_if(.., |held| held.0 <= watermark);
                due.extend(reached.map(|held| (held, id)));
            }
        }
        due.sort();
        for ((time, row), id) in due {
            self.seen.released.rows.push(row);
            self.seen.released.times.push(time);
            self.seen.released.lanes.push(id);
        }
    }

    fn mark(&mut self, lane: Option<u32>, watermark: Instant) {
        let before = self.seen.released.rows.len();
        self.seen.released.watermarks.push(LaneWatermark {
            before_row: before,
            lane,
            watermark,
        });
    }

    fn raise(&mut self, floor: Instant, linger: Duration) {
        if self.floor.is_none_or(|was| floor > was) {
            self.floor = Some(floor);
            self.give_out(None, floor);
            self.mark(None, floor);
            self.lanes.retain(|_, lane| lane.latest + linger >= floor);
        }
    }

    fn event(
        &mut self,
        policy: &TimePolicy,
        linger: Duration,
        event: (Instant, Option<Instant>, u8),
    ) {
        let (event_time, arrival, key) = event;
        let floor = self.floor.unwrap_or(Instant::BEFORE_ALL);
        let mut lane = self
            .lanes
            .iter()
            .find(|(_, lane)| lane.key == key)
            .map(|(id, _)| *id);
        let own = |latest: Instant| latest - policy.out_of_order;
        let met = lane.map_or(floor, |id| floor.max(own(self.lanes[&id].latest)));
        let (verdict, timestamp, arrival_floor) = judge(policy, event_time, arrival, met);
        let row = self.seen.fates.len() as u64;
        let mut watermark = met;
        if let Some(time) = timestamp {
            let free = (0..).find(|id| !self.lanes.contains_key(id));
            let id = lane.or(free).expect("a number");
            lane = Some(id);
            let new = OracleLane {
                key,
                latest: time,
                held: Vec::new(),
            };
            let lane = self.lanes.entry(id).or_insert(new);
            lane.latest = lane.latest.max(time);
            lane.held.push((time, row));
            watermark = met.max(own(lane.latest));
            self.give_out(Some(id), watermark);
            if watermark > met {
                self.mark(Some(id), watermark);
            }
        }
        if let Some(floor) = arrival_floor {
            self.raise(floor, linger);
        }
        watermark = watermark.max(self.floor.unwrap_or(watermark));
        let fate = JudgedEvent {
            row,
            arrival,
            event_time,
            verdict,
            watermark_before: met,
            timestamp,
            watermark_after: watermark,
            lane,
        };
        self.seen.fates.push(fate);
    }
}

fn oracle(policy: TimePolicy, linger: Duration, known: Known, steps: &[Step]) -> RunResult {
    let mut oracle = Oracle::default();
    for step in steps {
        match *step {
            Step::Silence { estimated_arrival } => {
                oracle.raise(estimated_arrival - policy.late_arrival, linger);
            }
            Step::Event { time, arrival, key } => {
                let arrival = match known {
                    Known::Each => Some(arrival),
                    Known::All => Some(ALL_ARRIVED),
                    Known::Nothing => None,
                };
                oracle.event(&policy, linger, (time, arrival, key));
            }
        }
    }
    oracle.seen.lanes.push(oracle.lanes.len());
    oracle.raise(Instant::AFTER_ALL, linger);
    oracle.seen.lanes.push(oracle.lanes.len());
    oracle.seen.counts = count(&oracle.seen.fates);
    oracle.seen
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    // proves T11
    #[test]
    fn rows_marks_and_fates_are_what_the_rules_say(
        policy in policies(), linger in tolerance(), known in known(), steps in streams(6),
        cuts in cuts()
    ) {
        let mut seen = run(policy, linger, known, &steps, &cuts);
        seen.snapshot.clear();
        seen.released.keys = None;
        prop_assert_eq!(seen, oracle(policy, linger, known, &steps));
    }

    // proves T8
    #[test]
    fn cutting_and_restarting_anywhere_changes_nothing(
        policy in policies(), linger in tolerance(), known in known(), steps in streams(6),
        cuts in cuts()
    ) {
        let whole = run(policy, linger, known, &steps, &no_cuts());
        prop_assert_eq!(run(policy, linger, known, &steps, &cuts), whole);
    }

    // proves T11
    #[test]
    fn each_key_is_in_order_and_nothing_is_lost(
        policy in policies(), linger in tolerance(), known in known(), steps in streams(6)
    ) {
        let seen = run(policy, linger, known, &steps, &no_cuts());
        let key_of = |row: u64| {
            let is_event = |step: &&Step| matches!(step, Step::Event { .. });
            match steps.iter().filter(is_event).nth(row as usize) {
                Some(Step::Event { key, .. }) => *key,
                _ => unreachable!("a released row was pushed"),
            }
        };
        let keys = seen.released.keys.as_ref().expect("keys were asked for");
        let told: Vec<&[u8]> = keys.range(0, seen.released.rows.len()).collect();
        for (&row, key) in seen.released.rows.iter().zip(&told) {
            prop_assert_eq!(key.to_vec(), key_bytes(key_of(row)));
        }
        for cut in 0..=told.len() {
            prop_assert!(keys.range(cut, told.len()).eq(told[cut..].iter().copied()));
        }
        let mut last: BTreeMap<u8, (Instant, u64)> = BTreeMap::new();
        for (&row, &time) in seen.released.rows.iter().zip(&seen.released.times) {
            let before = last.insert(key_of(row), (time, row));
            prop_assert!(before.is_none_or(|before| before < (time, row)));
        }
        let kept = |fate: &JudgedEvent| fate.verdict.kept().then_some(fate.row);
        let kept: Vec<u64> = seen.fates.iter().filter_map(kept).collect();
        let mut released = seen.released.rows;
        released.sort();
        prop_assert_eq!(released, kept);
    }

    // proves T11
    #[test]
    fn no_event_follows_a_mark_that_has_passed_it(
        policy in policies(), linger in tolerance(), known in known(), steps in streams(6)
    ) {
        let released = run(policy, linger, known, &steps, &no_cuts()).released;
        for mark in &released.watermarks {
            for i in mark.before_row..released.rows.len() {
                if mark.lane.is_none_or(|lane| lane == released.lanes[i]) {
                    prop_assert!(released.times[i] >= mark.watermark);
                }
            }
        }
    }

    // proves T11
    #[test]
    fn one_key_alone_is_a_timeline(policy in policies(), known in known(), steps in streams(1)) {
        let seen = run(policy, Duration::MAX, known, &steps, &no_cuts());
        let mut timeline = Timeline::new(policy, TimeDomain::EventTime);
        let mut fates: Vec<JudgedEvent> = Vec::new();
        let mut released = ReleasedEvents::default();
        for act in acts(&steps, &no_cuts()) {
            match act {
                Act::Push(batch) => timeline.push(batch.events(known), &mut fates),
                Act::Punctuate(estimate) => timeline.punctuate(estimate),
                Act::Restart => {}
            }
            timeline.release(&mut released);
        }
        timeline.end();
        timeline.release(&mut released);
        prop_assert_eq!(seen.released.rows, released.rows);
        prop_assert_eq!(seen.released.times, released.times);
        prop_assert_eq!(seen.counts, *timeline.counts());
        for (of_lane, alone) in seen.fates.into_iter().zip(fates) {
            prop_assert_eq!(JudgedEvent { lane: None, ..of_lane }, alone);
        }
    }

    #[test]
    fn a_damaged_snapshot_is_refused_or_read_but_never_panics(
        policy in policies(), steps in streams(6), at in 0..600usize, byte: u8, length in 0..600usize
    ) {
        let linger = Duration::ZERO;
        let mut bytes = run(policy, linger, Known::Each, &steps, &no_cuts()).snapshot;
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        bytes.truncate(length);
        if let Ok(mut substreams) = Substreams::restore(policy, linger, &mut Reader::new(&bytes)) {
            substreams.end(&mut ReleasedLaneEvents::default());
        }
    }
}
