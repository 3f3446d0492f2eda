//! The operations of AMQP and the rights that each needs, in one table.
//!
//! Links, deliveries, reads and requests ask [`authorize`], which looks the right up here by the operation and the kind
//! of the resource, so the table is enforced. `docs/security.md` has it, generated, and a test walks every row with
//! keys of every kind.
//!
//! To add an operation, add a variant and its row, name it where the link is checked, and give the test its request.

use highwater_access::{Principal, Resource, Right};
use highwater_amqp::AmqpError;

use super::address::Address;
use super::credentials::Credentials;
use super::service_bus::QueueOperation;

/// An operation on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmqpOperation {
    PutToken,
    Send,
    SendToPartition,
    SendAsPublisher,
    Receive,
    /// With an owner level, which takes the partition from other readers of the group.
    ReceiveAlone,
    ReadHubProperties,
    ReadPartitionProperties,
    /// Begins and ends a transaction. Operations in it need the same rights as outside of it.
    Transact,
    OfQueue(QueueOperation),
}

/// The kind of resource that a right applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmqpResource {
    Hub,
    /// A hub that does not exist, and that the client's first link creates.
    NewHub,
    Queue,
    /// A consumer group other than `$Default`, which is open to every reader of the hub.
    Group,
}

/// A client needs one of the rights over each resource of this kind that its operation names.
#[derive(Clone, Copy, Debug)]
pub struct AmqpRight {
    pub resource: AmqpResource,
    pub any_of: &'static [Right],
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct OperationRights {
    pub operation: AmqpOperation,
    /// The address of the link, with placeholders in capitals.
    pub address: &'static str,
    pub summary: &'static str,
    /// Empty for an operation that needs no right.
    pub needed: &'static [AmqpRight],
}

const SEND: &[Right] = &[Right::Send];
const LISTEN: &[Right] = &[Right::Listen];
const MANAGE: &[Right] = &[Right::Manage];
/// A client with one of these may know that a hub exists.
const VISIBLE: &[Right] = Right::VISIBLE;

const fn needs(resource: AmqpResource, any_of: &'static [Right]) -> AmqpRight {
    AmqpRight { resource, any_of }
}

const SENDING: &[AmqpRight] = &[needs(Hub, SEND), needs(NewHub, MANAGE)];
const RECEIVING: &[AmqpRight] = &[needs(Hub, LISTEN), needs(Group, LISTEN)];
const DESCRIBING: &[AmqpRight] = &[needs(Hub, VISIBLE)];

const SENDING_TO_QUEUE: &[AmqpRight] = &[needs(Queue, SEND)];
const RECEIVING_FROM_QUEUE: &[AmqpRight] = &[needs(Queue, LISTEN)];
/// As in Service Bus, whose administration needs `manage`.
const CHANGING_RULES: &[AmqpRight] = &[needs(Queue, &[Right::Listen, Right::Manage])];

const QUEUE_ADDRESS: &str = "QUEUE";
const QUEUE_MANAGEMENT_ADDRESS: &str = "QUEUE/$management";
const RULES_ADDRESS: &str = "TOPIC/Subscriptions/NAME/$management";
const READER_ADDRESS: &str = "HUB/ConsumerGroups/GROUP/Partitions/N";
const MANAGEMENT_ADDRESS: &str = "$management";

const fn row(
    operation: AmqpOperation,
    address: &'static str,
    summary: &'static str,
    needed: &'static [AmqpRight],
) -> OperationRights {
    OperationRights {
        operation,
        address,
        summary,
        needed,
    }
}

use AmqpOperation as Op;
use AmqpResource::{Group, Hub, NewHub, Queue};
use QueueOperation as OfQueue;

/// Formatted by hand, to be read as a table.
#[rustfmt::skip]
const ROWS: &[OperationRights] = &[
    row(Op::PutToken, "$cbs", "put a token", &[]),
    row(Op::Transact, "coordinator", "begin and end transactions", &[]),
    row(Op::Send, "HUB", "send to a hub", SENDING),
    row(Op::SendToPartition, "HUB/Partitions/N", "send to a partition", SENDING),
    row(Op::SendAsPublisher, "HUB/Publishers/NAME", "send as a publisher", SENDING),
    row(Op::Receive, READER_ADDRESS, "receive", RECEIVING),
    row(Op::ReceiveAlone, READER_ADDRESS, "receive with an owner level", RECEIVING),
    row(Op::ReadHubProperties, MANAGEMENT_ADDRESS, "read the properties of a hub", DESCRIBING),
    row(Op::ReadPartitionProperties, MANAGEMENT_ADDRESS, "read the properties of a partition", DESCRIBING),
    row(Op::OfQueue(OfQueue::Send), QUEUE_ADDRESS, "send to a queue", SENDING_TO_QUEUE),
    row(Op::OfQueue(OfQueue::Receive), QUEUE_ADDRESS, "receive from a queue or its dead letters", RECEIVING_FROM_QUEUE),
    row(Op::OfQueue(OfQueue::Settle), QUEUE_ADDRESS, "settle a message", RECEIVING_FROM_QUEUE),
    row(Op::OfQueue(OfQueue::ScheduleMessages), QUEUE_MANAGEMENT_ADDRESS, "schedule messages", SENDING_TO_QUEUE),
    row(Op::OfQueue(OfQueue::CancelScheduled), QUEUE_MANAGEMENT_ADDRESS, "cancel scheduled messages", SENDING_TO_QUEUE),
    row(Op::OfQueue(OfQueue::RenewLocks), QUEUE_MANAGEMENT_ADDRESS, "renew locks", RECEIVING_FROM_QUEUE),
    row(Op::OfQueue(OfQueue::Peek), QUEUE_MANAGEMENT_ADDRESS, "peek", RECEIVING_FROM_QUEUE),
    row(Op::OfQueue(OfQueue::ReceiveDeferred), QUEUE_MANAGEMENT_ADDRESS, "receive deferred messages", RECEIVING_FROM_QUEUE),
    row(Op::OfQueue(OfQueue::UpdateDisposition), QUEUE_MANAGEMENT_ADDRESS, "settle messages by their locks", RECEIVING_FROM_QUEUE),
    row(Op::OfQueue(OfQueue::RenewSession), QUEUE_MANAGEMENT_ADDRESS, "renew the lock of a session", RECEIVING_FROM_QUEUE),
    row(Op::OfQueue(OfQueue::GetSessionState), QUEUE_MANAGEMENT_ADDRESS, "read the state of a session", RECEIVING_FROM_QUEUE),
    row(Op::OfQueue(OfQueue::SetSessionState), QUEUE_MANAGEMENT_ADDRESS, "change the state of a session", RECEIVING_FROM_QUEUE),
    row(Op::OfQueue(OfQueue::ListSessions), QUEUE_MANAGEMENT_ADDRESS, "list sessions", RECEIVING_FROM_QUEUE),
    row(Op::OfQueue(OfQueue::AddRule), RULES_ADDRESS, "add a rule", CHANGING_RULES),
    row(Op::OfQueue(OfQueue::RemoveRule), RULES_ADDRESS, "remove a rule", CHANGING_RULES),
    row(Op::OfQueue(OfQueue::ListRules), RULES_ADDRESS, "list rules", RECEIVING_FROM_QUEUE),
];

/// The table, for its documentation and its test.
pub fn operation_rights() -> &'static [OperationRights] {
    ROWS
}

