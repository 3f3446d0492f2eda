//! One connection without its socket: the events of the protocol machine in, its commands and futures out.
//!
//! Work that waits (appends, reads, tokens, links) is a future of the connection's task, and its completion comes back
//! here. Appends are started in the order of their deliveries and settled in ranges.

mod feed;
mod queues;
mod requests;
mod transactions;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream::FuturesUnordered;
use highwater_access::{ClientCertificate, Key, Limiter, Principal, Resource, Usage};
use highwater_amqp::{
    AmqpError, Attach, Connection, Delivery, Event, LinkId, Options, Outcome, ProtocolError,
    condition,
};
use highwater_env::MemoryShare;
use highwater_log::BoxFuture;

use crate::amqp::broker::Broker;
use crate::amqp::consumer::ReadBatch;
use crate::amqp::credentials::{Credentials, PutToken, RefusalAudit, TooManyConnections};
use crate::amqp::error::{append_error, unauthorized};
use crate::amqp::links::{self, AcceptedLink, AttachRequest, Link, RequestNode};
use crate::amqp::operations;
use crate::amqp::request::{Reply, Request};
use crate::amqp::service_bus::{ClientService, MESSAGE_LOCK_LOST, UndeliveredBatch};
use crate::amqp::settlements::Settlements;
use queues::{PendingWait, SettledDeliveries};
use transactions::OpenTransactions;

/// No message is sent while this many bytes wait to be written.
pub(in crate::amqp) const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// The result of an asynchronous operation.
pub(in crate::amqp) enum Completion {
    /// `None`: the login is refused.
    Login(Option<Arc<Key>>),
    Attach {
        link: LinkId,
        result: Result<Box<AcceptedLink>, AmqpError>,
    },
    Append {
        delivery: DeliveryRef,
        bytes: usize,
        result: Result<usize, AmqpError>,
    },
    Token {
        pending: Box<PendingRequest>,
        result: Result<PutToken, String>,
    },
    Read {
        link: LinkId,
        result: Result<ReadBatch, AmqpError>,
    },
    Received {
        link: LinkId,
        result: Result<UndeliveredBatch, AmqpError>,
    },
    Settled {
        link: LinkId,
        /// `None`: the client does not wait for it.
        to_confirm: Option<SettledDeliveries>,
    },
    /// A transaction is committed, or nothing of it is done.
    Discharged {
        delivery: DeliveryRef,
        bytes: usize,
        result: Result<(), AmqpError>,
    },
    Reply(Box<FinishedRequest>),
    /// The messages that a link held are released.
    CleanedUp,
    /// A reader with this level has taken the partition.
    Stolen {
        link: LinkId,
        level: i64,
    },
    /// The task ended without a result.
    Abandoned,
}

/// A delivery that is not settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::amqp) struct DeliveryRef {
    pub(in crate::amqp) link: LinkId,
    pub(in crate::amqp) id: u32,
    /// The client has settled it.
    pub(in crate::amqp) settled: bool,
}

/// A request whose token is being verified.
pub(in crate::amqp) struct PendingRequest {
    delivery: DeliveryRef,
    node: RequestNode,
    request: Request,
}

/// A request about a queue, and its reply.
pub(in crate::amqp) struct FinishedRequest {
    pending: PendingRequest,
    /// The size of the request.
    bytes: usize,
    reply: Reply,
    /// The memory of the reply.
    share: MemoryShare,
}

pub(in crate::amqp) struct Dispatcher {
    broker: Arc<Broker>,
    from: SocketAddr,
    pub(in crate::amqp) machine: Connection,
    credentials: Credentials,
    links: HashMap<LinkId, Link>,
    /// Links whose acceptance is being decided, and their attach requests.
    attaching: HashMap<LinkId, Option<PendingWait>>,
    pub(in crate::amqp) work: FuturesUnordered<BoxFuture<Completion>>,
    verifying: usize,
    /// Work that a stop waits for (appends, settlements, requests), and the bytes of messages in it.
    pub(in crate::amqp) appends: usize,
    pub(in crate::amqp) inflight_bytes: usize,
    settlements: Settlements,
    pub(in crate::amqp) transactions: OpenTransactions,
    /// Links that could send more if the output or the quota had room.
    blocked: Vec<LinkId>,
    /// How long the client must be paused for its quota.
    pub(in crate::amqp) throttle: Duration,
}

