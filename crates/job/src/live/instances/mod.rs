//! One instance of a job that several processes share.
//!
//! ```text
//!  partition ──▶ stream shard: decode, order, local pipeline ──▶ exchange topic ─┐
//!  partition ──▶ stream shard:              "                ──▶       "         ├─▶ combiner shard: shared pipeline ──▶ outputs
//! ```
//!
//! Each partition of the inputs is a shard, and so is the combiner, or each of several combiners that share the keys of the
//! outputs (`key_spread.rs`); a group of the cluster gives the shards to the instances (`assignment.rs`, `group.rs`). Outputs of a job are a function of its input, so two owners of a shard at the
//! same time would write the same. What they write is shut off all the same, because they would cut it at different
//! places: the exchange and the time journal by claims of their partitions (`Log::claim`), checkpoints by manifests
//! (`shard_state.rs`), the outputs by the epochs of their producers.

mod assignment;
mod combiner_shard;
mod exchange;
mod exchange_stream;
mod group;
mod identity;
mod stream_checkpoint;
mod stream_exchange;
mod stream_shard;
mod supervisor;
mod trim;

use std::sync::Arc;

use highwater_connect::{Cluster, StateStore};
use highwater_engine::KeyRoutes;
use highwater_log::HubName;

use super::input_logs::InputLogs;
use super::partitions::PartitionSet;
use super::shard_state::ShardState;
use super::state_limit::StateLimit;
use super::status::StatusHandle;
use super::{JobContext, Options};
use crate::load::Job;
use identity::JobIdentity;

pub use assignment::{ShardAssignment, ShardAssignor, ShardMembership, ShardNumber};
pub(super) use combiner_shard::CombinerStart;
pub(super) use exchange_stream::{ExchangeStream, ExchangeStreamId};
pub(super) use supervisor::Instance;
pub(crate) use supervisor::sharing_refusal;
pub(super) use trim::ExchangeTrim;

/// Whether several instances may share the job.
pub(super) fn is_shared(job: &Job) -> bool {
    let state = job.file.live.state.as_ref();
    state.is_some_and(|state| state.shared)
}

/// What the shards of an instance have in common.
struct InstanceContext {
    job: Arc<Job>,
    context: JobContext,
    options: Options,
    status: StatusHandle,
    logs: InputLogs,
    /// The partitions of the inputs: one stream each.
    partitions: PartitionSet,
    identity: JobIdentity,
    /// The cluster with the exchange and the group.
    cluster: Cluster,
    exchange: HubName,
    combiners: usize,
    /// By which keys items go to combiners, if there are several.
    routes: Option<Arc<KeyRoutes>>,
    store: Arc<dyn StateStore>,
    /// The folder of the job's shards in the store.
    folder: String,
    state_limit: StateLimit,
}

impl InstanceContext {
    /// The partition of the exchange from a stream to a combiner.
    fn exchange_partition(&self, stream: usize, combiner: usize) -> u32 {
        (combiner * self.partitions.all.len() + stream) as u32
    }

    /// The state of a shard, to be claimed.
    fn shard_state(&self, shard: &str) -> Arc<ShardState> {
        let folder = format!("{}/{shard}", self.folder);
        Arc::new(ShardState::new(self.store.clone(), folder))
    }
}

/// Why a shard does not run any more.
#[derive(Debug)]
enum ShardEnd {
    Stopped,
    /// Another instance has it.
    TakenOver(String),
    /// It may be possible later.
    Delayed(String),
    /// The job fails.
    Failed(String),
}
