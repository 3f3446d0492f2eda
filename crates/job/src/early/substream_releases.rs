//! When the events of substreams are released and their windows complete, from a trace of the events.
//!
//! Revisions of substreams follow the floor: released events are counted by the revisions after the floor that the
//! releasing event leaves. So an event is placed at that floor instead of at its timestamp, and so is the end of a
//! window.

use std::collections::HashMap;

use highwater_time::{Instant, TimePolicy, Violation};

use crate::event_trace::TracedEvent;

/// The course of one partition.
#[derive(Default)]
pub(crate) struct SubstreamReleases {
    /// The floor after each event.
    floors: Vec<Instant>,
    /// The watermark of each key after each of its events, with the number of the event.
    watermarks: HashMap<Option<String>, Vec<(usize, Instant)>>,
}

impl SubstreamReleases {
    /// Takes the next event and returns its number.
    pub(crate) fn add(&mut self, event: &TracedEvent, policy: &TimePolicy) -> usize {
        let number = self.floors.len();
        let floor = self.floors.last().copied().unwrap_or(Instant::BEFORE_ALL);
        let judged = &event.judged;
        // The clock of a dropped early event is wrong, so its arrival does not count.
        let arrival =
            (judged.arrival).filter(|_| judged.verdict.dropped_by() != Some(Violation::Early));
        let raised = arrival.map_or(floor, |arrival| arrival - policy.late_arrival);
        self.floors.push(raised.max(floor));
        let watermarks = self.watermarks.entry(event.key.clone()).or_default();
        watermarks.push((number, judged.watermark_after));
        number
    }

    /// The floor after which an event with this number and timestamp is counted; the end of time if the end of the
    /// input releases it.
    pub(crate) fn counted_from(
        &self,
        number: usize,
        event: &TracedEvent,
        timestamp: Instant,
    ) -> Instant {
        let released = self.first(&event.key, |watermark| watermark >= timestamp);
        released.map_or(Instant::AFTER_ALL, |first| self.floors[first.max(number)])
    }

    /// The floor after which a window of a key is complete.
    pub(crate) fn complete_from(&self, key: &Option<String>, end: Instant) -> Instant {
        let completed = self.first(key, |watermark| watermark > end);
        completed.map_or(Instant::AFTER_ALL, |first| self.floors[first])
    }

    /// The number of the first event after which the watermark of the key satisfies `has_passed`.
    fn first(&self, key: &Option<String>, has_passed: impl Fn(Instant) -> bool) -> Option<usize> {
        let own = self.watermarks.get(key).map_or(&[][..], Vec::as_slice);
        let own = own.get(own.partition_point(|(_, watermark)| !has_passed(*watermark)));
        let common = self.floors.partition_point(|floor| !has_passed(*floor));
        let common = (common < self.floors.len()).then_some(common);
        own.map(|(number, _)| *number)
            .into_iter()
            .chain(common)
            .min()
    }
}
