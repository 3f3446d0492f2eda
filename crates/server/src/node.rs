//! A node: its parts put together, started and stopped.
//!
//! Every address is taken before the log is read, so that one in use is reported at once. HTTP
//! answers `/healthz` and `/readyz` meanwhile, and serves events from the moment there is a
//! [`Backend`]; Kafka clients that connect wait until then. At the end the doors are closed first, then
//! processors and coordinators, and the hub last, when nobody can want anything from it any more.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use highwater_env::random::Random;
use highwater_env::{Clock, RealDisk};
use highwater_hub::{Hub, OpenError, Progress, groups, transactions};
use highwater_log::{AdminError, HubName, HubSettings, HubSpec, Log};
use highwater_workflow::JournalError;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::{Config, Durability};
use crate::http::{self, App, Backend, Server, ServerError};
use crate::kafka;
use crate::keys::Keys;
use crate::processors::{Parts, ProcessorError, Processors};
use crate::queues;
use crate::sharded::{Reserved, Sharded};
use crate::workflows::Workflows;

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error(transparent)]
    Http(#[from] ServerError),
    #[error(transparent)]
    Kafka(#[from] kafka::ListenError),
    #[error("{error}{}", hint(error))]
    Open { path: PathBuf, error: OpenError },
    #[error("queue `{queue}` of the settings cannot be made: {error}")]
    Queue {
        queue: String,
        error: highwater_queue::CreateError,
    },
    #[error("hub `{hub}` of the settings cannot be made: {error}")]
    Hub { hub: String, error: AdminError },
    #[error(
        "`{0}` is a hub, and cannot be the name of several\n  rename [sharded.{0}], or delete the hub"
    )]
    Taken(HubName),
    #[error("workflow `{name}` cannot be started: {error}")]
    Workflow { name: String, error: JournalError },
    #[error(transparent)]
    Processors(#[from] ProcessorError),
}

fn hint(error: &OpenError) -> &'static str {
    match error {
        OpenError::Locked(_) => {
            "\n  a node runs there already: stop it, or choose another folder with --data"
        }
        OpenError::Storage { error, .. }
            if error.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            "\n  this user may not write there: change the rights, or choose another folder with --data"
        }
        _ => "",
    }
}

/// A running node.
pub struct Node {
    app: Arc<App>,
    http: Option<Http>,
    kafka: Option<kafka::Running>,
    hub: Hub,
    queues: queues::Running,
    processors: Option<Arc<Processors>>,
    coordinators: Vec<JoinHandle<()>>,
    stop_doors: watch::Sender<bool>,
    stop_coordinators: watch::Sender<bool>,
}

