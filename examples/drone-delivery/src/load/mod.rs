//! The load generator: requests at a fixed rate, independent of responses, each sent until it is accepted.
//!
//! The rate alone determines when request `n` is due, and its latency counts from then. A request without a response is
//! sent again with the same `Idempotency-Key`, so that each customer is served once. Accepted requests are written to a
//! ledger, which the checker reads.

mod customer;
mod report;
mod sender;

use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use highwater_devtools::load::{LoadOptions, Schedule, generate};
use highwater_env::{Clock, RealClock};

pub use self::customer::{Customers, Mix};
pub use self::report::LoadReport;
use self::sender::Sender;
use crate::ledger::Ledger;

/// Delay before a request is sent again.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Send delivery requests to the public API.
#[derive(Clone, Debug, clap::Args)]
pub struct Load {
    /// The public API, as host:port
    #[arg(long, default_value = "127.0.0.1:7407")]
    pub to: String,
    /// Number of requests; 0 with --seconds
    #[arg(long, default_value_t = 1000)]
    pub requests: u64,
    /// Requests a second
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub rate: u64,
    /// Requests a second in the middle third
    #[arg(long)]
    pub spike: Option<u64>,
    /// Number of connections
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=8000))]
    pub connections: u64,
    /// Timeout of a response in milliseconds
    #[arg(long, default_value_t = 10_000)]
    pub timeout_ms: u64,
    /// Attempts per request
    #[arg(long, default_value_t = 60)]
    pub tries: u32,
    /// Prefix of owner and parcel names and of idempotency keys, so that two loads do not collide
    #[arg(long, default_value = "load")]
    pub name: String,
    /// File for the ids of accepted requests
    #[arg(long)]
    pub ledger: Option<PathBuf>,
    #[command(flatten)]
    pub mix: Mix,
}

impl Load {
    pub fn schedule(&self) -> Schedule {
        Schedule::of_requests(self.requests, self.rate, self.spike)
    }

    /// Runs on a thread of its own, which stops when this future is dropped.
    pub async fn run(self) -> anyhow::Result<LoadReport> {
        self.run_watched(Arc::default()).await
    }

    /// Also updates the number of accepted requests while it runs.
    pub async fn run_watched(self, accepted: Arc<AtomicU64>) -> anyhow::Result<LoadReport> {
        let stop = StopAtEnd::default();
        let stopped = stop.0.clone();
        let sending = tokio::task::spawn_blocking(move || self.send_all(&stopped, &accepted));
        sending.await?
    }

    fn send_all(&self, stop: &AtomicBool, accepted: &AtomicU64) -> anyhow::Result<LoadReport> {
        let mut addresses = self.to.to_socket_addrs();
        let address = addresses.as_mut().ok().and_then(Iterator::next);
        let address = address.with_context(|| format!("{} is no address", self.to))?;
        let ledger = self.ledger.as_deref().map(Ledger::create).transpose()?;
        let mut report = LoadReport::new(ledger)?;
        let clock = RealClock::new();
        let options = LoadOptions {
            schedule: self.schedule(),
            address,
            connections: self.connections as usize,
            timeout: Duration::from_millis(self.timeout_ms),
            tries: self.tries,
            retry_delay: RETRY_DELAY,
        };
        let mut sender = Sender {
            customers: Customers::new(&self.name, &self.to, self.mix.clone()),
            to_cancel: Vec::new(),
            report: &mut report,
            stop,
            accepted,
        };
        generate(&options, &clock, &mut sender)?;
        report.close()?;
        report.print(clock.elapsed());
        Ok(report)
    }
}

#[derive(Default)]
struct StopAtEnd(Arc<AtomicBool>);

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
