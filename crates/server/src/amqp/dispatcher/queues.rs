//! Links and requests of queues: sends, receives, settlements and requests of a client.

use std::future::Future;

use highwater_access::Usage;
use highwater_amqp::{
    AmqpError, Attach, ClientOutcome, Delivery, LinkId, Outcome, OutcomeKind, OutgoingMessage,
    TrackedDelivery,
};
use highwater_queue::{Queue, ReceiveMode, Refusal, SessionLock, WaitKey};

use super::{
    Completion, DeliveryRef, Dispatcher, FinishedRequest, OUTPUT_BYTES_MAX, PendingRequest,
};
use crate::amqp::error::not_found;
use crate::amqp::links::Link;
use crate::amqp::request::Reply;
use crate::amqp::service_bus::{
    self, ManagementRequest, QueueEntity, QueueOperation, QueueReceiver, QueueSender,
    ReceiverRequest, UndeliveredBatch, authorize, disposition, of_tag, queue_error, refused,
    to_tag,
};

/// A wait of a queue for this client.
pub(in crate::amqp) struct PendingWait {
    queue: Queue,
    key: WaitKey,
}

impl PendingWait {
    async fn end(self) {
        self.queue.end_wait(self.key).await;
    }
}

/// Deliveries that a client has settled, and their results.
pub(in crate::amqp) struct SettledDeliveries {
    ids: Vec<u32>,
    kind: OutcomeKind,
    result: Result<Vec<Result<(), Refusal>>, AmqpError>,
}

impl Dispatcher {
    pub(super) fn attach_sender(&mut self, link: LinkId, entity: QueueEntity, queue: Queue) {
        self.attaching.insert(link, None);
        let broker = self.broker.clone();
        self.push(async move {
            let result = service_bus::accept_sender(broker, entity, queue).await;
            Completion::Attach { link, result }
        });
    }

    pub(super) fn attach_receiver(
        &mut self,
        link: LinkId,
        attach: Box<Attach>,
        entity: QueueEntity,
        queue: Queue,
    ) {
        let key = queue.wait_key();
        let wait = PendingWait {
            queue: queue.clone(),
            key,
        };
        self.attaching.insert(link, Some(wait));
        let broker = self.broker.clone();
        let request = ReceiverRequest { entity, queue, key };
        self.push(async move {
            let result = service_bus::accept_receiver(broker, attach, request).await;
            Completion::Attach { link, result }
        });
    }

    pub(super) fn send_to_queue(&mut self, reference: DeliveryRef, delivery: &Delivery) {
        let Some(Link::QueueSender(sender)) = self.links.get(&delivery.link) else {
            return;
        };
        let caller = match authorize(&self.credentials, &sender.entity, QueueOperation::Send) {
            Ok(caller) => caller,
            Err(error) => return self.end_link(delivery.link, error),
        };
        let queue = sender.queue.clone();
        let messages = QueueSender::messages(&delivery.payload, delivery.message_format);
        let bytes = delivery.payload.len();
        self.charge(&caller, Usage::Requests, 1);
        self.charge(&caller, Usage::BytesIn, bytes as u64);
        match messages {
            Err(error) => self.finish_append(reference, Err(error)),
            Ok(messages) => {
                self.appends += 1;
                self.inflight_bytes += bytes;
                self.push(async move {
                    let sent = queue.send(messages).await;
                    Completion::Append {
                        delivery: reference,
                        bytes,
                        result: sent.map(|sent| sent.len()).map_err(queue_error),
                    }
                });
            }
        }
    }

    /// Sends received messages within credit, output and quota; receives more if nothing waits.
    pub(super) fn feed_receiver(&mut self, link: LinkId) {
        let Some(Link::QueueReceiver(receiver)) = self.links.get_mut(&link) else {
            return;
        };
        if self.machine.credit(link) == 0 {
            return self.pause_receiver(link);
        }
        let caller = match authorize(&self.credentials, &receiver.entity, QueueOperation::Receive) {
            Ok(caller) => caller,
            Err(error) => return self.end_link(link, error),
        };
        let settled = receiver.mode == ReceiveMode::ReceiveAndDelete;
        let (mut count, mut bytes) = (0, 0);
        while self.machine.output_len() < OUTPUT_BYTES_MAX
            && self.throttle.is_zero()
            && self.machine.sendable(link) > 0
            && let Some(message) = receiver.ready.messages.pop_front()
        {
            (count, bytes) = (count + 1, bytes + message.payload.len() as u64);
            let outgoing = OutgoingMessage {
                payload: message.payload,
                settled,
                tag: message.token.map(to_tag),
            };
            self.machine.send(link, outgoing);
        }
        let is_empty = receiver.ready.messages.is_empty();
        if is_empty {
            receiver.ready.release_memory();
        }
        self.broker.metrics.events_out.add(count);
        self.charge(&caller, Usage::BytesOut, bytes);
        let has_room = self.machine.output_len() < OUTPUT_BYTES_MAX && self.throttle.is_zero();
        match (is_empty, has_room) {
            (true, true) => self.receive_more(link),
            // Without room in the window the client tells us when there is.
            (false, true) => {}
            (_, false) if self.blocked.contains(&link) => {}
            (_, false) => self.blocked.push(link),
        }
    }

