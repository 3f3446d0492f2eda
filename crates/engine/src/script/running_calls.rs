//! The calls of JavaScript functions that run now, as seen by a watchdog.
//!
//! The step limit of an interpreter does not hold inside of some native functions: `reverse` of an object that claims
//! 2^53 elements never asks the interrupt handler. No other thread can end such a call either. So the driver of a job
//! polls its calls ([`RunningCalls::overdue`]); an overdue call is abandoned with its thread, and the job fails. The
//! number of abandoned calls that still run is limited, because each may keep a processor busy.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// With this many abandoned calls, no job with functions starts.
#[cfg(feature = "javascript")]
const GIVEN_UP_MAX: usize = 4;

/// Abandoned calls that have not returned.
static GIVEN_UP: AtomicUsize = AtomicUsize::new(0);

/// The interpreters of a job's functions.
#[derive(Debug, Default)]
pub(super) struct RunningCalls(Mutex<Vec<Weak<CallSlot>>>);

/// The running call of one interpreter.
#[derive(Debug, Default)]
pub(super) struct CallSlot {
    /// The number of the function, from 1; 0 between calls.
    function: AtomicUsize,
    /// Grows with every call.
    calls: AtomicU64,
    is_given_up: AtomicBool,
    /// The last observation of the watchdog: the call, and since when.
    seen: Mutex<(u64, Duration)>,
}

impl CallSlot {
    /// A call of the function with this number, from 0. Also marks progress within one call.
    #[cfg(feature = "javascript")]
    #[inline]
    pub(super) fn begin(&self, function: usize) {
        self.function.store(function + 1, Ordering::Relaxed);
        let calls = self.calls.load(Ordering::Relaxed);
        self.calls.store(calls + 1, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn end(&self) {
        self.function.store(0, Ordering::Relaxed);
        if self.is_given_up() && self.is_given_up.swap(false, Ordering::Relaxed) {
            GIVEN_UP.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }

    /// The number of the function, from 0, if the same call runs since `limit` or longer.
    fn overdue(&self, now: Duration, limit: Duration) -> Option<usize> {
        let calls = self.calls.load(Ordering::Relaxed);
        let function = self.function.load(Ordering::Relaxed).checked_sub(1);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if function.is_none() || seen.0 != calls {
            *seen = (calls, now);
        }
        function.filter(|_| now.saturating_sub(seen.1) >= limit)
    }

    fn give_up(&self) {
        if !self.is_given_up.swap(true, Ordering::Relaxed) {
            GIVEN_UP.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for CallSlot {
    fn drop(&mut self) {
        self.end();
    }
}

impl RunningCalls {
    /// The slot of a new interpreter.
    #[cfg(feature = "javascript")]
    pub(super) fn add(&self) -> std::sync::Arc<CallSlot> {
        let slot = std::sync::Arc::new(CallSlot::default());
        let mut slots = self.lock();
        slots.retain(|slot| slot.strong_count() > 0);
        slots.push(std::sync::Arc::downgrade(&slot));
        slot
    }

    /// Abandons a call that has not returned for `limit` and returns the number of its function. `now` is the time of
    /// any clock that does not go back. A call is noticed when it is seen for the second time.
    pub(super) fn overdue(&self, now: Duration, limit: Duration) -> Option<usize> {
        self.lock()
            .iter()
            .filter_map(Weak::upgrade)
            .find_map(|slot| {
                let function = slot.overdue(now, limit)?;
                slot.give_up();
                Some(function)
            })
    }

    pub(super) fn has_given_up(&self) -> bool {
        let slots = self.lock();
        let mut slots = slots.iter().filter_map(Weak::upgrade);
        slots.any(|slot| slot.is_given_up())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<CallSlot>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a job with functions may start.
#[cfg(feature = "javascript")]
pub(super) fn may_start() -> Result<(), String> {
    match GIVEN_UP.load(Ordering::Relaxed) {
        GIVEN_UP_MAX.. => Err(format!(
            "{GIVEN_UP_MAX} calls of functions of other jobs never returned; restart the node to be rid of them"
        )),
        _ => Ok(()),
    }
}
