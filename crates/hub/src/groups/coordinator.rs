//! All groups, and the access to one of them under its lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use highwater_env::{Clock, random::Random};
use highwater_log::{GroupError, Log};
use parking_lot::Mutex;

use super::group_entry::{GroupChange, GroupEntry, Responder};
use super::group_kind::GroupKind;
use super::machine::{AfterStore, Effect, Elapsed, Group, RequestId};
use super::member_memory::MemberMemory;
use super::{Options, consumer, record};
use crate::coordinator::deadlines::Deadlines;
use crate::coordinator::journal::{Entries, Journal};
use crate::coordinator::slots::{Slot, Slots};
use crate::coordinator::{NAME_BYTES_MAX, spawn};

/// Characters of a client id in a member id.
const CLIENT_ID_MAX: usize = 128;

pub(super) struct Coordinator {
    pub(super) log: Arc<dyn Log>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) options: Options,
    pub(super) deadlines: Deadlines,
    /// Set when the hub has been read.
    pub(super) journal: OnceLock<Journal>,
    pub(super) slots: Slots<GroupEntry>,
    pub(super) member_memory: MemberMemory,
    pub(super) random: Mutex<Random>,
    pub(super) request_ids: AtomicU64,
}

/// A group whose lock is held.
pub(super) struct LockedGroup<'a> {
    pub(super) coordinator: &'a Arc<Coordinator>,
    pub(super) slot: &'a Slot<GroupEntry>,
    pub(super) entry: &'a mut GroupEntry,
    pub(super) now: Elapsed,
    journal: &'a Journal,
}

impl Coordinator {
    pub(super) fn check_loaded(&self) -> Result<(), GroupError> {
        self.journal.get().map(|_| ()).ok_or(GroupError::Loading)
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.clock.unix_millis()
    }

    pub(super) fn next_request_id(&self) -> RequestId {
        RequestId(self.request_ids.fetch_add(1, Ordering::Relaxed))
    }

    /// A new member id, which begins with the start of the client id.
    pub(super) fn member_id(&self, client_id: &str) -> String {
        let mut random = self.random.lock();
        let (high, low) = (random.next_u64(), random.next_u64());
        let client: String = client_id.chars().take(CLIENT_ID_MAX).collect();
        format!("{client}-{high:016x}{low:016x}")
    }

