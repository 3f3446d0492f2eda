//! A transaction that is decided: the operations on each queue. One record of the hub of decisions.

use bytes::Bytes;
use highwater_codec::{DecodeError, Writer};

use super::field::{Field, FieldReader, Read};
use crate::machine::{LockToken, TransactionStep};
use crate::message::NewMessage;

/// The operations of a transaction on a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DecisionPart {
    /// The hub of the queue's journal.
    pub hub: String,
    pub steps: Vec<TransactionStep>,
}

record!(DecisionPart { hub, steps });

record!(LockToken { seq, number });

record!(NewMessage {
    scheduled_ms,
    time_to_live_ms,
    content
});

tagged!(TransactionStep, "a step of a transaction" {
    0 => Send(message),
    1 => Complete { token },
    2 => Abandon { token, properties },
    3 => Defer { token, properties },
    4 => DeadLetter { token, properties, reason, description },
});

pub(crate) fn write_decision(parts: &Vec<DecisionPart>, out: &mut Vec<u8>) {
    parts.write(out);
}

pub(crate) fn read_decision(record: &Bytes) -> Result<Vec<DecisionPart>, DecodeError> {
    let mut from = FieldReader::new(record);
    let parts = Field::read(&mut from)?;
    from.end()?;
    Ok(parts)
}
