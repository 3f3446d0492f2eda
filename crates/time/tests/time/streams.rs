//! Inputs for the laws: streams of events and punctuation, cut and interrupted anywhere.
//!
//! Times are a few dozen ticks apart and tolerances a few ticks long, so that ties, equalities and
//! strays of every kind are common.

use highwater_time::*;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Event {
        time: Instant,
        arrival: Instant,
        key: u8,
    },
    Silence {
        estimated_arrival: Instant,
    },
}

/// The known arrivals.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Known {
    Each,
    All,
    Nothing,
}

/// How a stream is cut into batches. Each cut says how many events the batch has at most, and
/// whether the timeline is stopped and restored from a snapshot after it.
pub(crate) type Cuts = Vec<(usize, bool)>;

pub(crate) const ALL_ARRIVED: Instant = Instant::from_ticks(40);

fn at(ticks: i64) -> Instant {
    Instant::from_ticks(ticks)
}

pub(crate) fn tolerance() -> impl Strategy<Value = Duration> {
    prop_oneof![Just(0i64), 0..12i64, Just(100)].prop_map(Duration::from_ticks)
}

fn action() -> impl Strategy<Value = ViolationAction> {
    prop_oneof![Just(ViolationAction::Adjust), Just(ViolationAction::Drop)]
}

pub(crate) fn policies() -> impl Strategy<Value = TimePolicy> {
    let tolerances = (tolerance(), tolerance(), prop::option::of(tolerance()));
    let actions = (action(), action(), action());
    (tolerances, actions).prop_map(|((late, disorder, early), (a, b, c))| TimePolicy {
        late_arrival: late,
        out_of_order: disorder,
        early_arrival: early,
        late_events: a,
        out_of_order_events: b,
        early_events: c,
    })
}

pub(crate) fn known() -> impl Strategy<Value = Known> {
    prop_oneof![4 => Just(Known::Each), 1 => Just(Known::All), 1 => Just(Known::Nothing)]
}

/// Arrivals hardly ever go back; event times lie around them.
pub(crate) fn streams(keys: u8) -> impl Strategy<Value = Vec<Step>> {
    let arrival_step = prop_oneof![6 => 0..3i64, 1 => 0..15i64, 1 => -3..0i64];
    let step = (arrival_step, -20..15i64, 0..keys, 0..10u8);
    prop::collection::vec(step, 0..80).prop_map(|steps| {
        let mut arrival = 0;
        let step = |(advance, skew, key, kind)| {
            arrival += advance;
            if kind == 0 {
                Step::Silence {
                    estimated_arrival: at(arrival + skew),
                }
            } else {
                Step::Event {
                    time: at(arrival + skew),
                    arrival: at(arrival),
                    key,
                }
            }
        };
        steps.into_iter().map(step).collect()
    })
}

pub(crate) fn cuts() -> impl Strategy<Value = Cuts> {
    prop::collection::vec((1..9usize, any::<bool>()), 1..12)
}

/// One event after the other, never interrupted.
pub(crate) fn no_cuts() -> Cuts {
    vec![(1, false)]
}

/// A run of events that are pushed together.
#[derive(Default)]
pub(crate) struct Batch {
    pub first: u64,
    pub times: Vec<Instant>,
    pub arrivals: Vec<Instant>,
    pub key_offsets: Vec<u32>,
    pub key_bytes: Vec<u8>,
}

impl Batch {
    pub(crate) fn events(&self, known: Known) -> EventBatch<'_> {
        let arrivals = match known {
            Known::Each => Arrivals::Each(&self.arrivals),
            Known::All => Arrivals::All(ALL_ARRIVED),
            Known::Nothing => Arrivals::Unknown,
        };
        EventBatch {
            first_row: self.first,
            times: &self.times,
            arrivals,
        }
    }

    pub(crate) fn keys(&self) -> EventKeys<'_> {
        EventKeys {
            offsets: &self.key_offsets,
            bytes: &self.key_bytes,
        }
    }
}

