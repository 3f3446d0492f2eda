//! A job that never ends: it reads hubs as they grow and hands rows to its outputs as time moves. Files become hubs first
//! (`files/`).
//!
//! ```text
//!  partition ── feed ──▶ worker: decode, order, local pipeline ─┐
//!  partition ── feed ──▶ worker:        "                       ├─▶ combiner: shared pipeline, numbers ──▶ outputs
//!  partition ── feed ──▶ worker:        "                      ─┘
//! ```
//!
//! Feeds and outputs are tasks, because they wait; workers and the combiner are threads, because they compute. What is
//! under way is bounded by permits to read (`read_permits.rs`), so a slow output slows its own job and nothing else.
//!
//! The rows of an output are a function of what lies in the partitions, the passing of time included: where a partition
//! was silent, the log says so in the partition itself (`feed.rs`). Rows are numbered in that order, so after a restart from
//! a checkpoint (`checkpoint.rs`) the same numbers come with the same rows, and an endpoint knows what it has.
//!
//! Numbers count within an *epoch*. A start that does not go on from a checkpoint begins a new one, and a checkpoint is
//! saved before its first row is handed over, so that no number is ever given to two rows.

mod batch_decoder;
mod build;
mod checkpoint;
mod checkpoint_builder;
mod checkpoint_store;
mod combiner_thread;
mod declared;
mod feed;
mod files;
mod fingerprint;
mod growth;
mod handle;
mod hub_stream;
mod output;
mod output_queue;
mod partitions;
mod read_permits;
mod reference_tables;
mod refresh;
mod run;
mod start;
mod status;
mod worker;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use highwater_connect::{Endpoint, EndpointError};
use highwater_engine::PhysicalPlanError;
use highwater_env::Clock;
use highwater_log::{Log, ReadError};
use highwater_query::plan::Name;
use highwater_retry::RetryPolicy;

use crate::config::{Output, Start};
use crate::load::Job;
use crate::reference::ReferenceError;

pub use checkpoint::CheckpointError;
pub use checkpoint_store::{Checkpoints, DiskCheckpoints, MemoryCheckpoints};
pub use declared::DeclaredEndpoints;
pub use files::{FollowError, delete_file_hubs};
pub use handle::{Handle, start};
pub use status::{
    CheckpointStatus, InputStatus, JobState, JobStatus, LogLine, OutputStatus, PartitionStatus,
};

/// What a job finds around it.
#[derive(Clone)]
pub struct JobContext {
    pub log: Arc<dyn Log>,
    pub clock: Arc<dyn Clock>,
    /// Of this job alone.
    pub checkpoints: Arc<dyn Checkpoints>,
    pub endpoints: Arc<dyn Endpoints>,
}

/// Opens what rows are handed to.
pub trait Endpoints: Send + Sync {
    /// Connects to nothing before the endpoint is resumed.
    fn open(&self, request: &EndpointRequest<'_>) -> Result<Box<dyn Endpoint>, EndpointError>;
}

/// An output, or a part of one that is numbered on its own.
#[derive(Clone, Copy, Debug)]
pub struct EndpointRequest<'a> {
    pub job: &'a str,
    /// The folder of the job file, where relative paths start.
    pub folder: &'a Path,
    pub output: &'a str,
    /// Set for dead letters of rows that another output has refused: the name of that output.
    pub refused_by: Option<&'a str>,
    /// Rows of different epochs have nothing to do with each other, though their numbers are the same.
    pub epoch: u64,
    /// The names of the columns.
    pub names: &'a [Name],
    /// What the job file says of it, if anything.
    pub declared: Option<&'a Output>,
}

#[derive(Clone, Debug)]
pub struct Options {
    /// How many threads work off partitions. Never shows in the results.
    pub threads: usize,
    /// Where to begin; what the job file says, if not said here.
    pub start: Option<Start>,
    /// About how much is read at once.
    pub fetch_bytes: usize,
    /// How long a partition must have been silent before time moves on without events.
    pub silence: Duration,
    /// How often files and folders are looked at.
    pub look_every: Duration,
    /// How often the state is saved; what the job file says, if not said here.
    pub checkpoint_every: Option<Duration>,
    /// End where the partitions end at the start, instead of waiting for more.
    pub until_end: Option<AtEnd>,
    /// How soon an output is tried again.
    pub retry: RetryPolicy,
    /// How long a stop waits for outputs to take what is under way.
    pub stop_patience: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            threads: 1,
            start: None,
            fetch_bytes: 1 << 20,
            silence: Duration::from_millis(500),
            look_every: Duration::from_secs(1),
            checkpoint_every: None,
            until_end: None,
            retry: RetryPolicy::default(),
            stop_patience: Duration::from_secs(30),
        }
    }
}

impl Options {
    /// As the job file says; with so many threads, if it says nothing of them.
    pub fn of(job: &Job, threads: usize) -> Options {
        let (live, default) = (&job.file.live, Options::default());
        Options {
            threads: live.threads.unwrap_or(threads),
            fetch_bytes: live.fetch_bytes.unwrap_or(default.fetch_bytes),
            ..default
        }
    }
}

/// What happens when everything has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtEnd {
    /// Time ends: everything pending is emitted.
    TimeEnds,
    /// The state is saved, and a later start goes on from there.
    GoOnLater,
}

/// Why a job did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("input \"{0}\" is not read from a hub")]
    NotAHub(String),
    #[error("input \"{input}\" reads the hub `{hub}`, which is not there")]
    NoHub { input: String, hub: String },
    #[error("what is read of the files of input \"{input}\" cannot be kept: {reason}")]
    Files { input: String, reason: String },
    #[error(transparent)]
    Partitions(#[from] PhysicalPlanError),
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    #[error("it cannot be found where to begin: {0}")]
    Position(#[from] ReadError),
    #[error("checkpoints cannot be read or written: {0}")]
    Checkpoints(std::io::Error),
    #[error(
        "none of its checkpoints can be used, and its log says why; say where it is to begin: \
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
