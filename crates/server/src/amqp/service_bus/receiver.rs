//! A link on which a client receives messages of a queue, of its dead letters, or of one session.
//!
//! Messages are received only as far as the client has credit. One that is locked and cannot be sent any more, because
//! the client has revoked its credit or disconnected, is released without counting the delivery. A message that was
//! sent stays locked when its link ends; messages of a session are released with the session.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use highwater_amqp::{AmqpError, Attach, LinkTerms, condition};
use highwater_env::{MemoryBudget, MemoryShare};
use highwater_queue::{
    Delivery, Disposition, LockToken, Queue, ReceiveLimit, ReceiveMode, ReceiveRequest, Refusal,
    SessionLock, SettleBatch, SubQueue, WaitKey,
};

use super::message::{OutgoingState, encode};
use super::session::{SessionRequest, link_properties};
use super::{QueueEntity, queue_error};
use crate::amqp::broker::Broker;
use crate::amqp::links::{AcceptedLink, Link};

/// Messages of one receive.
const MESSAGES_MAX: usize = 1000;
/// A receive that waits longer is repeated, so that the slot of a disconnected client is freed.
const WAIT: Duration = Duration::from_secs(30);

/// A receiver to be accepted.
pub(in crate::amqp) struct ReceiverRequest {
    pub(in crate::amqp) entity: QueueEntity,
    pub(in crate::amqp) queue: Queue,
    /// Ends the wait for a session.
    pub(in crate::amqp) key: WaitKey,
}

pub(in crate::amqp) struct QueueReceiver {
    pub(in crate::amqp) entity: QueueEntity,
    pub(in crate::amqp) queue: Queue,
    /// The name of the link, by which requests name it.
    pub(in crate::amqp) name: String,
    pub(in crate::amqp) mode: ReceiveMode,
    pub(in crate::amqp) session: Option<SessionLock>,
    /// Encoded messages that wait for credit.
    pub(in crate::amqp) ready: UndeliveredBatch,
    /// The receive in flight.
    pub(in crate::amqp) receiving: Option<WaitKey>,
    /// That receive has been asked to end.
    pub(in crate::amqp) ending: bool,
}

/// A message for a client.
pub(in crate::amqp) struct QueuedMessage {
    pub(in crate::amqp) payload: Bytes,
    /// `None`: it is deleted from the queue.
    pub(in crate::amqp) token: Option<LockToken>,
}

/// Received messages that were not sent to the client. Those that are left when it is dropped go back.
pub(in crate::amqp) struct UndeliveredBatch {
    queue: Queue,
    pub(in crate::amqp) messages: VecDeque<QueuedMessage>,
    share: MemoryShare,
}

impl UndeliveredBatch {
    fn empty(queue: Queue) -> UndeliveredBatch {
        UndeliveredBatch {
            queue,
            messages: VecDeque::new(),
            share: MemoryShare::default(),
        }
    }

    /// Frees the memory of messages that are sent.
    pub(in crate::amqp) fn release_memory(&mut self) {
        self.share = MemoryShare::default();
    }

    /// The tokens of all messages, which are dropped.
    fn take_tokens(&mut self) -> Vec<LockToken> {
        let messages = std::mem::take(&mut self.messages);
        let tokens = messages.into_iter().filter_map(|message| message.token);
        tokens.collect()
    }
}

impl Drop for UndeliveredBatch {
    fn drop(&mut self) {
        let tokens = self.take_tokens();
        if !tokens.is_empty() {
            let cleanup = ReceiverCleanup {
                queue: self.queue.clone(),
                tokens,
                session: None,
            };
            cleanup.spawn();
        }
    }
}

/// The messages and session that a receiver releases.
pub(in crate::amqp) struct ReceiverCleanup {
    queue: Queue,
    tokens: Vec<LockToken>,
    session: Option<SessionLock>,
}

impl ReceiverCleanup {
    /// Errors change nothing: the locks end by themselves.
    pub(in crate::amqp) async fn run(self) {
        if !self.tokens.is_empty() {
            let _ = self.queue.settle(self.tokens, Disposition::Release).await;
        }
        if let Some(lock) = self.session {
            let _ = self.queue.return_session(lock).await;
        }
    }

    /// For a disconnected client.
    fn spawn(self) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(self.run());
        }
    }
}

impl QueueReceiver {
    /// The messages to release when the link of the receiver ends; afterwards it has nothing.
    pub(in crate::amqp) fn take_cleanup(&mut self) -> Option<ReceiverCleanup> {
        let cleanup = ReceiverCleanup {
            queue: self.queue.clone(),
            tokens: self.ready.take_tokens(),
            session: self.session.take(),
        };
        (!cleanup.tokens.is_empty() || cleanup.session.is_some()).then_some(cleanup)
    }

    /// Takes the messages beyond the client's credit, to be released.
    pub(in crate::amqp) fn take_unsent(&mut self) -> Option<ReceiverCleanup> {
        let cleanup = ReceiverCleanup {
            queue: self.queue.clone(),
            tokens: self.ready.take_tokens(),
            session: None,
        };
        (!cleanup.tokens.is_empty()).then_some(cleanup)
    }