impl Dispatcher {
    pub(in crate::amqp) fn new(
        broker: Arc<Broker>,
        from: SocketAddr,
        anonymous: bool,
    ) -> Dispatcher {
        let (keys, clock) = (broker.keys.clone(), broker.clock.clone());
        let refusals = RefusalAudit::new(broker.audit.clone(), from);
        let credentials = Credentials::new(keys, clock, refusals, anonymous);
        let options = Options {
            unknown_delivery: MESSAGE_LOCK_LOST.into(),
            ..Options::default()
        };
        Dispatcher {
            from,
            machine: Connection::new(options, broker.clock.elapsed()),
            credentials,
            links: HashMap::new(),
            attaching: HashMap::new(),
            work: FuturesUnordered::new(),
            verifying: 0,
            appends: 0,
            inflight_bytes: 0,
            settlements: Settlements::default(),
            transactions: OpenTransactions::default(),
            blocked: Vec::new(),
            throttle: Duration::ZERO,
            broker,
        }
    }

    /// Gives the client the rights of the key that lists its certificate.
    pub(in crate::amqp) fn log_in_by_certificate(&mut self, certificate: &ClientCertificate) {
        let now_ms = self.broker.clock.unix_millis();
        if let Some(key) = self.broker.keys.of_certificate(certificate, now_ms) {
            let counted = self.credentials.log_in(key, Some(certificate.expires_ms));
            self.check_connections(counted);
        }
    }

    pub(in crate::amqp) fn is_known(&self) -> bool {
        self.credentials.is_known()
    }

    /// Handles the frames of the client.
    pub(in crate::amqp) fn receive(&mut self, input: &mut BytesMut) -> Result<(), ProtocolError> {
        let now = self.broker.clock.elapsed();
        while let Some(event) = self.machine.next_event(input, now)? {
            match event {
                Event::Login {
                    mechanism,
                    response,
                } => self.log_in(&mechanism, &response),
                Event::Attach { link, attach } => self.attach(link, attach),
                Event::Delivery(delivery) => self.deliver(delivery),
                Event::Credit { link } => self.feed(link),
                Event::Disposition {
                    link,
                    deliveries,
                    outcome,
                    settled,
                    transaction: None,
                } => self.settle(link, deliveries, outcome, settled),
                Event::Disposition {
                    link,
                    deliveries,
                    outcome,
                    transaction: Some(id),
                    ..
                } => self.settle_in_transaction(link, &deliveries, outcome, id),
                Event::Detached { link } => self.remove_link(link),
                Event::Closed => self.remove_links(|_| true),
            }
            if self.is_full() {
                break;
            }
        }
        self.flush_settlements();
        Ok(())
    }

    /// Whether no more messages should be taken from the client for now.
    pub(in crate::amqp) fn is_full(&self) -> bool {
        self.inflight_bytes >= self.broker.limits.inflight_bytes_max
            || self.machine.output_len() >= OUTPUT_BYTES_MAX
            || !self.throttle.is_zero()
    }

    fn push(&mut self, work: impl Future<Output = Completion> + Send + 'static) {
        self.work.push(Box::pin(work));
    }

    fn log_in(&mut self, mechanism: &str, response: &Bytes) {
        let accepted = match mechanism {
            "ANONYMOUS" | "MSSBCBS" => true,
            "EXTERNAL" => self.credentials.is_known(),
            "PLAIN" if self.credentials.is_trusted() => true,
            "PLAIN" => return self.log_in_by_secret(response),
            _ => false,
        };
        self.machine.finish_login(accepted);
    }

    /// `authorization id NUL name NUL secret`
    fn log_in_by_secret(&mut self, response: &Bytes) {
        let (broker, from, response) = (self.broker.clone(), self.from, response.clone());
        self.push(async move {
            let text = std::str::from_utf8(&response).unwrap_or_default();
            let mut parts = text.split('\0').skip(1);
            let name = parts.next().unwrap_or_default();
            let secret = parts.next().unwrap_or_default();
            let now_ms = broker.clock.unix_millis();
            let key = broker
                .keys
                .authenticate(name, secret.as_bytes(), now_ms)
                .await;
            if key.is_none() {
                let who: String = name.chars().take(64).collect();
                tokio::time::sleep(broker.refuse_login(&who, from)).await;
            }
            Completion::Login(key)
        });
    }

