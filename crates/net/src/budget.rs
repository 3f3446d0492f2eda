//! How many connections a server may have, and the part of them that is reserved for clients with a key.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::counter::Counter;

/// Connections since the start; `open` is the number open now.
#[derive(Debug, Default)]
pub struct ConnectionCounters {
    pub open: Counter,
    pub accepted: Counter,
    /// Connections above the limit.
    pub refused: Counter,
}

/// The connections that all listeners of a server may have open.
#[derive(Debug)]
pub struct ConnectionBudget {
    general: Share,
    reserve: Share,
    counters: Arc<ConnectionCounters>,
}

#[derive(Debug)]
struct Share {
    free: Arc<Semaphore>,
    max: u32,
}

/// Counts a connection for as long as it is held.
#[derive(Debug)]
pub struct CountedConnection {
    /// Nothing else was free.
    pub of_reserve: bool,
    counters: Arc<ConnectionCounters>,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionBudget {
    /// `reserved` of the connections, but no more than half, are taken last.
    pub fn new(max: usize, reserved: usize, counters: Arc<ConnectionCounters>) -> ConnectionBudget {
        let max = max.min(Semaphore::MAX_PERMITS);
        let reserved = reserved.min(max / 2);
        ConnectionBudget {
            general: Share::new(max - reserved),
            reserve: Share::new(reserved),
            counters,
        }
    }

    /// Counts a connection, or a refused one if there are too many.
    pub fn take(&self) -> Option<CountedConnection> {
        self.take_below(u64::MAX)
    }

    /// As [`ConnectionBudget::take`], with a further limit.
    pub(crate) fn take_below(&self, max: u64) -> Option<CountedConnection> {
        let counters = &self.counters;
        let take = |share: &Share, of_reserve| {
            let permit = Arc::clone(&share.free).try_acquire_owned().ok()?;
            Some(CountedConnection {
                of_reserve,
                counters: Arc::clone(counters),
                _permit: permit,
            })
        };
        let counted = match counters.open.get() < max {
            true => take(&self.general, false).or_else(|| take(&self.reserve, true)),
            false => None,
        };
        if counted.is_none() {
            counters.refused.add(1);
            return None;
        }
        counters.open.add(1);
        counters.accepted.add(1);
        counted
    }

    /// Waits until no connection is open.
    pub(crate) async fn all_closed(&self) {
        for share in [&self.general, &self.reserve] {
            // The semaphore is never closed.
            let _ = share.free.acquire_many(share.max).await;
        }
    }
}

impl Share {
    fn new(max: usize) -> Share {
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        Share {
            free: Arc::new(Semaphore::new(max as usize)),
            max,
        }
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.counters.open.subtract(1);
    }
}
