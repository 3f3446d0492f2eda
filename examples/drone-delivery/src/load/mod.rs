//! Customers: requests at a rate that does not wait for the answers, each sent until it is accepted.
//!
//! Request `n` is due at a time that the rate alone decides, and its latency counts from then. A request
//! that gets no answer is sent again with the same `Idempotency-Key`, so that a customer is served once
//! whatever happens on the way. What was accepted is written to a ledger, which the checker reads.

mod book;
mod connection;
mod customer;
mod generator;
mod schedule;

use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::Context;
use highwater_env::{Clock, RealClock};

pub use self::book::Book;
pub use self::customer::{Customers, Mix};
use self::generator::Generator;
pub use self::schedule::Schedule;
use crate::ledger::Ledger;

/// Send delivery requests to the public API.
#[derive(Clone, Debug, clap::Args)]
pub struct Load {
    /// The public API, as host:port
    #[arg(long, default_value = "127.0.0.1:7407")]
    pub to: String,
    /// How many requests there are; none with --seconds
    #[arg(long, default_value_t = 1000)]
    pub requests: u64,
    /// Requests a second
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub rate: u64,
    /// Requests a second in the middle third
    #[arg(long)]
    pub spike: Option<u64>,
    /// Connections that the requests are spread over
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=8000))]
    pub connections: u64,
    /// An answer that takes longer is waited for no more
    #[arg(long, default_value_t = 10_000)]
    pub timeout_ms: u64,
    /// How often a request is sent before it is given up
    #[arg(long, default_value_t = 60)]
    pub tries: u32,
    /// Begins the names of owners and parcels and the keys of requests, so that two loads do not repeat
    /// each other
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
        Schedule::new(self.requests, self.rate, self.spike)
    }

    /// On a thread of its own, which ends when nobody waits for this any more.
    pub async fn run(self) -> anyhow::Result<Book> {
        self.run_watched(Arc::default()).await
    }

    /// Tells while it runs how many requests have been accepted.
    pub async fn run_watched(self, accepted: Arc<AtomicU64>) -> anyhow::Result<Book> {
        let stop = StopAtEnd::default();
        let stopped = stop.0.clone();
        let sending = tokio::task::spawn_blocking(move || self.send_all(&stopped, &accepted));
        sending.await?
    }

    fn send_all(&self, stop: &AtomicBool, accepted: &AtomicU64) -> anyhow::Result<Book> {
        let mut addresses = self.to.to_socket_addrs();
        let address = addresses.as_mut().ok().and_then(Iterator::next);
        let address = address.with_context(|| format!("{} is no address", self.to))?;
        let ledger = self.ledger.as_deref().map(Ledger::create).transpose()?;
        let mut book = Book::new(ledger)?;
        let clock = RealClock::new();
        Generator::new(self, address, &clock, &mut book)?.run(stop, accepted)?;
        book.close()?;
        book.tell(clock.elapsed());
        Ok(book)
    }
}

#[derive(Default)]
struct StopAtEnd(Arc<AtomicBool>);

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
