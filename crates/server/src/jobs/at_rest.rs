//! Runs a job once over the hubs of a stopped node: batch processing over the same log, with the same rows.
//!
//! It reads the data folder to its end, punctuations included, and then event time ends. It writes nothing there, so
//! outputs to hubs and queues are refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_connect::OutsideAccess;
use highwater_env::{Clock, OutputDisk, RealDisk};
use highwater_hub::{Hub, OpenError};
use highwater_job::Job;
use highwater_job::config::Start;
use highwater_job::live::{
    self, AtEnd, DeclaredEndpoints, FollowError, JobContext, JobStatus, MemoryCheckpoints, Options,
};
use highwater_log::Log;

/// Why a job cannot run over a folder.
#[derive(Debug, thiserror::Error)]
pub enum AtRestError {
    #[error("{} is no data folder of a node", .0.display())]
    NoFolder(PathBuf),
    #[error("a node uses {}: stop it, or start the job on it", .0.display())]
    Locked(PathBuf),
    #[error(transparent)]
    Follow(#[from] FollowError),
    #[error(transparent)]
    Open(OpenError),
}

/// Runs the job to the end of its hubs, and answers with its final status.
pub async fn run_at_rest(
    mut job: Job,
    data: &Path,
    threads: usize,
    clock: Arc<dyn Clock>,
) -> Result<JobStatus, AtRestError> {
    if !data.is_dir() {
        return Err(AtRestError::NoFolder(data.to_owned()));
    }
    // The events of followed files are in the folder, too.
    job.file.follow_files()?;
    let (path, timer) = (data.to_owned(), clock.clone());
    let opening = tokio::task::spawn_blocking(move || {
        let options = highwater_hub::Options::default();
        Hub::open(Arc::new(RealDisk), &path, options, timer, &|_| {})
    });
    let hub = match opening.await {
        Ok(Ok(hub)) => hub,
        Ok(Err(OpenError::Locked(_))) => return Err(AtRestError::Locked(data.to_owned())),
        Ok(Err(error)) => return Err(AtRestError::Open(error)),
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    };
    let log: Arc<dyn Log> = Arc::new(hub.clone());
    let context = JobContext {
        log,
        clock,
        checkpoints: Arc::new(MemoryCheckpoints::default()),
        endpoints: Arc::new(DeclaredEndpoints {
            hubs: None,
            queues: None,
            clusters: None,
            disk: Arc::new(OutputDisk),
            access: OutsideAccess::default(),
        }),
        clusters: None,
        state: None,
        assignor: None,
    };
    let options = Options {
        start: Some(Start::Beginning),
        until_end: Some(AtEnd::TimeEnds),
        ..Options::of(&job, threads)
    };
    let status = live::start(Arc::new(job), context, options).ended().await;
    // The next start of a node repairs what this stop does not.
    let _ = tokio::task::spawn_blocking(move || hub.stop()).await;
    Ok(status)
}
