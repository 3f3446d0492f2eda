//! Rebuilds the groups from the hub.

use std::collections::BTreeMap;
use std::sync::Arc;

use highwater_codec::DecodeError;

use super::HUB;
use super::coordinator::Coordinator;
use super::group_entry::GroupEntry;
use super::machine::{Group, Snapshot};
use super::offsets::GroupOffsets;
use super::record::{self, Key};
use crate::coordinator::JournalError;
use crate::coordinator::journal::Journal;

#[derive(Default)]
struct LoadedGroup {
    group: Option<(Snapshot, i64)>,
    offsets: GroupOffsets,
}

impl Coordinator {
    pub(super) async fn load(self: &Arc<Self>) -> Result<(), JournalError> {
        let mut loaded = BTreeMap::<String, LoadedGroup>::new();
        let apply = |key: &[u8], value: Option<&[u8]>| apply(&mut loaded, key, value);
        let journal = Journal::load(&*self.log, HUB, self.options.partitions, apply).await?;
        for (name, group) in loaded {
            if let Some(entry) = self.restore(&name, group) {
                self.slots.get_or_insert(&name, || entry);
            }
        }
        let first = self.journal.set(journal).is_ok();
        assert!(first, "a coordinator is loaded once");
        for slot in self.slots.all() {
            self.tick(&slot, &mut slot.lock());
        }
        Ok(())
    }

    /// Members have a whole session from now on to send a heartbeat.
    fn restore(&self, name: &str, loaded: LoadedGroup) -> Option<GroupEntry> {
        if loaded.group.is_none() && loaded.offsets.is_empty() {
            return None;
        }
        let (snapshot, since_ms) = loaded.group.unwrap_or_default();
        let (options, now) = (self.options.clone(), self.clock.elapsed());
        let mut entry = GroupEntry::new(name, Group::restore(name, options, snapshot, now));
        entry.offsets = loaded.offsets;
        entry.since_ms = since_ms;
        Some(entry)
    }
}

fn apply(
    loaded: &mut BTreeMap<String, LoadedGroup>,
    key: &[u8],
    value: Option<&[u8]>,
) -> Result<(), DecodeError> {
    match record::read_key(key)? {
        Key::Group(group) => {
            loaded.entry(group).or_default().group = value.map(record::read_group).transpose()?;
        }
        Key::Offset(group, partition) => {
            let stored = &mut loaded.entry(group).or_default().offsets.stored;
            match value {
                Some(value) => stored.insert(partition, record::read_offset(value)?),
                None => stored.remove(&partition),
            };
        }
        Key::Pending(group, producer, partition) => {
            let offsets = &mut loaded.entry(group).or_default().offsets;
            match value {
                Some(value) => {
                    offsets.add_pending(producer, &[(partition, record::read_offset(value)?)]);
                }
                None => offsets.remove_pending(producer, |pending| {
                    pending.remove(&partition);
                }),
            }
        }
    }
    Ok(())
}
