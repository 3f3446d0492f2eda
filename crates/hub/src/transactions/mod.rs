//! Transactions: appends to several partitions, and offsets of groups, that become visible together or not at all.
//!
//! `state` is one transactional id as a pure state machine. `Coordinator` has all of them, stores every step on the hub
//! `__transactions` before it takes effect, and writes the markers.
//!
//! The order of steps makes a transaction atomic. A partition is recorded durably before the first batch is appended to
//! it, so a crash forgets no partition. The decision is durable before the first marker, so a crash cannot change it:
//! the next start writes the markers again, and a partition that has its marker rejects a second one. A transaction
//! that its producer does not end is aborted after its timeout.
//!
//! Both versions of Kafka's protocol are supported; the client's requests decide. The second one (KIP-890) raises the
//! epoch with every end of a transaction, so that nothing late can touch the next one, and adds partitions and groups
//! with the first batch and the first offset (`implicit`). The known gaps of the first one are closed as far as clients
//! allow:
//! - A producer whose transaction is aborted by the coordinator (timeout, or a new holder of the transactional id) is
//!   fenced in the same step, by an epoch that no client has. After a timeout it may request that epoch and continue.
//! - A batch that arrives after the end of its transaction is rejected
//!   ([`append`](highwater_log::TransactionCoordinator::append)), so no partition keeps an open transaction for ever.
//! - The end is answered when every marker is written, so the next transaction can begin at once.
//!
//! One gap of the first version remains, because its clients keep their epoch from one transaction to the next: a
//! delayed end request can end the next transaction.

mod completion;
mod coordinator;
#[cfg(test)]
mod crash;
mod handle;
mod implicit;
mod load;
mod producer_ids;
mod record;
mod requests;
mod state;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use highwater_env::Clock;
use highwater_log::Log;
use highwater_retry::Backoff;

pub use crate::coordinator::JournalError;
use crate::coordinator::deadlines::Deadlines;
use crate::coordinator::slots::Slots;
use crate::groups;
use coordinator::Coordinator;
pub use handle::Handle;

/// The hub of transactions.
pub const HUB: &str = "__transactions";

#[derive(Clone, Debug)]
pub struct Options {
    /// Maximum transaction timeout.
    pub timeout_max: Duration,
    /// Unused transactional ids are deleted after this time.
    pub retention: Duration,
    /// How often expired ids are looked for.
    pub expiry_interval: Duration,
    /// How long an end request waits for its markers before the client must retry.
    pub completion_timeout: Duration,
    /// Delay before a failed marker is retried.
    pub backoff: Backoff,
    /// Partitions of [`HUB`] when it is created.
    pub partitions: u32,
}

impl Default for Options {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 3600);
        Options {
            timeout_max: Duration::from_secs(15 * 60),
            retention: 7 * day,
            expiry_interval: Duration::from_secs(3600),
            completion_timeout: Duration::from_secs(5),
            backoff: Backoff::Exponential {
                first: Duration::from_millis(50),
                cap: Duration::from_secs(5),
            },
            partitions: 4,
        }
    }
}

/// Owns the coordinator. Requests fail with [`Loading`](highwater_log::TransactionError::Loading) until
/// [`Service::run`] has read the hub.
pub struct Service {
    coordinator: Arc<Coordinator>,
}

impl Service {
    /// `groups` stores the offsets of transactions.
    pub fn new(
        log: Arc<dyn Log>,
        clock: Arc<dyn Clock>,
        groups: groups::Handle,
        options: Options,
    ) -> Service {
        let coordinator = Coordinator {
            log,
            clock,
            groups,
            options,
            deadlines: Deadlines::default(),
            loaded: OnceLock::new(),
            slots: Slots::default(),
        };
        Service {
            coordinator: Arc::new(coordinator),
        }
    }

    pub fn handle(&self) -> Handle {
        Handle::new(Arc::clone(&self.coordinator))
    }

    /// Reads the hub and completes decided transactions, then aborts transactions at their timeout and deletes expired
    /// ids, until `shutdown` completes.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), JournalError> {
        let coordinator = &self.coordinator;
        let (clock, interval) = (&*coordinator.clock, coordinator.options.expiry_interval);
        let (wake_due, expire) = (|| coordinator.time_out_due(), || coordinator.expire());
        let load = coordinator.load();
        (coordinator.deadlines)
            .run(clock, interval, load, wake_due, expire, shutdown)
            .await
    }
}
