//! Transactions of a client: sends and settlements are kept until the client ends the transaction.
//!
//! A message or a settlement is checked for rights when it comes, and for everything else when the transaction is
//! committed: then all of it happens or nothing. The end of the coordinator's link, of the connection, or of two
//! minutes rolls back.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use highwater_access::Usage;
use highwater_amqp::{
    AmqpError, ClientOutcome, CoordinatorRequest, Delivery, LinkId, Outcome, TrackedDelivery,
    condition,
};
use highwater_queue::{Queue, TransactionOperation, TransactionPart};

use super::{Completion, DeliveryRef, Dispatcher};
use crate::amqp::links::Link;
use crate::amqp::service_bus::{
    QueueOperation, QueueSender, authorize, disposition, of_tag, queue_error,
};

/// Transactions of a connection that are not ended.
const OPEN_MAX: usize = 100;
/// Messages sent and settled in a transaction, as in Service Bus.
const OPERATIONS_MAX: usize = 100;
/// The size of the messages in all transactions of a connection.
const BYTES_MAX: usize = 8 << 20;
/// How long a transaction may be open, as in Service Bus.
const OPEN_TIME_MAX: Duration = Duration::from_secs(120);

/// The transactions of a connection.
#[derive(Default)]
pub(in crate::amqp) struct OpenTransactions {
    open: HashMap<Bytes, OpenTransaction>,
    next: u64,
    /// The size of messages in transactions that are being committed.
    pub(super) committing_bytes: usize,
}

struct OpenTransaction {
    /// The link of the coordinator.
    link: LinkId,
    until: Duration,
    parts: Vec<TransactionPart>,
    operations: usize,
    bytes: usize,
    /// Why it cannot be committed.
    failed: Option<AmqpError>,
}

impl OpenTransactions {
    /// The size of all messages.
    pub(in crate::amqp) fn bytes(&self) -> usize {
        let open = self.open.values().map(|open| open.bytes);
        open.sum::<usize>() + self.committing_bytes
    }

    /// Forgets transactions that were open for too long.
    pub(in crate::amqp) fn expire(&mut self, now: Duration) {
        self.open.retain(|_, open| open.until > now);
    }

    /// Forgets the transactions of a closed link.
    pub(super) fn roll_back(&mut self, link: LinkId) {
        self.open.retain(|_, open| open.link != link);
    }

    fn declare(&mut self, link: LinkId, now: Duration) -> Result<Bytes, AmqpError> {
        self.expire(now);
        if self.open.len() >= OPEN_MAX {
            let text = format!("A connection has at most {OPEN_MAX} open transactions.");
            return Err(AmqpError::new(condition::RESOURCE_LIMIT_EXCEEDED, text));
        }
        self.next += 1;
        let id = Bytes::copy_from_slice(&self.next.to_be_bytes());
        let open = OpenTransaction {
            link,
            until: now + OPEN_TIME_MAX,
            parts: Vec::new(),
            operations: 0,
            bytes: 0,
            failed: None,
        };
        self.open.insert(id.clone(), open);
        Ok(id)
    }

    fn get(&mut self, id: &Bytes, now: Duration) -> Result<&mut OpenTransaction, AmqpError> {
        self.expire(now);
        self.open.get_mut(id).ok_or_else(unknown)
    }

    /// Adds operations on a queue. A transaction that is too large cannot be committed.
    fn add(
        &mut self,
        id: &Bytes,
        now: Duration,
        part: TransactionPart,
        added: AddedWork,
    ) -> Result<(), AmqpError> {
        let bytes = self.bytes();
        let open = self.get(id, now)?;
        let limits = [
            (
                open.operations + added.operations,
                OPERATIONS_MAX,
                "messages",
            ),
            (bytes + added.bytes, BYTES_MAX, "bytes of messages"),
        ];
        for (count, max, what) in limits {
            if count > max {
                let text = format!("A transaction has at most {max} {what}.");
                let error = AmqpError::new(condition::RESOURCE_LIMIT_EXCEEDED, text);
                open.fail(error.clone());
                return Err(error);
            }
        }
        open.operations += added.operations;
        open.bytes += added.bytes;
        open.parts.push(part);
        Ok(())
    }
}

impl OpenTransaction {
    fn fail(&mut self, error: AmqpError) {
        self.failed.get_or_insert(error);
        (self.parts, self.bytes) = (Vec::new(), 0);
    }
}

/// The part of a request in a transaction.
struct AddedWork {
    operations: usize,
    bytes: usize,
}

fn unknown() -> AmqpError {
    let text = "There is no such transaction; it may have been open for too long.";
    AmqpError::new(condition::TRANSACTION_UNKNOWN_ID, text)
}

