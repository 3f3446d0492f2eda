//! The limit on the state of a job, so that a query that remembers too much fails by itself before the node is hurt.
//!
//! State is measured as it is encoded in a checkpoint, part by part: each stream by its worker, the shared part by the
//! combiner. Encoding costs time in proportion to the state, so a part is measured again only after input of a multiple of
//! its size, and more often when the limit is near. Work in flight is bounded apart from that (`read_permits.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The size of a job's state and its limit, shared by all parts.
#[derive(Clone, Debug)]
pub(super) struct StateLimit {
    bytes_max: u64,
    bytes: Arc<AtomicU64>,
}

/// Measures one part of the state.
#[derive(Debug)]
pub(super) struct StateMeter {
    limit: StateLimit,
    /// The size of the part when it was last measured.
    measured: u64,
    /// The size of the input since then.
    processed: u64,
}

/// A part is not measured more often than after this much input.
const INTERVAL_MIN: u64 = 8 << 20;

/// State is assumed to grow by at most this many bytes per byte of input.
const GROWTH_MAX: u64 = 8;

impl StateLimit {
    pub(super) fn new(bytes_max: u64) -> StateLimit {
        StateLimit {
            bytes_max,
            bytes: Arc::default(),
        }
    }

    pub(super) fn meter(&self) -> StateMeter {
        StateMeter {
            limit: self.clone(),
            measured: 0,
            processed: 0,
        }
    }
}

impl StateMeter {
    /// Called after `input` bytes were processed; `encode` returns the size of the part. The error is for the user.
    pub(super) fn processed(
        &mut self,
        input: u64,
        encode: impl FnOnce() -> u64,
    ) -> Result<(), String> {
        self.processed += input;
        if self.processed < self.interval() {
            return Ok(());
        }
        self.processed = 0;
        let before = std::mem::replace(&mut self.measured, encode());
        let (limit, change) = (&self.limit, self.measured.wrapping_sub(before));
        let bytes = limit.bytes.fetch_add(change, Ordering::Relaxed);
        let bytes = bytes.wrapping_add(change);
        match bytes > limit.bytes_max {
            true => Err(format!(
                "its state has {bytes} bytes, more than the limit of {}: let the query remember less, or raise \
                 jobs.state_bytes_max",
                limit.bytes_max
            )),
            false => Ok(()),
        }
    }

    fn interval(&self) -> u64 {
        let bytes = self.limit.bytes.load(Ordering::Relaxed);
        let left = self.limit.bytes_max.saturating_sub(bytes);
        let least = INTERVAL_MIN.min(self.limit.bytes_max / GROWTH_MAX);
        (self.measured * 4).min(left / GROWTH_MAX).max(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves G2
    #[test]
    fn parts_are_summed_and_measured_more_often_near_the_limit() {
        let limit = StateLimit::new(100 << 20);
        let (mut a, mut b) = (limit.meter(), limit.meter());
        assert_eq!(a.processed(INTERVAL_MIN - 1, || unreachable!()), Ok(()));
        assert_eq!(a.processed(1, || 60 << 20), Ok(()));
        assert_eq!(a.interval(), INTERVAL_MIN, "the limit is near");
        let refused = b.processed(INTERVAL_MIN, || 50 << 20).unwrap_err();
        assert!(
            refused.contains("its state has 115343360 bytes"),
            "{refused}"
        );
        assert_eq!(a.processed(INTERVAL_MIN, || 10 << 20), Ok(()));
        let far = StateLimit::new(u64::MAX);
        let mut large = far.meter();
        assert_eq!(large.processed(INTERVAL_MIN, || 1 << 30), Ok(()));
        assert_eq!(large.interval(), 4 << 30);
    }
}