    /// The next receive. `drains`: it does not wait.
    pub(in crate::amqp) fn plan(
        &mut self,
        credit: u32,
        drains: bool,
        bytes_max: usize,
    ) -> ReceivePlan {
        let key = self.queue.wait_key();
        (self.receiving, self.ending) = (Some(key), drains);
        let request = ReceiveRequest {
            sub_queue: self.entity.sub_queue,
            limit: ReceiveLimit {
                count: (credit as usize).min(MESSAGES_MAX),
                bytes: bytes_max,
            },
            mode: self.mode,
            wait: if drains { Duration::ZERO } else { WAIT },
            session: self.session.clone(),
            key: Some(key),
            memory: None,
        };
        ReceivePlan {
            queue: self.queue.clone(),
            request,
        }
    }

    /// Ends the receive that waits, unless it has been asked to before.
    pub(in crate::amqp) fn end_wait(&mut self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let key = self.receiving.filter(|_| !self.ending)?;
        self.ending = true;
        let queue = self.queue.clone();
        Some(async move { queue.end_wait(key).await })
    }
}

impl Drop for QueueReceiver {
    fn drop(&mut self) {
        if let Some(cleanup) = self.take_cleanup() {
            cleanup.spawn();
        }
    }
}

/// A receive detached from its link.
pub(in crate::amqp) struct ReceivePlan {
    queue: Queue,
    request: ReceiveRequest,
}

impl ReceivePlan {
    pub(in crate::amqp) async fn run(
        self,
        broker: Arc<Broker>,
    ) -> Result<UndeliveredBatch, AmqpError> {
        let budget = &broker.outgoing_memory;
        let (received, share) = self.receive(budget).await.map_err(queue_error)?;
        let mut batch = UndeliveredBatch::empty(self.queue.clone());
        batch.share = share;
        batch.messages = encode_all(&received, self.queue.name());
        let bytes = batch.messages.iter().map(|message| message.payload.len());
        let bytes: usize = bytes.sum();
        // A message that is larger than the limit, and what AMQP adds, are counted too.
        let missing = bytes.saturating_sub(batch.share.bytes());
        batch.share.add(budget.take_unchecked(missing));
        batch.share.shrink_to(bytes);
        Ok(batch)
    }

    /// Receives messages for which there is memory; waits for memory if there is none.
    async fn receive(
        &self,
        budget: &MemoryBudget,
    ) -> Result<(Vec<Delivery>, MemoryShare), highwater_queue::Error> {
        let request = ReceiveRequest {
            memory: Some(budget.clone()),
            ..self.request.clone()
        };
        let exchange = self.queue.exchange(SettleBatch::default(), request).await?;
        if !matches!(exchange.received, Err(Refusal::NoMemory(_))) {
            return Ok((exchange.received?, exchange.memory));
        }
        let share = budget.take(self.request.limit.bytes).await;
        // Another receiver may have the messages by now, and the client may have taken its credit back.
        let request = ReceiveRequest {
            wait: Duration::ZERO,
            ..self.request.clone()
        };
        Ok((self.queue.receive(request).await?, share))
    }
}

fn encode_all(received: &[Delivery], queue: &str) -> VecDeque<QueuedMessage> {
    let mut buffer = BytesMut::new();
    let encode_one = |delivery: &Delivery| {
        let state = OutgoingState {
            seq: delivery.seq,
            message: &delivery.message,
            lock: delivery.lock,
            is_delivery: true,
            queue,
        };
        encode(&state, &mut buffer);
        QueuedMessage {
            payload: buffer.split().freeze(),
            token: delivery.lock.map(|(token, _)| token),
        }
    };
    received.iter().map(encode_one).collect()
}

/// Accepts a receiver. If it wants a session, this takes until there is one.
pub(in crate::amqp) async fn accept_receiver(
    broker: Arc<Broker>,
    attach: Box<Attach>,
    request: ReceiverRequest,
) -> Result<Box<AcceptedLink>, AmqpError> {
    let ReceiverRequest { entity, queue, key } = request;
    let wanted = SessionRequest::of(&attach)?;
    let stats = queue.stats().await.map_err(queue_error)?;
    let has_sessions = stats.settings.sessions && entity.sub_queue == SubQueue::Main;
    let not_allowed = |text: &str| AmqpError::new(condition::NOT_ALLOWED, text);
    if let (SubQueue::Main, Some(target)) = (entity.sub_queue, &stats.settings.forward_to) {
        let text = format!("All messages of '{entity}' are forwarded to '{target}'.");
        return Err(not_allowed(&text));
    }
    match (has_sessions, &wanted) {
        (true, None) => {
            let text = "The queue has sessions: a receiver must accept one.";
            return Err(not_allowed(text));
        }
        (false, Some(_)) => return Err(not_allowed("The entity has no sessions.")),
        _ => {}
    }
    let mut receiver = QueueReceiver {
        entity,
        name: attach.name.clone(),
        mode: match attach.snd_settle_mode {
            Some(1) => ReceiveMode::ReceiveAndDelete,
            _ => ReceiveMode::PeekLock,
        },
        session: None,
        ready: UndeliveredBatch::empty(queue.clone()),
        receiving: None,
        ending: false,
        queue,
    };
    let mut terms = LinkTerms {
        message_bytes_max: u64::from(stats.settings.message_bytes_max)
            .max(broker.limits.message_bytes_max as u64),
        confirms: true,
        ..LinkTerms::default()
    };
    if let Some(wanted) = wanted {
        let lock = wanted.accept(&receiver.queue, key).await?;
        terms.properties = link_properties(&lock);
        terms.source = wanted.source(&attach, &lock);
        // From here on dropping the receiver frees the session.
        receiver.session = Some(lock);
    }
    Ok(AcceptedLink::new(
        Link::QueueReceiver(Box::new(receiver)),
        terms,
    ))
}
