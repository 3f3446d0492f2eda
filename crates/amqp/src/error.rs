//! Errors that are sent to the peer, and those that end its connection.

use std::borrow::Cow;

use crate::decode::DecodeError;

/// Conditions of the standard.
pub mod condition {
    pub const DECODE_ERROR: &str = "amqp:decode-error";
    pub const FRAMING_ERROR: &str = "amqp:connection:framing-error";
    pub const CONNECTION_FORCED: &str = "amqp:connection:forced";
    pub const NOT_ALLOWED: &str = "amqp:not-allowed";
    pub const NOT_FOUND: &str = "amqp:not-found";
    pub const NOT_IMPLEMENTED: &str = "amqp:not-implemented";
    pub const INTERNAL_ERROR: &str = "amqp:internal-error";
    pub const INVALID_FIELD: &str = "amqp:invalid-field";
    pub const RESOURCE_LIMIT_EXCEEDED: &str = "amqp:resource-limit-exceeded";
    pub const UNAUTHORIZED_ACCESS: &str = "amqp:unauthorized-access";
    pub const WINDOW_VIOLATION: &str = "amqp:session:window-violation";
    pub const UNATTACHED_HANDLE: &str = "amqp:session:unattached-handle";
    pub const HANDLE_IN_USE: &str = "amqp:session:handle-in-use";
    pub const TRANSACTION_UNKNOWN_ID: &str = "amqp:transaction:unknown-id";
    pub const TRANSACTION_ROLLBACK: &str = "amqp:transaction:rollback";
    pub const LINK_STOLEN: &str = "amqp:link:stolen";
    pub const LINK_DETACH_FORCED: &str = "amqp:link:detach-forced";
    pub const TRANSFER_LIMIT_EXCEEDED: &str = "amqp:link:transfer-limit-exceeded";
    pub const MESSAGE_SIZE_EXCEEDED: &str = "amqp:link:message-size-exceeded";
}

/// An error as sent to the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AmqpError {
    pub condition: Cow<'static, str>,
    pub description: String,
}

impl AmqpError {
    pub fn new(
        condition: impl Into<Cow<'static, str>>,
        description: impl Into<String>,
    ) -> AmqpError {
        AmqpError {
            condition: condition.into(),
            description: description.into(),
        }
    }
}

/// Why a connection ends. The close frame carries it, if the connection was opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    #[error("the client speaks no AMQP 1.0: it begins with {0:02x?}")]
    Header([u8; 8]),
    #[error("a frame of {length} bytes is longer than the {max} allowed")]
    FrameLength { length: usize, max: usize },
    #[error("a frame is malformed: {0}")]
    Frame(&'static str),
    #[error("a frame cannot be decoded: {0}")]
    Decode(#[from] DecodeError),
    #[error("{description}")]
    Violation {
        condition: &'static str,
        description: String,
    },
    #[error("the client sent nothing for {0} seconds")]
    Idle(u64),
}

impl ProtocolError {
    pub(crate) fn violation(condition: &'static str, description: impl Into<String>) -> Self {
        ProtocolError::Violation {
            condition,
            description: description.into(),
        }
    }

    pub(crate) fn condition(&self) -> &'static str {
        match self {
            ProtocolError::Header(_) | ProtocolError::FrameLength { .. } => {
                condition::FRAMING_ERROR
            }
            ProtocolError::Frame(_) => condition::FRAMING_ERROR,
            ProtocolError::Decode(_) => condition::DECODE_ERROR,
            ProtocolError::Violation { condition, .. } => condition,
            ProtocolError::Idle(_) => condition::RESOURCE_LIMIT_EXCEEDED,
        }
    }
}
