//! All transactional ids, and the steps of one of them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use highwater_env::Clock;
use highwater_log::{Log, TransactionError};
use tokio::sync::oneshot;

use super::implicit::Waiter;
use super::producer_ids::ProducerIds;
use super::state::{State, Transaction};
use super::{Options, record};
use crate::coordinator::deadlines::Deadlines;
use crate::coordinator::journal::{Entries, Journal};
use crate::coordinator::slots::{Slot, Slots};
use crate::coordinator::spawn;
use crate::groups;

/// Delay before a failed step is retried.
pub(super) const RETRY: Duration = Duration::from_secs(1);

pub(super) type Responder = oneshot::Sender<Result<(), TransactionError>>;

pub(super) struct Coordinator {
    pub log: Arc<dyn Log>,
    pub clock: Arc<dyn Clock>,
    pub groups: groups::Handle,
    pub options: Options,
    pub deadlines: Deadlines,
    /// Set when the hub has been read.
    pub loaded: OnceLock<(Journal, ProducerIds)>,
    pub slots: Slots<TransactionEntry>,
}

/// One transactional id.
pub(super) struct TransactionEntry {
    pub id: String,
    /// The durable state; `None` before the first one.
    pub durable: Option<Transaction>,
    /// The state of the step that is being written; no other step can begin until it is durable.
    pub next_state: Option<State>,
    /// When an open transaction is aborted, on the clock's elapsed time.
    pub expires: Duration,
    /// The deadline set for this id.
    pub wakeup_at: Option<Duration>,
    /// Requests that wait for the step that is being written, in the order of their arrival.
    pub waiting: Vec<Waiter>,
    /// Deleted: a holder of this entry must look up the id again.
    pub removed: bool,
}

impl TransactionEntry {
    pub(super) fn new(id: &str, durable: Option<Transaction>) -> TransactionEntry {
        TransactionEntry {
            id: id.to_owned(),
            durable,
            next_state: None,
            expires: Duration::ZERO,
            wakeup_at: None,
            waiting: Vec::new(),
            removed: false,
        }
    }

    /// The durable state; fails while a step is being written.
    pub(super) fn current(&self) -> Result<Option<&Transaction>, TransactionError> {
        match self.next_state {
            None => Ok(self.durable.as_ref()),
            Some(_) => Err(TransactionError::Concurrent),
        }
    }

    /// The open transaction, unless its end is being written.
    pub(super) fn ongoing(&self) -> Option<&Transaction> {
        let open = |transaction: &&Transaction| transaction.state == State::Ongoing;
        let stays = self.next_state.is_none_or(|next| next == State::Ongoing);
        self.durable.as_ref().filter(open).filter(|_| stays)
    }
}

impl Coordinator {
    pub(super) fn loaded(&self) -> Result<&(Journal, ProducerIds), TransactionError> {
        self.loaded.get().ok_or(TransactionError::Loading)
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.clock.unix_millis()
    }

    pub(super) fn remove(&self, slot: &Slot<TransactionEntry>, entry: &mut TransactionEntry) {
        entry.removed = true;
        self.slots.remove(&entry.id, slot);
    }

    /// Appends the next state, which takes effect when it is durable. If it decides the transaction, the response waits
    /// for all markers as well. A spawned task does this, even if the client is gone.
    pub(super) fn step(
        self: &Arc<Self>,
        slot: &Slot<TransactionEntry>,
        entry: &mut TransactionEntry,
        next: Transaction,
        responder: Option<Responder>,
    ) -> Result<(), TransactionError> {
        let (journal, _) = self.loaded()?;
        entry.next_state = Some(next.state);
        let append = journal.append(&entry.id, &stored(&entry.id, &next));
        let (coordinator, slot) = (Arc::clone(self), Arc::clone(slot));
        spawn(async move {
            let outcome = append.await.map_err(TransactionError::Storage);
            let decided = coordinator.end_step(&slot, next, outcome.is_ok());
            coordinator.wake_waiting(&slot, outcome.is_ok());
            if decided {
                coordinator.finish(&slot).await;
            }
            if let Some(responder) = responder {
                // The receiver may have hung up.
                let _ = responder.send(outcome);
            }
        });
        Ok(())
    }

    /// A step is durable or failed. True if the markers must be written.
    fn end_step(&self, slot: &Slot<TransactionEntry>, next: Transaction, durable: bool) -> bool {
        let mut entry = slot.lock();
        entry.next_state = None;
        if !durable {
            match entry.durable {
                None => self.remove(slot, &mut entry),
                // The failed step may have been the abort after a timeout.
                Some(_) => self.set_deadline(&mut entry, self.clock.elapsed() + RETRY),
            }
            return false;
        }
        let begins = next.state == State::Ongoing && entry.ongoing().is_none();
        let decided = matches!(next.state, State::Preparing(_));
        if begins {
            entry.expires = self.clock.elapsed() + next.timeout;
            let expires = entry.expires;
            self.set_deadline(&mut entry, expires);
        }
        entry.durable = Some(next);
        decided
    }

    /// Checks the timeout of the entry at `at` or before.
    pub(super) fn set_deadline(&self, entry: &mut TransactionEntry, at: Duration) {
        (self.deadlines).set(&mut entry.wakeup_at, at, &entry.id);
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
