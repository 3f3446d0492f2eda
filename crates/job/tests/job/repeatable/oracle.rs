//! The expected verdict of every line by the rules of T3 to T6 and T11, one event after another.

use std::collections::HashMap;

use highwater_time::{Duration, Instant, ViolationAction};

use crate::repeatable::world::{Flaw, InputLine, World, instant};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub file: usize,
    /// From 1.
    pub line: u64,
    pub id: usize,
    /// Within its input.
    pub partition: usize,
    pub verdict: String,
    pub timestamp: Option<Instant>,
}

/// The clocks of one partition: one for all keys, or one for each above a common floor.
#[derive(Default)]
struct Clocks {
    floor: Option<Instant>,
    keys: HashMap<usize, Instant>,
}

/// The fate of every line that is an event, in order of file and line.
pub(crate) fn fates(world: &World) -> Vec<Expected> {
    let mut fates = Vec::new();
    let inputs = world.files.len() - usize::from(!world.query.both);
    for (file, lines) in world.files[..inputs].iter().enumerate() {
        let is_b = file + 1 == world.files.len();
        let mut clocks: HashMap<usize, Clocks> = HashMap::new();
        let mut arrived: Option<Instant> = None;
        for (at, line) in lines.iter().enumerate() {
            if line.flaw == Flaw::Blank {
                continue;
            }
            // A line that is no JSON has no arrival either.
            if world.arrivals && !matches!(line.flaw, Flaw::NoArrival | Flaw::Broken) {
                arrived = arrived.max(Some(instant(line.arrival)));
            }
            let partition = match (is_b, world.by_column) {
                (true, _) => 0,
                (false, true) => line.p,
                (false, false) => file,
            };
            let (verdict, timestamp) = match lost(world, line) {
                Some(kind) => (format!("lost: {kind}"), None),
                None => {
                    let arrival = if world.arrivals { arrived } else { None };
                    clocks
                        .entry(partition)
                        .or_default()
                        .judge(world, line, arrival)
                }
            };
            let (line_number, id) = (at as u64 + 1, line.id);
            fates.push(Expected {
                file,
                line: line_number,
                id,
                partition,
                verdict,
                timestamp,
            });
        }
    }
    fates
}

fn lost(world: &World, line: &InputLine) -> Option<&'static str> {
    let by_time = !world.query.arrival;
    match line.flaw {
        Flaw::Broken => Some("InputDeserializerError.InvalidData"),
        Flaw::NoArrival if world.arrivals => Some("InvalidArrivalTime"),
        Flaw::NoTime | Flaw::BadTime if by_time => Some("InvalidInputTimeStamp"),
        Flaw::NullKey if world.query.substreams => Some("InvalidInputTimeStampKey"),
        _ => None,
    }
}

impl Clocks {
    fn judge(
        &mut self,
        world: &World,
        line: &InputLine,
        arrival: Option<Instant>,
    ) -> (String, Option<Instant>) {
        if world.query.arrival {
            return ("on time".into(), arrival);
        }
        let (policy, mut time) = (&world.policy, instant(line.time));
        let key = if world.query.substreams { line.k } else { 0 };
        let met = self.floor.max(self.keys.get(&key).copied());
        let mut broke = Vec::new();
        let mut dropped = false;
        let mut bound = |name, action: ViolationAction, nearest: Instant, time: &mut Instant| {
            broke.push(name);
            match action {
                ViolationAction::Adjust => *time = nearest,
                ViolationAction::Drop => dropped = true,
            }
            dropped
        };
        let latest = arrival
            .zip(policy.early_arrival)
            .map(|(arrival, early)| arrival + early);
        let earliest = arrival.map(|arrival| arrival - policy.late_arrival);
        let mut gone = false;
        if let Some(latest) = latest.filter(|latest| time > *latest) {
            gone = bound("early", policy.early_events, latest, &mut time);
            if gone {
                return ("early: dropped".into(), None); // and time stands still
            }
        } else if let Some(earliest) = earliest.filter(|earliest| time < *earliest) {
            gone = bound("late", policy.late_events, earliest, &mut time);
        }
        if let Some(met) = met.filter(|met| !gone && time < *met) {
            gone = bound("out of order", policy.out_of_order_events, met, &mut time);
        }
        self.floor = self.floor.max(earliest);
        if !gone {
            let mark = time - policy.out_of_order.max(Duration::ZERO);
            let clock = self.keys.entry(key).or_insert(mark);
            *clock = mark.max(*clock);
        }
        let what = if gone { "dropped" } else { "adjusted" };
        let verdict = match broke.is_empty() {
            true => "on time".into(),
            false => format!("{}: {what}", broke.join(" and ")),
        };
        (verdict, (!gone).then_some(time))
    }
}
