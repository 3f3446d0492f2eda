//! A node: its parts assembled, started and stopped.
//!
//! Every address is bound before the log is recovered, so that one in use is reported at once. HTTP answers `/healthz`
//! and `/readyz` meanwhile, and serves events as soon as it has a [`Backend`]; Kafka clients that connect wait until
//! then. A stop closes the listeners first, then the services, and the hubs last, when nothing uses them any more.

mod hubs;
mod log;
mod owned;
mod services;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use highwater_env::{Clock, DescriptorBudget, shutdown_signal};
use highwater_hub::groups::{GroupTimeouts, OwnTimeouts};
use highwater_hub::{Hub, OpenError};
use highwater_kafka::DynamicSettings;
use highwater_log::{AdminError, HubName, Log};
use highwater_workflow::JournalError;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::amqp;
use crate::audit::{self, AuditQueue};
use crate::config::Config;
use crate::dynamic_settings::StoredSettings;
use crate::http::{self, App, Backend, Server, ServerError};
use crate::kafka;
use crate::processors::ProcessorError;
use crate::sharded::{ReservedNames, ShardedHub};
use crate::stored_keys::StoredKeys;
use crate::tokens::Tokens;
use highwater_access::Keys;
use log::NodeLog;
use services::Services;

/// How long a stop waits for the last audit events.
const AUDIT_STOP_WAIT: Duration = Duration::from_secs(2);

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error(transparent)]
    Http(#[from] ServerError),
    #[error(transparent)]
    Kafka(#[from] kafka::ListenError),
    #[error(transparent)]
    Amqp(#[from] amqp::ListenError),
    #[error("{error}{}", hint(error))]
    Open { path: PathBuf, error: OpenError },
    #[error("the cluster of `log` cannot be used: {0}")]
    Cluster(String),
    #[error("queue `{queue}` of the settings cannot be created: {error}")]
    Queue {
        queue: String,
        error: highwater_queue::CreateError,
    },
    #[error("transactions of queues: {0}")]
    QueueTransactions(highwater_queue::JournalError),
    #[error("topic `{topic}`: {error}")]
    Topic {
        topic: String,
        error: highwater_queue::TopicError,
    },
    #[error("the keys of the tokens' issuer cannot be read: {0}")]
    Tokens(std::io::Error),
    #[error("the stored keys cannot be read: {0}")]
    Keys(std::io::Error),
    #[error(
        "the settings that Kafka clients changed cannot be read: {0}\n  repair the file, or remove it: every setting then has its default"
    )]
    DynamicSettings(std::io::Error),
    #[error("the stored jobs cannot be read: {0}")]
    Jobs(std::io::Error),
    #[error("hub `{hub}` of the settings cannot be created: {error}")]
    Hub { hub: String, error: AdminError },
    #[error(
        "`{0}` is a hub, and cannot be a sharded one too\n  rename [sharded.{0}], or delete the hub"
    )]
    NameTaken(HubName),
    #[error("workflow `{name}` cannot be started: {error}")]
    Workflow { name: String, error: JournalError },
    #[error("notifications cannot be sent: {0}")]
    Notify(String),
    #[error(transparent)]
    Processors(#[from] ProcessorError),
}

fn hint(error: &OpenError) -> &'static str {
    match error {
        OpenError::Locked(_) => {
            "\n  another node uses this folder: stop it, or choose another folder with --data"
        }
        OpenError::Storage { error, .. }
            if error.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            "\n  this user may not write there: change the rights, or choose another folder with --data"
        }
        _ => "",
    }
}

/// The connections that the listeners of a protocol may have.
struct ConnectionShares {
    kafka: usize,
    amqp: usize,
}

/// Caps the connections of all listeners below the limit of file descriptors.
fn limit_connections(
    descriptors: &DescriptorBudget,
    http: &mut http::Options,
    config: &Config,
) -> ConnectionShares {
    let wanted = |enabled: bool, connections: usize| if enabled { connections } else { 0 };
    let http_wanted = wanted(config.http.is_some(), http.connections_max);
    let kafka_max = highwater_kafka::Options::default().connections_max;
    let kafka_wanted = wanted(!config.kafka.is_empty(), kafka_max);
    let amqp_wanted = wanted(!config.amqp.is_empty(), amqp::CONNECTIONS_MAX);
    let brokers_wanted = kafka_wanted + amqp_wanted;
    let (http_share, brokers) = descriptors.divide_connections(http_wanted, brokers_wanted);
    let brokers = DescriptorBudget {
        connections: brokers,
        ..*descriptors
    };
    let (kafka_share, amqp_share) = brokers.divide_connections(kafka_wanted, amqp_wanted);
    if http_share < http_wanted || kafka_share + amqp_share < brokers_wanted {
        let limit = descriptors.limit;
        tracing::warn!(
            limit,
            http = http_share,
            kafka = kafka_share,
            amqp = amqp_share,
            "the limit of file descriptors (ulimit -n) caps the connections"
        );
    }
    http.connections_max = http_share.max(1);
    ConnectionShares {
        kafka: kafka_share.max(1),
        amqp: amqp_share.max(1),
    }
}