    /// The client takes no messages for now.
    fn pause_receiver(&mut self, link: LinkId) {
        let Some(Link::QueueReceiver(receiver)) = self.links.get_mut(&link) else {
            return;
        };
        let (end, unsent) = (receiver.end_wait(), receiver.take_unsent());
        self.push_cleanup(end);
        self.push_cleanup(unsent.map(|unsent| unsent.run()));
        self.machine.finish_drain(link);
    }

    fn receive_more(&mut self, link: LinkId) {
        let drains = self.machine.is_draining(link);
        if self.machine.credit(link) == 0 {
            return self.machine.finish_drain(link);
        }
        let credit = self.machine.sendable(link);
        let Some(Link::QueueReceiver(receiver)) = self.links.get_mut(&link) else {
            return;
        };
        if receiver.receiving.is_some() {
            let end = drains.then(|| receiver.end_wait()).flatten();
            return self.push_cleanup(end);
        }
        // Without room in the window the client tells us when there is.
        if credit > 0 {
            let plan = receiver.plan(credit, drains, self.broker.limits.read_bytes_max);
            let broker = self.broker.clone();
            self.push(async move {
                let result = plan.run(broker).await;
                Completion::Received { link, result }
            });
        }
    }

    pub(super) fn finish_receive(
        &mut self,
        link: LinkId,
        result: Result<UndeliveredBatch, AmqpError>,
    ) {
        let drains = self.machine.is_draining(link);
        // Messages for a closed link are released when they are dropped.
        let Some(Link::QueueReceiver(receiver)) = self.links.get_mut(&link) else {
            return;
        };
        (receiver.receiving, receiver.ending) = (None, false);
        match result {
            Err(error) => self.end_link(link, error),
            Ok(batch) => {
                let is_empty = batch.messages.is_empty();
                receiver.ready = batch;
                if is_empty && drains {
                    return self.machine.finish_drain(link);
                }
                self.feed_receiver(link);
            }
        }
    }

    /// The queue whose messages the client may settle on the link; charges it with a request.
    pub(super) fn queue_to_settle(&mut self, link: LinkId) -> Option<Queue> {
        let Some(Link::QueueReceiver(receiver)) = self.links.get(&link) else {
            return None;
        };
        let queue = receiver.queue.clone();
        match authorize(&self.credentials, &receiver.entity, QueueOperation::Settle) {
            Ok(caller) => self.charge(&caller, Usage::Requests, 1),
            Err(error) => {
                self.end_link(link, error);
                return None;
            }
        }
        Some(queue)
    }

    /// Settles messages as the client wants.
    pub(super) fn settle(
        &mut self,
        link: LinkId,
        deliveries: Vec<TrackedDelivery>,
        outcome: ClientOutcome,
        settled: bool,
    ) {
        let Some(queue) = self.queue_to_settle(link) else {
            return;
        };
        self.appends += 1;
        let kind = outcome.kind;
        self.push(async move {
            let tokens = deliveries.iter().map(|delivery| of_tag(delivery.tag));
            let result = queue.settle(tokens.collect(), disposition(outcome)).await;
            let to_confirm = SettledDeliveries {
                ids: deliveries.iter().map(|delivery| delivery.id).collect(),
                kind,
                result: result.map_err(queue_error),
            };
            Completion::Settled {
                link,
                to_confirm: (!settled).then_some(to_confirm),
            }
        });
    }

    /// Confirms settlements, consecutive ones with the same outcome together.
    pub(super) fn finish_settle(&mut self, link: LinkId, to_confirm: Option<SettledDeliveries>) {
        self.appends -= 1;
        let Some(SettledDeliveries { ids, kind, result }) = to_confirm else {
            return;
        };
        let outcome_at = |at: usize| match &result {
            Err(error) => Outcome::Rejected(error.clone()),
            Ok(results) => match results.get(at) {
                Some(Err(refusal)) => Outcome::Rejected(refused(refusal)),
                _ => kind.confirmation(),
            },
        };
        let mut range: Option<(u32, u32, Outcome)> = None;
        for (at, id) in ids.into_iter().enumerate() {
            let outcome = outcome_at(at);
            match &mut range {
                Some((_, last, same)) if last.wrapping_add(1) == id && *same == outcome => {
                    *last = id;
                }
                _ => {
                    if let Some((first, last, outcome)) = range.replace((id, id, outcome)) {
                        self.machine.confirm(link, first, last, &outcome);
                    }
                }
            }
        }
        if let Some((first, last, outcome)) = range {
            self.machine.confirm(link, first, last, &outcome);
        }
    }

