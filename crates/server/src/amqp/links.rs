//! The links of a connection, and how a request for one is decided.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use highwater_access::{Principal, Resource};
use highwater_amqp::{AmqpError, Attach, LinkId, LinkTerms, Role, Value, condition};
use highwater_env::MemoryShare;
use highwater_log::HubInfo;
use highwater_queue::{Queue, SubQueue};
use tokio::sync::oneshot;

use super::address::{Address, EntityPath};
use super::broker::Broker;
use super::consumer::{Consumer, Cursor};
use super::credentials::Credentials;
use super::error::{ARGUMENT_ERROR, not_found};
use super::operations::{self, AmqpOperation};
use super::owner_levels::{GroupPartition, HigherLevel};
use super::position::StartPosition;
use super::producer::{self, Producer, Target};
use super::service_bus::{
    ClientService, EntityKind, QueueEntity, QueueOperation, QueueReceiver, QueueSender, authorize,
};

/// Requests of a client that are not answered.
const REQUESTS_MAX: u32 = 32;
/// The largest request.
const REQUEST_BYTES_MAX: u64 = 64 << 10;
/// The largest request about a queue, which may carry messages to schedule.
const QUEUE_REQUEST_BYTES_MAX: u64 = 1 << 20;
/// The largest request about a transaction.
const COORDINATOR_BYTES_MAX: u64 = 1 << 10;

/// The longest name or address of a link, which the node keeps as long as the link is attached.
const LINK_TEXT_BYTES_MAX: usize = 2 << 10;
/// Links of a client that has shown neither key nor token: enough to put a token.
pub(super) const UNKNOWN_LINKS_MAX: usize = 16;

const EPOCH: &str = "com.microsoft:epoch";
const RUNTIME_METRIC: &str = "com.microsoft:enable-receiver-runtime-metric";
/// The group of clients that name none. It needs no right beyond that over the hub.
const DEFAULT_GROUP: &str = "$Default";

/// A node that answers requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestNode {
    Cbs,
    Management,
    Queue(QueueEntity),
}

pub(super) enum Link {
    Requests(RequestNode),
    Replies(Replies),
    Producer(Producer),
    Consumer(Box<Consumer>),
    QueueSender(QueueSender),
    QueueReceiver(Box<QueueReceiver>),
    /// Begins and ends transactions.
    Coordinator,
}

/// A link on which a client gets replies.
pub(super) struct Replies {
    node: RequestNode,
    name: String,
    target: Option<String>,
    /// Replies that wait for credit, and their memory.
    pub(super) ready: VecDeque<(Bytes, MemoryShare)>,
}

impl Replies {
    /// A client that sends requests but takes no replies loses its connection.
    pub(super) fn is_overrun(&self) -> bool {
        self.ready.len() > REQUESTS_MAX as usize * 4
    }
}

/// A link to be accepted.
pub(super) struct AcceptedLink {
    pub(super) link: Link,
    pub(super) terms: LinkTerms,
    /// Completes with the level of a reader that takes the partition away.
    pub(super) stolen: Option<oneshot::Receiver<i64>>,
}

impl AcceptedLink {
    /// A link that cannot be taken over.
    pub(super) fn new(link: Link, terms: LinkTerms) -> Box<AcceptedLink> {
        Box::new(AcceptedLink {
            link,
            terms,
            stolen: None,
        })
    }
}

/// The link for the reply to a request: the one whose target or name the request names, else the newest of the node.
pub(super) fn reply_link(
    links: &HashMap<LinkId, Link>,
    node: &RequestNode,
    reply_to: Option<&str>,
) -> Option<LinkId> {
    let replies = links.iter().filter_map(|(id, link)| match link {
        Link::Replies(replies) if replies.node == *node => Some((*id, replies)),
        _ => None,
    });
    let rank = |replies: &Replies| match reply_to {
        Some(_) if replies.target.as_deref() == reply_to => 2,
        Some(name) if replies.name == name => 1,
        _ => 0,
    };
    replies
        .max_by_key(|(id, replies)| (rank(replies), *id))
        .map(|(id, _)| id)
}