/// A running node.
pub struct Node {
    app: Arc<App>,
    http: Option<HttpListener>,
    kafka: Option<kafka::KafkaServer>,
    amqp: Option<amqp::AmqpServer>,
    log: NodeLog,
    services: Services,
    stop_listeners: watch::Sender<bool>,
    audit_writer: JoinHandle<()>,
}

/// The HTTP listener and its task.
struct HttpListener {
    url: String,
    address: SocketAddr,
    more: Vec<SocketAddr>,
    task: JoinHandle<()>,
}

/// Lets clients log in with the tokens of the configured identity provider.
fn accept_tokens(
    config: &Config,
    keys: &Arc<Keys>,
    app: &App,
) -> Result<Option<Arc<Tokens>>, NodeError> {
    let Some(settings) = config.tokens.clone() else {
        return Ok(None);
    };
    let tokens = Tokens::open(settings, &config.egress, keys.clone()).map_err(NodeError::Tokens)?;
    app.accept_tokens(tokens.clone());
    Ok(Some(tokens))
}

/// The settings that Kafka clients change, which the hub and the groups obey.
fn dynamic_settings(
    data: &Path,
    hub: Option<&Hub>,
    timeouts: OwnTimeouts,
) -> Result<StoredSettings, NodeError> {
    let hub = hub.cloned();
    let apply = move |settings: &Arc<DynamicSettings>| {
        let own = settings.groups().map(|own| {
            let timeouts = GroupTimeouts {
                session: own.session,
                heartbeat: own.heartbeat,
            };
            (own.group, timeouts)
        });
        timeouts.set(own.collect());
        let Some(hub) = &hub else {
            return Ok(());
        };
        let default = highwater_hub::Options::default().maintenance;
        hub.maintain_every(settings.maintenance().unwrap_or(default));
        let settings = settings.clone();
        let defaults = hub.set_defaults(move |own| settings.with_topic_defaults(own));
        defaults.map_err(|error| error.to_string())
    };
    StoredSettings::open(data, apply).map_err(NodeError::DynamicSettings)
}

/// The shared state of all listeners.
struct SharedParts {
    log: Arc<dyn Log>,
    keys: Arc<Keys>,
    stored_keys: Arc<StoredKeys>,
    tokens: Option<Arc<Tokens>>,
    clock: Arc<dyn Clock>,
    audit: Arc<AuditQueue>,
}

impl SharedParts {
    /// `None` on a node whose queues may be on other nodes.
    fn amqp_services(
        &self,
        services: &Services,
        auto_create: Option<u32>,
    ) -> Option<amqp::Services> {
        let local = services.owned.local.as_ref()?;
        Some(amqp::Services {
            log: self.log.clone(),
            queues: services.owned.queues.queues.clone(),
            topics: local.topics.clone(),
            queue_transactions: local.transactions.clone(),
            transactions: services.coordinators.transactions.clone(),
            keys: self.keys.clone(),
            tokens: self.tokens.clone(),
            clock: self.clock.clone(),
            audit: self.audit.clone(),
            auto_create,
        })
    }

    fn kafka_services(
        &self,
        services: &Services,
        settings: StoredSettings,
    ) -> highwater_kafka::Services {
        highwater_kafka::Services {
            log: self.log.clone(),
            groups: services.coordinators.groups.clone(),
            transactions: services.coordinators.transactions.clone(),
            authorizer: Arc::new(kafka::KeyAuthorizer::new(
                self.keys.clone(),
                Some(self.stored_keys.clone()),
                self.tokens.clone(),
                self.clock.clone(),
                self.audit.clone(),
            )),
            settings: Arc::new(settings),
            clock: self.clock.clone(),
        }
    }

    fn backend(
        self,
        services: &Services,
        hub: Option<&Hub>,
        kafka: Option<highwater_kafka::Handle>,
        sharded: Vec<ShardedHub>,
    ) -> Backend {
        let owned = &services.owned;
        Backend {
            log: self.log,
            groups: Some(services.coordinators.groups.clone()),
            hub: hub.cloned(),
            kafka,
            sharded,
            jobs: Some(services.jobs.clone()),
            workflows: owned.workflows.clone(),
            owners: owned.owners(),
            queues: Some(owned.queues.queues.clone()),
            topics: owned.local.as_ref().map(|local| local.topics.clone()),
            processors: services.processors.clone(),
            stored_keys: Some(self.stored_keys),
            audit: self.audit,
        }
    }
}

