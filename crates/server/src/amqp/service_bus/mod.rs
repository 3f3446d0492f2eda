//! Service Bus: queues, topics and subscriptions under the addresses and with the conventions of Microsoft's SDKs.
//!
//! A queue of the node is a Service Bus queue; a topic accepts messages like a queue, and a subscription delivers them
//! like one. Clients send (`sender.rs`), receive under a lock or for good (`receiver.rs`, `session.rs`), settle
//! (`settlement.rs`) and use `$management` for other operations (`management/`). `message/` maps AMQP messages to those
//! of `highwater_queue`. *Invariants:* a message is accepted when it is durable; a settlement is confirmed when it is
//! durable; a message that was locked for a client and not sent to it is released uncounted; rights are checked for
//! every message, settlement and request (`operations.rs`).

mod entity;
mod error;
mod lock_token;
mod management;
mod message;
mod operations;
mod receiver;
mod sender;
mod session;
mod settlement;

pub(super) use entity::{ClientService, EntityKind, QueueEntity};
pub(super) use error::{
    ENTITY_ALREADY_EXISTS, MESSAGE_LOCK_LOST, MESSAGE_NOT_FOUND, SESSION_CANNOT_BE_LOCKED,
    SESSION_LOCK_LOST, queue_error, refused,
};
pub(super) use lock_token::{of_tag, to_tag};
pub(super) use management::{ManagementRequest, answer};
pub(crate) use message::AmqpPropertyMap;
pub use operations::QueueOperation;
pub(super) use operations::authorize;
pub(super) use receiver::{QueueReceiver, ReceiverRequest, UndeliveredBatch, accept_receiver};
pub(super) use sender::{QueueSender, accept_sender};
pub(super) use settlement::disposition;