/// A checked request for a link, which may need more time to decide.
pub(super) enum AttachRequest {
    Ready(Box<AcceptedLink>),
    Send { address: Address, caller: Principal },
    Read(ReadRequest),
    SendToQueue { entity: QueueEntity, queue: Queue },
    ReceiveFromQueue { entity: QueueEntity, queue: Queue },
}

/// The hub, partition and position of a consumer link.
pub(super) struct ReadRequest {
    hub: Arc<HubInfo>,
    operation: AmqpOperation,
    /// The address, as tokens name it.
    path: String,
    group: String,
    partition: u32,
    start: StartPosition,
}

/// Checks the rights of a client to a link.
pub(super) fn check(
    broker: &Broker,
    credentials: &Credentials,
    service: ClientService,
    attach: &Attach,
) -> Result<AttachRequest, AmqpError> {
    let text = attach.address().unwrap_or_default();
    check_length(&attach.name)?;
    // Java attaches it before it puts a token. Operations in a transaction need rights.
    if attach.is_coordinator() {
        return Ok(ready_link(Link::Coordinator, COORDINATOR_BYTES_MAX));
    }
    check_length(text)?;
    check_length(attach.target_address().unwrap_or_default())?;
    let address = Address::parse(text).ok_or_else(|| not_found(text))?;
    if let Some(request) = check_queue(broker, credentials, service, attach, &address)? {
        return Ok(request);
    }
    let path = address.to_string();
    match (address, attach.role) {
        (Address::Cbs, role) => Ok(request_link(RequestNode::Cbs, role, attach)),
        // The proof may be in the request.
        (Address::Management | Address::QueueManagement { .. }, role) => {
            Ok(request_link(RequestNode::Management, role, attach))
        }
        (
            Address::Consumer {
                hub,
                group,
                partition,
            },
            Role::Receiver,
        ) => {
            let found = broker.hub(&hub);
            let name = found.as_ref().map_or(&*hub, |hub| hub.name.as_str());
            let operation = match attach.properties.get(EPOCH) {
                None | Some(Value::Null) => AmqpOperation::Receive,
                Some(_) => AmqpOperation::ReceiveAlone,
            };
            operations::authorize(credentials, &path, operation, Resource::Hub(name))?;
            authorize_group(credentials, &path, operation, &group)?;
            let hub = found.ok_or_else(|| not_found(&path))?;
            Ok(AttachRequest::Read(ReadRequest {
                partition: broker.partition_id(&hub, &partition)?,
                start: StartPosition::of_filter(attach.filter())?,
                hub,
                operation,
                path,
                group,
            }))
        }
        (
            address @ (Address::Hub(_) | Address::Partition { .. } | Address::Publisher { .. }),
            Role::Sender,
        ) => {
            let name = hub_name(&address);
            let found = broker.hub(name);
            let name = found.as_ref().map_or(name, |hub| hub.name.as_str());
            let operation = AmqpOperation::sending_to(&address);
            let on = Resource::Hub(name);
            let caller = operations::authorize(credentials, &path, operation, on)?;
            Ok(AttachRequest::Send { address, caller })
        }
        _ => {
            let text = format!("A link in this direction to '{path}' is not possible.");
            Err(AmqpError::new(condition::NOT_ALLOWED, text))
        }
    }
}