    fn check_connections(&mut self, counted: Result<(), TooManyConnections>) {
        if counted.is_err() {
            let text = "The key has as many connections as it may have.";
            let error = AmqpError::new(condition::RESOURCE_LIMIT_EXCEEDED, text);
            self.machine.close(Some(error));
        }
    }

    fn attach(&mut self, link: LinkId, attach: Box<Attach>) {
        if !self.is_known() && self.links.len() >= links::UNKNOWN_LINKS_MAX {
            let text = "A client must put a token before it attaches more links.";
            return self.machine.close(Some(unauthorized(text)));
        }
        let service = ClientService::of(self.machine.peer_properties());
        match links::check(&self.broker, &self.credentials, service, &attach) {
            Err(error) => self.machine.refuse_link(link, error),
            Ok(AttachRequest::Ready(accepted)) => self.accept(link, *accepted),
            Ok(AttachRequest::SendToQueue { entity, queue }) => {
                self.attach_sender(link, entity, queue);
            }
            Ok(AttachRequest::ReceiveFromQueue { entity, queue }) => {
                self.attach_receiver(link, attach, entity, queue);
            }
            Ok(AttachRequest::Send { address, caller }) => {
                self.attaching.insert(link, None);
                let (broker, from) = (self.broker.clone(), self.from);
                self.push(async move {
                    let accepted = links::accept_producer(broker, attach, address, caller, from);
                    let result = accepted.await;
                    Completion::Attach { link, result }
                });
            }
            Ok(AttachRequest::Read(request)) => {
                self.attaching.insert(link, None);
                let broker = self.broker.clone();
                self.push(async move {
                    let result = links::accept_consumer(broker, attach, request).await;
                    Completion::Attach { link, result }
                });
            }
        }
    }

    fn accept(&mut self, link: LinkId, accepted: AcceptedLink) {
        self.machine.accept_link(link, accepted.terms);
        self.links.insert(link, accepted.link);
        if let Some(stolen) = accepted.stolen {
            // Ends without a level when the link is closed.
            self.push(async move {
                match stolen.await {
                    Ok(level) => Completion::Stolen { link, level },
                    Err(_) => Completion::Abandoned,
                }
            });
        }
    }

    fn deliver(&mut self, delivery: Delivery) {
        let reference = DeliveryRef {
            link: delivery.link,
            id: delivery.id,
            settled: delivery.settled,
        };
        if let Some(id) = &delivery.transaction {
            return self.deliver_in_transaction(reference, &delivery, id.clone());
        }
        match self.links.get(&delivery.link) {
            Some(Link::Coordinator) => self.coordinate(reference, &delivery.payload),
            Some(Link::Producer(_)) => self.append(reference, delivery),
            Some(Link::QueueSender(_)) => self.send_to_queue(reference, &delivery),
            Some(Link::Requests(node)) => {
                let node = node.clone();
                self.request(reference, node, &delivery.payload);
            }
            _ => {
                let text = "Nothing can be sent on this link.";
                let error = AmqpError::new(condition::NOT_ALLOWED, text);
                self.settlements.push(reference, Outcome::Rejected(error));
            }
        }
    }

    fn append(&mut self, reference: DeliveryRef, delivery: Delivery) {
        let Some(Link::Producer(producer)) = self.links.get(&delivery.link) else {
            return;
        };
        let hub = Resource::Hub(producer.hub.name.as_str());
        let (path, operation) = (&producer.path, producer.operation);
        let caller = operations::authorize(&self.credentials, path, operation, hub);
        let caller = match caller {
            Ok(caller) => caller,
            Err(error) => return self.end_link(delivery.link, error),
        };
        let pending = producer.append(&self.broker, &delivery.payload, delivery.message_format);
        let bytes = delivery.payload.len();
        self.charge(&caller, Usage::Requests, 1);
        self.charge(&caller, Usage::BytesIn, bytes as u64);
        match pending {
            Err(error) => self.finish_append(reference, Err(error)),
            Ok(pending) => {
                self.appends += 1;
                self.inflight_bytes += bytes;
                let (events, appended) = (pending.events, pending.appended);
                self.push(async move {
                    let appended = appended.await;
                    let result = appended.map(|_| events);
                    Completion::Append {
                        delivery: reference,
                        bytes,
                        result: result.map_err(|error| append_error(&error)),
                    }
                });
            }
        }
    }

