//! Polls for new reference data.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::status::StatusHandle;
use crate::load::Job;
use crate::reference::{ReferenceError, SnapshotListing};

pub(super) struct ReferenceRefresh {
    job: Arc<Job>,
    /// The files in use.
    known: SnapshotListing,
    /// `None` for a single look at the start.
    every: Option<Duration>,
    /// The time of the next poll, by the monotonic clock.
    due: Option<Duration>,
    polling: Option<JoinHandle<Result<SnapshotListing, ReferenceError>>>,
    /// The error of the last look.
    problem: Option<String>,
}

impl ReferenceRefresh {
    /// Polls at once, because files may have changed while the job was down, and then at the interval of its inputs.
    /// Disabled if the caller supplies the tables (`is_given`).
    pub(super) fn new(
        job: Arc<Job>,
        known: SnapshotListing,
        now: Duration,
        is_given: bool,
    ) -> ReferenceRefresh {
        let inputs = job.file.inputs.iter();
        let every = inputs.filter_map(|input| input.refresh).min();
        let every = every.map(|every| {
            let micros = u64::try_from(every.ticks() / 10).unwrap_or_default();
            Duration::from_micros(micros).max(Duration::from_millis(10))
        });
        let due = (!job.plan.references.is_empty() && !is_given).then_some(now);
        ReferenceRefresh {
            job,
            known,
            every,
            due,
            polling: None,
            problem: None,
        }
    }

    /// Starts a poll on a blocking thread if one is due.
    pub(super) fn look_if_due(&mut self, now: Duration) {
        if self.polling.is_some() || self.due.is_none_or(|due| now < due) {
            return;
        }
        self.due = self.every.map(|every| now + every);
        let job = self.job.clone();
        self.polling = Some(tokio::task::spawn_blocking(move || {
            SnapshotListing::list(&job)
        }));
    }

    /// Completes when a poll is done; true if the files have changed.
    pub(super) async fn poll_finished(&mut self, status: &StatusHandle) -> bool {
        let Some(polling) = &mut self.polling else {
            return std::future::pending().await;
        };
        let result = polling.await;
        self.polling = None;
        match result {
            Ok(Ok(seen)) => {
                self.problem = None;
                seen != self.known
            }
            Ok(Err(error)) => {
                let problem = format!("reference data cannot be listed: {error}");
                if self.problem.as_ref() != Some(&problem) {
                    status.log(problem.clone());
                    self.problem = Some(problem);
                }
                false
            }
            Err(_) => false,
        }
    }
}
