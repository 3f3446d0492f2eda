//! One instance of a job that several processes share.
//!
//! ```text
//!  partition ──▶ stream shard: decode, order, local pipeline ──▶ exchange topic ─┐
//!  partition ──▶ stream shard:              "                ──▶       "         ├─▶ combiner shard: shared pipeline ──▶ outputs
//! ```
//!
//! Each partition of the inputs is a shard, and so is the combiner, or each of several combiners that share the keys of
//! the outputs (`key_spread.rs`); a group of the cluster gives the shards to the instances (`assignment.rs`,
//! `group.rs`). Outputs of a job are a function of its input, so two owners of a shard at the same time would write the
//! same. What they write is shut off all the same, because they would cut it at different places: the exchange and the
//! time journal by claims of their partitions (`Log::claim`), checkpoints by manifests (`shard_state.rs`), the outputs
//! by the epochs of their producers. Reference data is the same for all (`references/`).

mod assignment;
mod combiner_shard;
mod exchange;
mod exchange_producer;
mod exchange_reader;
mod group;
mod identity;
mod references;
mod stream_checkpoint;
mod stream_run;
mod stream_shard;
mod supervisor;
mod trim;

use std::sync::Arc;

use highwater_connect::{Cluster, StateStore};
use highwater_engine::{KeyRoutes, PhysicalPlan};
use highwater_log::HubName;
use highwater_time::Instant;

use super::input_logs::InputLogs;
use super::partitions::InputPartitions;
use super::shard_state::ShardState;
use super::state_limit::StateLimit;
use super::status::StatusHandle;
use super::{JobContext, Options};
use crate::load::Job;
use identity::JobIdentity;
use references::{ReferenceVersions, ShardVote, SharedReferences, VersionedTables};

pub use assignment::{ShardAssignment, ShardAssignor, ShardMembership, ShardNumber};
pub(super) use combiner_shard::CombinerStart;
pub(super) use exchange_reader::{ExchangeReader, StreamIdentity};
pub(super) use supervisor::Instance;
pub(crate) use supervisor::sharing_refusal;
pub(super) use trim::ExchangeTrim;

/// Whether several instances may share the job.
pub(super) fn is_shared(job: &Job) -> bool {
    let state = job.file.live.state.as_ref();
    state.is_some_and(|state| state.shared)
}

/// The shared context of an instance's shards.
struct InstanceContext {
    job: Arc<Job>,
    context: JobContext,
    options: Options,
    status: StatusHandle,
    logs: InputLogs,
    /// The partitions of the inputs: one stream each.
    partitions: InputPartitions,
    identity: JobIdentity,
    /// The cluster with the exchange and the group.
    cluster: Cluster,
    exchange: HubName,
    combiners: usize,
    /// The keys that route items to combiners, if there are several.
    routes: Option<Arc<KeyRoutes>>,
    store: Arc<dyn StateStore>,
    /// The folder of the job's shards in the store.
    folder: String,
    state_limit: StateLimit,
    /// `None` without reference data.
    references: Option<Arc<SharedReferences>>,
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
enum ShardExit {
    Stopped,
    /// Another instance has it.
    Fenced(String),
    /// It may be possible later.
    Delayed(String),
    /// It waits until the store of its state answers, however long that takes.
    WithoutStore(String),
    /// It goes on when this version of the reference data is decided.
    AwaitsTables(u64),
    /// The job fails.
    Failed(String),
}

/// The reference data with which a shard starts.
#[derive(Clone)]
pub(super) struct ShardTables {
    /// `None` without reference data.
    tables: Option<Arc<VersionedTables>>,
    /// The version that waits for votes.
    pending: Option<u64>,
}

impl ShardTables {
    /// To be called after the state of the shard was claimed.
    async fn current(instance: &InstanceContext) -> Result<ShardTables, ShardExit> {
        let Some(references) = &instance.references else {
            return Ok(ShardTables {
                tables: None,
                pending: None,
            });
        };
        let (tables, pending) = references.current().await?;
        Ok(ShardTables {
            tables: Some(tables),
            pending,
        })
    }

    pub(super) fn version(&self) -> Option<u64> {
        self.tables.as_ref().map(|tables| tables.version)
    }

    /// The plan with the tables.
    pub(super) fn physical<'a>(&'a self, job: &'a Job) -> &'a PhysicalPlan {
        let tables = self.tables.as_ref();
        tables.map_or(&job.physical, |tables| &tables.physical)
    }

    /// Ready when a later version is decided.
    async fn newer(&self, instance: &InstanceContext) -> u64 {
        let (Some(own), Some(references)) = (self.version(), &instance.references) else {
            return std::future::pending().await;
        };
        let mut versions = references.versions();
        let newer = versions.wait_for(|versions| versions.decided > own).await;
        let newer = newer.map(|versions| versions.decided);
        match newer {
            Ok(version) => version,
            // The instance ends.
            Err(_) => std::future::pending().await,
        }
    }

    /// The later version that is decided, whether the instance knows of it or not.
    async fn newer_in_store(&self, instance: &InstanceContext) -> Result<Option<u64>, ShardExit> {
        let (Some(own), Some(references)) = (self.version(), &instance.references) else {
            return Ok(None);
        };
        let decided = references.current().await?.0.version;
        Ok((decided > own).then_some(decided))
    }

    /// Completes when a later version waits for votes.
    async fn proposed(&self, instance: &InstanceContext) -> u64 {
        let (Some(own), Some(references)) = (self.version(), &instance.references) else {
            return std::future::pending().await;
        };
        let mut versions = references.versions();
        let is_newer = |versions: &ReferenceVersions| versions.pending > Some(own);
        let found = versions.wait_for(is_newer).await;
        match found.ok().and_then(|versions| versions.pending) {
            Some(version) => version,
            // The instance ends.
            None => std::future::pending().await,
        }
    }

    /// Votes with the position of a shard with these tables.
    async fn vote(
        &self,
        instance: &InstanceContext,
        shard: ShardNumber,
        vote: ShardVote,
    ) -> Result<(), ShardExit> {
        match (&instance.references, self.version()) {
            (Some(references), Some(version)) => references.vote(version, shard, vote).await,
            _ => Ok(()),
        }
    }

    /// A shard whose rows may be as early as `watermark` needs tables that are kept.
    fn check(&self, watermark: Instant) -> Result<(), ShardExit> {
        match &self.tables {
            Some(tables) if watermark < tables.base => Err(ShardExit::Failed(format!(
                "its state is of {watermark}, and the reference data of rows before {} is no longer kept",
                tables.base
            ))),
            _ => Ok(()),
        }
    }
}