impl Node {
    /// Completes when everything listens and every acknowledged event can be read.
    pub async fn start(config: Config, clock: Arc<dyn Clock>) -> Result<Node, NodeError> {
        let keys = Arc::new(Keys::new(config.keys.clone()));
        let stored_keys = StoredKeys::open(&config.data, keys.clone()).map_err(NodeError::Keys)?;
        let stored_keys = Arc::new(stored_keys);
        let mut options = config.http.clone().unwrap_or_default();
        let descriptors =
            DescriptorBudget::for_process(highwater_hub::Options::default().files_open);
        let connections = limit_connections(&descriptors, &mut options, &config);
        let app = App::new(options, keys.clone(), config.auto_create, clock.clone());
        let tokens = accept_tokens(&config, &keys, &app)?;
        let has_keys = !keys.is_empty();
        hubs::wait_for_predecessor(&config.data).await;
        let kafka_listeners = kafka::bind(&config, connections.kafka, has_keys).await?;
        let amqp_listeners = amqp::bind(&config, connections.amqp, has_keys).await?;
        let http = listen(&app, config.http.as_ref()).await?;
        let node_log =
            NodeLog::open(&config, descriptors.files, clock.clone(), app.clone()).await?;
        let timeouts = OwnTimeouts::default();
        let settings = dynamic_settings(&config.data, node_log.hub(), timeouts.clone())?;
        let log = node_log.log();
        let url = http.as_ref().map(|http| http.url.clone());
        let mut services =
            Services::start(&config, &keys, &node_log, &clock, url, timeouts).await?;

        let (audit, audit_writer) = audit::queue(clock.clone());
        let audit_writer = tokio::spawn(audit_writer.run(log.clone()));
        services.watch_keys(stored_keys.changes(), audit.clone());
        services.watch_idle_entities(audit.clone());
        let log = reserve_names(log, &config.sharded);
        let shared = SharedParts {
            log,
            keys,
            stored_keys,
            tokens,
            clock,
            audit,
        };
        let amqp_services = shared.amqp_services(&services, config.auto_create);
        let kafka_services = shared.kafka_services(&services, settings);
        let stop_listeners = watch::Sender::new(false);
        let kafka = kafka_listeners.map(|listeners| {
            kafka::serve(
                listeners,
                kafka_services,
                shutdown_signal(stop_listeners.subscribe()),
            )
        });
        let amqp = amqp_listeners
            .zip(amqp_services)
            .map(|(listeners, amqp_services)| {
                let shutdown = shutdown_signal(stop_listeners.subscribe());
                amqp::serve(listeners, amqp_services, shutdown)
            });
        if let Some(amqp) = &amqp {
            app.serve_amqp(amqp.metrics.clone(), amqp.sockets.clone());
        }
        let kafka_handle = kafka.as_ref().map(|kafka| kafka.handle().clone());
        app.serve_from(shared.backend(&services, node_log.hub(), kafka_handle, config.sharded));
        Ok(Node {
            app,
            http,
            kafka,
            amqp,
            log: node_log,
            services,
            stop_listeners,
            audit_writer,
        })
    }

    pub fn http_url(&self) -> Option<&str> {
        self.http.as_ref().map(|http| http.url.as_str())
    }

    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(|http| http.address)
    }

    /// The further listeners of the HTTP API.
    pub fn more_http_addresses(&self) -> &[SocketAddr] {
        self.http.as_ref().map_or(&[], |http| &http.more)
    }

    pub fn kafka_addresses(&self) -> &[SocketAddr] {
        self.kafka
            .as_ref()
            .map_or(&[], kafka::KafkaServer::addresses)
    }

    pub fn amqp_addresses(&self) -> &[SocketAddr] {
        self.amqp.as_ref().map_or(&[], |amqp| &amqp.addresses)
    }

    /// Refuses new requests, waits for open ones, and closes the files.
    pub async fn stop(self) {
        self.app.stop();
        self.stop_listeners.send_replace(true);
        // A panic has been reported, and leaves nothing to stop.
        if let Some(http) = self.http {
            let _ = http.task.await;
        }
        if let Some(kafka) = self.kafka {
            let _ = kafka.task.await;
        }
        if let Some(amqp) = self.amqp {
            let _ = amqp.task.await;
        }
        self.services.stop().await;
        // The listeners have stopped; the last events of theirs are written when nothing else holds the queue.
        drop(self.app);
        let _ = tokio::time::timeout(AUDIT_STOP_WAIT, self.audit_writer).await;
        self.log.stop().await;
    }
}

/// Keeps clients from taking the names of sharded hubs.
fn reserve_names(log: Arc<dyn Log>, sharded: &[ShardedHub]) -> Arc<dyn Log> {
    let names = sharded.iter().map(|sharded| sharded.name.clone());
    let names = names.collect();
    Arc::new(ReservedNames { log, names })
}

/// Listens for HTTP, unless the settings have no such listener.
async fn listen(
    app: &Arc<App>,
    options: Option<&http::Options>,
) -> Result<Option<HttpListener>, NodeError> {
    let Some(options) = options else {
        return Ok(None);
    };
    let server = Server::bind(app.clone()).await?;
    let address = server.address().unwrap_or(options.listen);
    let scheme = if options.tls.is_some() {
        "https"
    } else {
        "http"
    };
    Ok(Some(HttpListener {
        url: format!("{scheme}://{address}"),
        address,
        more: server.more_addresses(),
        task: tokio::spawn(server.run()),
    }))
}
