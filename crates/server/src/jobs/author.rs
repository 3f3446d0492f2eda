//! The author of a job: the settings, a client without a key, or the key that deployed it, whose rights the job has.
//!
//! Rights are checked when a job is deployed and started, and again whenever a key changes or expires: a job whose author
//! has lost a right that it needs is stopped, and stays stopped until it is started or deployed again.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use highwater_access::{AuditEvent, AuditLog, Resource, Right};
use highwater_connect::Destination;
use highwater_job::config::JobFile;
use highwater_job::job_file_of;
use tokio::sync::watch;

use super::definition::DesiredState;
use super::{Entry, JobError, JobResources, Jobs, blocking};

/// The clock of the machine may be set, so the time to the next expiry is measured again after this long.
const EXPIRY_CHECK_MAX: Duration = Duration::from_secs(60);

/// Who defined a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Author<'a> {
    /// The settings have it.
    Operator,
    /// A client of a node without keys deployed it.
    Client,
    /// The key of this name deployed it.
    Key(&'a str),
}

impl Author<'_> {
    /// The author of a job that came over HTTP.
    pub(super) fn of_deployed(key: Option<&str>) -> Author<'_> {
        key.map_or(Author::Client, Author::Key)
    }

    /// The author of a stored job; `declared`: the settings have it.
    pub(super) fn of(declared: bool, key: Option<&str>) -> Author<'_> {
        match declared {
            true => Author::Operator,
            false => Author::of_deployed(key),
        }
    }
}

impl Jobs {
    /// Stops the jobs of authors that lose rights, until `shutdown`.
    pub(crate) async fn watch_keys(
        self,
        mut changes: watch::Receiver<()>,
        audit: Arc<dyn AuditLog>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), Infallible> {
        tokio::pin!(shutdown);
        loop {
            let expiry_ms = self.0.resources.next_expiry_ms();
            let wait = self.0.resources.time_to(expiry_ms).min(EXPIRY_CHECK_MAX);
            let has_changed = async {
                if changes.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = &mut shutdown => return Ok(()),
                () = has_changed => {}
                () = tokio::time::sleep(wait) => {
                    if !self.0.resources.time_to(expiry_ms).is_zero() {
                        continue;
                    }
                }
            }
            for entry in self.entries() {
                if let Err(reason) = self.check_author(&entry).await {
                    self.stop_for(&entry, &reason, &*audit).await;
                }
            }
        }
    }

    /// The error if the author of a running job lacks a right.
    async fn check_author(&self, entry: &Arc<Entry>) -> Result<(), JobError> {
        if !entry.runs() {
            return Ok(());
        }
        let Ok(Some(DesiredState {
            definition: Some(number),
            author: Some(author),
            ..
        })) = entry.folder.desired_state()
        else {
            return Ok(());
        };
        let path = job_file_of(&entry.folder.definition(number));
        let (resources, name) = (self.0.resources.clone(), entry.name.clone());
        let checked = blocking(move || match JobFile::load(&path) {
            Ok(file) => resources.check_rights(&name, &file, &author),
            // Not the author's fault; the job runs on with the definition that it has.
            Err(_) => Ok(()),
        });
        checked.await
    }

    async fn stop_for(&self, entry: &Arc<Entry>, reason: &JobError, audit: &dyn AuditLog) {
        let (author, outcome) = match reason {
            JobError::AuthorRevoked(author) => (author, "key_invalid"),
            JobError::Right { author, .. } => (author, "right_missing"),
            _ => return,
        };
        let _one = entry.changing.lock().await;
        // Another key may have deployed it in the meantime.
        if self.check_author(entry).await.is_ok() {
            return;
        }
        tracing::warn!(job = entry.name, %reason, "a job is stopped");
        let stopped = entry.folder.desired_state().and_then(|desired| {
            entry.folder.set_desired_state(&DesiredState {
                running: false,
                start: None,
                ..desired.unwrap_or_default()
            })
        });
        if let Err(error) = stopped {
            tracing::error!(job = entry.name, %error, "the desired state of a job cannot be stored");
        }
        entry.stop().await;
        entry.set_problem(reason.to_string());
        audit.record(AuditEvent {
            who: author.clone(),
            from: None,
            operation: "StopJob".to_owned(),
            resource: entry.name.clone(),
            outcome: outcome.to_owned(),
        });
    }
}

impl JobResources {
    /// When the next key expires, in milliseconds since 1970.
    fn next_expiry_ms(&self) -> Option<i64> {
        let (now, keys) = (self.clock.unix_millis(), self.keys.list());
        let expiries = keys.iter().filter_map(|key| key.expires_ms);
        expiries.filter(|expiry| *expiry > now).min()
    }

    /// The time from now to `at_ms`; zero if it has passed.
    fn time_to(&self, at_ms: Option<i64>) -> Duration {
        let Some(at_ms) = at_ms else {
            return Duration::MAX;
        };
        let left = at_ms.saturating_sub(self.clock.unix_millis());
        Duration::from_millis(u64::try_from(left).unwrap_or_default())
    }

    /// Refuses a job that its author may not deploy, or that reads or writes hubs and queues that its author may not.
    pub(super) fn check_rights(
        &self,
        name: &str,
        file: &JobFile,
        author: &str,
    ) -> Result<(), JobError> {
        let key = self.keys.get(author, self.clock.unix_millis());
        let key = key.ok_or_else(|| JobError::AuthorRevoked(author.to_owned()))?;
        let check = |right: Right, resource: Resource<'_>| match key.may(right, resource) {
            true => Ok(()),
            false => Err(JobError::Right {
                author: author.to_owned(),
                right: right.name(),
                resource: resource.to_string(),
            }),
        };
        check(Right::Deploy, Resource::Deployment(name))?;
        for hub in file.inputs.iter().flat_map(|input| input.node_hubs()) {
            // A key for a sharded hub need not have its members.
            check(Right::Listen, Resource::Hub(hub))?;
        }
        for output in &file.outputs {
            match output.settings.destination() {
                Some(Destination::Hub(hub)) => check(Right::Send, Resource::Hub(hub))?,
                Some(Destination::Queue(queue)) => check(Right::Send, Resource::Queue(queue))?,
                None => {}
            }
        }
        Ok(())
    }
}
