//! Consumer groups: who reads which partition, and how far everybody has come.
//!
//! `machine` decides; it is pure and knows one group. `entry` holds a group with its positions and
//! with those who wait. `Coordinator` keeps all rooms, puts what must last on the hub
//! `__groups`, and wakes groups when their time has come; [`Handle`] is its face to the outside.
//!
//! What keeps this honest:
//! - A change takes its place in the log under the lock of its group, and counts in memory once it is
//!   durable, in the order of the log. Nothing else is ever shown to anybody.
//! - Each group has a lock of its own, held for no longer than a decision takes, and never over an
//!   await.
//! - A client that hangs up takes nothing with it but its own wait: appends under way are finished by
//!   tasks of their own, and the group is told that nobody waits any longer.
//! - After a restart everybody is told to come again later until all of the hub has been read.

mod commit;
mod coordinator;
mod expiry;
mod group_entry;
mod handle;
mod load;
mod machine;
mod pending_response;
mod positions;
mod record;
mod subscription;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::{Clock, random::Random};
use highwater_log::Log;

pub use crate::coordinator::JournalError;
use coordinator::Coordinator;
pub use handle::Handle;

/// The hub that groups and positions are kept on.
pub const HUB: &str = "__groups";

#[derive(Clone, Debug)]
pub struct Options {
    /// A group has no more members than this.
    pub members_max: usize,
    /// A member may not ask to be given up sooner than this after it has fallen silent, ...
    pub session_min: Duration,
    /// ... nor later.
    pub session_max: Duration,
    /// How long an empty group waits for others when the first member comes, and again each time
    /// another one does. Members of one application start together: a quarter of a second catches
    /// most of them in one generation and is hardly felt by one that is alone. With none, every
    /// member after the first would cost a rebalance, which waits for the heartbeats of the others,
    /// three seconds apart as a rule; Kafka's three seconds make every start slow.
    pub initial_delay: Duration,
    /// Positions of a group without members are forgotten after this.
    pub retention: Duration,
    /// How often that is looked at.
    pub expiry_interval: Duration,
    /// What a client may add to a position.
    pub metadata_bytes_max: usize,
    /// Partitions of [`HUB`] when it is made: several, so that one which the disk has stopped does
    /// not stop all groups, and few, so that commits of different groups share a sync.
    pub partitions: u32,
}

impl Default for Options {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 3600);
        Options {
            members_max: 10_000,
            session_min: Duration::from_secs(6),
            session_max: Duration::from_secs(1800),
            initial_delay: Duration::from_millis(250),
            retention: 7 * day,
            expiry_interval: Duration::from_secs(600),
            metadata_bytes_max: 4096,
            partitions: 4,
        }
    }
}

/// Owns the coordinator. Everybody is told [`Loading`](highwater_log::GroupError::Loading) until
/// [`Service::run`] has read the hub.
pub struct Service {
    coordinator: Arc<Coordinator>,
}

impl Service {
    /// `random` is drawn from for the ids of members.
    pub fn new(
        log: Arc<dyn Log>,
        clock: Arc<dyn Clock>,
        random: Random,
        options: Options,
    ) -> Service {
        Service {
            coordinator: Arc::new(Coordinator::new(log, clock, random, options)),
        }
    }

    pub fn handle(&self) -> Handle {
        Handle::new(Arc::clone(&self.coordinator))
    }

    /// Reads the hub, then wakes groups at their deadlines and forgets old positions, until
    /// `shutdown` is ready.
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
            || coordinator.wake_due(),
            || coordinator.expire(),
        );
        Ok(driven.await)
    }
}
