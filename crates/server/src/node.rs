//! A node: its parts put together, started and stopped.
//!
//! HTTP listens first, so that `/healthz` and `/readyz` answer while the log is being read; it
//! serves events from the moment there is a [`Backend`].

use std::net::SocketAddr;
use std::sync::Arc;

use highwater_env::Clock;
use highwater_log::{AdminError, HubSpec, Log, MemoryLog};
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::http::{self, App, Backend, Server, ServerError};
use crate::keys::Keys;

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error(transparent)]
    Http(#[from] ServerError),
    #[error("hub `{hub}` of the settings cannot be made: {error}")]
    Hub { hub: String, error: AdminError },
}

/// A running node.
pub struct Node {
    app: Arc<App>,
    http: Option<Http>,
}

struct Http {
    url: String,
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Node {
    /// Ready when everything listens and every event that was ever acknowledged can be read.
    pub async fn start(config: Config, clock: Arc<dyn Clock>) -> Result<Node, NodeError> {
        let options = config.http.clone().unwrap_or_default();
        let keys = Arc::new(Keys::new(config.keys.clone()));
        let app = App::new(options, keys, config.auto_create, clock.clone());
        let http = match &config.http {
            Some(options) => Some(listen(&app, options).await?),
            None => None,
        };
        let backend = open(&config, clock).await?;
        for hub in &config.hubs {
            make(&*backend.log, hub).await?;
        }
        app.serve_from(backend);
        Ok(Node { app, http })
    }

    pub fn http_url(&self) -> Option<&str> {
        self.http.as_ref().map(|http| http.url.as_str())
    }

    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(|http| http.address)
    }

    pub fn kafka_addresses(&self) -> Vec<SocketAddr> {
        Vec::new()
    }

    /// Takes no more requests and waits for those under way.
    pub async fn stop(self) {
        self.app.stop();
        if let Some(http) = self.http {
            // A server that panicked has nothing left to stop.
            let _ = http.task.await;
        }
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

/// The log and what belongs to it.
async fn open(_config: &Config, clock: Arc<dyn Clock>) -> Result<Backend, NodeError> {
    let log = MemoryLog::new(move || (clock.unix_nanos() / 1_000_000) as i64);
    Ok(Backend {
        log: Arc::new(log),
        groups: None,
    })
}

/// A hub of the settings: made if it is not there, grown if it is smaller, and set as it says.
async fn make(log: &dyn Log, wanted: &HubSpec) -> Result<(), NodeError> {
    let failed = |error| NodeError::Hub {
        hub: wanted.name.to_string(),
        error,
    };
    let Some(hub) = log.hub(wanted.name.as_str()) else {
        log.create(wanted.clone()).await.map_err(failed)?;
        return Ok(());
    };
    if hub.partitions != wanted.partitions {
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
