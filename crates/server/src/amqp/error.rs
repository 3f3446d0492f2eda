//! Errors as Event Hubs clients understand them: some conditions are retried, others are not.

use highwater_amqp::{AmqpError, condition};
use highwater_log::{AppendError, ReadError};

pub(super) const SERVER_BUSY: &str = "com.microsoft:server-busy";
pub(super) const TIMEOUT: &str = "com.microsoft:timeout";
pub(super) const ARGUMENT_ERROR: &str = "com.microsoft:argument-error";
pub(super) const ARGUMENT_OUT_OF_RANGE: &str = "com.microsoft:argument-out-of-range";
pub(super) const OUT_OF_ORDER_SEQUENCE: &str = "com.microsoft:out-of-order-sequence";
pub(super) const PRODUCER_EPOCH_STOLEN: &str = "com.microsoft:producer-epoch-stolen";

/// Clients recognise a missing entity by this sentence.
pub(super) fn not_found(entity: &str) -> AmqpError {
    let description = format!("The messaging entity '{entity}' could not be found.");
    AmqpError::new(condition::NOT_FOUND, description)
}

pub(super) fn unauthorized(description: impl Into<String>) -> AmqpError {
    AmqpError::new(condition::UNAUTHORIZED_ACCESS, description)
}

pub(super) fn append_error(error: &AppendError) -> AmqpError {
    let condition = match error {
        AppendError::TooLarge { .. } => condition::MESSAGE_SIZE_EXCEEDED,
        AppendError::QueueFull { .. } | AppendError::Busy { .. } | AppendError::DiskFull { .. } => {
            SERVER_BUSY
        }
        AppendError::OutcomeUnknown { .. } => TIMEOUT,
        AppendError::OutOfSequence { .. } | AppendError::DuplicateTooOld { .. } => {
            OUT_OF_ORDER_SEQUENCE
        }
        AppendError::Fenced { .. } => PRODUCER_EPOCH_STOLEN,
        AppendError::Malformed(_) | AppendError::NoTransaction { .. } => ARGUMENT_ERROR,
        AppendError::Stopped { .. } => condition::INTERNAL_ERROR,
        AppendError::Deleted(topic_partition) => return not_found(topic_partition.hub.as_str()),
    };
    AmqpError::new(condition, error.to_string())
}

pub(super) fn read_error(error: &ReadError) -> AmqpError {
    match error {
        ReadError::Deleted(topic_partition) => not_found(topic_partition.hub.as_str()),
        ReadError::OutOfRange { .. } => AmqpError::new(ARGUMENT_OUT_OF_RANGE, error.to_string()),
        ReadError::Damaged { .. } | ReadError::Storage { .. } => {
            AmqpError::new(condition::INTERNAL_ERROR, error.to_string())
        }
    }
}
