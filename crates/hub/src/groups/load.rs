//! Making the view in memory from what the hub holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use highwater_codec::DecodeError;

use super::HUB;
use super::coordinator::Coordinator;
use super::group_entry::GroupEntry;
use super::machine::{Group, Limits, Snapshot};
use super::positions::Positions;
use super::record::{self, Key};
use crate::coordinator::JournalError;
use crate::coordinator::journal::Journal;

#[derive(Default)]
struct LoadedGroup {
    group: Option<(Snapshot, i64)>,
    positions: Positions,
}

impl Coordinator {
    pub async fn load(self: &Arc<Self>) -> Result<(), JournalError> {
        let journal = Journal::open(&*self.log, HUB, self.options.partitions).await?;
        let mut found = BTreeMap::<String, LoadedGroup>::new();
        journal
            .replay(|key, value| take(&mut found, key, value))
            .await?;
        for (name, found) in found {
            if let Some(entry) = self.restore(&name, found) {
                self.slots.write().insert(name, Arc::new(Mutex::new(entry)));
            }
        }
        let loaded = self.journal.set(journal).is_ok();
        assert!(loaded, "a coordinator is loaded once");
        self.wake_all();
        Ok(())
    }

    /// Members have a session from now on to say that they are still there.
    fn restore(&self, name: &str, found: LoadedGroup) -> Option<GroupEntry> {
        if found.group.is_none() && found.positions.is_empty() {
            return None;
        }
        let (snapshot, since_ms) = found.group.unwrap_or_default();
        let (limits, now) = (Limits::from(&self.options), self.clock.elapsed());
        let mut entry = GroupEntry::new(name, Group::restore(name, limits, snapshot, now));
        entry.positions = found.positions;
        entry.since_ms = since_ms;
        Some(entry)
    }

    /// Lets every group name its deadline.
    fn wake_all(self: &Arc<Self>) {
        let slots: Vec<_> = self.slots.read().values().cloned().collect();
        for slot in slots {
            let mut entry = slot.lock();
            self.act_locked(&slot, &mut entry, |locked| {
                locked.entry.group.tick(locked.now)
            });
        }
    }
}

fn take(
    found: &mut BTreeMap<String, LoadedGroup>,
    key: &[u8],
    value: Option<&[u8]>,
) -> Result<(), DecodeError> {
    match record::read_key(key)? {
        Key::Group(group) => {
            found.entry(group).or_default().group = value.map(record::read_group).transpose()?;
        }
        Key::Position(group, topic_partition) => {
            let stored = &mut found.entry(group).or_default().positions.stored;
            match value {
                Some(value) => stored.insert(topic_partition, record::read_position(value)?),
                None => stored.remove(&topic_partition),
            };
        }
        Key::Pending(group, producer, topic_partition) => {
            let positions = &mut found.entry(group).or_default().positions;
            match value {
                Some(value) => {
                    positions.pend(
                        producer,
                        &[(topic_partition, record::read_position(value)?)],
                    );
                }
                None => positions.settle(producer, &topic_partition),
            }
        }
    }
    Ok(())
}
