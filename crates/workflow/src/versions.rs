//! The definitions of all instances, by version.
//!
//! They are stored on a compacted hub, so that an instance finishes with the definition it started with, even if the
//! file has changed, and even at a remote supervisor that never saw the file.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use highwater_log::Partition;
use highwater_log::batch::NewRecord;

use crate::definition::{Definition, Version};
use crate::journal::{JournalError, read_all};

/// Clones share the definitions.
#[derive(Clone, Default)]
pub(crate) struct Versions(Arc<RwLock<BTreeMap<Version, Arc<Definition>>>>);

impl Versions {
    pub(crate) fn get(&self, version: Version) -> Option<Arc<Definition>> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&version).cloned()
    }

    pub(crate) fn add(&self, definition: Definition) -> (Version, Arc<Definition>) {
        let (version, definition) = (definition.version(), Arc::new(definition));
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let kept = known.entry(version).or_insert(definition);
        (version, Arc::clone(kept))
    }

    /// Reads all definitions from the log.
    pub(crate) async fn load(partition: &dyn Partition) -> Result<Versions, JournalError> {
        let versions = Versions::default();
        read_all(partition, |record| {
            if let Some(json) = record.value {
                // A definition of a newer version is ignored until an instance needs it.
                if let Ok(definition) = Definition::from_json(json) {
                    versions.add(definition);
                }
            }
            Ok(())
        })
        .await?;
        Ok(versions)
    }

    /// Stores a definition.
    pub(crate) async fn store(
        &self,
        partition: &dyn Partition,
        definition: Definition,
    ) -> Result<(Version, Arc<Definition>), JournalError> {
        let version = definition.version();
        if let Some(known) = self.get(version) {
            return Ok((version, known));
        }
        let key = version.to_string();
        let json = definition.to_json();
        let record = NewRecord {
            key: Some(key.as_bytes()),
            value: Some(&json),
            headers: &[],
        };
        partition.append_records(&[record]).await?;
        Ok(self.add(definition))
    }
}