impl Dispatcher {
    /// A request of the client to begin or end a transaction.
    pub(super) fn coordinate(&mut self, reference: DeliveryRef, payload: &Bytes) {
        let now = self.broker.clock.elapsed();
        let outcome = match CoordinatorRequest::parse(payload) {
            Err(error) => {
                let error = AmqpError::new(condition::DECODE_ERROR, error.to_string());
                Outcome::Rejected(error)
            }
            Ok(CoordinatorRequest::Declare) => {
                let declared = self.transactions.declare(reference.link, now);
                declared.map_or_else(Outcome::Rejected, Outcome::Declared)
            }
            Ok(CoordinatorRequest::Discharge { id, fail }) => {
                match self.transactions.get(&id, now).map(|_| fail) {
                    Err(error) => Outcome::Rejected(error),
                    Ok(true) => {
                        self.transactions.open.remove(&id);
                        Outcome::Accepted
                    }
                    Ok(false) => return self.commit(reference, &id),
                }
            }
        };
        self.settlements.push(reference, outcome);
    }

    fn commit(&mut self, reference: DeliveryRef, id: &Bytes) {
        let Some(open) = self.transactions.open.remove(id) else {
            return;
        };
        if let Some(error) = open.failed {
            let error = rolled_back(&error);
            return self.settlements.push(reference, Outcome::Rejected(error));
        }
        self.appends += 1;
        self.transactions.committing_bytes += open.bytes;
        let (broker, bytes) = (self.broker.clone(), open.bytes);
        self.push(async move {
            let committed = broker.queue_transactions.commit(open.parts).await;
            Completion::Discharged {
                delivery: reference,
                bytes,
                result: committed.map_err(|error| rolled_back(&queue_error(error))),
            }
        });
    }

    /// A message that a client sends in a transaction.
    pub(super) fn deliver_in_transaction(
        &mut self,
        reference: DeliveryRef,
        delivery: &Delivery,
        id: Bytes,
    ) {
        let Some(Link::QueueSender(sender)) = self.links.get(&delivery.link) else {
            let text = "A transaction has messages that are sent to queues and topics, and their settlements.";
            let error = AmqpError::new(condition::NOT_IMPLEMENTED, text);
            return self.reject_in_transaction(reference, &id, error);
        };
        let caller = match authorize(&self.credentials, &sender.entity, QueueOperation::Send) {
            Ok(caller) => caller,
            Err(error) => return self.end_link(delivery.link, error),
        };
        let queue = sender.queue.clone();
        let bytes = delivery.payload.len();
        self.charge(&caller, Usage::Requests, 1);
        self.charge(&caller, Usage::BytesIn, bytes as u64);
        let messages = match QueueSender::messages(&delivery.payload, delivery.message_format) {
            Ok(messages) => messages,
            Err(error) => return self.reject_in_transaction(reference, &id, error),
        };
        let added = AddedWork {
            operations: messages.len(),
            bytes,
        };
        let part = TransactionPart {
            queue,
            operations: vec![TransactionOperation::Send(messages)],
        };
        let now = self.broker.clock.elapsed();
        match self.transactions.add(&id, now, part, added) {
            Ok(()) => {
                let outcome = Box::new(Outcome::Accepted);
                let outcome = Outcome::InTransaction { id, outcome };
                self.settlements.push(reference, outcome);
            }
            Err(error) => self.reject_in_transaction(reference, &id, error),
        }
    }

    /// Nothing of the transaction can be committed any more.
    fn reject_in_transaction(&mut self, reference: DeliveryRef, id: &Bytes, error: AmqpError) {
        let now = self.broker.clock.elapsed();
        if let Ok(open) = self.transactions.get(id, now) {
            open.fail(error.clone());
        }
        self.settlements.push(reference, Outcome::Rejected(error));
    }

    /// Settles messages when a transaction is committed.
    pub(super) fn settle_in_transaction(
        &mut self,
        link: LinkId,
        deliveries: &[TrackedDelivery],
        outcome: ClientOutcome,
        id: Bytes,
    ) {
        let Some(queue) = self.queue_to_settle(link) else {
            return;
        };
        let (kind, part) = (outcome.kind, settlement_part(queue, deliveries, outcome));
        let added = AddedWork {
            operations: deliveries.len(),
            bytes: 0,
        };
        let now = self.broker.clock.elapsed();
        let outcome = match self.transactions.add(&id, now, part, added) {
            Ok(()) => Outcome::InTransaction {
                id,
                outcome: Box::new(kind.confirmation()),
            },
            Err(error) => Outcome::Rejected(error),
        };
        for delivery in deliveries {
            self.machine
                .confirm(link, delivery.id, delivery.id, &outcome);
        }
    }
}

fn settlement_part(
    queue: Queue,
    deliveries: &[TrackedDelivery],
    outcome: ClientOutcome,
) -> TransactionPart {
    let how = disposition(outcome);
    let operations = deliveries
        .iter()
        .map(|delivery| TransactionOperation::Settle {
            token: of_tag(delivery.tag),
            how: how.clone(),
        });
    TransactionPart {
        queue,
        operations: operations.collect(),
    }
}

/// The error of a transaction without effect.
fn rolled_back(error: &AmqpError) -> AmqpError {
    let text = format!("The transaction is rolled back: {}", error.description);
    AmqpError::new(condition::TRANSACTION_ROLLBACK, text)
}
