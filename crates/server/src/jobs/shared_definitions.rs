//! The definitions of jobs that nodes over a cluster share, on their log.
//!
//! A compacted hub has a record for each of them: its files, and whether it runs. A request to any node appends a
//! record and waits until that node has applied it; every node follows the hub and applies each record
//! (`shared_changes.rs`). So all of them see the same sequence of changes, and the last one counts.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use highwater_flow::scan;
use highwater_log::batch::NewRecord;
use highwater_log::{
    AdminError, CleanupPolicy, HubName, HubSettings, HubSpec, Isolation, Log, Offset, Partition,
};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::{Files, JobError};

const HUB: &str = "__jobs";

/// Larger than the files of a request (`http.body_bytes_max`) by default.
const BATCH_BYTES_MAX: u32 = 8 << 20;

/// How long a request waits until its node has applied the change, which may stop a job first.
const PATIENCE: Duration = Duration::from_secs(60);

/// What all nodes know of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SharedDefinition {
    pub files: Files,
    pub running: bool,
    /// Where it starts if it has never run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// The key that deployed it. `None`: a client of a node without keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
}

/// The latest changes by job; `None` if it is deleted.
pub(super) type SharedChanges = BTreeMap<String, Option<SharedDefinition>>;

/// Clones share the progress.
#[derive(Clone)]
pub struct SharedDefinitions {
    partition: Arc<dyn Partition>,
    /// Changes before this offset are applied.
    applied: Arc<watch::Sender<Offset>>,
}

impl SharedDefinitions {
    /// Creates the hub if it is absent.
    pub(crate) async fn open(log: &dyn Log) -> io::Result<SharedDefinitions> {
        if log.hub(HUB).is_none() {
            let settings = HubSettings {
                cleanup: CleanupPolicy::Compact,
                retention: None,
                batch_bytes_max: BATCH_BYTES_MAX,
                ..HubSettings::default()
            };
            let created = log.create(HubSpec {
                name: HubName::new(HUB).map_err(io::Error::other)?,
                partitions: 1,
                settings,
            });
            match created.await {
                Ok(_) | Err(AdminError::Exists(_)) => {}
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        let partition = log.partition(HUB, 0);
        let missing = || io::Error::other(format!("hub `{HUB}` was deleted"));
        Ok(SharedDefinitions {
            partition: partition.ok_or_else(missing)?,
            applied: Arc::new(watch::Sender::new(Offset(0))),
        })
    }

    /// Appends a change and waits until this node has applied it.
    pub(super) async fn change(
        &self,
        job: &str,
        definition: Option<&SharedDefinition>,
    ) -> Result<(), JobError> {
        let value = definition.map(serde_json::to_vec).transpose();
        let value = value.map_err(io::Error::from)?;
        let appended = self.partition.append_records(&[NewRecord {
            key: Some(job.as_bytes()),
            value: value.as_deref(),
            headers: &[],
        }]);
        let appended = appended.await.map_err(io::Error::other)?;
        let mut applied = self.applied.subscribe();
        let is_applied = applied.wait_for(|next| *next > appended.offset);
        match tokio::time::timeout(PATIENCE, is_applied).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(JobError::NotApplied(job.to_owned())),
        }
    }

    /// The changes that are not applied yet, and the offset to note when they are.
    pub(super) async fn read(&self) -> io::Result<(SharedChanges, Offset)> {
        let mut changes = SharedChanges::new();
        let from = *self.applied.borrow();
        let next = scan(&*self.partition, from, |record| {
            let name = std::str::from_utf8(record.key.unwrap_or_default());
            let definition = record.value.map(serde_json::from_slice).transpose();
            match (name, definition) {
                (Ok(name), Ok(definition)) => {
                    changes.insert(name.to_owned(), definition);
                }
                _ => {
                    tracing::warn!(offset = %record.offset, "not a definition of a job in `{HUB}`")
                }
            }
        });
        let next = next.await.map_err(io::Error::other)?;
        Ok((changes, next))
    }

    /// Whether something before `next` is not applied yet.
    pub(super) fn is_new(&self, next: Offset) -> bool {
        next > *self.applied.borrow()
    }

    pub(super) fn note_applied(&self, next: Offset) {
        self.applied.send_replace(next);
    }

    /// Ready when there may be changes that are not applied.
    pub(super) async fn wait(&self) {
        let next = *self.applied.borrow();
        self.partition.wait_past(next, Isolation::Committed).await;
    }
}
