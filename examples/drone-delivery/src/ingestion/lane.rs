//! Requests that come in while an append is under way share the next one.
//!
//! A lane is a task with a connection to the node. It takes whatever has gathered, sends it as one
//! batch, and tells every caller when the node has all of it on its disk. So the node has a request for
//! many of ours, and the more there is to do, the cheaper each one gets. A batch that failed is sent
//! again for a while: what the node took the first time is then there twice, under the same id.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};

use crate::node::{CloudEvent, Node};

/// What waits for a lane; beyond that callers are told to come again.
const WAITING_MAX: usize = 32_768;
/// What goes together: so many requests, and so many bytes of them.
const BATCH_MAX: usize = 1024;
const BATCH_BYTES_MAX: usize = 400 << 10;
/// How often a batch is sent, and the pause between.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(200);
const TIMEOUT: Duration = Duration::from_secs(5);

/// Why a request is not on the hub, as far as anybody knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Too many wait already; this one was not sent.
    Full,
    /// The node did not take it.
    Node(String),
}

struct Item {
    hub: &'static str,
    id: String,
    key: String,
    data: Bytes,
    done: oneshot::Sender<Result<(), Refusal>>,
}

/// Several lanes, used in turn.
pub struct Lanes {
    lanes: Vec<mpsc::Sender<Item>>,
    next: AtomicUsize,
}

impl Lanes {
    /// To the node at `address`, which is host and port.
    pub fn open(address: &str, count: usize) -> Lanes {
        let open = |_| {
            let (sender, receiver) = mpsc::channel(WAITING_MAX);
            tokio::spawn(run(receiver, Node::new(address, TIMEOUT)));
            sender
        };
        Lanes {
            lanes: (0..count.max(1)).map(open).collect(),
            next: AtomicUsize::new(0),
        }
    }

    /// `id` names the event, `key` says which partition it belongs to, `data` is JSON.
    pub async fn send(
        &self,
        hub: &'static str,
        id: &str,
        key: &str,
        data: Bytes,
    ) -> Result<(), Refusal> {
        let (done, told) = oneshot::channel();
        let item = Item {
            hub,
            id: id.to_owned(),
            key: key.to_owned(),
            data,
            done,
        };
        let lane = self.next.fetch_add(1, Ordering::Relaxed) % self.lanes.len();
        self.lanes[lane].try_send(item).map_err(|_| Refusal::Full)?;
        let gone = |_| Err(Refusal::Node("the way to the node has ended".into()));
        told.await.unwrap_or_else(gone)
    }
}

async fn run(mut waiting: mpsc::Receiver<Item>, mut node: Node) {
    let mut items = Vec::with_capacity(BATCH_MAX);
    while waiting.recv_many(&mut items, BATCH_MAX).await > 0 {
        // A batch goes to one hub, and most are for the same.
        items.sort_by_key(|item| item.hub);
        while let Some(first) = items.first() {
            let hub = first.hub;
            let rest = items.split_off(together(&items));
            let sent = send(&mut node, hub, &items).await;
            for item in items.drain(..) {
                // The caller may have gone away.
                let _ = item.done.send(sent.clone());
            }
            items = rest;
        }
    }
}

/// How many of the first items go to the same hub and fit in a batch; at least one.
fn together(items: &[Item]) -> usize {
    let mut bytes = 0;
    let fits = |item: &&Item| {
        bytes += item.data.len();
        item.hub == items[0].hub && bytes <= BATCH_BYTES_MAX
    };
    items.iter().take_while(fits).count().max(1)
}

async fn send(node: &mut Node, hub: &str, items: &[Item]) -> Result<(), Refusal> {
    let broken = |error: serde_json::Error| Refusal::Node(error.to_string());
    let events = items.iter().map(|item| {
        let data: &RawValue = serde_json::from_slice(&item.data)?;
        Ok(CloudEvent {
            specversion: "1.0",
            id: &item.id,
            source: "/drone-delivery/ingestion",
            kind: hub,
            subject: &item.key,
            data,
        })
    });
    let events = events.collect::<Result<Vec<_>, _>>().map_err(broken)?;
    let mut tries = 1;
    loop {
        match node.send(hub, &events).await {
            Ok(()) => return Ok(()),
            Err(error) if tries == TRIES => return Err(Refusal::Node(error.to_string())),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
        tries += 1;
    }
}
