//! Read permits, which bound the work in flight.
//!
//! Rows of a stream that is ahead in event time wait for the others. To bound them, new permits go only to the stream
//! with the minimum watermark among those with events to read. Each stream has a few permits, so that reading, decoding
//! and combining overlap.

use std::sync::Arc;

use highwater_time::Instant;
use tokio::sync::Semaphore;

/// How many fetches of a stream may be in flight.
pub(super) const PERMITS: usize = 4;

pub(super) struct ReadPermits {
    streams: Vec<StreamPermits>,
}

struct StreamPermits {
    permits: Arc<Semaphore>,
    /// Returned permits that the stream does not get yet.
    withheld: usize,
    reached: Instant,
    /// It has read all available events.
    drained: bool,
}

impl ReadPermits {
    pub(super) fn new(streams: usize) -> ReadPermits {
        let mut permits = ReadPermits {
            streams: Vec::new(),
        };
        (0..streams).for_each(|_| permits.add_stream());
        permits
    }

    pub(super) fn add_stream(&mut self) {
        self.streams.push(StreamPermits {
            permits: Arc::new(Semaphore::new(PERMITS)),
            withheld: 0,
            reached: Instant::BEFORE_ALL,
            drained: false,
        });
    }

    pub(super) fn permits(&self, stream: usize) -> Arc<Semaphore> {
        self.streams[stream].permits.clone()
    }

    /// Sets the watermark that a stream had before a restart.
    pub(super) fn restore(&mut self, stream: usize, reached: Instant) {
        self.streams[stream].reached = reached;
    }

    /// Returns the permit of a fetch that has been processed.
    pub(super) fn processed(&mut self, stream: usize, reached: Instant) {
        let stream_permits = &mut self.streams[stream];
        stream_permits.withheld += 1;
        stream_permits.reached = reached;
        stream_permits.drained = false;
        self.release();
    }

    /// The stream waits for new events or has ended.
    pub(super) fn drained(&mut self, stream: usize) {
        self.streams[stream].drained = true;
        self.release();
    }

    fn release(&mut self) {
        let busy = self
            .streams
            .iter()
            .filter(|stream_permits| !stream_permits.drained);
        let behind = busy.map(|stream_permits| stream_permits.reached).min();
        for stream_permits in &mut self.streams {
            let may = stream_permits.drained
                || behind.is_none_or(|behind| stream_permits.reached <= behind);
            if may && stream_permits.withheld > 0 {
                stream_permits
                    .permits
                    .add_permits(std::mem::take(&mut stream_permits.withheld));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Instant {
        Instant::from_unix_millis(seconds * 1000)
    }

    fn take(permits: &ReadPermits, stream: usize) -> bool {
        let permits = permits.permits(stream);
        let taken = permits.try_acquire();
        taken.map(|permit| permit.forget()).is_ok()
    }

    #[test]
    fn a_stream_that_is_ahead_waits_for_those_that_have_something_to_read() {
        let mut permits = ReadPermits::new(2);
        while take(&permits, 0) {}
        while take(&permits, 1) {}
        permits.processed(0, at(60));
        assert!(!take(&permits, 0), "the other has not begun");
        permits.processed(1, at(50));
        assert!(take(&permits, 1) && !take(&permits, 0));
        permits.processed(1, at(70));
        assert!(take(&permits, 0) && !take(&permits, 1));
        permits.drained(0);
        assert!(take(&permits, 1), "nobody else has anything to read");
    }
}
