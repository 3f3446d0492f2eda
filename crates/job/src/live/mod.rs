//! A job that never ends: it reads hubs as they grow and sends rows to its outputs as time moves. Followed files are
//! copied to hubs first (`files/`).
//!
//! ```text
//!  partition ── feed ──▶ worker: decode, order, local pipeline ─┐
//!  partition ── feed ──▶ worker:        "                       ├─▶ combiner: shared pipeline, numbers ──▶ outputs
//!  partition ── feed ──▶ worker:        "                      ─┘
//! ```
//!
//! Feeds and outputs are tasks, because they wait; workers and the combiner are threads, because they compute. Read
//! permits (`read_permits.rs`) bound the work in flight, so a slow output slows its own job and no other.
//!
//! The rows of an output are a function of the records in the partitions. That includes the passing of time: a silent
//! partition has a punctuation (`feed.rs`). Rows are numbered in that order, so after a restart from a checkpoint
//! (`checkpoint.rs`) the same rows get the same numbers, and an endpoint knows which it has.
//!
//! Numbers count within an *epoch*. A start without a checkpoint begins a new epoch, and stores a checkpoint before it
//! sends the first row, so that no two rows of an epoch share a number.
//!
//! Several instances may share a job (`instances/`): then streams and combiner run in different processes, with an
//! exchange topic between them.

mod batch_decoder;
mod build;
mod checkpoint;
mod checkpoint_builder;
mod checkpoint_store;
mod combiner_thread;
mod declared;
mod event_fate;
mod feed;
mod files;
mod fingerprint;
mod growth;
mod handle;
mod hub_stream;
mod input_logs;
mod instances;
mod internal_names;
mod output;
mod output_queue;
mod partition_stream;
mod partitions;
mod read_permits;
mod reference_tables;
mod refresh;
mod run;
mod session_replay;
mod shard_state;
mod start;
mod state_limit;
mod status;
mod store_object;
mod telemetry;
mod time_journal;
mod watchdog;
mod worker;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use highwater_connect::{
    ClusterConnector, EndpointError, OpenResult, OutputShard, StateStore, StoreUnavailable,
};
use highwater_engine::PhysicalPlanError;
use highwater_env::Clock;
use highwater_log::{Log, ReadError};
use highwater_query::plan::Name;
use highwater_retry::RetryPolicy;

use crate::config::{Output, Start};
use crate::load::Job;
use crate::reference::ReferenceError;

pub use checkpoint_store::{Checkpoints, DiskCheckpoints, MemoryCheckpoints};
pub use declared::DeclaredEndpoints;
pub use event_fate::{FateBasis, FateError, LiveEventFate};
pub use files::{FollowError, delete_file_hubs};
pub use handle::{Handle, start};
pub(crate) use instances::sharing_refusal;
pub use instances::{ShardAssignment, ShardAssignor, ShardMembership, ShardNumber};
pub use session_replay::{EventSessions, SessionSpan};
pub use shard_state::{ShardState, store_checkpoints};
pub use status::{
    InputStatus, JobFigures, JobShare, JobState, JobStatus, OutputStatus, PartitionStatus,
};
pub use telemetry::StepFigures;

/// The services that a job uses.
#[derive(Clone)]
pub struct JobContext {
    pub log: Arc<dyn Log>,
    pub clock: Arc<dyn Clock>,
    /// The checkpoints of this job alone.
    pub checkpoints: Arc<dyn Checkpoints>,
    pub endpoints: Arc<dyn Endpoints>,
    /// Connects to the clusters of Kafka inputs; `None` where the process reaches none.
    pub clusters: Option<ClusterConnector>,
    /// The state that instances of the job share, if it has any.
    pub state: Option<Arc<dyn StateStore>>,
    /// Assigns the shards of a shared job; by default a group of its cluster does.
    pub assignor: Option<Arc<dyn ShardAssignor>>,
}

/// Opens the endpoints of outputs.
pub trait Endpoints: Send + Sync {
    /// Connects to nothing before the endpoint is resumed.
    fn open(&self, request: &EndpointRequest<'_>) -> OpenResult;
}

/// An output, or its dead letters, which are numbered apart.
#[derive(Clone, Debug)]
pub struct EndpointRequest<'a> {
    pub job: &'a str,
    /// The folder of the job file, the base of relative paths.
    pub folder: &'a Path,
    pub output: &'a str,
    /// For dead letters: the output that refused the rows.
    pub refused_by: Option<&'a str>,
    /// Rows of different epochs are unrelated, though they share numbers.
    pub epoch: u64,
    /// Set if rows are sent before they are final: the columns that tell them apart.
    pub early_key: Option<Vec<String>>,
    /// Set if several combiners write the output, each the rows of some keys.
    pub shard: Option<OutputShard>,
    /// The names of the columns.
    pub names: &'a [Name],
    /// Its declaration in the job file, if there is one.
    pub declared: Option<&'a Output>,
}

