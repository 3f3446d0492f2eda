//! All transactional ids, and the way to change one of them.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use highwater_env::Clock;
use highwater_log::{Log, TransactionError};
use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;

use super::producer_ids::ProducerIds;
use super::state::{State, Transaction};
use super::{Options, record};
use crate::coordinator::deadlines::Deadlines;
use crate::coordinator::journal::{Entries, Journal};
use crate::coordinator::spawn;
use crate::groups;

/// What could not be done now is tried again after this.
pub(super) const RETRY: Duration = Duration::from_secs(1);

pub(super) type Slot = Mutex<TransactionEntry>;

pub(super) type Responder = oneshot::Sender<Result<(), TransactionError>>;

pub(super) struct Coordinator {
    pub log: Arc<dyn Log>,
    pub clock: Arc<dyn Clock>,
    pub groups: groups::Handle,
    pub options: Options,
    pub deadlines: Deadlines,
    /// Set when all of the hub has been read.
    pub loaded: OnceLock<(Journal, ProducerIds)>,
    /// Held only to find, add or remove an entry, and never while waiting for one.
    pub slots: RwLock<BTreeMap<String, Arc<Slot>>>,
}

/// One transactional id.
pub(super) struct TransactionEntry {
    pub id: String,
    /// What is durable; `None` until anything is.
    pub durable: Option<Transaction>,
    /// Where a step on its way to the disk leads; nothing else can be begun until it is there.
    pub under_way: Option<State>,
    /// When an open transaction is aborted, on the clock's elapsed time.
    pub expires: Duration,
    /// When the queue of deadlines will name this id, if it will.
    pub woken_at: Option<Duration>,
    /// Forgotten. Whoever still holds the entry must look for another one.
    pub gone: bool,
}

impl TransactionEntry {
    pub fn new(id: &str, durable: Option<Transaction>) -> TransactionEntry {
        TransactionEntry {
            id: id.to_owned(),
            durable,
            under_way: None,
            expires: Duration::ZERO,
            woken_at: None,
            gone: false,
        }
    }

    /// What is known, unless it is about to change.
    pub fn settled(&self) -> Result<Option<&Transaction>, TransactionError> {
        match self.under_way {
            None => Ok(self.durable.as_ref()),
            Some(_) => Err(TransactionError::Concurrent),
        }
    }

    /// The open transaction, unless its end has been begun.
    pub fn ongoing(&self) -> Option<&Transaction> {
        let open = |transaction: &&Transaction| transaction.state == State::Ongoing;
        let stays = self.under_way.is_none_or(|next| next == State::Ongoing);
        self.durable.as_ref().filter(open).filter(|_| stays)
    }
}

impl Coordinator {
    pub fn new(
        log: Arc<dyn Log>,
        clock: Arc<dyn Clock>,
        groups: groups::Handle,
        options: Options,
    ) -> Coordinator {
        Coordinator {
            log,
            clock,
            groups,
            options,
            deadlines: Deadlines::default(),
            loaded: OnceLock::new(),
            slots: RwLock::default(),
        }
    }

    pub fn loaded(&self) -> Result<&(Journal, ProducerIds), TransactionError> {
        self.loaded.get().ok_or(TransactionError::Loading)
    }

    pub fn now_ms(&self) -> i64 {
        self.clock.unix_millis()
    }

    pub fn find(&self, id: &str) -> Option<Arc<Slot>> {
        self.slots.read().get(id).cloned()
    }

    pub fn find_or_make(&self, id: &str) -> Arc<Slot> {
        if let Some(found) = self.find(id) {
            return found;
        }
        let mut slots = self.slots.write();
        let make = || Arc::new(Mutex::new(TransactionEntry::new(id, None)));
        Arc::clone(slots.entry(id.to_owned()).or_insert_with(make))
    }

    pub fn forget(&self, slot: &Arc<Slot>, entry: &mut TransactionEntry) {
        entry.gone = true;
        let mut slots = self.slots.write();
        if slots
            .get(&entry.id)
            .is_some_and(|own| Arc::ptr_eq(own, slot))
        {
            slots.remove(&entry.id);
        }
    }

    /// Puts the next state on the log; it counts when it is durable. If it decides how the transaction
    /// ends, `answer` waits for all the markers as well. A task of its own sees to this, because it
    /// must be done even if the client that asked is gone.
    pub fn step(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        entry: &mut TransactionEntry,
        next: Transaction,
        answer: Option<Responder>,
    ) -> Result<(), TransactionError> {
        let (journal, _) = self.loaded()?;
        entry.under_way = Some(next.state);
        let append = journal.append(&entry.id, &stored(&entry.id, &next));
        let (coordinator, slot) = (Arc::clone(self), Arc::clone(slot));
        spawn(async move {
            let outcome = append.await.map_err(TransactionError::Storage);
            let decided = coordinator.settle(&slot, next, outcome.is_ok());
            if decided {
                coordinator.finish(&slot).await;
            }
            if let Some(answer) = answer {
                // Whoever asked may have hung up.
                let _ = answer.send(outcome);
            }
        });
        Ok(())
    }

    /// A step is durable or failed. True if markers are due.
    fn settle(&self, slot: &Arc<Slot>, next: Transaction, durable: bool) -> bool {
        let mut entry = slot.lock();
        entry.under_way = None;
        if !durable {
            match entry.durable {
                None => self.forget(slot, &mut entry),
                // It may have been the last chance to notice that time is up.
                Some(_) => self.watch(&mut entry, self.clock.elapsed() + RETRY),
            }
            return false;
        }
        let begins = next.state == State::Ongoing && entry.ongoing().is_none();
        let decided = matches!(next.state, State::Preparing(_));
        if begins {
            entry.expires = self.clock.elapsed() + next.timeout;
            let expires = entry.expires;
            self.watch(&mut entry, expires);
        }
        entry.durable = Some(next);
        decided
    }

    /// Has the entry looked at then, or before.
    pub fn watch(&self, entry: &mut TransactionEntry, at: Duration) {
        if entry.woken_at.is_none_or(|woken_at| at < woken_at) {
            entry.woken_at = Some(at);
            self.deadlines.set(at, &entry.id);
        }
    }
}

/// The record of a transactional id.
pub(super) fn stored(id: &str, transaction: &Transaction) -> Entries {
    let mut entries = Entries::default();
    entries.put(
        |out| record::transaction_key(out, id),
        |out| record::put_transaction(out, transaction),
    );
    entries
}
