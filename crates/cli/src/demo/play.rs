//! Sends made-up traffic to a hub as it would come, and notes when the hub took each event in.

use bytes::Bytes;
use highwater_devtools::tollbooth::Passage;
use highwater_env::Clock;
use highwater_time::Instant;
use hyper::Method;

use super::files::{PARTITIONS, TRAFFIC};
use crate::client::{Client, Server};

/// What was sent to each partition, with arrival times: what files would hold.
pub type Recorded = [Vec<u8>; PARTITIONS as usize];

pub struct Play<'a> {
    pub server: &'a Server,
    pub clock: &'a dyn Clock,
    pub passages: Vec<Passage>,
    /// How many times as fast as in life everything happens.
    pub speed: u32,
    pub recorded: Recorded,
    pub sent: usize,
}

impl Play<'_> {
    /// Until all have been sent, or it is dropped.
    pub async fn run(&mut self) -> anyhow::Result<()> {
        let mut client = Client::new(self.server)?;
        let opening = Instant::from_unix_nanos(self.clock.unix_nanos());
        let started = self.clock.elapsed();
        for index in 0..self.passages.len() {
            let passage = self.passages[index].clone();
            let due = passage.arrives_after(self.speed);
            let since = self.clock.elapsed() - started;
            tokio::time::sleep(due.saturating_sub(since)).await;
            let arrived = self.send(&mut client, &passage, opening).await?;
            let recorded = &mut self.recorded[partition_of(&passage) as usize];
            passage.write(opening, self.speed, Some(arrived), recorded);
            recorded.push(b'\n');
            self.sent += 1;
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
        let path = format!("/hubs/{TRAFFIC}/partitions/{partition}/messages");
        let kind = [("content-type", "application/json")];
        let answer = client
            .request(Method::POST, &path, &kind, Bytes::from(body))
            .await?;
        let placed = answer.success()?.json()?;
        let enqueued = placed["enqueued"].as_str().unwrap_or_default();
        Instant::parse_iso(enqueued.as_bytes())
            .ok_or_else(|| anyhow::anyhow!("the hub did not say when it took an event in"))
    }
}

/// A booth always reports to the same partition, as if it were the key.
fn partition_of(passage: &Passage) -> u32 {
    passage.booth() as u32 % PARTITIONS
}