/// Checks the rights of a client to a link of a queue, topic or subscription; `None` if the address is not one of
/// those. A name is that of a queue or topic if there is one, else that of a hub; a client that names its service is
/// limited to that service.
fn check_queue(
    broker: &Broker,
    credentials: &Credentials,
    service: ClientService,
    attach: &Attach,
    address: &Address,
) -> Result<Option<AttachRequest>, AmqpError> {
    let Some((path, sub_queue)) = queue_address(address) else {
        return Ok(None);
    };
    let found = match service {
        ClientService::EventHubs => None,
        ClientService::ServiceBus | ClientService::Unknown => broker.entity(&path, sub_queue),
    };
    let operation = match (address, attach.role) {
        (Address::QueueManagement { .. }, role) => {
            // Rights are checked for each request, and some clients attach it for queues that do not exist.
            return Ok(
                found.map(|(entity, _)| request_link(RequestNode::Queue(entity), role, attach))
            );
        }
        (Address::Hub(_), Role::Sender) => QueueOperation::Send,
        (_, Role::Sender) => return Ok(None),
        (_, Role::Receiver) => QueueOperation::Receive,
    };
    let is_hub = operation == QueueOperation::Send && service != ClientService::ServiceBus;
    if found.is_none() && is_hub {
        return Ok(None);
    }
    let Some((entity, queue)) = found else {
        let missing = missing_entity(&path, sub_queue);
        authorize(credentials, &missing, operation)?;
        return Err(not_found(&missing.to_string()));
    };
    authorize(credentials, &entity, operation)?;
    if !operation.is_for(entity.kind) {
        let text = format!("'{entity}' is a topic: its subscriptions are received from.");
        return Err(AmqpError::new(condition::NOT_ALLOWED, text));
    }
    Ok(Some(match operation {
        QueueOperation::Send => AttachRequest::SendToQueue { entity, queue },
        _ => AttachRequest::ReceiveFromQueue { entity, queue },
    }))
}

fn queue_address(address: &Address) -> Option<(EntityPath, SubQueue)> {
    match address {
        Address::Hub(name) => Some((EntityPath::Named(name.clone()), SubQueue::Main)),
        Address::Subscription { topic, name } => {
            let (topic, name) = (topic.clone(), name.clone());
            Some((EntityPath::Subscription { topic, name }, SubQueue::Main))
        }
        Address::DeadLetters(path) => Some((path.clone(), SubQueue::DeadLetters)),
        Address::QueueManagement { entity, sub_queue } => Some((entity.clone(), *sub_queue)),
        _ => None,
    }
}

/// An entity that does not exist, for which a client without rights learns nothing.
fn missing_entity(path: &EntityPath, sub_queue: SubQueue) -> QueueEntity {
    let (kind, owner) = match path {
        EntityPath::Named(name) => (EntityKind::Queue, name.clone()),
        EntityPath::Subscription { topic, .. } => (EntityKind::Subscription, topic.clone()),
    };
    QueueEntity {
        kind,
        owner,
        queue: path.to_string(),
        sub_queue,
    }
}

fn check_length(text: &str) -> Result<(), AmqpError> {
    if text.len() <= LINK_TEXT_BYTES_MAX {
        return Ok(());
    }
    let description = format!(
        "A link's name and addresses have at most {LINK_TEXT_BYTES_MAX} bytes, not {}.",
        text.len()
    );
    Err(AmqpError::new(condition::INVALID_FIELD, description))
}

/// Named groups are resources of their own; the default group is open to every reader of the hub.
pub(super) fn authorize_group(
    credentials: &Credentials,
    path: &str,
    operation: AmqpOperation,
    group: &str,
) -> Result<(), AmqpError> {
    if group.eq_ignore_ascii_case(DEFAULT_GROUP) {
        return Ok(());
    }
    operations::authorize(credentials, path, operation, Resource::Group(group)).map(drop)
}

fn hub_name(address: &Address) -> &str {
    match address {
        Address::Hub(hub)
        | Address::Partition { hub, .. }
        | Address::Publisher { hub, .. }
        | Address::Consumer { hub, .. } => hub,
        Address::Cbs
        | Address::Management
        | Address::QueueManagement { .. }
        | Address::Subscription { .. }
        | Address::DeadLetters(_) => "",
    }
}

fn request_link(node: RequestNode, role: Role, attach: &Attach) -> AttachRequest {
    let bytes_max = match &node {
        RequestNode::Queue(_) => QUEUE_REQUEST_BYTES_MAX,
        RequestNode::Cbs | RequestNode::Management => REQUEST_BYTES_MAX,
    };
    let link = match role {
        Role::Sender => Link::Requests(node),
        Role::Receiver => Link::Replies(Replies {
            node,
            name: attach.name.clone(),
            target: attach.target_address().map(str::to_owned),
            ready: VecDeque::new(),
        }),
    };
    ready_link(link, bytes_max)
}

