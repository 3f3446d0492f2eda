//! The state that all requests share.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use highwater_access::{AuditEvent, AuditLog, NoAudit};
use highwater_env::{Clock, MemoryBudget, shutdown_signal};
use highwater_hub::Hub;
use highwater_log::{GroupCoordinator, HubInfo, HubName, HubSettings, HubSpec, Log};
use highwater_queue::{Queues, Topics};
use tokio::sync::{Semaphore, watch};

use super::Options;
use super::console::Console;
use super::dispatch::charge_partitions;
use super::error::{Code, Error};
use super::metrics::Metrics;
use super::operations::begins_paths;
use super::playground;
use super::round_robin::RoundRobin;
use super::send::Destination;
use crate::amqp;
use crate::jobs::Jobs;
use crate::owners::Owners;
use crate::processors::Processors;
use crate::sharded::{ShardedHub, reserved_name};
use crate::stored_keys::StoredKeys;
use crate::tokens::Tokens;
use crate::workflows::Workflows;
use highwater_access::{Keys, Principal, Resource, Right};

pub struct App {
    pub(super) options: Options,
    pub(super) keys: Arc<Keys>,
    pub(super) clock: Arc<dyn Clock>,
    /// For requests and answers.
    pub(super) budget: MemoryBudget,
    /// For batches that readers unpack.
    pub(super) unpack_budget: MemoryBudget,
    pub(super) metrics: Metrics,
    pub(super) round_robin: RoundRobin,
    /// A permit for each run of the playground.
    pub(super) playground_runs: Arc<Semaphore>,
    tokens: OnceLock<Arc<Tokens>>,
    /// The counters of AMQP, if it is served.
    amqp_metrics: OnceLock<Arc<amqp::Metrics>>,
    amqp_sockets: OnceLock<Arc<amqp::WebSockets>>,
    pub(super) console: Console,
    /// Held while a queue or topic is created: they share their names.
    pub(super) entity_names: tokio::sync::Mutex<()>,
    stopping: watch::Sender<bool>,
    auto_create: Option<u32>,
    backend: OnceLock<Backend>,
    progress: Progress,
}

/// The parts of the node that requests use, complete after recovery.
pub struct Backend {
    pub log: Arc<dyn Log>,
    /// `None` for a log without consumer groups.
    pub groups: Option<Arc<dyn GroupCoordinator>>,
    /// The embedded log, for its status; `None` for another log.
    pub hub: Option<Hub>,
    /// The Kafka side, for its metrics.
    pub kafka: Option<highwater_kafka::Handle>,
    /// The sharded hubs.
    pub sharded: Vec<ShardedHub>,
    /// `None` for a node without jobs.
    pub jobs: Option<Jobs>,
    pub workflows: Workflows,
    /// Where queues and workflows are; `None` for a node that has them all.
    pub owners: Option<Owners>,
    /// `None` for a node without queues.
    pub queues: Option<Queues>,
    /// `None` for a node without topics.
    pub topics: Option<Topics>,
    pub processors: Option<Arc<Processors>>,
    /// `None` for a node without a data folder.
    pub stored_keys: Option<Arc<StoredKeys>>,
    pub audit: Arc<dyn AuditLog>,
}

impl Backend {
    /// A log and nothing else.
    pub fn new(log: Arc<dyn Log>) -> Backend {
        Backend {
            log,
            groups: None,
            hub: None,
            kafka: None,
            sharded: Vec::new(),
            jobs: None,
            workflows: Workflows::default(),
            owners: None,
            queues: None,
            topics: None,
            processors: None,
            stored_keys: None,
            audit: Arc::new(NoAudit),
        }
    }
}

/// The progress of recovery in partitions, for `/readyz`.
#[derive(Debug, Default)]
pub struct Progress {
    pub done: AtomicU64,
    /// 0 while unknown.
    pub total: AtomicU64,
}

impl App {
    /// An app that answers "starting" until it has its [`Backend`].
    pub fn new(
        options: Options,
        keys: Arc<Keys>,
        auto_create: Option<u32>,
        clock: Arc<dyn Clock>,
    ) -> Arc<App> {
        Arc::new(App {
            budget: MemoryBudget::new(options.in_flight_bytes_max),
            unpack_budget: MemoryBudget::new(options.unpack_bytes_max),
            metrics: Metrics::default(),
            round_robin: RoundRobin::default(),
            playground_runs: Arc::new(Semaphore::new(playground::RUNS_MAX)),
            tokens: OnceLock::new(),
            amqp_metrics: OnceLock::new(),
            amqp_sockets: OnceLock::new(),
            console: Console::default(),
            entity_names: tokio::sync::Mutex::default(),
            stopping: watch::Sender::new(false),
            backend: OnceLock::new(),
            progress: Progress::default(),
            options,
            keys,
            clock,
            auto_create,
        })
    }

    /// Serves requests from now on. A second call has no effect.
    pub fn serve_from(&self, backend: Backend) {
        let _ = self.backend.set(backend);
    }

    /// Accepts bearer tokens, too. A second call has no effect.
    pub(crate) fn accept_tokens(&self, tokens: Arc<Tokens>) {
        let _ = self.tokens.set(tokens);
    }

    /// Shows the counters of AMQP among the metrics, and serves its clients over WebSocket. A second call has no
    /// effect.
    pub(crate) fn serve_amqp(&self, metrics: Arc<amqp::Metrics>, sockets: Arc<amqp::WebSockets>) {
        let _ = self.amqp_metrics.set(metrics);
        let _ = self.amqp_sockets.set(sockets);
    }

    /// `None` if AMQP is not served.
    pub(super) fn amqp_sockets(&self) -> Option<&amqp::WebSockets> {
        self.amqp_sockets.get().map(|sockets| &**sockets)
    }

