//! The response of a join or a sync.

use std::sync::Arc;

use highwater_log::GroupError;
use tokio::sync::oneshot;

use super::commit::{ChangeReceiver, wait};
use super::coordinator::{Coordinator, LockedGroup};
use super::group_entry::{GroupEntry, Responder};
use super::machine::RequestId;
use crate::coordinator::slots::Slot;

pub(super) enum ClassicResponse<T> {
    /// Of a classic group: it follows when the other members are there.
    Pending(PendingResponse<T>),
    /// Of a group of the consumer protocol: it may be sent when its contents are stored.
    Stored(T, Option<ChangeReceiver>),
}

impl<T> ClassicResponse<T> {
    pub(super) async fn answer(self) -> Result<T, GroupError> {
        match self {
            ClassicResponse::Pending(pending) => pending.answer().await,
            ClassicResponse::Stored(response, stored) => {
                if let Some(stored) = stored {
                    wait(stored).await?;
                }
                Ok(response)
            }
        }
    }
}

/// Dropped without an answer, it tells the group that the client hung up.
pub(super) struct PendingResponse<T> {
    coordinator: Arc<Coordinator>,
    slot: Slot<GroupEntry>,
    pub(super) request_id: RequestId,
    response: oneshot::Receiver<Result<T, GroupError>>,
    answered: bool,
}

impl<T> PendingResponse<T> {
    pub(super) fn new(locked: &LockedGroup<'_>) -> (Responder<T>, PendingResponse<T>) {
        let (responder, response) = oneshot::channel();
        let pending = PendingResponse {
            coordinator: Arc::clone(locked.coordinator),
            slot: Arc::clone(locked.slot),
            request_id: locked.coordinator.next_request_id(),
            response,
            answered: false,
        };
        (responder, pending)
    }

    async fn answer(mut self) -> Result<T, GroupError> {
        let answer = (&mut self.response).await;
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
        entry.joins.remove(&self.request_id);
        entry.syncs.remove(&self.request_id);
        let abandon = |locked: &mut LockedGroup<'_>| {
            if let Some(group) = locked.entry.group.classic() {
                group.abandon(self.request_id, locked.now);
            }
        };
        (self.coordinator).act_locked(&self.slot, &mut entry, abandon);
    }
}
