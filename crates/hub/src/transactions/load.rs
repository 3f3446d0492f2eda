//! Loading, timeouts and expiry of transactional ids.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use highwater_codec::DecodeError;

use super::HUB;
use super::coordinator::{Coordinator, RETRY, TransactionEntry};
use super::producer_ids::ProducerIds;
use super::record::{self, Key};
use super::state::{State, Transaction};
use crate::coordinator::JournalError;
use crate::coordinator::journal::{Entries, Journal};
use crate::coordinator::slots::Slot;
use crate::coordinator::spawn;

#[derive(Default)]
struct LoadedTransactions {
    next_id: i64,
    transactions: BTreeMap<String, Transaction>,
}

impl LoadedTransactions {
    fn apply(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), DecodeError> {
        match (record::read_key(key)?, value) {
            (Key::ProducerIds, Some(value)) => self.next_id = record::read_ids(value)?,
            (Key::ProducerIds, None) => {}
            (Key::Transaction(id), Some(value)) => {
                let transaction = record::read_transaction(value)?;
                self.transactions.insert(id, transaction);
            }
            (Key::Transaction(id), None) => {
                self.transactions.remove(&id);
            }
        }
        Ok(())
    }
}

impl Coordinator {
    pub(super) async fn load(self: &Arc<Self>) -> Result<(), JournalError> {
        let mut loaded = LoadedTransactions::default();
        let apply = |key: &[u8], value: Option<&[u8]>| loaded.apply(key, value);
        let journal = Journal::load(&*self.log, HUB, self.options.partitions, apply).await?;
        let mut decided = Vec::new();
        for (id, transaction) in loaded.transactions {
            let is_decided = matches!(transaction.state, State::Preparing(_));
            let slot = (self.slots).get_or_insert(&id, || self.restore(&id, transaction));
            if is_decided {
                decided.push(slot);
            }
        }
        let producer_ids = ProducerIds::new(loaded.next_id);
        let first = self.loaded.set((journal, producer_ids)).is_ok();
        assert!(first, "a coordinator is loaded once");
        for slot in decided {
            let coordinator = Arc::clone(self);
            spawn(async move { coordinator.finish(&slot).await });
        }
        Ok(())
    }

    /// An open transaction keeps the rest of its timeout by the wall clock, at most the whole timeout.
    fn restore(&self, id: &str, transaction: Transaction) -> TransactionEntry {
        let mut entry = TransactionEntry::new(id, None);
        if transaction.state == State::Ongoing {
            let since_ms = self.now_ms().saturating_sub(transaction.started_ms);
            let since = Duration::from_millis(since_ms.max(0) as u64);
            let left = transaction.timeout.saturating_sub(since);
            entry.expires = self.clock.elapsed() + left;
            let expires = entry.expires;
            self.set_deadline(&mut entry, expires);
        }
        entry.durable = Some(transaction);
        entry
    }

    /// Aborts every transaction whose timeout has passed.
    pub(super) fn time_out_due(self: &Arc<Self>) {
        let now = self.clock.elapsed();
        for id in self.deadlines.take_due(now) {
            if let Some(slot) = self.slots.get(&id) {
                self.time_out(&slot, now);
            }
        }
    }

    fn time_out(self: &Arc<Self>, slot: &Slot<TransactionEntry>, now: Duration) {
        let mut entry = slot.lock();
        entry.wakeup_at = None;
        let (expires, busy) = (entry.expires, entry.next_state.is_some());
        let Some(transaction) = entry.ongoing() else {
            return;
        };
        let next = transaction.time_out(self.now_ms());
        if expires > now {
            self.set_deadline(&mut entry, expires);
        } else if busy || self.step(slot, &mut entry, next, None).is_err() {
            self.set_deadline(&mut entry, now + RETRY);
        }
    }

    /// Deletes transactional ids that were not used for the retention.
    pub(super) fn expire(self: &Arc<Self>) {
        let retention = self.options.retention.as_millis() as i64;
        let before_ms = self.now_ms().saturating_sub(retention);
        for slot in self.slots.all() {
            self.expire_one(&slot, before_ms);
        }
    }

    fn expire_one(self: &Arc<Self>, slot: &Slot<TransactionEntry>, before_ms: i64) {
        let mut entry = slot.lock();
        let idle = |transaction: &Transaction| {
            let closed = matches!(transaction.state, State::Empty | State::Complete(_));
            closed && transaction.changed_ms <= before_ms
        };
        let Ok(Some(transaction)) = entry.current() else {
            return;
        };
        let Some((journal, _)) = self.loaded.get().filter(|_| idle(transaction)) else {
            return;
        };
        entry.next_state = Some(State::Empty);
        let mut entries = Entries::default();
        entries.remove(|out| record::transaction_key(out, &entry.id));
        let append = journal.append(&entry.id, &entries);
        let (coordinator, slot) = (Arc::clone(self), Arc::clone(slot));
        spawn(async move {
            let outcome = append.await;
            let mut entry = slot.lock();
            entry.next_state = None;
            if outcome.is_ok() {
                coordinator.remove(&slot, &mut entry);
            }
        });
    }
}
