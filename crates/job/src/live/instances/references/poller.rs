//! Polls the store for versions and, on the instance with the first combiner, the files.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::{ReferenceVersions, SharedReferences, TablesError};
use crate::reference::{SnapshotListing, read_tables};

/// The longest poll interval: versions of other instances come from the store.
const POLL_INTERVAL_MAX: Duration = Duration::from_secs(10);
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(10);

pub(in crate::live::instances) struct ReferencePoller {
    references: Arc<SharedReferences>,
    every: Duration,
    /// An input is polled repeatedly.
    refreshes: bool,
    /// The time of the next poll, by the monotonic clock.
    due: Duration,
    polling: Option<JoinHandle<PollResult>>,
    /// The files of the last version that this instance has proposed or found to be known.
    known: Option<SnapshotListing>,
    /// The error of the last poll.
    problem: Option<String>,
}

/// The result of a poll.
struct PollResult {
    /// `None` if the store does not answer.
    versions: Option<ReferenceVersions>,
    /// The files that need not be read again.
    known: Option<SnapshotListing>,
    problem: Option<TablesError>,
}

impl ReferencePoller {
    pub(in crate::live::instances) fn new(references: Arc<SharedReferences>) -> ReferencePoller {
        let inputs = references.job.file.inputs.iter();
        let every = inputs.filter_map(|input| input.refresh).min();
        let refreshes = every.is_some();
        let every = every.map_or(POLL_INTERVAL_MAX, |every| {
            let micros = u64::try_from(every.ticks() / 10).unwrap_or_default();
            Duration::from_micros(micros).clamp(POLL_INTERVAL_MIN, POLL_INTERVAL_MAX)
        });
        ReferencePoller {
            references,
            every,
            refreshes,
            due: Duration::ZERO,
            polling: None,
            known: None,
            problem: None,
        }
    }

    pub(in crate::live::instances) fn versions(&self) -> ReferenceVersions {
        *self.references.versions.borrow()
    }

    /// Starts a poll if one is due, or if a version waits for votes. `reads_files`: this instance looks for new files.
    pub(in crate::live::instances) fn poll_if_due(&mut self, now: Duration, reads_files: bool) {
        let is_due = now >= self.due || self.versions().pending.is_some();
        if self.polling.is_some() || !is_due {
            return;
        }
        self.due = now + self.every;
        let reads_files = reads_files && (self.refreshes || self.known.is_none());
        let (references, known) = (self.references.clone(), self.known.take());
        self.polling = Some(tokio::task::spawn_blocking(move || {
            poll(&references, known, reads_files)
        }));
    }

    /// Completes when a poll has finished; shards see its versions.
    pub(in crate::live::instances) async fn poll_finished(&mut self) {
        let Some(polling) = &mut self.polling else {
            return std::future::pending().await;
        };
        let result = polling.await;
        self.polling = None;
        let Ok(result) = result else {
            return;
        };
        self.known = result.known;
        if let Some(versions) = result.versions {
            self.references.versions.send_if_modified(|known| {
                let is_new = *known != versions;
                *known = versions;
                is_new
            });
        }
        let problem = result.problem.map(|error| error.to_string());
        if let Some(problem) = problem.as_ref().filter(|_| self.problem != problem) {
            let text = format!("new reference data is not adopted: {problem}");
            self.references.status.log(text);
        }
        self.problem = problem;
    }
}

fn poll(
    references: &SharedReferences,
    known: Option<SnapshotListing>,
    reads_files: bool,
) -> PollResult {
    let mut result = PollResult {
        versions: None,
        known,
        problem: None,
    };
    result.problem = poll_versions(references, &mut result, reads_files).err();
    result
}

fn poll_versions(
    references: &SharedReferences,
    result: &mut PollResult,
    reads_files: bool,
) -> Result<(), TablesError> {
    let registry = &references.registry;
    let mut listing = registry.list()?;
    if registry.decide(&listing)? {
        listing = registry.list()?;
    }
    // Shards learn of it whatever is wrong with the files.
    result.versions = Some(listing.versions());
    let (None, Some(decided), true) = (listing.pending(), listing.decided(), reads_files) else {
        return Ok(());
    };
    let files = SnapshotListing::list(&references.job)?;
    if result.known.as_ref() == Some(&files) {
        return Ok(());
    }
    let read = read_tables(&references.job)?;
    let tables = read.tables.iter().map(|table| &**table);
    let changes = registry.decision(decided)?.changes(tables);
    if !changes.snapshots.is_empty() {
        registry.propose(decided + 1, &changes)?;
        result.versions = Some(registry.list()?.versions());
    }
    result.known = Some(files);
    Ok(())
}