    /// Calls `act` with a group; `None` if there is none of this name.
    pub(super) fn with_group<R>(
        self: &Arc<Self>,
        name: &str,
        act: impl FnOnce(&mut LockedGroup<'_>) -> R,
    ) -> Result<Option<R>, GroupError> {
        self.lock_group(name, || self.slots.get(name), act)
    }

    /// Calls `act` with a group, created if there is none. A group that stays vacant is removed again.
    pub(super) fn with_group_or_new<R>(
        self: &Arc<Self>,
        name: &str,
        act: impl FnOnce(&mut LockedGroup<'_>) -> R,
    ) -> Result<R, GroupError> {
        if name.len() > NAME_BYTES_MAX && self.slots.get(name).is_none() {
            return Err(GroupError::InvalidGroup);
        }
        let group = || GroupKind::Classic(Group::new(name, self.options.clone()));
        let new = || GroupEntry::new(name, group());
        let find = || Some(self.slots.get_or_insert(name, new));
        let done = self.lock_group(name, find, act)?;
        done.ok_or(GroupError::Loading)
    }

    fn lock_group<R>(
        self: &Arc<Self>,
        name: &str,
        find: impl Fn() -> Option<Slot<GroupEntry>>,
        act: impl FnOnce(&mut LockedGroup<'_>) -> R,
    ) -> Result<Option<R>, GroupError> {
        self.check_loaded()?;
        if name.is_empty() {
            return Err(GroupError::InvalidGroup);
        }
        while let Some(slot) = find() {
            let mut entry = slot.lock();
            if entry.removed {
                continue;
            }
            if entry.deleting {
                return Err(GroupError::Loading);
            }
            return Ok(self.act_locked(&slot, &mut entry, act));
        }
        Ok(None)
    }

    /// Calls `act` with a group that is locked already, then carries out the effects.
    pub(super) fn act_locked<R>(
        self: &Arc<Self>,
        slot: &Slot<GroupEntry>,
        entry: &mut GroupEntry,
        act: impl FnOnce(&mut LockedGroup<'_>) -> R,
    ) -> Option<R> {
        let mut locked = LockedGroup {
            coordinator: self,
            journal: self.journal.get()?,
            slot,
            entry,
            now: self.clock.elapsed(),
        };
        let done = act(&mut locked);
        locked.run_effects();
        locked.store_consumer();
        locked.downgrade();
        if let Some(at) = entry.group.take_deadline() {
            (self.deadlines).set(&mut entry.wakeup_at, at, &entry.name);
        }
        if entry.is_vacant() {
            entry.removed = true;
        }
        if entry.removed {
            self.slots.remove(&entry.name, slot);
        }
        Some(done)
    }

    /// Wakes every group whose deadline has passed.
    pub(super) fn wake_due(self: &Arc<Self>) {
        for name in self.deadlines.take_due(self.clock.elapsed()) {
            if let Some(slot) = self.slots.get(&name) {
                let mut entry = slot.lock();
                entry.wakeup_at = None;
                self.tick(&slot, &mut entry);
            }
        }
    }

    pub(super) fn tick(self: &Arc<Self>, slot: &Slot<GroupEntry>, entry: &mut GroupEntry) {
        self.act_locked(slot, entry, |locked| {
            locked.entry.retry_store();
            locked.entry.group.tick(locked.now);
        });
    }
}

impl LockedGroup<'_> {
    fn run_effects(&mut self) {
        for effect in self.entry.group.take_effects() {
            // The receiver may have hung up.
            match effect {
                Effect::Joined(request_id, answer) => {
                    if let Some(responder) = self.entry.joins.remove(&request_id) {
                        let _ = responder.send(answer);
                    }
                }
                Effect::Synced(request_id, answer) => {
                    if let Some(responder) = self.entry.syncs.remove(&request_id) {
                        let _ = responder.send(answer);
                    }
                }
                Effect::Store(after) => self.store_classic(after),
            }
        }
    }

    fn store_classic(&mut self, after: AfterStore) {
        self.entry.since_ms = self.coordinator.now_ms();
        let (name, since) = (&self.entry.name, self.entry.since_ms);
        let Some(group) = self.entry.group.classic() else {
            return;
        };
        let snapshot = group.snapshot();
        let mut entries = Entries::default();
        entries.put(
            |out| record::group_key(out, name),
            |out| record::put_group(out, &snapshot, since),
        );
        for id in &self.entry.stale_members {
            entries.remove(|out| record::consumer_member_key(out, name, id));
        }
        self.append(&entries, GroupChange::Group(after), None);
    }

    /// Stores what has changed in a group of the consumer protocol.
    fn store_consumer(&mut self) {
        let Some(changes) = self.entry.begin_consumer_store() else {
            return;
        };
        self.entry.since_ms = self.coordinator.now_ms();
        let (name, since) = (&self.entry.name, self.entry.since_ms);
        let Some(group) = self.entry.group.consumer() else {
            return;
        };
        let mut entries = Entries::default();
        for id in &changes.members {
            let key = |out: &mut Vec<u8>| record::consumer_member_key(out, name, id);
            match group.member_record(id) {
                Some(member) => entries.put(key, |out| consumer::put_member(out, member)),
                None => entries.remove(key),
            }
        }
        if changes.group {
            entries.put(
                |out| record::consumer_group_key(out, name),
                |out| consumer::put_group(out, group.state_record(), since),
            );
        }
        self.append(&entries, GroupChange::Consumer(changes), None);
    }

    /// Appends the records of a change. A spawned task applies it, even if its client is gone.
    pub(super) fn append(
        &mut self,
        entries: &Entries,
        change: GroupChange,
        responder: Option<Responder<()>>,
    ) {
        let append = self.journal.append(&self.entry.name, entries);
        let number = self.entry.begin(change, responder);
        let (coordinator, slot) = (Arc::clone(self.coordinator), Arc::clone(self.slot));
        spawn(async move {
            let outcome = append.await;
            let mut entry = slot.lock();
            coordinator.act_locked(&slot, &mut entry, |locked| {
                locked.entry.finish(number, outcome, locked.now);
            });
        });
    }
}
