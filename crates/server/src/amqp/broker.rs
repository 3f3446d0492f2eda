//! The parts of a node that AMQP clients use, and the hubs, queues and topics among them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use highwater_access::{AuditEvent, AuditLog, Keys, Principal, Usage};
use highwater_amqp::{AmqpError, condition};
use highwater_env::{Clock, MemoryBudget};
use highwater_log::{HubInfo, HubName, HubSettings, HubSpec, Log, TransactionCoordinator};
use highwater_queue::{Queue, Queues, SubQueue, Subscription, Topic, Topics, Transactions};

use super::address::EntityPath;
use super::error::{ARGUMENT_OUT_OF_RANGE, SERVER_BUSY, not_found};
use super::metrics::Metrics;
use super::operations::{self, AmqpOperation};
use super::owner_levels::OwnerLevels;
use super::service_bus::{EntityKind, QueueEntity};
use crate::http::round_robin::RoundRobin;
use crate::tokens::Tokens;

/// The parts of the node that AMQP uses.
pub(crate) struct Services {
    pub(crate) log: Arc<dyn Log>,
    pub(crate) queues: Queues,
    pub(crate) topics: Topics,
    pub(crate) transactions: Arc<dyn TransactionCoordinator>,
    /// Of queues and topics.
    pub(crate) queue_transactions: Transactions,
    pub(crate) keys: Arc<Keys>,
    pub(crate) tokens: Option<Arc<Tokens>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) audit: Arc<dyn AuditLog>,
    /// The partitions of a hub that is created by the first sender; `None`: none is created.
    pub(crate) auto_create: Option<u32>,
}

/// Limits of the listeners.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    /// The largest message, which may be a batch of events.
    pub(super) message_bytes_max: usize,
    /// Messages that a sending link may have unsettled.
    pub(super) credit: u32,
    /// A connection with this many bytes of unsettled messages is not read.
    pub(super) inflight_bytes_max: usize,
    /// Received messages of all connections that are not settled.
    pub(super) server_incoming_bytes_max: usize,
    /// Read events of all connections that are not sent.
    pub(super) server_outgoing_bytes_max: usize,
    /// Compressed batches while they are unpacked for readers.
    pub(super) server_unpack_bytes_max: usize,
    /// The bytes of one read from a partition.
    pub(super) read_bytes_max: usize,
    /// For the TLS handshake, the login and the first token.
    pub(super) login_timeout: Duration,
    /// For a client that does not read, and for memory.
    pub(super) write_timeout: Duration,
    pub(super) stop_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            message_bytes_max: 1 << 20,
            credit: 500,
            inflight_bytes_max: 8 << 20,
            server_incoming_bytes_max: 256 << 20,
            server_outgoing_bytes_max: 256 << 20,
            server_unpack_bytes_max: 256 << 20,
            read_bytes_max: 256 << 10,
            login_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(10),
        }
    }
}

/// The only one whose name differs in case alone.
fn only_alike<T>(all: Vec<T>, name: &str, name_of: impl Fn(&T) -> &str) -> Option<T> {
    let mut alike = all
        .into_iter()
        .filter(|one| name_of(one).eq_ignore_ascii_case(name));
    let found = alike.next()?;
    alike.next().is_none().then_some(found)
}

pub(super) struct Broker {
    pub(super) log: Arc<dyn Log>,
    queues: Queues,
    topics: Topics,
    pub(super) transactions: Arc<dyn TransactionCoordinator>,
    pub(super) queue_transactions: Transactions,
    pub(super) keys: Arc<Keys>,
    pub(super) tokens: Option<Arc<Tokens>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) audit: Arc<dyn AuditLog>,
    auto_create: Option<u32>,
    pub(super) limits: Limits,
    pub(super) incoming_memory: MemoryBudget,
    pub(super) outgoing_memory: MemoryBudget,
    pub(super) unpack_memory: MemoryBudget,
    pub(super) owner_levels: OwnerLevels,
    round_robin: RoundRobin,
    pub(super) metrics: Arc<Metrics>,
}

impl Broker {
    pub(super) fn new(services: Services, limits: Limits) -> Broker {
        Broker {
            log: services.log,
            queues: services.queues,
            topics: services.topics,
            transactions: services.transactions,
            queue_transactions: services.queue_transactions,
            keys: services.keys,
            tokens: services.tokens,
            clock: services.clock,
            audit: services.audit,
            auto_create: services.auto_create,
            incoming_memory: MemoryBudget::new(limits.server_incoming_bytes_max),
            outgoing_memory: MemoryBudget::new(limits.server_outgoing_bytes_max),
            unpack_memory: MemoryBudget::new(limits.server_unpack_bytes_max),
            limits,
            owner_levels: OwnerLevels::default(),
            round_robin: RoundRobin::default(),
            metrics: Arc::default(),
        }
    }

    /// The hub of this name; else the only one whose name differs in case, because some clients write names in lower
    /// case.
    pub(super) fn hub(&self, name: &str) -> Option<Arc<HubInfo>> {
        self.log
            .hub(name)
            .or_else(|| only_alike(self.log.hubs(), name, |hub| hub.name.as_str()))
    }

    /// The queue of this name; else the only one whose name differs in case.
    fn queue(&self, name: &str) -> Option<Queue> {
        let queue = self.queues.get(name);
        queue.or_else(|| only_alike(self.queues.list(), name, |queue| queue.name()))
    }

