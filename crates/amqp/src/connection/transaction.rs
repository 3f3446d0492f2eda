//! Transactions on the wire: the state of transfers and dispositions that belong to one, and the requests of a client
//! to begin and end it. The owner implements transactions.

use bytes::Bytes;

use crate::decode::DecodeError;
use crate::message::{MessageReader, Section};
use crate::value::Value;

const DECLARE: u64 = 0x31;
const DISCHARGE: u64 = 0x32;
pub(super) const DECLARED: u64 = 0x33;
pub(super) const TRANSACTIONAL_STATE: u64 = 0x34;

/// The longest id of a transaction, which the owner has chosen.
const ID_BYTES_MAX: usize = 32;

/// A message of a client to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoordinatorRequest {
    /// Begins a transaction.
    Declare,
    /// Ends one.
    Discharge {
        id: Bytes,
        /// Nothing of it counts.
        fail: bool,
    },
}

impl CoordinatorRequest {
    /// The request in a message.
    pub fn parse(message: &[u8]) -> Result<CoordinatorRequest, DecodeError> {
        let unknown = DecodeError::Missing("a request to the coordinator");
        for section in MessageReader::new(message) {
            let Section::Value(Value::Described(described)) = section? else {
                continue;
            };
            let (code, fields) = *described;
            let fields = fields.as_list().unwrap_or_default();
            return match code {
                Value::U64(DECLARE) => Ok(CoordinatorRequest::Declare),
                Value::U64(DISCHARGE) => {
                    let id = fields.first().and_then(binary);
                    let fail = fields.get(1) == Some(&Value::Bool(true));
                    let discharge = |id| CoordinatorRequest::Discharge { id, fail };
                    id.map(discharge).ok_or(unknown)
                }
                _ => Err(unknown),
            };
        }
        Err(unknown)
    }
}

/// The transaction that a state belongs to.
pub(super) fn id_of(state: &Value<'_>) -> Option<Bytes> {
    transactional(state).and_then(|fields| binary(fields.first()?))
}

/// The outcome in a state, or the state itself.
pub(super) fn outcome_of<'a>(state: &'a Value<'static>) -> &'a Value<'static> {
    match transactional(state) {
        Some(fields) => fields.get(1).unwrap_or(&Value::Null),
        None => state,
    }
}

fn transactional<'a, 'b>(state: &'a Value<'b>) -> Option<&'a [Value<'b>]> {
    match state {
        Value::Described(described) if described.0 == Value::U64(TRANSACTIONAL_STATE) => {
            described.1.as_list()
        }
        _ => None,
    }
}

/// An id; a longer one is cut, and then names no transaction.
fn binary(value: &Value<'_>) -> Option<Bytes> {
    match value {
        Value::Binary(id) => Some(Bytes::copy_from_slice(&id[..id.len().min(ID_BYTES_MAX)])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;

    fn described(code: u64, fields: Vec<Value<'static>>) -> Value<'static> {
        Value::Described(Box::new((Value::U64(code), Value::List(fields))))
    }

    fn request(value: &Value<'_>) -> Result<CoordinatorRequest, DecodeError> {
        let mut message = BytesMut::new();
        let section = (Value::U64(Section::VALUE), value.clone());
        Value::Described(Box::new(section)).encode(&mut message);
        CoordinatorRequest::parse(&message)
    }

    // proves A2
    #[test]
    fn requests_to_the_coordinator_are_read() {
        let id = || Value::Binary(b"7".to_vec().into());
        let declare = request(&described(DECLARE, Vec::new()));
        assert_eq!(declare, Ok(CoordinatorRequest::Declare));
        for (fields, fail) in [
            (vec![id()], false),
            (vec![id(), Value::Bool(false)], false),
            (vec![id(), Value::Bool(true)], true),
        ] {
            let expected = CoordinatorRequest::Discharge {
                id: Bytes::from_static(b"7"),
                fail,
            };
            assert_eq!(request(&described(DISCHARGE, fields)), Ok(expected));
        }
        for wrong in [
            described(DISCHARGE, Vec::new()),
            described(0x24, Vec::new()),
            Value::Null,
        ] {
            assert!(request(&wrong).is_err(), "{wrong:?}");
        }
        assert!(CoordinatorRequest::parse(b"").is_err());
    }

    // proves A2
    #[test]
    fn a_state_tells_its_transaction_and_its_outcome() {
        let id = Value::Binary(b"7".to_vec().into());
        let accepted = described(0x24, Vec::new());
        let state = described(TRANSACTIONAL_STATE, vec![id.clone(), accepted.clone()]);
        assert_eq!(id_of(&state), Some(Bytes::from_static(b"7")));
        assert_eq!(outcome_of(&state), &accepted);
        assert_eq!((id_of(&accepted), outcome_of(&accepted)), (None, &accepted));
        let without = described(TRANSACTIONAL_STATE, vec![id]);
        assert_eq!(outcome_of(&without), &Value::Null);
    }
}
