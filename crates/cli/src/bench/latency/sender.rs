//! Sends each batch of events when it is due, independent of the responses before.

use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use highwater_env::{Clock, RealClock};
use highwater_time::Instant;
use tokio::task::JoinSet;

use crate::bench::bench_node::append;
use crate::bench::toll_events::TollEvents;
use crate::client::{Client, Server};

pub(super) struct Sender {
    pub server: Server,
    pub hub: String,
    pub partitions: u64,
    /// Events a second.
    pub rate: u64,
    /// When the first event is due.
    pub begin_ms: i64,
    pub milliseconds: u64,
    pub connections: u64,
}

impl Sender {
    /// The latency of each batch from the due time of its first event until the durable append, in microseconds.
    pub(super) async fn run(self) -> anyhow::Result<Histogram<u64>> {
        let sender = Arc::new(self);
        let mut connections = JoinSet::new();
        for connection in 0..sender.connections {
            connections.spawn(sender.clone().send(connection));
        }
        let mut all = Histogram::new(3)?;
        while let Some(latencies) = connections.join_next().await {
            all.add(latencies??)?;
        }
        Ok(all)
    }

    /// Sends the batches of one connection, one after the other.
    async fn send(self: Arc<Sender>, connection: u64) -> anyhow::Result<Histogram<u64>> {
        let clock = RealClock::new();
        let mut client = Client::new(&self.server)?;
        let mut events = TollEvents::new(connection, 1000);
        let mut latencies = Histogram::new(3)?;
        for number in (connection..self.milliseconds).step_by(self.connections as usize) {
            let at_ms = self.begin_ms + number as i64;
            // A batch holds the events of one millisecond, so it is complete at its end.
            let wait = (i128::from(at_ms) + 1) * 1_000_000 - clock.unix_nanos();
            tokio::time::sleep(Duration::from_nanos(wait.max(0) as u64)).await;
            let mut lines = Vec::with_capacity(16 << 10);
            let due = |milliseconds: u64| self.rate * milliseconds / 1000;
            for _ in due(number)..due(number + 1) {
                events.write_at(Instant::from_unix_millis(at_ms), &mut lines);
            }
            append(&mut client, &self.hub, number % self.partitions, lines).await?;
            latencies.record(micros_since(&clock, at_ms))?;
        }
        Ok(latencies)
    }
}

pub(super) fn micros_since(clock: &RealClock, at_ms: i64) -> u64 {
    let nanos = clock.unix_nanos() - i128::from(at_ms) * 1_000_000;
    (nanos.max(0) / 1000) as u64
}
