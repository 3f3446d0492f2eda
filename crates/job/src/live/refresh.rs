//! Looks now and then whether there is other reference data than the job goes by.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::status::StatusHandle;
use crate::load::Job;
use crate::reference::{ReferenceError, SnapshotListing};

pub(super) struct ReferenceRefresh {
    job: Arc<Job>,
    /// What the job goes by.
    known: SnapshotListing,
    /// `None` for no more than once.
    every: Option<Duration>,
    /// When to look next, by the clock that only goes forward.
    due: Option<Duration>,
    looking: Option<JoinHandle<Result<SnapshotListing, ReferenceError>>>,
    /// Why the last look failed.
    trouble: Option<String>,
}

impl ReferenceRefresh {
    /// Looks at once, because something may have come while the job was down, and then as often as its inputs say.
    pub fn new(job: Arc<Job>, known: SnapshotListing, now: Duration) -> ReferenceRefresh {
        let inputs = job.file.inputs.iter();
        let every = inputs.filter_map(|input| input.refresh).min();
        let every = every.map(|every| {
            let micros = u64::try_from(every.ticks() / 10).unwrap_or_default();
            Duration::from_micros(micros).max(Duration::from_millis(10))
        });
        let due = (!job.plan.references.is_empty()).then_some(now);
        ReferenceRefresh {
            job,
            known,
            every,
            due,
            looking: None,
            trouble: None,
        }
    }

    /// Looks where that may block, if it is time to.
    pub fn look_if_due(&mut self, now: Duration) {
        if self.looking.is_some() || self.due.is_none_or(|due| now < due) {
            return;
        }
        self.due = self.every.map(|every| now + every);
        let job = self.job.clone();
        self.looking = Some(tokio::task::spawn_blocking(move || {
            SnapshotListing::list(&job)
        }));
    }

    /// Ready when a look is done; true if there is something else.
    pub async fn looked(&mut self, status: &StatusHandle) -> bool {
        let Some(looking) = &mut self.looking else {
            return std::future::pending().await;
        };
        let looked = looking.await;
        self.looking = None;
        match looked {
            Ok(Ok(seen)) => {
                self.trouble = None;
                seen != self.known
            }
            Ok(Err(error)) => {
                let trouble = format!("reference data cannot be looked for: {error}");
                if self.trouble.as_ref() != Some(&trouble) {
                    status.log(trouble.clone());
                    self.trouble = Some(trouble);
                }
                false
            }
            Err(_) => false,
        }
    }
}
