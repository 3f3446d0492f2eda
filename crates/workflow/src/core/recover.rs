//! Recovery: replays a journal into live instances, and writes snapshots that shorten it.

use std::sync::Arc;

use super::{Core, Input, LiveInstance, Ownership, Role};
use crate::journal::{self, Record, RecordError};
use crate::machine::{Instance, Millis};
use crate::versions::Versions;

impl Core {
    /// Applies a record of an instance.
    ///
    /// Records of unknown instances are ignored: a journal is trimmed to the start of a snapshot, and the records
    /// between are in the snapshot.
    pub(crate) fn replay(
        &mut self,
        id: &str,
        record: Record,
        versions: &Versions,
    ) -> Result<(), RecordError> {
        match record {
            Record::Started {
                version,
                at_ms,
                input,
            } => {
                if !self.live.contains_key(id) {
                    let definition = versions.get(version).ok_or(RecordError::Version(version))?;
                    let id: Arc<str> = Arc::from(id);
                    let key = Arc::clone(&id);
                    let instance = Instance::started(id, definition, version, input, at_ms);
                    self.live.insert(key, LiveInstance::own(Box::new(instance)));
                }
            }
            Record::Event(event) => {
                if let Some(LiveInstance {
                    ownership: Ownership::Own(instance),
                    ..
                }) = self.live.get_mut(id)
                {
                    instance.apply(event);
                }
            }
            Record::Snapshot(instance) => {
                self.live
                    .insert(Arc::clone(&instance.id), LiveInstance::own(instance));
            }
            Record::Failed(instance) => {
                if !self.live.contains_key(id) {
                    self.live
                        .insert(Arc::clone(&instance.id), LiveInstance::own(instance));
                }
            }
            Record::HandedOver => {
                self.live.insert(Arc::from(id), LiveInstance::handed_over());
            }
            Record::Closed => {
                self.live.remove(id);
            }
        }
        Ok(())
    }

    /// Instances that may be in the history without a journal record of it.
    pub(crate) fn possibly_archived(&self) -> Vec<Arc<str>> {
        let may_be_archived = |live: &LiveInstance| match &live.ownership {
            Ownership::Own(instance) => self.role != Role::Scheduler || instance.end().is_some(),
            Ownership::HandedOver => true,
        };
        let doubtful = self.live.iter().filter(|(_, live)| may_be_archived(live));
        doubtful.map(|(id, _)| Arc::clone(id)).collect()
    }

    /// Records that an instance is in the history.
    pub(crate) fn mark_archived(&mut self, id: &Arc<str>) {
        self.handle(self.now_ms, Input::Archived { id: Arc::clone(id) });
    }

    /// Ends the replay and advances all instances.
    pub(crate) fn recovered(&mut self, now_ms: Millis) {
        let latest = self.instances().map(|instance| instance.changed_ms).max();
        self.advance_clock(now_ms.max(latest.unwrap_or(now_ms)));
        let mut ids: Vec<Arc<str>> = self.live.keys().cloned().collect();
        // A deterministic order, independent of the hash table.
        ids.sort_unstable();
        for id in ids {
            if let Some(LiveInstance {
                ownership: Ownership::Own(instance),
                ..
            }) = self.live.get_mut(&id)
            {
                instance.recovered(self.now_ms);
            }
            self.advance(&id);
        }
    }

    /// Writes a snapshot of all instances, so that the journal before it can be trimmed.
    pub(crate) fn checkpoint(&mut self) {
        let mut ids: Vec<&Arc<str>> = self.live.keys().collect();
        ids.sort_unstable();
        for id in ids {
            match &self.live[id].ownership {
                Ownership::Own(instance) => {
                    self.round
                        .put(id, |out| journal::write_snapshot(out, instance));
                }
                Ownership::HandedOver => self.round.put(id, journal::write_handed_over),
            }
        }
    }
}