    pub(super) fn amqp_metrics(&self) -> Option<&amqp::Metrics> {
        self.amqp_metrics.get().map(|metrics| &**metrics)
    }

    pub(super) fn tokens(&self) -> Option<&Tokens> {
        self.tokens.get().map(|tokens| &**tokens)
    }

    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    pub fn is_ready(&self) -> bool {
        self.backend.get().is_some()
    }

    /// Ends live streams and long polls.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Completes when the node stops.
    pub(super) fn stopped(&self) -> impl Future<Output = ()> + Send + 'static {
        shutdown_signal(self.stopping.subscribe())
    }

    pub(super) fn backend(&self) -> Result<&Backend, Error> {
        self.backend.get().ok_or_else(|| {
            let (done, total) = (&self.progress.done, &self.progress.total);
            let (done, total) = (done.load(Ordering::Relaxed), total.load(Ordering::Relaxed));
            let message = match total {
                0 => "the node is starting".to_owned(),
                _ => format!("the node is recovering its log: {done} of {total} partitions"),
            };
            Error::new(
                Code::Starting,
                message,
                "try again later; /readyz has the progress",
            )
        })
    }

    /// The name of this node among those that share its cluster; without any, `this node`.
    pub(super) fn node_name(&self) -> String {
        let owners = self
            .backend
            .get()
            .and_then(|backend| backend.owners.as_ref());
        let directory = owners.map(Owners::directory).unwrap_or_default();
        let own = directory.nodes.get(directory.own);
        own.map_or_else(|| "this node".to_owned(), |entry| entry.node.name.clone())
    }

    pub(super) fn log(&self) -> Result<&dyn Log, Error> {
        Ok(&*self.backend()?.log)
    }

    pub(super) fn sharded(&self, name: &str) -> Result<Option<&ShardedHub>, Error> {
        let mut sharded = self.backend()?.sharded.iter();
        Ok(sharded.find(|sharded| sharded.name.as_str() == name))
    }

    pub(super) fn hub(&self, name: &str) -> Result<Arc<HubInfo>, Error> {
        let hub = self.log()?.hub(name);
        match (hub, self.sharded(name)?) {
            (Some(hub), _) => Ok(hub),
            (None, Some(sharded)) => Err(sharded.not_a_hub()),
            (None, None) => Err(Error::no_hub(name)),
        }
    }

    /// The hub of a name, or the members of a sharded one.
    pub(super) fn destination(&self, name: &str) -> Result<Destination, Error> {
        let Some(sharded) = self.sharded(name)? else {
            return Ok(Destination::Hub(self.hub(name)?));
        };
        let members = sharded.hubs.iter().map(|hub| self.hub(hub.as_str()));
        Ok(Destination::Sharded(members.collect::<Result<_, _>>()?))
    }

    /// The destination of posted events. Creates a missing hub if the settings and the caller's rights allow it.
    pub(super) async fn destination_to_send(
        &self,
        name: &str,
        caller: &Principal,
    ) -> Result<Destination, Error> {
        let log = self.log()?;
        if HubName::is_internal_name(name) {
            let message = format!("hub `{name}` belongs to the node");
            return Err(Error::new(Code::Forbidden, message, "send to another hub"));
        }
        if let Some(hub) = log.hub(name) {
            return Ok(Destination::Hub(hub));
        }
        match self.auto_create {
            Some(partitions)
                if self.sharded(name)?.is_none()
                    && caller.may(Right::Manage, Resource::NewHub(name)) =>
            {
                let spec = HubSpec {
                    name: HubName::new(name)?,
                    partitions,
                    settings: HubSettings::default(),
                };
                charge_partitions(self, caller, partitions)?;
                let created = log.create_automatically(spec);
                // Another request may have created it meanwhile.
                let hub = match created.await {
                    Ok(hub) => {
                        self.audit(AuditEvent {
                            who: caller.name().to_owned(),
                            from: None,
                            operation: "create hub by sending".into(),
                            resource: name.to_owned(),
                            outcome: "ok".into(),
                        });
                        hub
                    }
                    Err(error) => log.hub(name).ok_or_else(|| Error::from(error))?,
                };
                Ok(Destination::Hub(hub))
            }
            _ => self.destination(name),
        }
    }

    /// Refuses a name for a queue or topic that collides with a path of the API.
    pub(super) fn check_entity_name(&self, name: &str) -> Result<(), Error> {
        match begins_paths(name) {
            true => Err(Error::bad(reserved_name(name), "choose another name")),
            false => Ok(()),
        }
    }

    /// Refuses the name of a queue or topic that exists, in any case: clients of Service Bus address both by name
    /// alone. The caller holds `entity_names`.
    pub(super) fn check_entity_is_new(&self, name: &str) -> Result<(), Error> {
        let backend = self.backend()?;
        let queues = backend.queues.iter().flat_map(Queues::list);
        let queue = queues.map(|queue| ("queue", queue.name().to_owned()));
        let topics = backend.topics.iter().flat_map(Topics::list);
        let topic = topics.map(|topic| ("topic", topic.name().to_owned()));
        let mut alike = queue.chain(topic);
        match alike.find(|(_, known)| known.eq_ignore_ascii_case(name)) {
            None => Ok(()),
            Some((kind, known)) => Err(Error::new(
                Code::Exists,
                format!("{kind} `{known}` exists already"),
                "choose another name, or use it as it is",
            )),
        }
    }

    /// Adds an event to the audit log, once the node has one.
    pub(super) fn audit(&self, event: AuditEvent) {
        if let Some(backend) = self.backend.get() {
            backend.audit.record(event);
        }
    }
}
