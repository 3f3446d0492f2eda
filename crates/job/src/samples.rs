//! Samples of the events of a live job, for pages that show how its time moves.
//!
//! A stream asks once a block whether the job has watchers; without any, that is all it costs. Otherwise it gets a
//! share of the samples that are left in this interval, so the cost of watching does not grow with the rate of events
//! or the number of partitions. Events that a policy adjusted or dropped are rarer and matter more, so they have a
//! larger share of their own.
//!
//! Watchers refill the shares when they poll, hence no clock is read while events are processed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use highwater_env::Clock;
use highwater_time::{Instant, JudgedEvent};

/// How many may watch a job at once.
const WATCHERS_MAX: usize = 16;

/// How often the shares are refilled.
const INTERVAL: Duration = Duration::from_millis(200);

/// Events in an interval.
const ON_TIME_MAX: usize = 40;
const MOVED_MAX: usize = 120;

/// Events on time in a block, so that many partitions share an interval.
const ON_TIME_BLOCK_MAX: usize = 8;

/// Watermarks in an interval.
const WATERMARKS_MAX: usize = 128;

/// How many samples are stored, for watchers that are slow and for questions about an event.
const EVENTS_STORED: usize = 4_000;
const WATERMARKS_STORED: usize = 2_000;

/// An event of a live job with its verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledEvent {
    pub input: usize,
    /// Its number among the partitions of the input.
    pub partition: usize,
    pub offset: u64,
    pub judged: JudgedEvent,
}

/// The watermark of a partition after the latest arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatermarkSample {
    pub input: usize,
    pub partition: usize,
    pub arrived: Instant,
    pub watermark: Instant,
}

/// The samples since the last poll.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    pub events: Vec<SampledEvent>,
    pub watermarks: Vec<WatermarkSample>,
    /// Events that were not sampled.
    pub skipped: u64,
}

/// The samples of a job, shared by its streams and watchers.
#[derive(Debug, Default)]
pub(crate) struct SampleBuffer {
    is_watched: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    watchers: usize,
    /// By the watchers' clock.
    refilled_at: Option<Duration>,
    on_time_left: usize,
    moved_left: usize,
    watermarks_left: usize,
    events: LatestItems<SampledEvent>,
    watermarks: LatestItems<WatermarkSample>,
    skipped: u64,
}

/// The latest items, which are numbered in the order of their arrival.
#[derive(Debug)]
struct LatestItems<T> {
    items: VecDeque<T>,
    /// The number of the next item.
    next: u64,
}

impl<T> Default for LatestItems<T> {
    fn default() -> LatestItems<T> {
        LatestItems {
            items: VecDeque::new(),
            next: 0,
        }
    }
}

impl<T: Copy> LatestItems<T> {
    fn push(&mut self, item: T, stored_max: usize) {
        if self.items.len() == stored_max {
            self.items.pop_front();
        }
        self.items.push_back(item);
        self.next += 1;
    }

    /// The stored items from a number on.
    fn since(&self, number: u64) -> Vec<T> {
        let missed = (self.next - number) as usize;
        let from = self.items.len().saturating_sub(missed);
        self.items.range(from..).copied().collect()
    }
}

/// How many events of a block may be sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SampleShare {
    pub on_time: usize,
    pub moved: usize,
}

impl SampleBuffer {
    /// The share of a block of `events`; `None` without a watcher, or if the interval's shares are used up.
    #[inline]
    fn share(&self, events: usize) -> Option<SampleShare> {
        match self.is_watched.load(Ordering::Relaxed) {
            false => None,
            true => self.watched_share(events),
        }
    }

    #[cold]
    fn watched_share(&self, events: usize) -> Option<SampleShare> {
        let mut inner = self.lock();
        inner.skipped += events as u64;
        let share = SampleShare {
            on_time: inner.on_time_left.min(ON_TIME_BLOCK_MAX).min(events),
            moved: inner.moved_left.min(events),
        };
        (share.on_time + share.moved > 0).then_some(share)
    }

