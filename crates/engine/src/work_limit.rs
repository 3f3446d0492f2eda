//! The limit of an untrusted query over untrusted events.
//!
//! The state of a job is bounded by what it measures between two batches; a query that multiplies rows fills the memory
//! within one. So the steps of a limited run are charged for the rows that they pass on, and steps that multiply rows
//! look at the limit while they do. After the limit, steps emit no rows and the result is worthless.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of rows, over all steps, and a flag that ends the run.
#[derive(Debug)]
pub struct WorkLimit {
    bytes_max: u64,
    bytes: AtomicU64,
    stopped: AtomicBool,
}

/// The rows of a limited run go through the steps in pieces of this size, so that one expression cannot use much
/// memory.
pub(crate) const PIECE_ROWS: usize = 64;

/// The longest text that a function makes in a limited run.
const TEXT_BYTES_MAX: usize = 32 << 10;

impl WorkLimit {
    pub fn new(bytes_max: u64) -> WorkLimit {
        WorkLimit {
            bytes_max,
            bytes: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        }
    }

    /// Ends the run at the next look.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub fn is_reached(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || self.bytes_used() > self.bytes_max
    }

    /// Whether the run used more than its bytes.
    pub fn is_over_bytes(&self) -> bool {
        self.bytes_used() > self.bytes_max
    }

    pub fn charge(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn bytes_left(&self) -> usize {
        let left = self.bytes_max.saturating_sub(self.bytes_used());
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    pub(crate) fn bytes_used(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

thread_local! {
    static TEXT_LIMIT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Guard of [`limit_text`].
#[derive(Debug)]
pub(crate) struct TextLimitScope {
    before: Option<usize>,
}

impl Drop for TextLimitScope {
    fn drop(&mut self) {
        TEXT_LIMIT.set(self.before);
    }
}

/// Shortens the texts that functions may make on this thread, until the guard is dropped.
pub(crate) fn limit_text() -> TextLimitScope {
    TextLimitScope {
        before: TEXT_LIMIT.replace(Some(TEXT_BYTES_MAX)),
    }
}

/// The longest text that a function may make here, if the run is limited.
pub(crate) fn text_limit() -> Option<usize> {
    TEXT_LIMIT.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_reached_by_bytes_or_by_a_stop() {
        let limit = WorkLimit::new(100);
        limit.charge(100);
        assert!(!limit.is_reached());
        limit.charge(1);
        assert!(limit.is_reached() && limit.is_over_bytes());
        let limit = WorkLimit::new(100);
        limit.stop();
        assert!(limit.is_reached() && !limit.is_over_bytes());
    }
}