    fn finish_append(&mut self, delivery: DeliveryRef, result: Result<usize, AmqpError>) {
        let metrics = &self.broker.metrics;
        let outcome = match result {
            Ok(events) => {
                metrics.events_in.add(events as u64);
                Outcome::Accepted
            }
            Err(error) => {
                metrics.rejected.add(1);
                Outcome::Rejected(error)
            }
        };
        self.settlements.push(delivery, outcome);
    }

    pub(in crate::amqp) fn complete(&mut self, completion: Completion) {
        match completion {
            Completion::Login(None) => self.machine.finish_login(false),
            Completion::Login(Some(key)) => {
                let counted = self.credentials.log_in(key, None);
                self.machine.finish_login(counted.is_ok());
            }
            Completion::Attach { link, result } => {
                // The client may have given up meanwhile.
                if self.attaching.remove(&link).is_some() {
                    match result {
                        Ok(accepted) => self.accept(link, *accepted),
                        Err(error) => self.machine.refuse_link(link, error),
                    }
                }
            }
            Completion::Append {
                delivery,
                bytes,
                result,
            } => {
                self.appends -= 1;
                self.inflight_bytes -= bytes;
                self.finish_append(delivery, result);
            }
            Completion::Token { pending, result } => {
                self.verifying -= 1;
                let added = result.map(|grant| self.credentials.add(grant));
                let refused = match added {
                    Ok(counted) => {
                        self.check_connections(counted);
                        None
                    }
                    Err(reason) => Some(reason),
                };
                self.answer(*pending, refused);
            }
            Completion::Read { link, result } => self.finish_read(link, result),
            Completion::Received { link, result } => self.finish_receive(link, result),
            Completion::Settled { link, to_confirm } => self.finish_settle(link, to_confirm),
            Completion::CleanedUp => self.appends -= 1,
            Completion::Discharged {
                delivery,
                bytes,
                result,
            } => {
                self.appends -= 1;
                self.transactions.committing_bytes -= bytes;
                let outcome = result.map_or_else(Outcome::Rejected, |()| Outcome::Accepted);
                self.settlements.push(delivery, outcome);
            }
            Completion::Reply(finished) => {
                self.appends -= 1;
                self.inflight_bytes -= finished.bytes;
                self.reply(finished.pending, finished.reply, finished.share);
            }
            Completion::Stolen { link, level } => {
                let text = format!(
                    "New receiver with higher epoch of '{level}' is created hence current receiver is getting disconnected."
                );
                self.end_link(link, AmqpError::new(condition::LINK_STOLEN, text));
            }
            Completion::Abandoned => {}
        }
    }

    fn end_link(&mut self, link: LinkId, error: AmqpError) {
        self.remove_link(link);
        self.machine.detach_link(link, error);
    }

    /// Settles the outcomes since the last call.
    pub(in crate::amqp) fn flush_settlements(&mut self) {
        self.settlements.flush(&mut self.machine);
    }

    /// Ends the links that read, so that only appends are waited for.
    pub(in crate::amqp) fn stop_readers(&mut self) {
        self.remove_links(|link| matches!(link, Link::Consumer(_) | Link::QueueReceiver(_)));
    }

    fn remove_links(&mut self, which: impl Fn(&Link) -> bool) {
        let links = self.links.iter().filter(|(_, link)| which(link));
        for link in links.map(|(link, _)| *link).collect::<Vec<_>>() {
            self.remove_link(link);
        }
    }

    fn charge(&mut self, caller: &Principal, usage: Usage, amount: u64) {
        let Some(limiter) = caller.limiter() else {
            return;
        };
        let now = self.broker.clock.elapsed();
        limiter.charge(usage, amount, now);
        self.throttle = self.throttle.max(Limiter::delay(limiter, now));
    }
}