struct Http {
    url: String,
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Node {
    /// Ready when everything listens and every event that was ever acknowledged can be read.
    pub async fn start(config: Config, clock: Arc<dyn Clock>) -> Result<Node, NodeError> {
        let keys = Arc::new(Keys::new(config.keys.clone()));
        let options = config.http.clone().unwrap_or_default();
        let app = App::new(options, keys.clone(), config.auto_create, clock.clone());
        let doors = kafka::bind(&config).await?;
        let http = match &config.http {
            Some(options) => Some(listen(&app, options).await?),
            None => None,
        };
        let hub = open(&config, clock.clone(), app.clone()).await?;
        for wanted in &config.hubs {
            make(&hub, wanted).await?;
        }
        for sharded in &config.sharded {
            make_members(&hub, sharded, config.auto_create).await?;
        }
        let log: Arc<dyn Log> = Arc::new(hub.clone());
        let stop_coordinators = watch::Sender::new(false);
        let stop_doors = watch::Sender::new(false);

        let positions = groups::Service::new(
            log.clone(),
            clock.clone(),
            Random::from_os(),
            groups::Options::default(),
        );
        let groups = positions.handle();
        let ends = transactions::Service::new(
            log.clone(),
            clock.clone(),
            groups.clone(),
            transactions::Options::default(),
        );
        let transactions = ends.handle();
        let mut coordinators = vec![
            run("groups", positions.run(told(&stop_coordinators))),
            run("transactions", ends.run(told(&stop_coordinators))),
        ];

        let mut workflows = Workflows::default();
        for workflow in config.workflows.clone() {
            let name = workflow.definition.name.clone();
            let service = workflow.open(&log, Arc::new(groups.clone()), &clock).await;
            let service = service.map_err(|error| NodeError::Workflow { name, error })?;
            workflows.add(service.handle());
            coordinators.push(run("workflows", service.run(told(&stop_coordinators))));
        }
        let queues = queues::start(log.clone(), clock.clone(), &config.queues).await;
        let queues = queues.map_err(|(queue, error)| NodeError::Queue { queue, error })?;

        let names = config.sharded.iter();
        let names = names.map(|sharded| sharded.name.clone()).collect();
        let log: Arc<dyn Log> = Arc::new(Reserved { log, names });
        let services = highwater_kafka::Services {
            log: log.clone(),
            groups: Arc::new(groups.clone()),
            transactions: Arc::new(transactions),
            authorizer: Arc::new(kafka::Gate::new(keys)),
            clock: clock.clone(),
        };
        let kafka = doors.map(|doors| kafka::open(doors, services, told(&stop_doors)));
        let processors = match config.processors.is_empty() {
            true => None,
            false => Some(processors(&config, &hub, &groups, http.as_ref(), clock).await?),
        };
        app.serve_from(Backend {
            log,
            groups: Some(Arc::new(groups)),
            hub: Some(hub.clone()),
            kafka: kafka.as_ref().map(|kafka| kafka.handle().clone()),
            sharded: config.sharded,
            workflows,
            queues: Some(queues.queues.clone()),
            processors: processors.clone(),
        });
        Ok(Node {
            app,
            http,
            kafka,
            hub,
            queues,
            processors,
            coordinators,
            stop_doors,
            stop_coordinators,
        })
    }

    pub fn http_url(&self) -> Option<&str> {
        self.http.as_ref().map(|http| http.url.as_str())
    }

    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(|http| http.address)
    }

    pub fn kafka_addresses(&self) -> &[SocketAddr] {
        self.kafka.as_ref().map_or(&[], kafka::Running::addresses)
    }

    /// Takes no more requests, waits for those under way, and leaves the files in order.
    pub async fn stop(self) {
        self.app.stop();
        self.stop_doors.send_replace(true);
        // A task that panicked has said so, and has nothing left to stop.
        if let Some(http) = self.http {
            let _ = http.task.await;
        }
        if let Some(kafka) = self.kafka {
            let _ = kafka.task.await;
        }
        self.queues.stop().await;
        if let Some(processors) = self.processors {
            processors.stop().await;
        }
        self.stop_coordinators.send_replace(true);
        for coordinator in self.coordinators {
            let _ = coordinator.await;
        }
        let hub = self.hub;
        let troubles = tokio::task::spawn_blocking(move || hub.stop()).await;
        for trouble in troubles.unwrap_or_default() {
            tracing::warn!("{trouble}; the next start will mend it");
        }
    }
}

async fn processors(
    config: &Config,
    hub: &Hub,
    groups: &groups::Handle,
    http: Option<&Http>,
    clock: Arc<dyn Clock>,
) -> Result<Arc<Processors>, ProcessorError> {
    let mut notify = config.notify.clone();
    let reached = || http.map(|http| http.url.clone());
    notify.public_url = notify.public_url.or_else(reached);
    let parts = Parts {
        log: Arc::new(hub.clone()),
        groups: Arc::new(groups.clone()),
        clock,
    };
    Processors::start(config.processors.clone(), notify, &config.data, parts).await
}

/// Ready when the sender says true, or is gone.
fn told(stop: &watch::Sender<bool>) -> impl Future<Output = ()> + Send + 'static {
    let mut stop = stop.subscribe();
    async move {
        let _ = stop.wait_for(|stop| *stop).await;
    }
}

