//! Rebuilds the groups from the hub.

use std::collections::BTreeMap;
use std::sync::Arc;

use highwater_codec::DecodeError;

use super::HUB;
use super::consumer::{self, ConsumerGroup, MemberRecord, StateRecord};
use super::coordinator::Coordinator;
use super::group_entry::GroupEntry;
use super::group_kind::GroupKind;
use super::machine::{Group, Snapshot};
use super::offsets::GroupOffsets;
use super::record::{self, Key};
use crate::coordinator::JournalError;
use crate::coordinator::journal::Journal;

#[derive(Default)]
struct LoadedGroup {
    state: Option<(LoadedState, i64)>,
    /// The members of a group of the consumer protocol.
    members: BTreeMap<String, MemberRecord>,
    offsets: GroupOffsets,
}

/// The last record of the group, of the protocol that it used last, with the time of its last change.
enum LoadedState {
    Classic(Snapshot),
    Consumer(StateRecord),
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
        if loaded.state.is_none() && loaded.offsets.is_empty() {
            return None;
        }
        let empty = || (LoadedState::Classic(Snapshot::default()), 0);
        let (state, since_ms) = loaded.state.unwrap_or_else(empty);
        let (options, now) = (self.options.clone(), self.clock.elapsed());
        let group = match state {
            LoadedState::Classic(snapshot) => {
                GroupKind::Classic(Group::restore(name, options, snapshot, now))
            }
            LoadedState::Consumer(state) => {
                let memory = self.member_memory.clone();
                let members = loaded.members;
                let group = ConsumerGroup::restore(name, state, members, options, memory, now);
                GroupKind::Consumer(group)
            }
        };
        let mut entry = GroupEntry::new(name, group);
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
            let loaded = loaded.entry(group).or_default();
            let read = value.map(record::read_group).transpose()?;
            let classic = |(snapshot, since_ms)| (LoadedState::Classic(snapshot), since_ms);
            loaded.state = read.map(classic);
        }
        Key::ConsumerGroup(group) => {
            let loaded = loaded.entry(group).or_default();
            let read = value.map(consumer::read_group).transpose()?;
            let consumer = |(state, since_ms)| (LoadedState::Consumer(state), since_ms);
            loaded.state = read.map(consumer);
        }
        Key::ConsumerMember(group, member) => {
            let members = &mut loaded.entry(group).or_default().members;
            match value {
                Some(value) => members.insert(member, consumer::read_member(value)?),
                None => members.remove(&member),
            };
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
