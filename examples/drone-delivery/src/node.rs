//! The hubs of a Highwater node, over HTTP.

use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::client::{CallError, Client};

/// An event for a hub: a CloudEvent whose subject is the key.
#[derive(Clone, Debug, Serialize)]
pub struct CloudEvent<'a, D> {
    pub specversion: &'static str,
    pub id: &'a str,
    pub source: &'static str,
    #[serde(rename = "type")]
    pub kind: &'a str,
    pub subject: &'a str,
    pub data: &'a D,
}

/// A batch of events in its wire format.
pub struct Batch {
    text: Vec<u8>,
    count: usize,
}

impl Batch {
    pub fn new() -> Batch {
        const USUAL_BYTES: usize = 96 << 10;
        Batch {
            text: Vec::with_capacity(USUAL_BYTES),
            count: 0,
        }
    }

    pub fn push(&mut self, event: &CloudEvent<'_, impl Serialize>) {
        self.text.push(if self.count == 0 { b'[' } else { b',' });
        serde_json::to_writer(&mut self.text, event).expect("texts and finite numbers");
        self.count += 1;
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// The batch, which must not be empty.
    pub fn text(mut self) -> Bytes {
        self.text.push(b']');
        self.text.into()
    }
}

impl Default for Batch {
    fn default() -> Batch {
        Batch::new()
    }
}

/// Events of a partition and the next offset.
#[derive(Debug, Deserialize)]
pub struct Page {
    pub messages: Vec<Message>,
    pub next: i64,
}

#[derive(Debug, Deserialize)]
pub struct Message {
    pub value: Option<Box<RawValue>>,
}

/// Why a request to the node failed.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the node answered {status}: {text}")]
    Refused { status: u16, text: String },
    #[error("the node's answer cannot be read: {0}")]
    Answer(#[from] serde_json::Error),
}

pub struct Node {
    client: Client,
}

impl Node {
    pub fn new(address: &str, timeout: Duration) -> Node {
        Node {
            client: Client::new(address, timeout),
        }
    }

    /// Appends by key. Completes when all events are durable; after an error some may be.
    pub async fn send(&mut self, hub: &str, batch: Bytes) -> Result<(), NodeError> {
        self.post(&format!("/hubs/{hub}/messages"), batch).await
    }

    /// Appends to one partition.
    pub async fn send_to(
        &mut self,
        hub: &str,
        partition: u32,
        batch: Bytes,
    ) -> Result<(), NodeError> {
        let path = format!("/hubs/{hub}/partitions/{partition}/messages");
        self.post(&path, batch).await
    }

    async fn post(&mut self, path: &str, batch: Bytes) -> Result<(), NodeError> {
        let kind = [("content-type", "application/cloudevents-batch+json")];
        let reply = self.client.call(Method::POST, path, &kind, batch).await?;
        match reply.is_success() {
            true => Ok(()),
            false => Err(refused(reply)),
        }
    }

    /// Waits up to `wait` seconds for events.
    pub async fn read(
        &mut self,
        hub: &str,
        partition: u32,
        from: i64,
        wait: u64,
    ) -> Result<Page, NodeError> {
        let path = format!(
            "/hubs/{hub}/partitions/{partition}/messages?from={from}&max=1000&wait={wait}s"
        );
        let reply = self.client.get(&path).await?;
        match reply.is_success() {
            true => Ok(serde_json::from_slice(&reply.body)?),
            false => Err(refused(reply)),
        }
    }

    pub async fn partitions(&mut self, hub: &str) -> Result<u32, NodeError> {
        self.describe(hub).await.map(|hub| hub.partitions)
    }

    /// Number of records ever appended.
    pub async fn appended(&mut self, hub: &str) -> Result<u64, NodeError> {
        let hub = self.describe(hub).await?;
        Ok(hub.places.iter().map(|place| place.end).sum())
    }

    async fn describe(&mut self, hub: &str) -> Result<HubDescription, NodeError> {
        let reply = self.client.get(&format!("/api/hubs/{hub}")).await?;
        match reply.is_success() {
            true => Ok(serde_json::from_slice(&reply.body)?),
            false => Err(refused(reply)),
        }
    }
}

#[derive(Deserialize)]
struct HubDescription {
    partitions: u32,
    #[serde(default)]
    places: Vec<PartitionInfo>,
}

#[derive(Deserialize)]
struct PartitionInfo {
    end: u64,
}

fn refused(reply: crate::client::Reply) -> NodeError {
    NodeError::Refused {
        status: reply.status,
        text: reply.text(),
    }
}