fn run<E: std::fmt::Display + Send + 'static>(
    name: &'static str,
    service: impl Future<Output = Result<(), E>> + Send + 'static,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        if let Err(error) = service.await {
            tracing::error!(%error, "{name} have stopped");
        }
    })
}

async fn listen(app: &Arc<App>, options: &http::Options) -> Result<Http, NodeError> {
    let server = Server::bind(app.clone()).await?;
    let address = server.address().unwrap_or(options.listen);
    let scheme = if options.tls.is_some() {
        "https"
    } else {
        "http"
    };
    Ok(Http {
        url: format!("{scheme}://{address}"),
        address,
        task: tokio::spawn(server.run()),
    })
}

/// Reads the log, which may take a while; `/readyz` says how far it is.
async fn open(config: &Config, clock: Arc<dyn Clock>, app: Arc<App>) -> Result<Hub, NodeError> {
    let options = highwater_hub::Options {
        durability: match config.durability {
            Durability::Fsync => highwater_hub::Durability::Fsync,
            Durability::Os => highwater_hub::Durability::Os,
        },
        ..highwater_hub::Options::default()
    };
    let path = config.data.clone();
    let opening = tokio::task::spawn_blocking(move || {
        let progress = |progress: Progress| {
            let told = app.progress();
            told.total.store(progress.total as u64, Ordering::Relaxed);
            told.done.fetch_max(progress.done as u64, Ordering::Relaxed);
            report(&progress);
        };
        Hub::open(Arc::new(RealDisk), &path, options, clock, &progress)
    });
    match opening.await {
        Ok(opened) => opened.map_err(|error| NodeError::Open {
            path: config.data.clone(),
            error,
        }),
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

fn report(progress: &Progress) {
    let (place, recovery) = (&progress.place, &progress.recovery);
    if let Some(cut) = &recovery.cut {
        tracing::warn!(%place, ?cut, "a torn end was cut off; nothing that was answered was in it");
    }
    if let Some(damage) = &recovery.damage {
        tracing::error!(%place, ?damage, "a file is damaged");
    }
    let tenths = |done: usize| done * 10 / progress.total;
    if tenths(progress.done) > tenths(progress.done - 1) && progress.total >= 10 {
        tracing::info!("read {} of {} partitions", progress.done, progress.total);
    }
}

/// A hub of the settings: made if it is not there, grown if it is smaller, and set as they say. It may
/// have been grown since they were written, and stays so.
async fn make(log: &dyn Log, wanted: &HubSpec) -> Result<(), NodeError> {
    let failed = |error| NodeError::Hub {
        hub: wanted.name.to_string(),
        error,
    };
    let Some(hub) = log.hub(wanted.name.as_str()) else {
        log.create(wanted.clone()).await.map_err(failed)?;
        return Ok(());
    };
    if hub.partitions < wanted.partitions {
        log.grow(&wanted.name, wanted.partitions)
            .await
            .map_err(failed)?;
    }
    if hub.settings != wanted.settings {
        log.change(&wanted.name, wanted.settings.clone())
            .await
            .map_err(failed)?;
    }
    Ok(())
}

/// The hubs that a name leads to, made if they are not there.
async fn make_members(
    log: &dyn Log,
    sharded: &Sharded,
    partitions: Option<u32>,
) -> Result<(), NodeError> {
    if log.hub(sharded.name.as_str()).is_some() {
        return Err(NodeError::Taken(sharded.name.clone()));
    }
    for name in &sharded.hubs {
        if log.hub(name.as_str()).is_none() {
            let wanted = HubSpec {
                name: name.clone(),
                partitions: partitions.unwrap_or(http::PARTITIONS_DEFAULT),
                settings: HubSettings::default(),
            };
            make(log, &wanted).await?;
        }
    }
    Ok(())
}
