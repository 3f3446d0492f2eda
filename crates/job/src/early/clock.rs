//! Schedules revisions and stops all streams at the same barrier.
//!
//! Every stream stops at the *barrier*: it releases no event from there on, and its watermark stops there. When all
//! have arrived, the job's state covers exactly the events before that time, however fast each stream was. Then there
//! is a revision, if one is due, and the barrier is raised to the end of the interval in which the next event lies. So
//! all events between two barriers lie in one interval, and intervals without events are passed in one step.

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_time::{Duration, Instant};

use super::{EarlyPlan, EndPreview, StreamProgress};

pub(crate) struct RevisionClock {
    barrier: Instant,
    /// One for each interval that an output has.
    cadences: Vec<Cadence>,
    /// Per stream of the job; `None` if it does not stop.
    streams: Vec<Option<StoppedStream>>,
    /// Previews of the end were requested.
    is_previewing: bool,
    /// How many answers of streams that were told of a barrier are missing.
    unacknowledged: usize,
}

struct Cadence {
    every: Duration,
    /// The time of the next revision, if there was an event in its interval.
    due: Option<Instant>,
}

struct StoppedStream {
    watermark: Instant,
    next: Instant,
    preview: Option<EndPreview>,
}

/// The next action.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RevisionStep {
    /// Nothing until a stream has progressed.
    Wait,
    /// Ask all streams that stop for a preview of their end.
    Preview,
    /// All previews are here.
    Revise,
    /// Let all stopping streams continue to this barrier.
    Raise(Instant),
}

impl RevisionClock {
    /// `stops`: per stream of the job, whether it stops.
    pub(crate) fn new(plan: &EarlyPlan, stops: impl Iterator<Item = bool>) -> RevisionClock {
        let statements = plan.statements.iter().flatten();
        let mut intervals: Vec<Duration> = statements.map(|to| to.settings.every).collect();
        intervals.sort_unstable();
        intervals.dedup();
        let cadences = intervals
            .into_iter()
            .map(|every| Cadence { every, due: None });
        let mut clock = RevisionClock {
            barrier: Instant::BEFORE_ALL,
            cadences: cadences.collect(),
            streams: Vec::new(),
            is_previewing: false,
            unacknowledged: 0,
        };
        stops.for_each(|stops| clock.add_stream(stops, Instant::BEFORE_ALL));
        clock
    }

    pub(crate) fn add_stream(&mut self, stops: bool, watermark: Instant) {
        self.streams.push(stops.then_some(StoppedStream {
            watermark,
            next: watermark,
            preview: None,
        }));
    }

    pub(crate) fn barrier(&self) -> Instant {
        self.barrier
    }

    /// All streams that stop were told of the barrier.
    pub(crate) fn expect_acknowledgements(&mut self) {
        self.unacknowledged += self.streams.iter().flatten().count();
    }

    /// A stream that was told of the barrier has gone on.
    pub(crate) fn acknowledge(&mut self) {
        self.unacknowledged = self.unacknowledged.saturating_sub(1);
    }

    /// Whether no stream can progress without new input.
    pub(crate) fn is_settled(&self) -> bool {
        self.unacknowledged == 0 && !self.is_previewing
    }

    /// Takes the report of a stream.
    pub(crate) fn report(&mut self, stream: usize, watermark: Instant, progress: StreamProgress) {
        if let Some(Some(stopped)) = self.streams.get_mut(stream) {
            (stopped.watermark, stopped.next) = (watermark, progress.next);
        }
        // Nothing is before the first barrier; what comes nevertheless has no time that revisions could follow.
        if progress.has_events && self.barrier > Instant::BEFORE_ALL {
            for cadence in &mut self.cadences {
                let end = self.barrier.ceil_to(cadence.every, Duration::ZERO);
                debug_assert!(cadence.due.is_none_or(|due| due == end));
                cadence.due = Some(end);
            }
        }
    }

    pub(crate) fn take_preview(&mut self, preview: EndPreview) {
        if let Some(Some(stopped)) = self.streams.get_mut(preview.stream) {
            stopped.preview = Some(preview);
        }
    }

