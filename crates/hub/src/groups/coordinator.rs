//! All rooms, and the way into one of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use highwater_env::{Clock, random::Random};
use highwater_log::{GroupError, Log};
use parking_lot::{Mutex, RwLock};

use super::group_entry::{GroupChange, GroupEntry, Responder};
use super::machine::{Effect, Elapsed, Group, Ticket};
use super::record;
use super::{Options, machine};
use crate::coordinator::deadlines::Deadlines;
use crate::coordinator::journal::{Entries, Journal};
use crate::coordinator::spawn;

pub(super) type Slot = Mutex<GroupEntry>;

pub(super) struct Coordinator {
    pub log: Arc<dyn Log>,
    pub clock: Arc<dyn Clock>,
    pub options: Options,
    pub deadlines: Deadlines,
    /// Set when all of the hub has been read.
    pub journal: OnceLock<Journal>,
    /// Held only to find, add or remove a room, and never while waiting for one.
    pub slots: RwLock<BTreeMap<String, Arc<Slot>>>,
    random: Mutex<Random>,
    tickets: AtomicU64,
}

/// Where somebody has entered: the room is locked while this is held.
pub(super) struct LockedGroup<'a> {
    pub coordinator: &'a Arc<Coordinator>,
    pub journal: &'a Journal,
    pub slot: &'a Arc<Slot>,
    pub entry: &'a mut GroupEntry,
    pub now: Elapsed,
}

impl Coordinator {
    pub fn new(
        log: Arc<dyn Log>,
        clock: Arc<dyn Clock>,
        random: Random,
        options: Options,
    ) -> Coordinator {
        Coordinator {
            log,
            clock,
            options,
            deadlines: Deadlines::default(),
            journal: OnceLock::new(),
            slots: RwLock::default(),
            random: Mutex::new(random),
            tickets: AtomicU64::new(0),
        }
    }

    pub fn journal(&self) -> Result<&Journal, GroupError> {
        self.journal.get().ok_or(GroupError::Loading)
    }

    pub fn now_ms(&self) -> i64 {
        self.clock.unix_millis()
    }

    pub fn ticket(&self) -> Ticket {
        Ticket(self.tickets.fetch_add(1, Ordering::Relaxed))
    }

    /// An id that nobody has had, telling a reader whose it is.
    pub fn member_id(&self, client_id: &str) -> String {
        let mut random = self.random.lock();
        let (high, low) = (random.next_u64(), random.next_u64());
        format!("{client_id}-{high:016x}{low:016x}")
    }

    pub fn new_group(&self, name: &str) -> Group {
        Group::new(name, machine::Limits::from(&self.options))
    }

    /// Does `act` in the room of a group if there is one.
    pub fn with_group<R>(
        self: &Arc<Self>,
        name: &str,
        act: impl FnOnce(&mut LockedGroup<'_>) -> R,
    ) -> Result<Option<R>, GroupError> {
        self.lock_group(name, || self.slots.read().get(name).cloned(), act)
    }

    /// Does `act` in the room of a group, which is made if there is none. One in which nothing
    /// happens does not stay.
    pub fn with_group_or_new<R>(
        self: &Arc<Self>,
        name: &str,
        act: impl FnOnce(&mut LockedGroup<'_>) -> R,
    ) -> Result<R, GroupError> {
        let found = || self.slots.read().get(name).cloned();
        let find = || Some(found().unwrap_or_else(|| self.make(name)));
        let done = self.lock_group(name, find, act)?;
        done.ok_or(GroupError::Loading)
    }

    fn make(&self, name: &str) -> Arc<Slot> {
        let mut slots = self.slots.write();
        let slot = slots.entry(name.to_owned());
        let make = || Arc::new(Mutex::new(GroupEntry::new(name, self.new_group(name))));
        Arc::clone(slot.or_insert_with(make))
    }

    fn lock_group<R>(
        self: &Arc<Self>,
        name: &str,
        find: impl Fn() -> Option<Arc<Slot>>,
        act: impl FnOnce(&mut LockedGroup<'_>) -> R,
    ) -> Result<Option<R>, GroupError> {
        self.journal()?;
        if name.is_empty() {
            return Err(GroupError::InvalidGroup);
        }
        while let Some(slot) = find() {
            let mut entry = slot.lock();
            if entry.gone {
                continue;
            }
            if entry.closing {
                return Err(GroupError::Loading);
            }
            return Ok(self.act_locked(&slot, &mut entry, act));
        }
        Ok(None)
    }

    /// Does `act` in a room that is locked already, then what the group wants done.
    pub fn act_locked<R>(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
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
        locked.carry_out();
        locked.set_deadline();
        if entry.is_vacant() {
            entry.gone = true;
        }
        if entry.gone {
            let mut slots = self.slots.write();
            if slots
                .get(&entry.name)
                .is_some_and(|own| Arc::ptr_eq(own, slot))
            {
                slots.remove(&entry.name);
            }
        }
        Some(done)
    }

    /// Tells every group whose deadline has come what time it is.
    pub fn wake_due(self: &Arc<Self>) {
        for name in self.deadlines.take_due(self.clock.elapsed()) {
            let slot = self.slots.read().get(&name).cloned();
            if let Some(slot) = slot {
                let mut entry = slot.lock();
                entry.woken_at = None;
                self.act_locked(&slot, &mut entry, |locked| {
                    locked.entry.group.tick(locked.now)
                });
            }
        }
    }
}

impl LockedGroup<'_> {
    fn carry_out(&mut self) {
        for effect in self.entry.group.take_effects() {
            // Whoever waited may have hung up a moment ago.
            match effect {
                Effect::Joined(ticket, answer) => {
                    if let Some(waiting) = self.entry.joins.remove(&ticket) {
                        let _ = waiting.send(answer);
                    }
                }
                Effect::Synced(ticket, answer) => {
                    if let Some(waiting) = self.entry.syncs.remove(&ticket) {
                        let _ = waiting.send(answer);
                    }
                }
                Effect::Store(after) => {
                    self.entry.since_ms = self.coordinator.now_ms();
                    let mut entries = Entries::default();
                    let (name, since) = (&self.entry.name, self.entry.since_ms);
                    let snapshot = self.entry.group.snapshot();
                    entries.put(
                        |out| record::group_key(out, name),
                        |out| record::put_group(out, &snapshot, since),
                    );
                    self.append(&entries, GroupChange::Group(after), None);
                }
            }
        }
    }

    /// Gives records their place in the log. A task of its own sees to the rest, because it must be
    /// done even if the client that asked is gone.
    pub fn append(
        &mut self,
        entries: &Entries,
        change_kind: GroupChange,
        answer: Option<Responder<()>>,
    ) {
        let append = self.journal.append(&self.entry.name, entries);
        let number = self.entry.begin(change_kind, answer);
        let (coordinator, slot) = (Arc::clone(self.coordinator), Arc::clone(self.slot));
        spawn(async move {
            let outcome = append.await;
            let mut entry = slot.lock();
            coordinator.act_locked(&slot, &mut entry, |locked| {
                locked.entry.finish(number, outcome, locked.now);
            });
        });
    }

    /// Being woken too early does no harm, so only an earlier deadline is worth a word.
    fn set_deadline(&mut self) {
        let Some(at) = self.entry.group.take_deadline() else {
            return;
        };
        if self.entry.woken_at.is_none_or(|woken_at| at < woken_at) {
            self.entry.woken_at = Some(at);
            self.coordinator.deadlines.set(at, &self.entry.name);
        }
    }
}