#[derive(Clone, Debug)]
pub struct Options {
    /// Number of worker threads. Results do not depend on it.
    pub threads: usize,
    /// Overrides the start of the job file.
    pub start: Option<Start>,
    /// Approximate size of one read.
    pub fetch_bytes: usize,
    /// How long a partition must be silent before a punctuation is written.
    pub silence: Duration,
    /// Pause between two scans of followed files.
    pub poll_interval: Duration,
    /// Overrides the checkpoint interval of the job file.
    pub checkpoint_every: Option<Duration>,
    /// Stops at the ends that the partitions have at the start.
    pub until_end: Option<AtEnd>,
    /// The retry policy of outputs.
    pub retry: RetryPolicy,
    /// The job fails when its state is larger than this.
    pub state_bytes_max: u64,
    /// How long a stop waits for outputs to accept pending rows.
    pub stop_patience: Duration,
    /// How long a call of a JavaScript function may take by the clock. The job fails after that.
    pub function_timeout: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            threads: 1,
            start: None,
            fetch_bytes: 1 << 20,
            silence: Duration::from_millis(500),
            poll_interval: Duration::from_secs(1),
            checkpoint_every: None,
            until_end: None,
            retry: RetryPolicy::default(),
            state_bytes_max: u64::MAX,
            stop_patience: Duration::from_secs(30),
            function_timeout: Duration::from_secs(10),
        }
    }
}

impl Options {
    /// The options of the job file; `threads` is the default number of threads.
    pub fn of(job: &Job, threads: usize) -> Options {
        let (live, default) = (&job.file.live, Options::default());
        let function_timeout = live.function_timeout.map(|timeout| {
            Duration::from_micros(u64::try_from(timeout.ticks() / 10).unwrap_or_default())
        });
        Options {
            function_timeout: function_timeout.unwrap_or(default.function_timeout),
            threads: live.threads.unwrap_or(threads),
            fetch_bytes: live.fetch_bytes.unwrap_or(default.fetch_bytes),
            ..default
        }
    }
}

/// The behaviour at the end of the partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtEnd {
    /// Time ends: everything pending is emitted.
    TimeEnds,
    /// A checkpoint is taken, and a later start continues from it.
    Checkpoint,
}

/// A job could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("input \"{0}\" is not read from a hub")]
    NotAHub(String),
    #[error("input \"{input}\" reads the hub `{hub}`, which does not exist")]
    NoHub { input: String, hub: String },
    #[error(
        "input \"{0}\" reads a topic of a cluster, and no cluster can be reached here: start the job on a node"
    )]
    NoClusters(String),
    #[error(
        "input \"{input}\" reads the topic `{topic}`, whose events have the times of their producers, which may go \
         back. Set message.timestamp.type=LogAppendTime for the topic, or {setting}: then only events move time, and \
         silence is not told"
    )]
    CreateTime {
        input: String,
        topic: String,
        setting: &'static str,
    },
    #[error("input \"{input}\": {reason}")]
    Journal {
        input: String,
        reason: String,
        /// It may be possible later.
        is_temporary: bool,
    },
    #[error("the events of the files of input \"{input}\" cannot be stored: {reason}")]
    Files { input: String, reason: String },
    #[error(transparent)]
    Partitions(#[from] PhysicalPlanError),
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    #[error("the start position cannot be determined: {0}")]
    Position(#[from] ReadError),
    #[error("checkpoints cannot be read or written: {0}")]
    Checkpoints(std::io::Error),
    #[error(
        "none of its checkpoints can be used, for the reasons in its log; choose a start position: \
         `--start beginning`, `--start now` or a time"
    )]
    Damaged,
    #[error("output \"{output}\" cannot be opened: {error}")]
    Output {
        output: String,
        error: EndpointError,
    },
    #[error("input \"{0}\" has a format that records of a hub cannot have")]
    Format(String),
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

impl StartError {
    /// Whether a cluster or a store that does not answer may be the reason.
    fn is_temporary(&self) -> bool {
        match self {
            StartError::Checkpoints(error) => StoreUnavailable::is_reason_of(error),
            StartError::Position(ReadError::Storage { .. }) => true,
            StartError::Journal { is_temporary, .. } => *is_temporary,
            _ => false,
        }
    }
}
