//! `$management` of a queue, topic or subscription: operations besides sending, receiving and settling.

mod messages;
mod rules;
mod sessions;
mod settlement;

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use highwater_amqp::{AmqpError, Value};
use highwater_env::MemoryShare;
use highwater_queue::{LockToken, Queue, SessionLock, SubQueue};

use super::lock_token::of_uuid;
use super::message::{OutgoingState, encode};
use super::{QueueEntity, QueueOperation, SESSION_LOCK_LOST};
use crate::amqp::broker::Broker;
use crate::amqp::error::ARGUMENT_ERROR;
use crate::amqp::request::Reply;

/// Items of one request: tokens, sequence numbers or messages.
const ITEMS_MAX: usize = 1000;
/// Messages of one reply, in bytes; at least one message is returned.
const REPLY_BYTES_MAX: usize = 256 << 10;

/// A request about a queue that its client may make.
pub(in crate::amqp) struct ManagementRequest {
    pub(in crate::amqp) entity: QueueEntity,
    pub(in crate::amqp) queue: Queue,
    pub(in crate::amqp) operation: QueueOperation,
    pub(in crate::amqp) body: Value<'static>,
    /// The caller, for the audit log.
    pub(in crate::amqp) caller: String,
    pub(in crate::amqp) from: SocketAddr,
    /// The session that the request is about, if a link of the client has locked it.
    pub(in crate::amqp) session: Option<SessionLock>,
}

/// Answers a request. The memory share belongs to the reply.
pub(in crate::amqp) async fn answer(
    broker: Arc<Broker>,
    request: ManagementRequest,
) -> (Reply, MemoryShare) {
    let mut share = MemoryShare::default();
    let reply = match request.operation {
        QueueOperation::ScheduleMessages => messages::schedule(&request).await,
        QueueOperation::CancelScheduled => messages::cancel(&request).await,
        QueueOperation::Peek => messages::peek(&broker, &request, &mut share).await,
        QueueOperation::ReceiveDeferred => messages::receive(&broker, &request, &mut share).await,
        QueueOperation::RenewLocks => settlement::renew(&request).await,
        QueueOperation::UpdateDisposition => settlement::update(&request).await,
        QueueOperation::RenewSession => sessions::renew(&request).await,
        QueueOperation::GetSessionState => sessions::get_state(&request).await,
        QueueOperation::SetSessionState => sessions::set_state(&request).await,
        QueueOperation::ListSessions => sessions::list(&request).await,
        QueueOperation::AddRule => rules::add(&broker, &request).await,
        QueueOperation::RemoveRule => rules::remove(&broker, &request).await,
        QueueOperation::ListRules => rules::list(&broker, &request),
        // They are no requests.
        QueueOperation::Send | QueueOperation::Receive | QueueOperation::Settle => {
            Ok(Reply::no_content(None))
        }
    };
    (reply.unwrap_or_else(Reply::error), share)
}

impl ManagementRequest {
    fn sub_queue(&self) -> SubQueue {
        self.entity.sub_queue
    }

    fn field(&self, name: &str) -> Option<&Value<'static>> {
        self.body.get(name).filter(|value| **value != Value::Null)
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.field(name)?.as_text()
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.field(name)?.as_i64()
    }

    /// A list or array of at most [`ITEMS_MAX`] items.
    fn items(&self, name: &'static str) -> Result<&[Value<'static>], AmqpError> {
        let items = match self.field(name) {
            Some(Value::List(items) | Value::Array(items)) => items,
            _ => return Err(argument(format!("The request has no list '{name}'."))),
        };
        match items.len() <= ITEMS_MAX {
            true => Ok(items),
            false => Err(argument(format!(
                "'{name}' has more than {ITEMS_MAX} items."
            ))),
        }
    }

    fn tokens(&self) -> Result<Vec<LockToken>, AmqpError> {
        let items = self.items("lock-tokens")?.iter();
        let tokens = items.map(|item| match item {
            Value::Uuid(uuid) => Ok(of_uuid(*uuid)),
            _ => Err(argument("A lock token is not a UUID.")),
        });
        tokens.collect()
    }

    fn sequence_numbers(&self) -> Result<Vec<u64>, AmqpError> {
        let items = self.items("sequence-numbers")?.iter();
        let numbers = items.map(|item| {
            let number = item.as_i64().and_then(|number| u64::try_from(number).ok());
            number.ok_or_else(|| argument("A sequence number is not a number."))
        });
        numbers.collect()
    }

    /// The lock of the session that the request is about.
    fn session(&self) -> Result<SessionLock, AmqpError> {
        let lost = || {
            let text = "No link of this connection holds the lock of the session.";
            AmqpError::new(SESSION_LOCK_LOST, text)
        };
        self.session.clone().ok_or_else(lost)
    }
}

fn argument(text: impl Into<String>) -> AmqpError {
    AmqpError::new(ARGUMENT_ERROR, text)
}

fn map(entries: Vec<(&'static str, Value<'static>)>) -> Value<'static> {
    let entry = |(name, value)| (Value::string(name), value);
    Value::Map(entries.into_iter().map(entry).collect())
}

/// A message as a reply carries it.
fn encoded(state: &OutgoingState<'_>) -> Value<'static> {
    let mut out = BytesMut::new();
    encode(state, &mut out);
    Value::Binary(Vec::from(out).into())
}
