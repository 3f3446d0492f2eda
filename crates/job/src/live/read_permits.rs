//! Permits to read, which bound what is under way.
//!
//! Rows of a stream that is ahead of the others in event time wait until those have caught up. So that they do not pile up,
//! only the stream with the minimum watermark gets new permits, among those that have something to read. Each stream has a
//! few permits, so that reading, decoding and combining overlap.

use std::sync::Arc;

use highwater_time::Instant;
use tokio::sync::Semaphore;

/// How many fetches of a stream may be under way.
pub(super) const PERMITS: usize = 4;

pub(super) struct ReadPermits {
    streams: Vec<StreamPermits>,
}

struct StreamPermits {
    permits: Arc<Semaphore>,
    /// Permits that were returned and are withheld.
    withheld: usize,
    reached: Instant,
    /// It has read all there was.
    drained: bool,
}

impl ReadPermits {
    pub fn new(streams: usize) -> ReadPermits {
        let mut pace = ReadPermits {
            streams: Vec::new(),
        };
        (0..streams).for_each(|_| pace.add_stream());
        pace
    }

    pub fn add_stream(&mut self) {
        self.streams.push(StreamPermits {
            permits: Arc::new(Semaphore::new(PERMITS)),
            withheld: 0,
            reached: Instant::BEFORE_ALL,
            drained: false,
        });
    }

    pub fn permits(&self, stream: usize) -> Arc<Semaphore> {
        self.streams[stream].permits.clone()
    }

    /// Sets the watermark that a stream had before a restart.
    pub fn worked_before(&mut self, stream: usize, reached: Instant) {
        self.streams[stream].reached = reached;
    }

    /// Returns the permit of a fetch that has been processed.
    pub fn worked(&mut self, stream: usize, reached: Instant) {
        let pacer = &mut self.streams[stream];
        pacer.withheld += 1;
        pacer.reached = reached;
        pacer.drained = false;
        self.hand_out();
    }

    /// The stream waits for new events, or has come to its end.
    pub fn drained(&mut self, stream: usize) {
        self.streams[stream].drained = true;
        self.hand_out();
    }

    fn hand_out(&mut self) {
        let busy = self.streams.iter().filter(|pacer| !pacer.drained);
        let behind = busy.map(|pacer| pacer.reached).min();
        for pacer in &mut self.streams {
            let may = pacer.drained || behind.is_none_or(|behind| pacer.reached <= behind);
            if may && pacer.withheld > 0 {
                pacer
                    .permits
                    .add_permits(std::mem::take(&mut pacer.withheld));
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

    fn take(pace: &ReadPermits, stream: usize) -> bool {
        let permits = pace.permits(stream);
        let taken = permits.try_acquire();
        taken.map(|permit| permit.forget()).is_ok()
    }

    #[test]
    fn a_stream_that_is_ahead_waits_for_those_that_have_something_to_read() {
        let mut pace = ReadPermits::new(2);
        while take(&pace, 0) {}
        while take(&pace, 1) {}
        pace.worked(0, at(60));
        assert!(!take(&pace, 0), "the other has not begun");
        pace.worked(1, at(50));
        assert!(take(&pace, 1) && !take(&pace, 0));
        pace.worked(1, at(70));
        assert!(take(&pace, 0) && !take(&pace, 1));
        pace.drained(0);
        assert!(take(&pace, 1), "nobody else has anything to read");
    }
}