    /// The next step. The caller takes it at once.
    pub(crate) fn step(&mut self) -> RevisionStep {
        let stopped = || self.streams.iter().flatten();
        if self.barrier == Instant::AFTER_ALL
            || stopped().any(|stream| stream.watermark < self.barrier)
        {
            return RevisionStep::Wait;
        }
        let is_due = |cadence: &Cadence| cadence.due == Some(self.barrier);
        if self.cadences.iter().any(is_due) {
            if stopped().all(|stream| stream.preview.is_some()) {
                return RevisionStep::Revise;
            }
            return match std::mem::replace(&mut self.is_previewing, true) {
                true => RevisionStep::Wait,
                false => RevisionStep::Preview,
            };
        }
        let next = stopped().map(|stream| stream.next).min();
        match next.unwrap_or(Instant::AFTER_ALL) {
            // A stream has not begun.
            Instant::BEFORE_ALL => RevisionStep::Wait,
            next => {
                self.barrier = self.barrier_after(next);
                RevisionStep::Raise(self.barrier)
            }
        }
    }

    /// The end of the interval that `next` lies in, or an earlier revision that is due.
    fn barrier_after(&self, next: Instant) -> Instant {
        let ends = self.cadences.iter().map(|cadence| {
            cadence.due.unwrap_or_else(|| {
                let later = next + Duration::from_ticks(1);
                later.ceil_to(cadence.every, Duration::ZERO)
            })
        });
        ends.min().unwrap_or(Instant::AFTER_ALL)
    }

    /// The previews of all streams, and the intervals whose revision is due. Completes the revision.
    pub(crate) fn complete_revision(&mut self) -> (Vec<EndPreview>, Vec<Duration>) {
        self.is_previewing = false;
        let streams = self.streams.iter_mut().flatten();
        let previews = streams.filter_map(|stream| stream.preview.take());
        let previews = previews.collect();
        let mut intervals = Vec::new();
        for cadence in &mut self.cadences {
            if cadence.due == Some(self.barrier) {
                cadence.due = None;
                intervals.push(cadence.every);
            }
        }
        (previews, intervals)
    }

    pub(crate) fn snapshot(&self, out: &mut Vec<u8>) {
        out.i64(self.barrier.ticks());
        out.count(self.cadences.len());
        for cadence in &self.cadences {
            out.i64(cadence.due.unwrap_or(Instant::BEFORE_ALL).ticks());
        }
    }