    /// The sample of an event, if it is stored.
    pub(crate) fn find(&self, input: usize, partition: usize, offset: u64) -> Option<JudgedEvent> {
        let inner = self.lock();
        let mut events = inner.events.items.iter().rev();
        let found = events.find(|event| {
            (event.input, event.partition, event.offset) == (input, partition, offset)
        });
        found.map(|event| event.judged)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sampler of one partition.
#[derive(Clone, Debug)]
pub(crate) struct StreamSampler {
    pub buffer: Arc<SampleBuffer>,
    pub input: usize,
    pub partition: usize,
}

impl StreamSampler {
    /// See [`SampleBuffer::share`].
    #[inline]
    pub(crate) fn share(&self, events: usize) -> Option<SampleShare> {
        self.buffer.share(events)
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.buffer.is_watched.load(Ordering::Relaxed)
    }

    /// Stores events with their offsets.
    pub(crate) fn add(&self, events: impl Iterator<Item = (u64, JudgedEvent)>) {
        let mut inner = self.buffer.lock();
        for (offset, judged) in events {
            let left = match judged.verdict.on_time() {
                true => &mut inner.on_time_left,
                false => &mut inner.moved_left,
            };
            // Another stream may have used the share meanwhile.
            if *left == 0 {
                continue;
            }
            *left -= 1;
            inner.skipped = inner.skipped.saturating_sub(1);
            let event = SampledEvent {
                input: self.input,
                partition: self.partition,
                offset,
                judged,
            };
            inner.events.push(event, EVENTS_STORED);
        }
    }

    /// Stores the watermark, if the job has watchers.
    pub(crate) fn add_watermark(&self, arrived: Instant, watermark: Instant) {
        if !self.is_watched() {
            return;
        }
        let mut inner = self.buffer.lock();
        if inner.watermarks_left == 0 || !arrived.is_in_calendar() || !watermark.is_in_calendar() {
            return;
        }
        inner.watermarks_left -= 1;
        let sample = WatermarkSample {
            input: self.input,
            partition: self.partition,
            arrived,
            watermark,
        };
        inner.watermarks.push(sample, WATERMARKS_STORED);
    }
}

/// Receives samples of a job. While there is one, the job samples its events.
pub struct SampleWatcher {
    buffer: Arc<SampleBuffer>,
    clock: Arc<dyn Clock>,
    next_event: u64,
    next_watermark: u64,
    skipped: u64,
}

impl SampleWatcher {
    /// `None` if too many watch already.
    pub(crate) fn new(buffer: &Arc<SampleBuffer>, clock: &Arc<dyn Clock>) -> Option<SampleWatcher> {
        let mut inner = buffer.lock();
        if inner.watchers == WATCHERS_MAX {
            return None;
        }
        inner.watchers += 1;
        let mut watcher = SampleWatcher {
            buffer: buffer.clone(),
            clock: clock.clone(),
            next_event: inner.events.next,
            next_watermark: inner.watermarks.next,
            skipped: inner.skipped,
        };
        drop(inner);
        buffer.is_watched.store(true, Ordering::Relaxed);
        watcher.poll();
        Some(watcher)
    }

    /// The samples since the last call. To be called a few times a second.
    pub fn poll(&mut self) -> Samples {
        let now = self.clock.elapsed();
        let mut inner = self.buffer.lock();
        if inner.refilled_at.is_none_or(|at| now >= at + INTERVAL) {
            inner.refilled_at = Some(now);
            inner.on_time_left = ON_TIME_MAX;
            inner.moved_left = MOVED_MAX;
            inner.watermarks_left = WATERMARKS_MAX;
        }
        let samples = Samples {
            events: inner.events.since(self.next_event),
            watermarks: inner.watermarks.since(self.next_watermark),
            skipped: inner.skipped.saturating_sub(self.skipped),
        };
        self.next_event = inner.events.next;
        self.next_watermark = inner.watermarks.next;
        self.skipped = inner.skipped;
        samples
    }
}

impl Drop for SampleWatcher {
    fn drop(&mut self) {
        let mut inner = self.buffer.lock();
        inner.watchers -= 1;
        if inner.watchers == 0 {
            (inner.on_time_left, inner.moved_left) = (0, 0);
            inner.refilled_at = None;
            self.buffer.is_watched.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_env::SimClock;
    use highwater_time::{Verdict, Violation};

    use super::*;

    fn judged(row: u64, verdict: Verdict) -> JudgedEvent {
        let time = Instant::from_unix_millis(row as i64);
        JudgedEvent {
            row,
            arrival: Some(time),
            event_time: time,
            verdict,
            watermark_before: time,
            timestamp: Some(time),
            watermark_after: time,
            lane: None,
        }
    }

    fn sampler() -> StreamSampler {
        StreamSampler {
            buffer: Arc::default(),
            input: 0,
            partition: 1,
        }
    }

    #[test]
    fn nothing_is_sampled_while_nobody_watches() {
        let (sampler, clock) = (sampler(), SimClock::at_unix_nanos(0));
        let clock: Arc<dyn Clock> = Arc::new(clock);
        assert_eq!(sampler.share(1_000), None);
        let watcher = SampleWatcher::new(&sampler.buffer, &clock).unwrap();
        assert!(sampler.share(1_000).is_some());
        drop(watcher);
        assert_eq!(sampler.share(1_000), None);
    }

    #[test]
    fn an_interval_has_a_bound_and_moved_events_have_their_own() {
        let (sampler, clock) = (sampler(), Arc::new(SimClock::at_unix_nanos(0)));
        let timer: Arc<dyn Clock> = clock.clone();
        let mut watcher = SampleWatcher::new(&sampler.buffer, &timer).unwrap();
        let late = Verdict::adjusted_for(Violation::Late);
        for block in 0..100 {
            let Some(share) = sampler.share(1_000) else {
                continue;
            };
            let first = block * 1_000;
            let on_time =
                (0..share.on_time as u64).map(|n| (first + n, judged(n, Verdict::ON_TIME)));
            let moved = (0..share.moved.min(2) as u64).map(|n| (first + 500 + n, judged(n, late)));
            sampler.add(on_time.chain(moved));
        }
        let samples = watcher.poll();
        let on_time = samples
            .events
            .iter()
            .filter(|event| event.judged.verdict.on_time());
        assert_eq!(on_time.count(), ON_TIME_MAX);
        assert_eq!(samples.events.len(), ON_TIME_MAX + MOVED_MAX);
        assert_eq!(samples.skipped, 100_000 - samples.events.len() as u64);
        assert!(sampler.buffer.find(0, 1, 500).is_some());
        assert!(sampler.buffer.find(0, 0, 500).is_none());
        assert_eq!(watcher.poll().events, []);
        clock.advance(INTERVAL);
        watcher.poll();
        assert!(
            sampler.share(10).is_some(),
            "the next interval has its own share"
        );
    }
}
