//! Consumer groups: members, assignments and committed offsets.
//!
//! `machine` is one group of the classic protocol as a pure state machine, `consumer` one of the consumer protocol
//! (KIP-848). `group_entry` adds its offsets and pending requests. `Coordinator` has all entries, stores their changes
//! on the hub `__groups`, and wakes groups at their deadlines; [`Handle`] is its interface.
//!
//! *Invariants:*
//! - A change is appended under the lock of its group, and takes effect in memory when it is durable, in the order of
//!   the log. No answer shows a change before that.
//! - Each group has a lock of its own, held for the time of a decision and never over an await.
//! - A client that hangs up drops only its own request: spawned tasks finish its appends, and the group learns that the
//!   response has no receiver.
//! - After a restart all requests are answered with `Loading` until the hub has been read.

mod commit;
mod consumer;
mod consumer_heartbeat;
#[cfg(test)]
mod consumer_tests;
mod coordinator;
mod expiry;
mod group_entry;
mod group_kind;
mod handle;
mod load;
mod machine;
mod member_memory;
mod offsets;
mod own_timeouts;
mod pending_response;
mod protocol_change;
#[cfg(test)]
mod protocol_change_tests;
mod record;
mod subscription;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use highwater_env::{Clock, random::Random};
use highwater_log::Log;
use parking_lot::Mutex;

pub use crate::coordinator::JournalError;
use crate::coordinator::deadlines::Deadlines;
use crate::coordinator::slots::Slots;
use coordinator::Coordinator;
pub use handle::Handle;
use member_memory::MemberMemory;
pub use own_timeouts::{GroupTimeouts, OwnTimeouts};

/// The hub of groups and committed offsets.
pub const HUB: &str = "__groups";

#[derive(Clone, Debug)]
pub struct Options {
    /// Maximum number of members of a group.
    pub members_max: usize,
    /// Maximum size of the metadata and assignments of a group, which are one record of [`HUB`].
    pub group_bytes_max: usize,
    /// Minimum session timeout of a member.
    pub session_min: Duration,
    /// Maximum session timeout of a member.
    pub session_max: Duration,
    /// How long an empty group waits for further members after the first one joined, and after each further one.
    /// Members of one application start together: a quarter of a second gathers most of them in one generation, and
    /// a single member hardly notices it. Without a delay, every further member costs a rebalance, which waits for the
    /// heartbeats of the others, typically three seconds apart. Kafka's three seconds make every start slow.
    pub initial_delay: Duration,
    /// A member of the consumer protocol is removed after this time without a heartbeat.
    pub consumer_session: Duration,
    /// How often members of the consumer protocol send heartbeats. They learn of their partitions by them.
    pub consumer_heartbeat: Duration,
    /// Groups for which these two differ.
    pub own_timeouts: OwnTimeouts,
    /// Offsets of a group without members are deleted after this time.
    pub retention: Duration,
    /// How often expired offsets are looked for.
    pub expiry_interval: Duration,
    /// Maximum size of the metadata of a committed offset.
    pub metadata_bytes_max: usize,
    /// Maximum size of the metadata and assignments of all groups.
    pub members_bytes_max: usize,
    /// Partitions of [`HUB`] when it is created: several, so that one stopped by a disk error does not stop all groups;
    /// few, so that commits of different groups share a sync.
    pub partitions: u32,
}

impl Default for Options {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 3600);
        Options {
            members_max: 10_000,
            group_bytes_max: 4 << 20,
            session_min: Duration::from_secs(6),
            session_max: Duration::from_secs(1800),
            initial_delay: Duration::from_millis(250),
            consumer_session: Duration::from_secs(45),
            consumer_heartbeat: Duration::from_secs(5),
            own_timeouts: OwnTimeouts::default(),
            retention: 7 * day,
            expiry_interval: Duration::from_secs(600),
            metadata_bytes_max: 4096,
            members_bytes_max: 64 << 20,
            partitions: 4,
        }
    }
}

/// Owns the coordinator. Requests fail with [`Loading`](highwater_log::GroupError::Loading) until [`Service::run`] has
/// read the hub.
pub struct Service {
    coordinator: Arc<Coordinator>,
}

impl Service {
    /// `random` generates member ids.
    pub fn new(
        log: Arc<dyn Log>,
        clock: Arc<dyn Clock>,
        random: Random,
        options: Options,
    ) -> Service {
        let coordinator = Coordinator {
            log,
            clock,
            member_memory: MemberMemory::new(options.members_bytes_max),
            options,
            deadlines: Deadlines::default(),
            journal: OnceLock::new(),
            slots: Slots::default(),
            random: Mutex::new(random),
            request_ids: AtomicU64::new(0),
        };
        Service {
            coordinator: Arc::new(coordinator),
        }
    }

    pub fn handle(&self) -> Handle {
        Handle::new(Arc::clone(&self.coordinator))
    }

    /// Reads the hub, then wakes groups at their deadlines and deletes expired offsets, until `shutdown` completes.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), JournalError> {
        let coordinator = &self.coordinator;
        let (clock, interval) = (&*coordinator.clock, coordinator.options.expiry_interval);
        let (wake_due, expire) = (|| coordinator.wake_due(), || coordinator.expire());
        let load = coordinator.load();
        (coordinator.deadlines)
            .run(clock, interval, load, wake_due, expire, shutdown)
            .await
    }
}