    /// Reads what [`RevisionClock::snapshot`] wrote; `watermarks` are those of the streams. Their previews are
    /// requested again.
    pub(crate) fn restore(
        &mut self,
        from: &mut Reader<'_>,
        watermarks: &[Instant],
    ) -> Result<(), DecodeError> {
        self.barrier = Instant::from_ticks(from.i64()?);
        if from.count()? != self.cadences.len() {
            return Err(DecodeError::Invalid("it has other intervals of revisions"));
        }
        for cadence in &mut self.cadences {
            let due = Instant::from_ticks(from.i64()?);
            cadence.due = (due > Instant::BEFORE_ALL).then_some(due);
        }
        for (stream, watermark) in self.streams.iter_mut().zip(watermarks) {
            if let Some(stream) = stream {
                (stream.watermark, stream.next) = (*watermark, *watermark);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn clock(intervals: &[Duration], streams: usize) -> RevisionClock {
        let cadences = intervals.iter();
        let mut clock = RevisionClock {
            barrier: Instant::BEFORE_ALL,
            cadences: cadences
                .map(|every| Cadence {
                    every: *every,
                    due: None,
                })
                .collect(),
            streams: Vec::new(),
            is_previewing: false,
            unacknowledged: 0,
        };
        (0..streams).for_each(|_| clock.add_stream(true, Instant::BEFORE_ALL));
        clock
    }

    fn at(millis: i64) -> Instant {
        Instant::from_unix_millis(1_700_000_000_000 + millis)
    }

    /// A stream has reached `watermark` and has events from `next` on.
    fn report(clock: &mut RevisionClock, stream: usize, millis: (i64, i64), has_events: bool) {
        let (watermark, next) = millis;
        let progress = StreamProgress {
            next: at(next),
            has_events,
        };
        let watermark = at(watermark).min(clock.barrier());
        clock.report(stream, watermark, progress);
    }

    fn preview(clock: &mut RevisionClock, stream: usize) {
        clock.take_preview(EndPreview {
            stream,
            input: 0,
            exit_items: Vec::new(),
        });
    }

    // proves E1
    #[test]
    fn intervals_without_events_are_passed_in_one_step() {
        let mut clock = clock(&[SECOND], 2);
        assert_eq!(clock.step(), RevisionStep::Wait, "nobody has begun");
        report(&mut clock, 0, (300, 300), false);
        assert_eq!(clock.step(), RevisionStep::Wait, "one has not begun");
        report(&mut clock, 1, (86_400_500, 86_400_100), false);
        assert_eq!(clock.step(), RevisionStep::Raise(at(1000)));
        report(&mut clock, 0, (90_000_000, 90_000_000), false);
        report(&mut clock, 1, (86_400_500, 86_400_100), false);
        // No event before 1.0 s, so no revision; the next event lies a day later.
        assert_eq!(clock.step(), RevisionStep::Raise(at(86_401_000)));
        report(&mut clock, 1, (86_400_500, 86_400_500), true);
        assert_eq!(clock.step(), RevisionStep::Wait);
        report(&mut clock, 0, (90_000_000, 90_000_000), false);
        report(&mut clock, 1, (86_402_000, 86_402_000), false);
        assert_eq!(clock.step(), RevisionStep::Preview);
        assert!(!clock.is_settled());
        preview(&mut clock, 0);
        assert_eq!(clock.step(), RevisionStep::Wait);
        preview(&mut clock, 1);
        assert_eq!(clock.step(), RevisionStep::Revise);
        assert_eq!(clock.complete_revision().1, [SECOND]);
        assert_eq!(clock.step(), RevisionStep::Raise(at(86_403_000)));
    }

    #[test]
    fn a_revision_of_a_long_interval_is_not_lost_when_events_jump_beyond_it() {
        let mut clock = clock(&[SECOND, Duration::from_secs(10)], 1);
        report(&mut clock, 0, (100, 100), false);
        assert_eq!(clock.step(), RevisionStep::Raise(at(1000)));
        report(&mut clock, 0, (99_000, 98_500), true);
        assert_eq!(clock.step(), RevisionStep::Preview);
        preview(&mut clock, 0);
        assert_eq!(clock.step(), RevisionStep::Revise);
        assert_eq!(clock.complete_revision().1, [SECOND]);
        assert_eq!(clock.step(), RevisionStep::Raise(at(10_000)));
        report(&mut clock, 0, (99_000, 98_500), false);
        assert_eq!(clock.step(), RevisionStep::Preview);
        preview(&mut clock, 0);
        assert_eq!(clock.step(), RevisionStep::Revise);
        assert_eq!(clock.complete_revision().1, [Duration::from_secs(10)]);
        assert_eq!(clock.step(), RevisionStep::Raise(at(99_000)));
    }

    #[test]
    fn the_end_of_time_is_the_last_barrier() {
        let mut clock = clock(&[SECOND], 1);
        report(&mut clock, 0, (100, 100), false);
        assert_eq!(clock.step(), RevisionStep::Raise(at(1000)));
        let end = StreamProgress {
            next: Instant::AFTER_ALL,
            has_events: false,
        };
        clock.report(0, at(1000), end);
        assert_eq!(clock.step(), RevisionStep::Raise(Instant::AFTER_ALL));
        clock.report(0, Instant::AFTER_ALL, end);
        assert_eq!(clock.step(), RevisionStep::Wait);
    }

    #[test]
    fn a_restored_clock_asks_for_the_previews_of_its_revision_again() {
        let mut first = clock(&[SECOND], 1);
        report(&mut first, 0, (100, 100), false);
        first.step();
        report(&mut first, 0, (2000, 2000), true);
        assert_eq!(first.step(), RevisionStep::Preview);
        let mut state = Vec::new();
        first.snapshot(&mut state);
        let mut restored = clock(&[SECOND], 1);
        let mut from = Reader::new(&state);
        restored.restore(&mut from, &[at(1000)]).unwrap();
        assert_eq!(restored.step(), RevisionStep::Preview);
        assert!(
            clock(&[], 1)
                .restore(&mut Reader::new(&state), &[])
                .is_err()
        );
    }
}
