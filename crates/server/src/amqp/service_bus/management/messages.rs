//! Requests for messages: schedule, cancel, peek, and receive deferred ones.

use highwater_amqp::{AmqpError, Value, condition};
use highwater_env::MemoryShare;
use highwater_queue::{DeferredRequest, PeekedMessage, ReceiveLimit, ReceiveMode};

use super::{ITEMS_MAX, ManagementRequest, REPLY_BYTES_MAX, argument, encoded, map};
use crate::amqp::broker::Broker;
use crate::amqp::request::Reply;
use crate::amqp::service_bus::lock_token::to_uuid;
use crate::amqp::service_bus::message::{OutgoingState, parse};
use crate::amqp::service_bus::{queue_error, refused};

pub(super) async fn schedule(request: &ManagementRequest) -> Result<Reply, AmqpError> {
    let mut messages = Vec::new();
    for item in request.items("messages")? {
        let Some(Value::Binary(bytes)) = item.get("message") else {
            return Err(argument("A message to schedule is missing."));
        };
        let message = parse(bytes);
        let malformed = |error: highwater_amqp::DecodeError| {
            AmqpError::new(condition::DECODE_ERROR, error.to_string())
        };
        messages.push(message.map_err(malformed)?);
    }
    let sent = request.queue.send(messages).await.map_err(queue_error)?;
    let numbers = sent.iter().map(|sent| Value::I64(sent.seq as i64));
    let numbers = Value::Array(numbers.collect());
    Ok(Reply::ok(200, map(vec![("sequence-numbers", numbers)])))
}

pub(super) async fn cancel(request: &ManagementRequest) -> Result<Reply, AmqpError> {
    let cancelled = request.queue.cancel(request.sequence_numbers()?).await;
    for result in cancelled.map_err(queue_error)? {
        result.map_err(|refusal| refused(&refusal))?;
    }
    Ok(Reply::ok(200, map(Vec::new())))
}

pub(super) async fn peek(
    broker: &Broker,
    request: &ManagementRequest,
    share: &mut MemoryShare,
) -> Result<Reply, AmqpError> {
    let from = request.number("from-sequence-number").unwrap_or(0);
    let count = request.number("message-count").unwrap_or(1);
    let limit = ReceiveLimit {
        count: usize::try_from(count).unwrap_or(0).min(ITEMS_MAX),
        bytes: REPLY_BYTES_MAX,
    };
    let (from, sub_queue) = (from.max(0) as u64, request.sub_queue());
    let locked = request.session.as_ref().map(|lock| lock.session.as_str());
    let session = request.text("session-id").or(locked);
    *share = broker.outgoing_memory.take(limit.bytes).await;
    let peeked = match session {
        Some(session) => {
            let peeked = request
                .queue
                .peek_session(sub_queue, session.to_owned(), from, limit);
            peeked.await
        }
        None => request.queue.peek(sub_queue, from, limit).await,
    };
    let peeked = peeked.map_err(queue_error)?;
    if peeked.is_empty() {
        *share = MemoryShare::default();
        return Ok(Reply::no_content(None));
    }
    let size = |peeked: &PeekedMessage| peeked.message.content.size();
    share.shrink_to(peeked.iter().map(size).sum());
    let messages = peeked.iter().map(|PeekedMessage { seq, message }| {
        let state = OutgoingState {
            seq: *seq,
            message,
            lock: None,
            is_delivery: false,
            queue: request.queue.name(),
        };
        map(vec![("message", encoded(&state))])
    });
    let messages = Value::List(messages.collect());
    Ok(Reply::ok(200, map(vec![("messages", messages)])))
}

/// Receives deferred messages.
pub(super) async fn receive(
    broker: &Broker,
    request: &ManagementRequest,
    share: &mut MemoryShare,
) -> Result<Reply, AmqpError> {
    let mode = match request.number("receiver-settle-mode") {
        Some(0) => ReceiveMode::ReceiveAndDelete,
        _ => ReceiveMode::PeekLock,
    };
    let deferred = DeferredRequest {
        sub_queue: request.sub_queue(),
        seqs: request.sequence_numbers()?,
        mode,
        session: request.session.clone(),
        memory: broker.outgoing_memory.clone(),
    };
    let received = request.queue.receive_deferred(deferred).await;
    let (received, memory) = received.map_err(queue_error)?;
    *share = memory;
    let messages = received.iter().map(|delivery| {
        let state = OutgoingState {
            seq: delivery.seq,
            message: &delivery.message,
            lock: delivery.lock,
            is_delivery: true,
            queue: request.queue.name(),
        };
        let mut entries = vec![("message", encoded(&state))];
        if let Some((token, _)) = delivery.lock {
            entries.push(("lock-token", Value::Uuid(to_uuid(token))));
        }
        map(entries)
    });
    let messages = Value::List(messages.collect());
    Ok(Reply::ok(200, map(vec![("messages", messages)])))
}