    /// Answers a request about a queue.
    pub(super) fn queue_request(
        &mut self,
        pending: PendingRequest,
        entity: QueueEntity,
        bytes: usize,
    ) {
        let request = match self.check_request(&pending, entity) {
            Ok(request) => request,
            Err(error) => return self.reply(pending, Reply::error(error), Default::default()),
        };
        self.appends += 1;
        self.inflight_bytes += bytes;
        let broker = self.broker.clone();
        self.push(async move {
            let (reply, share) = service_bus::answer(broker, request).await;
            Completion::Reply(Box::new(FinishedRequest {
                pending,
                bytes,
                reply,
                share,
            }))
        });
    }

    fn check_request(
        &mut self,
        pending: &PendingRequest,
        entity: QueueEntity,
    ) -> Result<ManagementRequest, AmqpError> {
        let request = &pending.request;
        let name = request.text("operation").unwrap_or_default();
        let operation = QueueOperation::of_request(name).ok_or_else(|| {
            let text = format!("The operation '{name}' is not supported.");
            AmqpError::new(highwater_amqp::condition::NOT_IMPLEMENTED, text)
        })?;
        let caller = authorize(&self.credentials, &entity, operation)?;
        self.charge(&caller, Usage::Requests, 1);
        if !operation.is_for(entity.kind) {
            let text = format!("'{entity}' has no operation '{name}'.");
            return Err(AmqpError::new(highwater_amqp::condition::NOT_ALLOWED, text));
        }
        let queue = self.broker.queue_of(&entity);
        let queue = queue.ok_or_else(|| not_found(&entity.to_string()))?;
        let session = request.body.get("session-id").and_then(|id| id.as_text());
        let link_name = request.text("associated-link-name");
        Ok(ManagementRequest {
            session: self.locked_session(&entity, session, link_name),
            body: request.body.clone(),
            entity,
            queue,
            operation,
            caller: caller.name().to_owned(),
            from: self.from,
        })
    }

    /// The session that a link of the client has locked: the named one, or that of the named link.
    fn locked_session(
        &self,
        entity: &QueueEntity,
        session: Option<&str>,
        link_name: Option<&str>,
    ) -> Option<SessionLock> {
        let receivers = self.links.values().filter_map(|link| match link {
            Link::QueueReceiver(receiver) if receiver.entity == *entity => Some(receiver),
            _ => None,
        });
        let mut locks = receivers.filter_map(|receiver| {
            let lock = receiver.session.as_ref()?;
            let is_meant = match session {
                Some(session) => lock.session == session,
                None => link_name == Some(&receiver.name),
            };
            is_meant.then(|| lock.clone())
        });
        locks.next()
    }

    /// Forgets a link. Its received but unsent messages, and its session, are released.
    pub(super) fn remove_link(&mut self, link: LinkId) {
        if let Some(Some(wait)) = self.attaching.remove(&link) {
            self.push_cleanup(Some(wait.end()));
        }
        let removed = self.links.remove(&link);
        if let Some(Link::Coordinator) = &removed {
            self.transactions.roll_back(link);
        }
        if let Some(Link::QueueReceiver(mut receiver)) = removed {
            let (end, cleanup) = (receiver.end_wait(), receiver.take_cleanup());
            self.push_cleanup(end);
            self.push_cleanup(cleanup.map(|cleanup| cleanup.run()));
        }
    }

    fn push_cleanup(&mut self, cleanup: Option<impl Future<Output = ()> + Send + 'static>) {
        if let Some(cleanup) = cleanup {
            // A stop of the node waits for it.
            self.appends += 1;
            self.push(async move {
                cleanup.await;
                Completion::CleanedUp
            });
        }
    }

    /// The waits of a disconnected client.
    fn take_waits(&mut self) -> Vec<PendingWait> {
        let attaching = self.attaching.drain().filter_map(|(_, wait)| wait);
        let wait_of = |receiver: &QueueReceiver| {
            let queue = receiver.queue.clone();
            receiver.receiving.map(|key| PendingWait { queue, key })
        };
        let receiving = self.links.values().filter_map(|link| match link {
            Link::QueueReceiver(receiver) => wait_of(receiver),
            _ => None,
        });
        attaching.chain(receiving).collect()
    }
}

/// A message or session that a queue has just assigned to a disconnected client is released as soon as that is known.
impl Drop for Dispatcher {
    fn drop(&mut self) {
        use futures_util::{FutureExt, StreamExt};
        let waits = self.take_waits();
        let runtime = tokio::runtime::Handle::try_current();
        let is_idle = waits.is_empty() && self.appends == 0;
        let (false, Ok(runtime)) = (is_idle, runtime) else {
            return;
        };
        self.links.clear();
        let mut work = std::mem::take(&mut self.work);
        runtime.spawn(async move {
            // A wait that has not begun is started, so that it can be ended.
            while let Some(Some(completion)) = work.next().now_or_never() {
                drop(completion);
            }
            for wait in waits {
                wait.end().await;
            }
            while let Some(completion) = work.next().await {
                drop(completion);
            }
        });
    }
}
