//! Requests that come in while an append is under way share the next one.
//!
//! A lane leads to one hub. Requests write their events into the batch that is being gathered and wait for it as a whole,
//! so a request costs no memory of its own and a batch tells all of its requests at once. A few carriers, each with a
//! connection to the node, take turns at the batches. One leaves when enough has gathered, or a while after the one
//! before: every append is a sync of each partition that it goes to, and small ones cost the node more than the requests
//! do. Enough is a fixed number, or as many as are under way, so that batches grow when the node is slow. A request that comes
//! alone goes at once.
//!
//! A batch that failed is sent again for a while: what the node took the first time is then there twice, under the
//! same ids.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Interval, MissedTickBehavior};

use crate::node::{Batch, Node, NodeError};

/// What waits for a carrier; beyond that callers are told to come again.
const WAITING_MAX: usize = 32_768;
/// What goes together at most: so many requests, and about so many bytes of them.
const BATCH_MAX: usize = 1024;
const BATCH_BYTES_MAX: usize = 400 << 10;
/// So many requests wait for no others, unless more are under way; fewer wait no longer than this.
const ENOUGH: usize = 128;
const PACE: Duration = Duration::from_millis(5);
/// Batches that are under way at the same time.
const CARRIERS: u32 = 4;
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

/// What became of a batch; nothing while it is under way.
type Outcome = Option<Result<(), Refusal>>;

/// Which partition an event goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// That of its key, so that events of a delivery stay in order.
    ByKey,
    /// That of its batch, where a delivery has one event only: a batch then costs one sync and not one for each partition.
    ByBatch,
}

pub struct Lane {
    shared: Arc<Shared>,
}

struct Shared {
    hub: &'static str,
    gathered: Mutex<Gathered>,
    /// A batch was begun, or there may be enough.
    came: Notify,
    /// Held by the carrier whose turn it is.
    turn: tokio::sync::Mutex<Interval>,
}

/// Batches that no carrier has taken. Only the last can grow.
#[derive(Default)]
struct Gathered {
    batches: VecDeque<Gathering>,
    waiting: usize,
    /// Requests whose batches have left and are not answered.
    under_way: usize,
}

impl Gathered {
    fn enough(&self) -> usize {
        self.under_way.max(ENOUGH)
    }
}

struct Gathering {
    events: Batch,
    outcome: watch::Sender<Outcome>,
}

impl Lane {
    /// To a hub of the node at `address`, which is host and port.
    pub fn open(address: &str, hub: &'static str, placing: Placing) -> Lane {
        let shared = Arc::new(Shared::new(hub));
        for number in 0..CARRIERS {
            let carrier = Carrier {
                node: Node::new(address, TIMEOUT),
                hub,
                number,
                placing,
                partition: None,
            };
            tokio::spawn(shared.clone().carry(carrier));
        }
        Lane { shared }
    }

    pub fn hub(&self) -> &'static str {
        self.shared.hub
    }

    /// Sends the event that `write` adds to a batch; ready when the hub has it on its disk.
    pub async fn send(&self, write: impl FnOnce(&mut Batch)) -> Result<(), Refusal> {
        let mut outcome = self.shared.add(write)?;
        match outcome.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(outcome)) => outcome.clone(),
            Ok(None) | Err(_) => Err(Refusal::Node("the way to the node has ended".into())),
        }
    }
}

impl Shared {
    fn new(hub: &'static str) -> Shared {
        let mut pace = tokio::time::interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Shared {
            hub,
            gathered: Mutex::default(),
            came: Notify::new(),
            turn: tokio::sync::Mutex::new(pace),
        }
    }

    fn add(&self, write: impl FnOnce(&mut Batch)) -> Result<watch::Receiver<Outcome>, Refusal> {
        let mut gathered = self.gathered.lock();
        if gathered.waiting >= WAITING_MAX {
            return Err(Refusal::Full);
        }
        gathered.waiting += 1;
        if gathered.batches.back().is_none_or(Gathering::is_full) {
            gathered.batches.push_back(Gathering {
                events: Batch::new(),
                outcome: watch::Sender::new(None),
            });
        }
        let last = gathered.batches.back_mut();
        let batch = last.expect("one was added if there was none");
        write(&mut batch.events);
        let begun = batch.events.len() == 1;
        let outcome = batch.outcome.subscribe();
        if begun || gathered.waiting == gathered.enough() {
            self.came.notify_one();
        }
        Ok(outcome)
    }

    async fn carry(self: Arc<Self>, mut carrier: Carrier) {
        loop {
            let Gathering { events, outcome } = self.next().await;
            let count = events.len();
            outcome.send_replace(Some(carrier.carry(events.text()).await));
            self.gathered.lock().under_way -= count;
            self.came.notify_one();
        }
    }

