//! Customers: requests at a rate that does not wait for the answers, each sent until it is accepted.
//!
//! Request `n` is due at a time that the rate alone decides, and its latency counts from then. A request
//! that gets no answer is sent again with the same `Idempotency-Key`, so that a customer is served once
//! whatever happens on the way. What was accepted is written to a ledger, which the checker reads.

mod customer;
mod schedule;
mod wire;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use highwater_env::{Clock, RealClock, disk};

pub use self::customer::{Customers, Mix};
use self::schedule::Schedule;
use self::wire::Wire;
use crate::ledger::{Entry, Wish};

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

/// What is shared by the connections.
struct Shared {
    load: Load,
    customers: Customers,
    schedule: Schedule,
    next: AtomicU64,
    clock: RealClock,
}

/// What a connection saw.
struct Seen {
    /// Microseconds from when a request was due until it was accepted; calm, and in the spike.
    latencies: [Histogram<u64>; 2],
    entries: Vec<Entry>,
    /// Requests that had to be sent again, and such that were given up.
    repeated: u64,
    lost: u64,
    first_trouble: Option<String>,
}

/// What came of a load.
pub struct Summary {
    pub accepted: u64,
    pub lost: u64,
}

impl Load {
    pub async fn run(self) -> anyhow::Result<Summary> {
        let shared = Arc::new(Shared {
            customers: Customers::new(&self.name, self.mix.clone()),
            schedule: Schedule::new(self.requests, self.rate, self.spike),
            next: AtomicU64::new(0),
            clock: RealClock::new(),
            load: self,
        });
        let connections = shared.load.connections;
        let tasks: Vec<_> = (0..connections)
            .map(|_| tokio::spawn(connection(shared.clone())))
            .collect();
        let mut seen = Seen::new()?;
        for task in tasks {
            seen.add(task.await??)?;
        }
        let took = shared.clock.elapsed();
        shared.load.write_ledger(&seen.entries)?;
        shared.load.tell(&seen, took)
    }

    fn write_ledger(&self, entries: &[Entry]) -> anyhow::Result<()> {
        let Some(path) = &self.ledger else {
            return Ok(());
        };
        let mut file = disk::create_atomic(path)?;
        let mut text = Vec::new();
        for entry in entries {
            serde_json::to_writer(&mut text, entry)?;
            text.push(b'\n');
        }
        file.write_all(&text)?;
        Ok(file.commit()?)
    }

    fn tell(&self, seen: &Seen, took: Duration) -> anyhow::Result<Summary> {
        for (name, latencies) in ["calm", "spike"].iter().zip(&seen.latencies) {
            if !latencies.is_empty() {
                let at = |quantile| Duration::from_micros(latencies.value_at_quantile(quantile));
                let (count, most) = (latencies.len(), Duration::from_micros(latencies.max()));
                println!(
                    "{name:<6} accepted={count} p50={:?} p99={:?} p99.9={:?} max={most:?}",
                    at(0.5),
                    at(0.99),
                    at(0.999),
                );
            }
        }
        let deliveries = seen
            .entries
            .iter()
            .filter(|entry| entry.wish == Wish::Deliver)
            .count();
        println!(
            "total  accepted={deliveries} cancelled={} sent_again={} given_up={} elapsed={:.1}s",
            seen.entries.len() - deliveries,
            seen.repeated,
            seen.lost,
            took.as_secs_f64(),
        );
        if let Some(trouble) = &seen.first_trouble {
            println!("the first trouble: {trouble}");
        }
        Ok(Summary {
            accepted: deliveries as u64,
            lost: seen.lost,
        })
    }
}

impl Seen {
    fn new() -> anyhow::Result<Seen> {
        let histogram = || Histogram::new_with_bounds(1, 3_600_000_000, 3);
        Ok(Seen {
            latencies: [histogram()?, histogram()?],
            entries: Vec::new(),
            repeated: 0,
            lost: 0,
            first_trouble: None,
        })
    }