    fn topic(&self, name: &str) -> Option<Arc<Topic>> {
        let topic = self.topics.get(name);
        topic.or_else(|| only_alike(self.topics.list(), name, |topic| topic.name()))
    }

    /// The entity that a path names, and its queue. A name is that of a queue if there is one, else that of a topic.
    pub(super) fn entity(
        &self,
        path: &EntityPath,
        sub_queue: SubQueue,
    ) -> Option<(QueueEntity, Queue)> {
        let (kind, owner, queue) = match path {
            EntityPath::Named(name) => match self.queue(name) {
                Some(queue) => (EntityKind::Queue, queue.name().to_owned(), queue),
                None => {
                    let queue = self.topic(name)?.queue().clone();
                    (EntityKind::Topic, queue.name().to_owned(), queue)
                }
            },
            EntityPath::Subscription { topic, name } => {
                let topic = self.topic(topic)?;
                let found = topic.subscription(name);
                let found = found
                    .or_else(|| only_alike(topic.subscriptions(), name, |found| found.name()))?;
                let owner = topic.name().to_owned();
                (EntityKind::Subscription, owner, found.queue().clone())
            }
        };
        let entity = QueueEntity {
            kind,
            owner,
            queue: queue.name().to_owned(),
            sub_queue,
        };
        Some((entity, queue))
    }

    /// The queue of an entity, unless it is deleted.
    pub(super) fn queue_of(&self, entity: &QueueEntity) -> Option<Queue> {
        match entity.kind {
            EntityKind::Queue => self.queues.get(&entity.queue),
            EntityKind::Topic => Some(self.topics.get(&entity.queue)?.queue().clone()),
            EntityKind::Subscription => Some(self.subscription(entity)?.queue().clone()),
        }
    }

    pub(super) fn subscription(&self, entity: &QueueEntity) -> Option<Arc<Subscription>> {
        let subscriptions = self.topics.get(&entity.owner)?.subscriptions();
        let mut subscriptions = subscriptions.into_iter();
        subscriptions.find(|found| found.queue().name() == entity.queue)
    }

    pub(super) fn partition_id(&self, hub: &HubInfo, text: &str) -> Result<u32, AmqpError> {
        let id = text.parse().ok().filter(|id| *id < hub.partitions);
        id.ok_or_else(|| {
            let (name, last) = (&hub.name, hub.partitions - 1);
            let text: String = text.chars().take(50).collect();
            let description = format!(
                "The specified partition '{text}' is invalid for EventHub '{name}': its partitions are 0 to {last}."
            );
            AmqpError::new(ARGUMENT_OUT_OF_RANGE, description)
        })
    }

    /// The hub that a client sends to. Creates a missing one if the settings and the client's rights allow it.
    pub(super) async fn hub_to_send(
        &self,
        name: &str,
        operation: AmqpOperation,
        caller: &Principal,
        from: SocketAddr,
    ) -> Result<Arc<HubInfo>, AmqpError> {
        if HubName::is_internal_name(name) {
            let description = format!("Hub '{name}' belongs to the node.");
            return Err(AmqpError::new(condition::NOT_ALLOWED, description));
        }
        if let Some(hub) = self.hub(name) {
            return Ok(hub);
        }
        let spec = HubName::new(name).ok().zip(self.auto_create);
        let Some((hub, partitions)) =
            spec.filter(|_| operations::may_create(caller, operation, name))
        else {
            return Err(not_found(name));
        };
        self.charge_partitions(caller, partitions)?;
        let created = self.log.create_automatically(HubSpec {
            name: hub,
            partitions,
            settings: HubSettings::default(),
        });
        match created.await {
            Ok(hub) => {
                self.audit(caller.name(), from, "create hub by sending", name, "ok");
                Ok(hub)
            }
            // Another client may have created it meanwhile.
            Err(error) => self.log.hub(name).ok_or_else(|| {
                let text = format!("Hub '{name}' cannot be created: {error}.");
                AmqpError::new(condition::NOT_ALLOWED, text)
            }),
        }
    }

    fn charge_partitions(&self, caller: &Principal, partitions: u32) -> Result<(), AmqpError> {
        let Some(limiter) = caller.limiter() else {
            return Ok(());
        };
        let now = self.clock.elapsed();
        if !limiter.partition_delay(now).is_zero() {
            let text = "The key has created as many partitions as it may for now.";
            return Err(AmqpError::new(SERVER_BUSY, text));
        }
        limiter.charge(Usage::Partitions, partitions.into(), now);
        Ok(())
    }

    /// The next partition for events without a key.
    pub(super) fn next_partition(&self, hub: &HubInfo) -> u32 {
        let now_ms = self.clock.elapsed().as_millis() as u64;
        self.round_robin.next(hub.id, hub.partitions, now_ms)
    }

    pub(super) fn audit(
        &self,
        who: &str,
        from: SocketAddr,
        operation: &str,
        resource: &str,
        outcome: &str,
    ) {
        self.audit.record(AuditEvent {
            who: who.to_owned(),
            from: Some(from),
            operation: operation.into(),
            resource: resource.to_owned(),
            outcome: outcome.into(),
        });
    }

    /// Records a refused login, and returns how long its answer must wait.
    pub(super) fn refuse_login(&self, who: &str, from: SocketAddr) -> Duration {
        self.metrics.logins_refused.add(1);
        self.audit(who, from, "login", "", "refused");
        self.keys.login_failed(from.ip(), self.clock.elapsed())
    }
}
