//! Operations of a client on a queue. The rights are in the table of all operations.

use highwater_access::{Principal, Resource};
use highwater_amqp::AmqpError;

use super::{EntityKind, QueueEntity};
use crate::amqp::credentials::Credentials;
use crate::amqp::operations::{self, AmqpOperation};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueOperation {
    Send,
    Receive,
    Settle,
    ScheduleMessages,
    CancelScheduled,
    RenewLocks,
    Peek,
    ReceiveDeferred,
    UpdateDisposition,
    RenewSession,
    GetSessionState,
    SetSessionState,
    ListSessions,
    AddRule,
    RemoveRule,
    ListRules,
}

/// The operations of `$management`, by the names of their requests.
const REQUESTS: [(&str, QueueOperation); 13] = [
    (
        "com.microsoft:schedule-message",
        QueueOperation::ScheduleMessages,
    ),
    (
        "com.microsoft:cancel-scheduled-message",
        QueueOperation::CancelScheduled,
    ),
    ("com.microsoft:renew-lock", QueueOperation::RenewLocks),
    ("com.microsoft:peek-message", QueueOperation::Peek),
    (
        "com.microsoft:receive-by-sequence-number",
        QueueOperation::ReceiveDeferred,
    ),
    (
        "com.microsoft:update-disposition",
        QueueOperation::UpdateDisposition,
    ),
    (
        "com.microsoft:renew-session-lock",
        QueueOperation::RenewSession,
    ),
    (
        "com.microsoft:get-session-state",
        QueueOperation::GetSessionState,
    ),
    (
        "com.microsoft:set-session-state",
        QueueOperation::SetSessionState,
    ),
    (
        "com.microsoft:get-message-sessions",
        QueueOperation::ListSessions,
    ),
    ("com.microsoft:add-rule", QueueOperation::AddRule),
    ("com.microsoft:remove-rule", QueueOperation::RemoveRule),
    ("com.microsoft:enumerate-rules", QueueOperation::ListRules),
];

impl QueueOperation {
    /// The operation of a request; `None` if there is none of this name.
    pub(in crate::amqp) fn of_request(name: &str) -> Option<QueueOperation> {
        let mut requests = REQUESTS.iter();
        requests
            .find(|(request, _)| *request == name)
            .map(|(_, operation)| *operation)
    }

    /// Whether an entity of this kind has the operation.
    pub(in crate::amqp) fn is_for(self, kind: EntityKind) -> bool {
        let is_send = matches!(
            self,
            QueueOperation::Send
                | QueueOperation::ScheduleMessages
                | QueueOperation::CancelScheduled
        );
        let is_rule = matches!(
            self,
            QueueOperation::AddRule | QueueOperation::RemoveRule | QueueOperation::ListRules
        );
        match kind {
            EntityKind::Queue => !is_rule,
            EntityKind::Topic => is_send,
            EntityKind::Subscription => !is_send,
        }
    }
}

/// The principal that may do this, by a login or a token for the queue. For a request a token for `$management` of the
/// queue does: JavaScript puts one for that alone.
pub(in crate::amqp) fn authorize(
    credentials: &Credentials,
    entity: &QueueEntity,
    operation: QueueOperation,
) -> Result<Principal, AmqpError> {
    let path = match operation {
        QueueOperation::Send | QueueOperation::Receive | QueueOperation::Settle => {
            entity.to_string()
        }
        _ => format!("{entity}/$management"),
    };
    let queue = Resource::Queue(&entity.owner);
    operations::authorize(credentials, &path, AmqpOperation::OfQueue(operation), queue)
}
