//! Polls the store for versions and, on the instance with the first combiner, the files.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::{ReferenceVersions, SharedReferences, TablesError};
use crate::reference::{SnapshotListing, read_tables};

/// The longest poll interval: versions of other instances come from the store.
const LOOK_MAX: Duration = Duration::from_secs(10);
const LOOK_MIN: Duration = Duration::from_millis(10);

pub(in crate::live::instances) struct ReferenceLook {
    references: Arc<SharedReferences>,
    every: Duration,
    /// An input is polled repeatedly.
    refreshes: bool,
    /// The time of the next poll, by the monotonic clock.
    due: Duration,
    looking: Option<JoinHandle<Looked>>,
    /// The files of the last version that this instance has proposed or found to be known.
    known: Option<SnapshotListing>,
    /// The error of the last look.
    problem: Option<String>,
}

/// The result of a look.
struct Looked {
    /// `None` if the store does not answer.
    versions: Option<ReferenceVersions>,
    /// The files that need not be read again.
    known: Option<SnapshotListing>,
    problem: Option<TablesError>,
}

impl ReferenceLook {
    pub(in crate::live::instances) fn new(references: Arc<SharedReferences>) -> ReferenceLook {
        let inputs = references.job.file.inputs.iter();
        let every = inputs.filter_map(|input| input.refresh).min();
        let refreshes = every.is_some();
        let every = every.map_or(LOOK_MAX, |every| {
            let micros = u64::try_from(every.ticks() / 10).unwrap_or_default();
            Duration::from_micros(micros).clamp(LOOK_MIN, LOOK_MAX)
        });
        ReferenceLook {
            references,
            every,
            refreshes,
            due: Duration::ZERO,
            looking: None,
            known: None,
            problem: None,
        }
    }

    pub(in crate::live::instances) fn versions(&self) -> ReferenceVersions {
        *self.references.versions.borrow()
    }

    /// Starts a poll if one is due, or if a version waits for votes. `reads_files`: this instance looks for new files.
    pub(in crate::live::instances) fn look_if_due(&mut self, now: Duration, reads_files: bool) {
        let is_due = now >= self.due || self.versions().pending.is_some();
        if self.looking.is_some() || !is_due {
            return;
        }
        self.due = now + self.every;
        let reads_files = reads_files && (self.refreshes || self.known.is_none());
        let (references, known) = (self.references.clone(), self.known.take());
        self.looking = Some(tokio::task::spawn_blocking(move || {
            look(&references, known, reads_files)
        }));
    }

    /// Completes when a poll has finished; shards see its versions.
    pub(in crate::live::instances) async fn looked(&mut self) {
        let Some(looking) = &mut self.looking else {
            return std::future::pending().await;
        };
        let looked = looking.await;
        self.looking = None;
        let Ok(looked) = looked else {
            return;
        };
        self.known = looked.known;
        if let Some(versions) = looked.versions {
            self.references.versions.send_if_modified(|known| {
                let is_new = *known != versions;
                *known = versions;
                is_new
            });
        }
        let problem = looked.problem.map(|error| error.to_string());
        if let Some(problem) = problem.as_ref().filter(|_| self.problem != problem) {
            let text = format!("new reference data is not adopted: {problem}");
            self.references.status.log(text);
        }
        self.problem = problem;
    }
}

fn look(
    references: &SharedReferences,
    known: Option<SnapshotListing>,
    reads_files: bool,
) -> Looked {
    let mut looked = Looked {
        versions: None,
        known,
        problem: None,
    };
    looked.problem = look_for_versions(references, &mut looked, reads_files).err();
    looked
}

fn look_for_versions(
    references: &SharedReferences,
    looked: &mut Looked,
    reads_files: bool,
) -> Result<(), TablesError> {
    let registry = &references.registry;
    let mut listing = registry.list()?;
    if registry.decide(&listing)? {
        listing = registry.list()?;
    }
    // Shards learn of it whatever is wrong with the files.
    looked.versions = Some(listing.versions());
    let (None, Some(decided), true) = (listing.pending(), listing.decided(), reads_files) else {
        return Ok(());
    };
    let files = SnapshotListing::list(&references.job)?;
    if looked.known.as_ref() == Some(&files) {
        return Ok(());
    }
    let read = read_tables(&references.job)?;
    let tables = read.tables.iter().map(|table| &**table);
    let changes = registry.decision(decided)?.changes(tables);
    if !changes.snapshots.is_empty() {
        registry.propose(decided + 1, &changes)?;
        looked.versions = Some(registry.list()?.versions());
    }
    looked.known = Some(files);
    Ok(())
}