/// A link for requests of a client, which needs no more time to decide.
fn ready_link(link: Link, message_bytes_max: u64) -> AttachRequest {
    let terms = LinkTerms {
        message_bytes_max,
        credit: REQUESTS_MAX,
        ..LinkTerms::default()
    };
    AttachRequest::Ready(AcceptedLink::new(link, terms))
}

/// Accepts a link to send on. Creates the hub if it is missing and the client may do so.
pub(super) async fn accept_producer(
    broker: Arc<Broker>,
    attach: Box<Attach>,
    address: Address,
    caller: Principal,
    from: SocketAddr,
) -> Result<Box<AcceptedLink>, AmqpError> {
    let operation = AmqpOperation::sending_to(&address);
    let hub = broker
        .hub_to_send(hub_name(&address), operation, &caller, from)
        .await?;
    let target = match &address {
        Address::Partition { partition, .. } => {
            Target::Partition(broker.partition_id(&hub, partition)?)
        }
        Address::Publisher { name, .. } => Target::Key(name.clone()),
        _ => Target::Any,
    };
    let idempotent = producer::idempotent_producer(&broker, &attach).await?;
    let (idempotent, properties) = idempotent.unzip();
    let batch_bytes_max = hub.settings.batch_bytes_max as usize;
    let bytes_max = broker.limits.message_bytes_max.min(batch_bytes_max);
    let producer = Producer {
        operation,
        path: address.to_string(),
        hub,
        target,
        idempotent,
    };
    let terms = LinkTerms {
        message_bytes_max: bytes_max as u64,
        credit: broker.limits.credit,
        properties: properties.unwrap_or_default(),
        ..LinkTerms::default()
    };
    Ok(AcceptedLink::new(Link::Producer(producer), terms))
}

/// Accepts a link to read on, if no reader has a higher owner level.
pub(super) async fn accept_consumer(
    broker: Arc<Broker>,
    attach: Box<Attach>,
    request: ReadRequest,
) -> Result<Box<AcceptedLink>, AmqpError> {
    let ReadRequest {
        hub,
        operation,
        path,
        group,
        ..
    } = request;
    let partition = broker.log.partition(hub.name.as_str(), request.partition);
    let partition = partition.ok_or_else(|| not_found(&path))?;
    let (next, not_before) = request.start.resolve(&*partition).await?;
    let level = match attach.properties.get(EPOCH) {
        None | Some(Value::Null) => None,
        Some(level) => {
            let text = "The owner level is not a number.";
            let level = level.as_i64();
            Some(level.ok_or_else(|| AmqpError::new(ARGUMENT_ERROR, text))?)
        }
    };
    let readers = GroupPartition {
        hub: hub.id,
        partition: request.partition,
        group: group.to_ascii_lowercase(),
    };
    let admitted = broker.owner_levels.admit(readers, level);
    let (lease, stolen) = admitted.map_err(|HigherLevel(highest)| {
        let text = format!(
            "At least one receiver for '{path}' with epoch '{highest}' exists, which is higher than that of this receiver."
        );
        AmqpError::new(condition::LINK_STOLEN, text)
    })?;
    let consumer = Consumer {
        operation,
        path,
        group,
        cursor: Cursor {
            partition,
            next,
            not_before,
            with_last_enqueued: attach.desires(RUNTIME_METRIC),
        },
        settled: attach.snd_settle_mode == Some(1),
        ready: VecDeque::new(),
        share: MemoryShare::default(),
        reading: None,
        _lease: lease,
    };
    Ok(Box::new(AcceptedLink {
        link: Link::Consumer(Box::new(consumer)),
        terms: LinkTerms {
            message_bytes_max: broker.limits.message_bytes_max as u64,
            ..LinkTerms::default()
        },
        stolen: Some(stolen),
    }))
}