/// The next operation on a timeline.
pub(crate) enum Act {
    Push(Batch),
    Punctuate(Instant),
    Restart,
}

pub(crate) fn acts(steps: &[Step], cuts: &Cuts) -> Vec<Act> {
    let mut acts = Vec::new();
    let mut row = 0;
    let mut rest = steps;
    for &(length, restart) in cuts.iter().cycle() {
        let Some(first) = rest.first() else { break };
        if let Step::Silence { estimated_arrival } = *first {
            acts.push(Act::Punctuate(estimated_arrival));
            rest = &rest[1..];
        } else {
            let is_event = |step: &&Step| matches!(step, Step::Event { .. });
            let length = rest.iter().take(length).take_while(is_event).count();
            acts.push(Act::Push(batch(row, &rest[..length])));
            row += length as u64;
            rest = &rest[length..];
        }
        if restart {
            acts.push(Act::Restart);
        }
    }
    acts
}

/// Keys have different lengths, and the first is empty.
pub(crate) fn key_bytes(key: u8) -> Vec<u8> {
    vec![b'k'; key.into()]
}

fn batch(first: u64, steps: &[Step]) -> Batch {
    let mut batch = Batch {
        first,
        key_offsets: vec![0],
        ..Batch::default()
    };
    for step in steps {
        if let Step::Event { time, arrival, key } = *step {
            batch.times.push(time);
            batch.arrivals.push(arrival);
            batch.key_bytes.extend(key_bytes(key));
            batch.key_offsets.push(batch.key_bytes.len() as u32);
        }
    }
    batch
}

/// The rules of requirements T3 to T6 for one event, spelled out once more: the verdict, the
/// timestamp, and the watermark of the event's own clock and of its arrival.
pub(crate) fn judge(
    policy: &TimePolicy,
    time: Instant,
    arrival: Option<Instant>,
    met: Instant,
) -> (Verdict, Option<Instant>, Option<Instant>) {
    let mut time = time;
    let mut verdict = Verdict::ON_TIME;
    let floor = arrival.map(|arrival| arrival - policy.late_arrival);
    if let (Some(arrival), Some(early)) = (arrival, policy.early_arrival)
        && time > arrival + early
    {
        if policy.early_events == ViolationAction::Drop {
            return (Verdict::dropped_for(Violation::Early), None, None);
        }
        (verdict, time) = (verdict.and(Violation::Early), arrival + early);
    }
    if let Some(floor) = floor
        && time < floor
    {
        if policy.late_events == ViolationAction::Drop {
            return (Verdict::dropped_for(Violation::Late), None, Some(floor));
        }
        (verdict, time) = (verdict.and(Violation::Late), floor);
    }
    if time < met {
        if policy.out_of_order_events == ViolationAction::Drop {
            let skew = [Violation::Early, Violation::Late]
                .into_iter()
                .find(|cause| verdict.violates(*cause));
            let dropped = Verdict::dropped_for(Violation::OutOfOrder);
            return (skew.map_or(dropped, |skew| dropped.and(skew)), None, floor);
        }
        (verdict, time) = (verdict.and(Violation::OutOfOrder), met);
    }
    (verdict, Some(time), floor)
}

/// The expected counters, given every event's fate.
pub(crate) fn count(fates: &[JudgedEvent]) -> VerdictCounts {
    let mut counts = VerdictCounts {
        read: fates.len() as u64,
        ..VerdictCounts::default()
    };
    for fate in fates {
        let by = fate.verdict.dropped_by();
        let one = |cause: Violation, dropped: bool| {
            u64::from(fate.verdict.violates(cause) && (by == Some(cause)) == dropped)
        };
        counts.kept += u64::from(fate.verdict.kept());
        counts.early_adjusted += one(Violation::Early, false);
        counts.early_dropped += one(Violation::Early, true);
        counts.late_adjusted += one(Violation::Late, false);
        counts.late_dropped += one(Violation::Late, true);
        counts.out_of_order_adjusted += one(Violation::OutOfOrder, false);
        counts.out_of_order_dropped += one(Violation::OutOfOrder, true);
    }
    counts
}