fn row_of(operation: AmqpOperation) -> Option<&'static OperationRights> {
    ROWS.iter().find(|row| row.operation == operation)
}

/// A client needs one of these rights. Without a row no right is enough.
fn required(operation: AmqpOperation, resource: AmqpResource) -> &'static [Right] {
    let row = row_of(operation);
    let mut needed = row.into_iter().flat_map(|row| row.needed);
    let found = needed.find(|needed| needed.resource == resource);
    debug_assert!(
        found.is_some(),
        "no right for {operation:?} on {resource:?}"
    );
    found.map_or(&[], |needed| needed.any_of)
}

impl AmqpResource {
    fn of(resource: Resource<'_>) -> Option<AmqpResource> {
        match resource {
            Resource::Hub(_) => Some(Hub),
            Resource::Group(_) => Some(Group),
            Resource::Queue(_) => Some(Queue),
            // No row is about the others.
            _ => None,
        }
    }
}

impl AmqpOperation {
    /// The operation of a sender with this address.
    pub(super) fn sending_to(address: &Address) -> AmqpOperation {
        match address {
            Address::Partition { .. } => Op::SendToPartition,
            Address::Publisher { .. } => Op::SendAsPublisher,
            _ => Op::Send,
        }
    }
}

/// The principal that may do this to the resource, by a token for `path` or by the login of the connection. A refusal
/// is recorded in the audit log.
pub(super) fn authorize(
    credentials: &Credentials,
    path: &str,
    operation: AmqpOperation,
    on: Resource<'_>,
) -> Result<Principal, AmqpError> {
    let rights = AmqpResource::of(on).map_or(&[][..], |kind| required(operation, kind));
    credentials.authorize(path, rights, on).map_err(|denial| {
        let summary = row_of(operation).map_or("", |row| row.summary);
        credentials.record(&denial, summary, on);
        denial.error
    })
}

/// Whether the client may create the hub that it sends to.
pub(super) fn may_create(caller: &Principal, operation: AmqpOperation, hub: &str) -> bool {
    let mut rights = required(operation, NewHub).iter();
    rights.any(|right| caller.may(*right, Resource::NewHub(hub)))
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves G1
    #[test]
    fn an_operation_has_one_row_and_one_right_for_each_kind_of_resource() {
        for (at, row) in ROWS.iter().enumerate() {
            let is_same = |other: &OperationRights| other.operation == row.operation;
            assert!(!ROWS[..at].iter().any(is_same), "{row:?}");
            for (at, needed) in row.needed.iter().enumerate() {
                assert!(!needed.any_of.is_empty(), "{row:?}");
                let is_same = |other: &AmqpRight| other.resource == needed.resource;
                assert!(!row.needed[..at].iter().any(is_same), "{row:?}");
            }
        }
    }
}