    async fn next(&self) -> Gathering {
        let mut pace = self.turn.lock().await;
        loop {
            let (waiting, enough) = {
                let gathered = self.gathered.lock();
                (gathered.waiting, gathered.enough())
            };
            if waiting >= enough {
                pace.reset();
                break;
            }
            tokio::select! {
                _ = pace.tick(), if waiting > 0 => break,
                () = self.came.notified() => {}
            }
        }
        let mut gathered = self.gathered.lock();
        let batch = gathered.batches.pop_front();
        let batch = batch.expect("something waits, and only who has the turn takes it");
        gathered.waiting -= batch.events.len();
        gathered.under_way += batch.events.len();
        batch
    }
}

impl Gathering {
    fn is_full(&self) -> bool {
        self.events.len() >= BATCH_MAX || self.events.bytes() >= BATCH_BYTES_MAX
    }
}

/// Takes one batch after the other to the node.
struct Carrier {
    node: Node,
    hub: &'static str,
    number: u32,
    placing: Placing,
    /// Where its batches go, once it has asked how many there are.
    partition: Option<u32>,
}

impl Carrier {
    async fn carry(&mut self, batch: Bytes) -> Result<(), Refusal> {
        let mut tries = 1;
        loop {
            match self.send(batch.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) if tries == TRIES => return Err(Refusal::Node(error.to_string())),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
            tries += 1;
        }
    }

    async fn send(&mut self, batch: Bytes) -> Result<(), NodeError> {
        if self.placing == Placing::ByKey {
            return self.node.send(self.hub, batch).await;
        }
        let partition = match self.partition {
            Some(partition) => partition,
            None => self.number % self.node.partitions(self.hub).await?.max(1),
        };
        self.partition = Some(partition);
        self.node.send_to(self.hub, partition, batch).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::CloudEvent;

    fn add(lane: &Shared, count: usize) -> Result<(), Refusal> {
        let event = CloudEvent {
            specversion: "1.0",
            id: "1",
            source: "/s",
            kind: "k",
            subject: "s",
            data: &(),
        };
        (0..count).try_for_each(|_| lane.add(|batch| batch.push(&event)).map(drop))
    }

    /// Size of the next batch, and how long it was waited for. It stays under way.
    async fn leaves(lane: &Shared) -> (usize, Duration) {
        let before = tokio::time::Instant::now();
        let batch = lane.next().await;
        (batch.events.len(), before.elapsed())
    }

    /// The same, and it is answered at once.
    async fn next(lane: &Shared) -> (usize, Duration) {
        let left = leaves(lane).await;
        lane.gathered.lock().under_way -= left.0;
        left
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_alone_goes_at_once_and_the_next_wait_for_each_other() {
        let lane = Shared::new("h");
        add(&lane, 1).unwrap();
        assert_eq!(next(&lane).await, (1, Duration::ZERO));
        add(&lane, 3).unwrap();
        assert_eq!(next(&lane).await, (3, PACE));
        tokio::time::advance(PACE).await;
        add(&lane, 2).unwrap();
        assert_eq!(next(&lane).await, (2, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn enough_wait_for_nobody() {
        let lane = Shared::new("h");
        for _ in 0..3 {
            add(&lane, ENOUGH).unwrap();
            assert_eq!(next(&lane).await, (ENOUGH, Duration::ZERO));
        }
        let (waited, added) = tokio::join!(next(&lane), async {
            add(&lane, 1).unwrap();
            tokio::time::sleep(PACE / 5).await;
            add(&lane, ENOUGH)
        });
        added.unwrap();
        assert_eq!(waited, (ENOUGH + 1, PACE / 5));
    }

    #[tokio::test(start_paused = true)]
    async fn enough_is_as_many_as_are_under_way() {
        let lane = Shared::new("h");
        add(&lane, 2 * ENOUGH).unwrap();
        assert_eq!(leaves(&lane).await, (2 * ENOUGH, Duration::ZERO));
        add(&lane, ENOUGH).unwrap();
        assert_eq!(leaves(&lane).await, (ENOUGH, PACE));
        add(&lane, 3 * ENOUGH).unwrap();
        assert_eq!(leaves(&lane).await, (3 * ENOUGH, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_has_a_bound_and_so_has_a_batch() {
        let lane = Shared::new("h");
        add(&lane, WAITING_MAX).unwrap();
        assert_eq!(add(&lane, 1), Err(Refusal::Full));
        for _ in 0..WAITING_MAX / BATCH_MAX {
            assert_eq!(next(&lane).await, (BATCH_MAX, Duration::ZERO));
        }
        add(&lane, 1).unwrap();
        assert_eq!(next(&lane).await.0, 1);
    }
}
