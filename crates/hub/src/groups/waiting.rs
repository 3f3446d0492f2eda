//! Waiting for the answer to a join or a sync, and no longer than somebody wants it.

use std::sync::Arc;

use highwater_log::GroupError;
use tokio::sync::oneshot;

use super::coordinator::{Coordinator, Slot};
use super::machine::Ticket;

/// Dropped before it was answered, it tells the group that nobody waits any longer.
pub(super) struct Waiting<T> {
    pub coordinator: Arc<Coordinator>,
    pub slot: Arc<Slot>,
    pub ticket: Ticket,
    pub answer: oneshot::Receiver<Result<T, GroupError>>,
    pub answered: bool,
}

impl<T> Waiting<T> {
    pub async fn answer(mut self) -> Result<T, GroupError> {
        let answer = (&mut self.answer).await;
        self.answered = true;
        answer.unwrap_or(Err(GroupError::Loading))
    }
}

impl<T> Drop for Waiting<T> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let mut room = self.slot.lock();
        room.joins.remove(&self.ticket);
        room.syncs.remove(&self.ticket);
        self.coordinator.act_in(&self.slot, &mut room, |visit| {
            visit.room.group.abandon(self.ticket, visit.now);
        });
    }
}
