//! Transactions: appends to several partitions, and positions of groups, that are seen together or not
//! at all.
//!
//! `state` decides; it is pure and knows one transactional id. `Coordinator` keeps them all, puts
//! every step on the hub `__transactions` before it counts, and writes the markers.
//!
//! The order of steps is what makes it atomic. The wish to write to a place is durable before anything
//! is written there, so a crash can forget no place. The decision is durable before the first marker,
//! so a crash cannot change it: at the next start the markers are written again, and a place that has
//! its marker takes no second one. A transaction that nobody ends is aborted when its time is up.
//!
//! This is the first version of Kafka's protocol with its known holes closed as far as clients allow:
//! - A producer whose transaction was aborted for it (time, or another holder of its id) is fenced in
//!   the same step, by an epoch that no client has; after a timeout it may ask for that epoch and
//!   go on.
//! - A batch that arrives after its transaction ended is turned away
//!   ([`append`](highwater_log::TransactionCoordinator::append)), so no partition is left with a transaction
//!   that nobody ends.
//! - The end is answered when every marker is written, so the next transaction can begin at once.
//!
//! One hole remains, because clients of this version keep their epoch from one transaction to the
//! next: a request to end that was under way for so long that the next transaction has begun ends
//! that one. The second version closes it by raising the epoch with every transaction.

mod completion;
mod coordinator;
#[cfg(test)]
mod crash;
mod handle;
mod load;
mod producer_ids;
mod record;
mod requests;
mod state;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::Clock;
use highwater_log::Log;
use highwater_retry::Backoff;

pub use crate::coordinator::JournalError;
use crate::groups;
use coordinator::Coordinator;
pub use handle::{Handle, TransactionInfo, TransactionState};

/// The hub that transactions are kept on.
pub const HUB: &str = "__transactions";

#[derive(Clone, Debug)]
pub struct Options {
    /// A producer may not ask for more time than this for its transactions.
    pub timeout_max: Duration,
    /// A transactional id that nobody used for so long is forgotten.
    pub retention: Duration,
    /// How often that is looked at.
    pub expiry_interval: Duration,
    /// How long an end waits for its markers before the client is told to ask again.
    pub patience: Duration,
    /// How soon a marker that could not be written is tried again.
    pub backoff: Backoff,
    /// Partitions of [`HUB`] when it is made.
    pub partitions: u32,
}

impl Default for Options {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 3600);
        Options {
            timeout_max: Duration::from_secs(15 * 60),
            retention: 7 * day,
            expiry_interval: Duration::from_secs(3600),
            patience: Duration::from_secs(5),
            backoff: Backoff::Exponential {
                first: Duration::from_millis(50),
                cap: Duration::from_secs(5),
            },
            partitions: 4,
        }
    }
}

/// Owns the coordinator. Everybody is told [`Loading`](highwater_log::TransactionError::Loading)
/// until [`Service::run`] has read the hub.
pub struct Service {
    coordinator: Arc<Coordinator>,
}

impl Service {
    /// `groups` keep the positions that transactions store.
    pub fn new(
        log: Arc<dyn Log>,
        clock: Arc<dyn Clock>,
        groups: groups::Handle,
        options: Options,
    ) -> Service {
        Service {
            coordinator: Arc::new(Coordinator::new(log, clock, groups, options)),
        }
    }

    pub fn handle(&self) -> Handle {
        Handle::new(Arc::clone(&self.coordinator))
    }

    /// Reads the hub and ends what was decided, then aborts transactions whose time is up and forgets
    /// ids that nobody uses, until `shutdown` is ready.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), JournalError> {
        tokio::select! {
            biased;
            stopped = self.work() => stopped.map(|never| match never {}),
            () = shutdown => Ok(()),
        }
    }

    async fn work(&self) -> Result<Infallible, JournalError> {
        let coordinator = &self.coordinator;
        coordinator.load().await?;
        let (clock, interval) = (&*coordinator.clock, coordinator.options.expiry_interval);
        let driven = coordinator.deadlines.drive(
            clock,
            interval,
            || coordinator.time_out_due(),
            || coordinator.expire(),
        );
        Ok(driven.await)
    }
}
