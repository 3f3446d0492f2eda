//! Requests that come in while an append is under way share the next one.
//!
//! A lane is a task with a connection to the node. It takes whatever has gathered, sends it as one
//! batch, and tells every caller when the node has all of it on its disk. So the node has a request for
//! many of ours, and the more there is to do, the cheaper each one gets. A batch that failed is sent
//! again for a while: what the node took the first time is then there twice, under the same id.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::node::{Batch, Node};

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
    event: Vec<u8>,
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

    /// Sends the text of a CloudEvent.
    pub async fn send(&self, hub: &'static str, event: Vec<u8>) -> Result<(), Refusal> {
        let (done, told) = oneshot::channel();
        let item = Item { hub, event, done };
        let lane = self.next.fetch_add(1, Ordering::Relaxed) % self.lanes.len();
        self.lanes[lane].try_send(item).map_err(|_| Refusal::Full)?;
        let gone = |_| Err(Refusal::Node("the way to the node has ended".into()));
        told.await.unwrap_or_else(gone)
    }
}

async fn run(mut waiting: mpsc::Receiver<Item>, mut node: Node) {
    let mut items = Vec::with_capacity(BATCH_MAX);
    let mut batch = Batch::default();
    while waiting.recv_many(&mut items, BATCH_MAX).await > 0 {
        // A batch goes to one hub, and most are for the same.
        items.sort_by_key(|item| item.hub);
        while let Some(first) = items.first() {
            let hub = first.hub;
            let together = together(&items);
            for item in &items[..together] {
                batch.push(&item.event);
            }
            let sent = send(&mut node, hub, batch.take()).await;
            for item in items.drain(..together) {
                // The caller may have gone away.
                let _ = item.done.send(sent.clone());
            }
        }
    }
}

/// How many of the first items go to the same hub and fit in a batch; at least one.
fn together(items: &[Item]) -> usize {
    let mut bytes = 0;
    let fits = |item: &&Item| {
        bytes += item.event.len();
        item.hub == items[0].hub && bytes <= BATCH_BYTES_MAX
    };
    items.iter().take_while(fits).count().max(1)
}

async fn send(node: &mut Node, hub: &str, batch: Bytes) -> Result<(), Refusal> {
    let mut tries = 1;
    loop {
        match node.send(hub, batch.clone()).await {
            Ok(()) => return Ok(()),
            Err(error) if tries == TRIES => return Err(Refusal::Node(error.to_string())),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
        tries += 1;
    }
}
