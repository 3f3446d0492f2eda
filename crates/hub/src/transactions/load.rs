//! The start, and what is done from time to time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use highwater_codec::DecodeError;

use super::HUB;
use super::coordinator::{Coordinator, RETRY, Slot, TransactionEntry};
use super::producer_ids::ProducerIds;
use super::record::{self, Key};
use super::state::{State, Transaction};
use crate::coordinator::JournalError;
use crate::coordinator::journal::{Entries, Journal};
use crate::coordinator::spawn;

#[derive(Default)]
struct LoadedTransactions {
    next_id: i64,
    transactions: BTreeMap<String, Transaction>,
}

impl LoadedTransactions {
    fn take(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), DecodeError> {
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
    pub async fn load(self: &Arc<Self>) -> Result<(), JournalError> {
        let journal = Journal::open(&*self.log, HUB, self.options.partitions).await?;
        let mut found = LoadedTransactions::default();
        journal.replay(|key, value| found.take(key, value)).await?;
        let mut decided = Vec::new();
        for (id, transaction) in found.transactions {
            let is_decided = matches!(transaction.state, State::Preparing(_));
            let slot = Arc::new(Mutex::new(self.restore(&id, transaction)));
            if is_decided {
                decided.push(Arc::clone(&slot));
            }
            self.slots.write().insert(id, slot);
        }
        let loaded = self
            .loaded
            .set((journal, ProducerIds::new(found.next_id)))
            .is_ok();
        assert!(loaded, "a coordinator is loaded once");
        for slot in decided {
            let coordinator = Arc::clone(self);
            spawn(async move { coordinator.finish(&slot).await });
        }
        Ok(())
    }

    /// An open transaction has the time that is left to it, by the wall clock but never more than it
    /// asked for.
    fn restore(&self, id: &str, transaction: Transaction) -> TransactionEntry {
        let mut entry = TransactionEntry::new(id, None);
        if transaction.state == State::Ongoing {
            let since_ms = self.now_ms().saturating_sub(transaction.started_ms);
            let since = Duration::from_millis(since_ms.max(0) as u64);
            let left = transaction.timeout.saturating_sub(since);
            entry.expires = self.clock.elapsed() + left;
            let expires = entry.expires;
            self.watch(&mut entry, expires);
        }
        entry.durable = Some(transaction);
        entry
    }

    /// Aborts every transaction whose time is up.
    pub fn time_out_due(self: &Arc<Self>) {
        let now = self.clock.elapsed();
        for id in self.deadlines.take_due(now) {
            if let Some(slot) = self.find(&id) {
                self.time_out(&slot, now);
            }
        }
    }

    fn time_out(self: &Arc<Self>, slot: &Arc<Slot>, now: Duration) {
        let mut entry = slot.lock();
        entry.woken_at = None;
        let (expires, busy) = (entry.expires, entry.under_way.is_some());
        let Some(transaction) = entry.ongoing() else {
            return;
        };
        let next = transaction.time_out(self.now_ms());
        if expires > now {
            self.watch(&mut entry, expires);
        } else if busy || self.step(slot, &mut entry, next, None).is_err() {
            self.watch(&mut entry, now + RETRY);
        }
    }

    /// Forgets transactional ids that nobody has used for long.
    pub fn expire(self: &Arc<Self>) {
        let retention = self.options.retention.as_millis() as i64;
        let before_ms = self.now_ms().saturating_sub(retention);
        let slots: Vec<Arc<Slot>> = self.slots.read().values().cloned().collect();
        for slot in slots {
            self.expire_one(&slot, before_ms);
        }
    }

    fn expire_one(self: &Arc<Self>, slot: &Arc<Slot>, before_ms: i64) {
        let mut entry = slot.lock();
        let idle = |transaction: &Transaction| {
            let resting = matches!(transaction.state, State::Empty | State::Complete(_));
            resting && transaction.changed_ms <= before_ms
        };
        let Ok(Some(transaction)) = entry.settled() else {
            return;
        };
        let Some((journal, _)) = self.loaded.get().filter(|_| idle(transaction)) else {
            return;
        };
        entry.under_way = Some(State::Empty);
        let mut entries = Entries::default();
        entries.remove(|out| record::transaction_key(out, &entry.id));
        let append = journal.append(&entry.id, &entries);
        let (coordinator, slot) = (Arc::clone(self), Arc::clone(slot));
        spawn(async move {
            let outcome = append.await;
            let mut entry = slot.lock();
            entry.under_way = None;
            if outcome.is_ok() {
                coordinator.forget(&slot, &mut entry);
            }
        });
    }
}
