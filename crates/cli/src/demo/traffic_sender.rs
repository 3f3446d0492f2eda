//! Sends the generated events to a hub in time, and records when the hub enqueued each.

use bytes::Bytes;
use highwater_devtools::tollbooth::Passage;
use highwater_env::Clock;
use highwater_time::Instant;
use hyper::Method;

use super::files::{EVENT_HUB, PARTITIONS};
use crate::client::{Client, Server};

/// The events sent to each partition as JSON lines, with arrival times.
pub(super) type SentEvents = [Vec<u8>; PARTITIONS as usize];

pub(super) struct TrafficSender<'a> {
    pub server: &'a Server,
    pub clock: &'a dyn Clock,
    pub passages: &'a [Passage],
    /// The factor by which the demo is faster than real time.
    pub speed: u32,
    pub events: SentEvents,
    pub count: usize,
}

impl TrafficSender<'_> {
    /// Sends all events again and again. Each round is recorded in place of the one before.
    pub(super) async fn run_forever(&mut self) -> anyhow::Result<()> {
        loop {
            self.run().await?;
            self.events = SentEvents::default();
        }
    }

    /// Sends all events once.
    pub(super) async fn run(&mut self) -> anyhow::Result<()> {
        let mut client = Client::new(self.server)?;
        let opening = Instant::from_unix_nanos(self.clock.unix_nanos());
        let started = self.clock.elapsed();
        for passage in self.passages {
            let due = passage.arrives_after(self.speed);
            let since = self.clock.elapsed() - started;
            tokio::time::sleep(due.saturating_sub(since)).await;
            let arrived = self.send(&mut client, passage, opening).await?;
            let sent = &mut self.events[partition_of(passage) as usize];
            passage.write(opening, self.speed, Some(arrived), sent);
            sent.push(b'\n');
            self.count += 1;
        }
        Ok(())
    }

    async fn send(
        &self,
        client: &mut Client,
        passage: &Passage,
        opening: Instant,
    ) -> anyhow::Result<Instant> {
        let mut body = Vec::new();
        passage.write(opening, self.speed, None, &mut body);
        let partition = partition_of(passage);
        let path = format!("/hubs/{EVENT_HUB}/partitions/{partition}/messages");
        let kind = [("content-type", "application/json")];
        let answer = client
            .request(Method::POST, &path, &kind, Bytes::from(body))
            .await?;
        let appended = answer.success()?.json()?;
        let enqueued = appended["enqueued"].as_str().unwrap_or_default();
        Instant::parse_iso(enqueued.as_bytes())
            .ok_or_else(|| anyhow::anyhow!("the response has no enqueue time"))
    }
}

/// The booth is the partition key.
fn partition_of(passage: &Passage) -> u32 {
    passage.booth() as u32 % PARTITIONS
}
