//! A job run once over hubs that no node serves: the batch to the stream, over the same log and with the same rows.
//!
//! It reads what lies in the folder of a node that is stopped, the word of silence included, and then time ends. Nothing
//! is written there, so outputs that are hubs or queues cannot be had.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_env::{Clock, RealDisk};
use highwater_hub::{Hub, OpenError};
use highwater_job::Job;
use highwater_job::config::Start;
use highwater_job::live::{
    self, AtEnd, DeclaredEndpoints, FollowError, JobContext, JobStatus, MemoryCheckpoints, Options,
};
use highwater_log::Log;

/// Why a job could not be run over a folder.
#[derive(Debug, thiserror::Error)]
pub enum AtRestError {
    #[error("{} is no data folder of a node", .0.display())]
    NoFolder(PathBuf),
    #[error("a node runs on {}: stop it, or start the job on it", .0.display())]
    Locked(PathBuf),
    #[error(transparent)]
    Follow(#[from] FollowError),
    #[error(transparent)]
    Open(OpenError),
}

/// Runs the job to the end of its hubs; the status says how that went.
pub async fn run_at_rest(
    mut job: Job,
    data: &Path,
    threads: usize,
    clock: Arc<dyn Clock>,
) -> Result<JobStatus, AtRestError> {
    if !data.is_dir() {
        return Err(AtRestError::NoFolder(data.to_owned()));
    }
    // What a node has taken of files lies in its folder, too.
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
    let site = JobContext {
        log,
        clock,
        checkpoints: Arc::new(MemoryCheckpoints::default()),
        endpoints: Arc::new(DeclaredEndpoints {
            hubs: None,
            queues: None,
            disk: Arc::new(RealDisk),
        }),
    };
    let options = Options {
        start: Some(Start::Beginning),
        until_end: Some(AtEnd::TimeEnds),
        ..Options::of(&job, threads)
    };
    let status = live::start(Arc::new(job), site, options).ended().await;
    // What could not be put in order will be when a node starts there.
    let _ = tokio::task::spawn_blocking(move || hub.stop()).await;
    Ok(status)
}