    fn add(&mut self, other: Seen) -> anyhow::Result<()> {
        for (own, other) in self.latencies.iter_mut().zip(&other.latencies) {
            own.add(other)?;
        }
        self.entries.extend(other.entries);
        self.repeated += other.repeated;
        self.lost += other.lost;
        self.first_trouble = self.first_trouble.take().or(other.first_trouble);
        Ok(())
    }
}

/// Takes the next request that is due, waits for its time, and sends it until it is accepted.
async fn connection(shared: Arc<Shared>) -> anyhow::Result<Seen> {
    let mut seen = Seen::new()?;
    let load = &shared.load;
    let mut wire = Wire::new(&load.to, Duration::from_millis(load.timeout_ms));
    let mut regretted = Vec::new();
    loop {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        let Some((due, in_spike)) = shared.schedule.due(number) else {
            break;
        };
        if let Some(wait) = due.checked_sub(shared.clock.elapsed()) {
            tokio::time::sleep(wait).await;
        }
        let request = shared.customers.request(number, &load.to);
        let Some(body) = send(&mut wire, &request, 202, load.tries, &mut seen).await else {
            continue;
        };
        let took = shared.clock.elapsed().saturating_sub(due).as_micros() as u64;
        seen.latencies[usize::from(in_spike)].saturating_record(took.max(1));
        let Some(id) = delivery_id(&body) else {
            seen.trouble(format!(
                "an answer without an id: {}",
                String::from_utf8_lossy(&body)
            ));
            continue;
        };
        seen.entries.push(Entry {
            id: id.clone(),
            wish: Wish::Deliver,
        });
        // Some change their mind at once, others when their delivery may be under way.
        if shared.customers.changes_mind(number) {
            match number % 2 {
                0 => cancel(&shared, &mut wire, id, &mut seen).await,
                _ => regretted.push(id),
            }
        }
    }
    for id in regretted {
        cancel(&shared, &mut wire, id, &mut seen).await;
    }
    Ok(seen)
}

async fn cancel(shared: &Shared, wire: &mut Wire, id: String, seen: &mut Seen) {
    let request = shared.customers.cancellation(&id, &shared.load.to);
    if send(wire, &request, 204, shared.load.tries, seen)
        .await
        .is_some()
    {
        let wish = Wish::Cancel;
        seen.entries.push(Entry { id, wish });
    }
}

/// Sends until the answer is the one wanted; its body, or nothing when it was given up.
async fn send(
    wire: &mut Wire,
    request: &[u8],
    wanted: u16,
    tries: u32,
    seen: &mut Seen,
) -> Option<Vec<u8>> {
    const PAUSE: Duration = Duration::from_millis(500);
    for attempt in 0..tries {
        if attempt > 0 {
            seen.repeated += u64::from(attempt == 1);
            tokio::time::sleep(PAUSE).await;
        }
        match wire.exchange(request).await {
            Ok((status, body)) if status == wanted => return Some(body),
            Ok((status, body)) => {
                let text = String::from_utf8_lossy(&body).into_owned();
                seen.trouble(format!("status {status}: {text}"));
                // What the service does not understand it will not understand next time either.
                if matches!(status, 400..=499) && status != 429 && status != 408 {
                    break;
                }
            }
            Err(error) => seen.trouble(error.to_string()),
        }
    }
    seen.lost += 1;
    None
}

impl Seen {
    fn trouble(&mut self, text: String) {
        self.first_trouble.get_or_insert(text);
    }
}

/// From `{"deliveryId":"..."`, which is how the answer begins.
fn delivery_id(body: &[u8]) -> Option<String> {
    const BEFORE: &str = "\"deliveryId\":\"";
    let text = std::str::from_utf8(body).ok()?;
    let (_, rest) = text.split_once(BEFORE)?;
    rest.split('"').next().map(str::to_owned)
}
