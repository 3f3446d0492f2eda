//! Runs one service as a process: opens its journal, binds its address, serves until it is killed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use highwater_env::random::Random;
use highwater_env::{Clock, RealClock};
use parking_lot::Mutex;
use tokio::net::TcpListener;

use crate::chaos::Faults;
use crate::http::{Service, ServiceServer};
use crate::ingestion::{HubWriters, Ingestion};
use crate::journal::Store;
use crate::node::Node;
use crate::services::account::AccountService;
use crate::services::delivery::{DeliveryService, publish};
use crate::services::drone::DroneService;
use crate::services::history::{self, HistoryService};
use crate::services::package::PackageService;
use crate::services::third_party::ThirdPartyService;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    Account,
    Package,
    ThirdParty,
    Drone,
    Delivery,
    History,
    Ingestion,
}

impl Kind {
    pub const ALL: [Kind; 7] = [
        Kind::Account,
        Kind::Package,
        Kind::ThirdParty,
        Kind::Drone,
        Kind::Delivery,
        Kind::History,
        Kind::Ingestion,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Account => "account",
            Kind::Package => "package",
            Kind::ThirdParty => "third-party",
            Kind::Drone => "drone",
            Kind::Delivery => "delivery",
            Kind::History => "history",
            Kind::Ingestion => "ingestion",
        }
    }
}

/// Run one service.
#[derive(Clone, Debug, clap::Args)]
pub struct Serve {
    pub service: Kind,
    /// Address to listen on
    #[arg(long)]
    pub listen: SocketAddr,
    /// Folder for the journal
    #[arg(long, default_value = "data")]
    pub data: PathBuf,
    /// The Highwater node, as host:port
    #[arg(long, default_value = "127.0.0.1:8080")]
    pub node: String,
    /// Seed of the injected faults
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// third-party: range of the drones in km
    #[arg(long, default_value_t = 100.0)]
    pub range_km: f64,
    /// drone: number of drones
    #[arg(long, default_value_t = 1_000_000)]
    pub drones: u32,
    /// ingestion: base URL of deliveries
    #[arg(long, default_value = "http://127.0.0.1:7405")]
    pub delivery_url: String,
    #[command(flatten)]
    pub faults: Faults,
}

/// Timeout of requests to the node; longer than its longest poll.
const NODE_TIMEOUT: Duration = Duration::from_secs(15);

impl Serve {
    pub async fn run(self) -> anyhow::Result<()> {
        if let Some(problem) = self.faults.problem() {
            anyhow::bail!("{problem}");
        }
        let listener = TcpListener::bind(self.listen).await;
        let listener = listener.with_context(|| format!("cannot listen on {}", self.listen))?;
        let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
        let data = self.data.as_path();
        match self.service {
            Kind::Account => {
                let store = Store::open(data, clock).await?;
                self.open(listener, AccountService { store }).await
            }
            Kind::Package => {
                let store = Store::open(data, clock).await?;
                self.open(listener, PackageService { store }).await
            }
            Kind::ThirdParty => {
                let store = Store::open(data, clock).await?;
                let range_km = self.range_km;
                self.open(listener, ThirdPartyService { store, range_km })
                    .await
            }
            Kind::Drone => {
                let store = Store::open(data, clock.clone()).await?;
                let drones = self.drones;
                let service = DroneService {
                    store,
                    drones,
                    clock,
                };
                self.open(listener, service).await
            }
            Kind::Delivery => self.delivery(listener, clock).await,
            Kind::History => self.history(listener, clock).await,
            Kind::Ingestion => {
                let service = Ingestion {
                    writers: HubWriters::open(&self.node),
                    random: Mutex::new(Random::from_os()),
                    delivery_url: self.delivery_url.trim_end_matches('/').to_owned(),
                };
                self.open(listener, service).await
            }
        }
    }

    async fn open(&self, listener: TcpListener, service: impl Service) -> anyhow::Result<()> {
        let server = ServiceServer::new(service, self.faults.clone(), self.seed);
        Ok(server.serve(listener).await?)
    }

    async fn delivery(&self, listener: TcpListener, clock: Arc<dyn Clock>) -> anyhow::Result<()> {
        let store = Arc::new(Store::open(&self.data.join("deliveries"), clock.clone()).await?);
        let published = Store::open(&self.data.join("published"), clock.clone()).await?;
        let node = Node::new(&self.node, NODE_TIMEOUT);
        let publishing = publish::run(store.clone(), published, node);
        let serving = self.open(listener, DeliveryService { store, clock });
        tokio::select! {
            ended = publishing => Ok(ended?),
            ended = serving => ended,
        }
    }

    async fn history(&self, listener: TcpListener, clock: Arc<dyn Clock>) -> anyhow::Result<()> {
        let store = Arc::new(Store::open(&self.data, clock).await?);
        let following = history::follow_hub(store.clone(), &self.node, NODE_TIMEOUT);
        tokio::select! {
            () = following => Ok(()),
            ended = self.open(listener, HistoryService { store }) => ended,
        }
    }
}
