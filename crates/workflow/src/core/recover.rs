//! From a journal to live instances, and back to a shorter journal.

use std::sync::Arc;

use super::{Core, Input, Kind, Live, Role};
use crate::journal::{self, Record, RecordError};
use crate::machine::{Instance, Millis};
use crate::versions::Versions;

impl Core {
    /// Folds in what the journal says of an instance.
    ///
    /// What it says of an unknown one is passed over: a journal is cut where a snapshot of everything
    /// begins, and records between the cut and the snapshot are in the snapshot.
    pub fn replay(
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
                    self.live.insert(key, Live::own(Box::new(instance)));
                }
            }
            Record::Event(event) => {
                if let Some(Live {
                    kind: Kind::Own(instance),
                    ..
                }) = self.live.get_mut(id)
                {
                    instance.apply(event);
                }
            }
            Record::Snapshot(instance) => {
                self.live
                    .insert(Arc::clone(&instance.id), Live::own(instance));
            }
            Record::Failed(instance) => {
                if !self.live.contains_key(id) {
                    self.live
                        .insert(Arc::clone(&instance.id), Live::own(instance));
                }
            }
            Record::HandedOver => {
                self.live.insert(Arc::from(id), Live::handed());
            }
            Record::Closed => {
                self.live.remove(id);
            }
        }
        Ok(())
    }

    /// Ids whose end may stand in the history though the journal does not say so.
    pub fn doubtful(&self) -> Vec<Arc<str>> {
        let is_doubtful = |live: &Live| match &live.kind {
            Kind::Own(instance) => self.role != Role::Scheduler || instance.end().is_some(),
            Kind::Handed => true,
        };
        let doubtful = self.live.iter().filter(|(_, live)| is_doubtful(live));
        doubtful.map(|(id, _)| Arc::clone(id)).collect()
    }

    /// It stands in the history after all.
    pub fn forget(&mut self, id: &Arc<str>) {
        self.handle(self.now_ms, Input::Closed { id: Arc::clone(id) });
    }

    /// The replay is over: everything goes on.
    pub fn recovered(&mut self, now_ms: Millis) {
        let latest = self.instances().map(|instance| instance.changed_ms).max();
        self.pass_to(now_ms.max(latest.unwrap_or(now_ms)));
        let mut ids: Vec<Arc<str>> = self.live.keys().cloned().collect();
        // The same order every time, whatever the table does.
        ids.sort_unstable();
        for id in ids {
            if let Some(Live {
                kind: Kind::Own(instance),
                ..
            }) = self.live.get_mut(&id)
            {
                instance.recovered(self.now_ms);
            }
            self.pump(&id);
        }
    }

    /// Writes everything that is known, so that the journal before it can go.
    pub fn checkpoint(&mut self) {
        let mut ids: Vec<&Arc<str>> = self.live.keys().collect();
        ids.sort_unstable();
        for id in ids {
            match &self.live[id].kind {
                Kind::Own(instance) => {
                    self.round
                        .put(id, |out| journal::write_snapshot(out, instance));
                }
                Kind::Handed => self.round.put(id, journal::write_handed_over),
            }
        }
    }
}
