//! Errors of queues as Service Bus clients understand them.

use highwater_amqp::{AmqpError, condition};
use highwater_queue::{Error, Refusal};

use crate::amqp::error::{ARGUMENT_ERROR, SERVER_BUSY, append_error};

pub(in crate::amqp) const MESSAGE_LOCK_LOST: &str = "com.microsoft:message-lock-lost";
pub(in crate::amqp) const MESSAGE_NOT_FOUND: &str = "com.microsoft:message-not-found";
pub(in crate::amqp) const SESSION_LOCK_LOST: &str = "com.microsoft:session-lock-lost";
pub(in crate::amqp) const SESSION_CANNOT_BE_LOCKED: &str = "com.microsoft:session-cannot-be-locked";
pub(in crate::amqp) const ENTITY_ALREADY_EXISTS: &str = "com.microsoft:entity-already-exists";

pub(in crate::amqp) fn queue_error(error: Error) -> AmqpError {
    match error {
        Error::Refused(refusal) => refused(&refusal),
        Error::Log(error) => append_error(&error),
        // The client may try again; if the queue was deleted, its next link is refused.
        Error::Stopped(_) => AmqpError::new(condition::LINK_DETACH_FORCED, error.to_string()),
        Error::RequestTooLarge { .. } => {
            AmqpError::new(condition::MESSAGE_SIZE_EXCEEDED, error.to_string())
        }
    }
}

pub(in crate::amqp) fn refused(refusal: &Refusal) -> AmqpError {
    let condition = match refusal {
        Refusal::LockLost => MESSAGE_LOCK_LOST,
        Refusal::SessionLost => SESSION_LOCK_LOST,
        Refusal::SessionLocked(_) => SESSION_CANNOT_BE_LOCKED,
        Refusal::Full { .. } => condition::RESOURCE_LIMIT_EXCEEDED,
        Refusal::TooLarge { .. } => condition::MESSAGE_SIZE_EXCEEDED,
        Refusal::NoSuchMessage { .. } => MESSAGE_NOT_FOUND,
        Refusal::IdTooLong(_) => ARGUMENT_ERROR,
        Refusal::NoMemory(_) => SERVER_BUSY,
        Refusal::RuleExists(_) => ENTITY_ALREADY_EXISTS,
        Refusal::NoSuchRule(_) => condition::NOT_FOUND,
        Refusal::TooManyRules(_) | Refusal::TooManyActions(_) => condition::RESOURCE_LIMIT_EXCEEDED,
        Refusal::SessionIdRequired
        | Refusal::SessionRequired
        | Refusal::SessionsDisabled
        | Refusal::Forwards(_)
        | Refusal::AlreadyDeadLettered => condition::NOT_ALLOWED,
    };
    AmqpError::new(condition, refusal.to_string())
}
