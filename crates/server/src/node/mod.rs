//! A node: its parts put together, started and stopped.
//!
//! Every address is taken before the log is read, so that one in use is reported at once. HTTP
//! answers `/healthz` and `/readyz` meanwhile, and serves events from the moment there is a
//! [`Backend`]; Kafka clients that connect wait until then. At the end the doors are closed first, then
//! what works on the hubs, and the hubs last, when nobody can want anything from them any more.

mod hubs;
mod work;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use highwater_env::Clock;
use highwater_hub::{Hub, OpenError};
use highwater_log::{AdminError, HubName, Log};
use highwater_workflow::JournalError;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::http::{self, App, Backend, Server, ServerError};
use crate::kafka;
use crate::keys::Keys;
use crate::processors::ProcessorError;
use crate::sharded::Reserved;
use work::Work;

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
    #[error("the jobs that are kept cannot be read: {0}")]
    Jobs(std::io::Error),
    #[error("hub `{hub}` of the settings cannot be made: {error}")]
    Hub { hub: String, error: AdminError },
    #[error(
        "`{0}` is a hub, and cannot be the name of several\n  rename [sharded.{0}], or delete the hub"
    )]
    Taken(HubName),
    #[error("workflow `{name}` cannot be started: {error}")]
    Workflow { name: String, error: JournalError },
    #[error("people cannot be told of what happens: {0}")]
    Notify(String),
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
    work: Work,
    stop_doors: watch::Sender<bool>,
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
        let hub = hubs::prepare(&config, clock.clone(), app.clone()).await?;
        let log: Arc<dyn Log> = Arc::new(hub.clone());
        let url = http.as_ref().map(|http| http.url.clone());
        let work = Work::start(&config, &log, &clock, url).await?;

        let names = config.sharded.iter();
        let names = names.map(|sharded| sharded.name.clone()).collect();
        let log: Arc<dyn Log> = Arc::new(Reserved { log, names });
        let services = highwater_kafka::Services {
            log: log.clone(),
            groups: Arc::new(work.groups.clone()),
            transactions: Arc::new(work.transactions.clone()),
            authorizer: Arc::new(kafka::Gate::new(keys)),
            clock,
        };
        let stop_doors = watch::Sender::new(false);
        let kafka = doors.map(|doors| kafka::open(doors, services, told(&stop_doors)));
        app.serve_from(Backend {
            log,
            groups: Some(Arc::new(work.groups.clone())),
            hub: Some(hub.clone()),
            kafka: kafka.as_ref().map(|kafka| kafka.handle().clone()),
            sharded: config.sharded,
            jobs: Some(work.jobs.clone()),
            workflows: work.workflows.clone(),
            queues: Some(work.queues.queues.clone()),
            processors: work.processors.clone(),
        });
        Ok(Node {
            app,
            http,
            kafka,
            hub,
            work,
            stop_doors,
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
        self.work.stop().await;
        let hub = self.hub;
        let troubles = tokio::task::spawn_blocking(move || hub.stop()).await;
        for trouble in troubles.unwrap_or_default() {
            tracing::warn!("{trouble}; the next start will mend it");
        }
    }
}

/// Ready when the sender says true, or is gone.
fn told(stop: &watch::Sender<bool>) -> impl Future<Output = ()> + Send + 'static {
    let mut stop = stop.subscribe();
    async move {
        let _ = stop.wait_for(|stop| *stop).await;
    }
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
