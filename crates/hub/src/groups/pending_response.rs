//! Waiting for the answer to a join or a sync, and no longer than somebody wants it.

use std::sync::Arc;

use highwater_log::GroupError;
use tokio::sync::oneshot;

use super::coordinator::{Coordinator, Slot};
use super::machine::Ticket;

/// Dropped before it was answered, it tells the group that nobody waits any longer.
pub(super) struct PendingResponse<T> {
    pub coordinator: Arc<Coordinator>,
    pub slot: Arc<Slot>,
    pub ticket: Ticket,
    pub answer: oneshot::Receiver<Result<T, GroupError>>,
    pub answered: bool,
}

impl<T> PendingResponse<T> {
    pub async fn answer(mut self) -> Result<T, GroupError> {
        let answer = (&mut self.answer).await;
        self.answered = true;
        answer.unwrap_or(Err(GroupError::Loading))
    }
}

impl<T> Drop for PendingResponse<T> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let mut entry = self.slot.lock();
        entry.joins.remove(&self.ticket);
        entry.syncs.remove(&self.ticket);
        self.coordinator
            .act_locked(&self.slot, &mut entry, |locked| {
                locked.entry.group.abandon(self.ticket, locked.now);
            });
    }
}
