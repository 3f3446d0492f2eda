//! The body of a message is stored once for all subscriptions of its topic, and as long as one of them needs it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use highwater_env::random::Random;
use highwater_log::{Isolation, Log};
use highwater_queue::{
    Delivery, NewMessage, Queue, ReceiveLimit, ReceiveMode, ReceiveRequest, Settings, SqlAction,
    SubQueue, Topics,
};

use crate::service::common::{Gated, TokioClock, bodies, message};
use crate::service::topics::{a_second, open, red, sql};

const NAMES: [&str; 3] = ["all", "red", "marked"];

/// A topic with a subscription for everything, one with a filter, and one whose action changes a property.
async fn topic(log: &Gated) -> (Topics, Arc<TokioClock>) {
    let clock = TokioClock::new();
    let topics = open(log, &clock).await;
    topics.create_topic("t", Settings::default()).await.unwrap();
    let mut marked = sql("m", "colour = 'red'");
    marked.action = Some(SqlAction::parse("SET colour = 'dark'").unwrap());
    let rules = [Vec::new(), vec![sql("r", "colour = 'red'")], vec![marked]];
    for (name, rules) in NAMES.into_iter().zip(rules) {
        let put = topics.create_subscription("t", name, Settings::default(), rules);
        put.await.unwrap();
    }
    (topics, clock)
}

fn queue(topics: &Topics, name: &str) -> Queue {
    let topic = topics.get("t").unwrap();
    topic.subscription(name).unwrap().queue().clone()
}

async fn send(topics: &Topics, messages: Vec<NewMessage>) -> bool {
    let topic = topics.get("t").unwrap();
    topic.queue().send(messages).await.is_ok()
}

async fn receive(queue: &Queue, sub_queue: SubQueue, mode: ReceiveMode) -> Vec<Delivery> {
    let receive = ReceiveRequest {
        sub_queue,
        limit: ReceiveLimit::from(1000),
        mode,
        ..ReceiveRequest::default()
    };
    queue.receive(receive).await.unwrap()
}

async fn topic_bytes(topics: &Topics) -> u64 {
    let topic = topics.get("t").unwrap();
    topic.queue().stats().await.unwrap().counts.bytes
}

async fn journal_bytes(log: &Gated, hub: &str) -> usize {
    let partition = log.memory().partition(hub, 0).unwrap();
    let read = partition.read(partition.bounds().start, usize::MAX, Isolation::Uncommitted);
    let pieces = read.await.unwrap().pieces;
    pieces.iter().map(|piece| piece.len()).sum()
}

async fn crash(log: &Gated, topics: Topics, clock: &Arc<TokioClock>) -> Topics {
    drop(topics);
    tokio::task::yield_now().await;
    log.crash();
    open(log, clock).await
}

// proves A3
#[tokio::test(start_paused = true)]
async fn a_body_is_stored_once_and_survives_crashes_until_all_are_done_with_it() {
    let log = Gated::new();
    let (topics, clock) = topic(&log).await;
    let body = "x".repeat(100_000);
    assert!(send(&topics, vec![red(&body)]).await);
    a_second().await;
    assert!(journal_bytes(&log, "__topic.t").await > 100_000);
    for name in NAMES {
        let journal = journal_bytes(&log, &format!("__subscription.1.t.{name}")).await;
        assert!(journal < 1000, "{name}: {journal}");
    }

    let topics = crash(&log, topics, &clock).await;
    let peek_lock = ReceiveMode::PeekLock;
    let got = receive(&queue(&topics, "all"), SubQueue::Main, peek_lock).await;
    assert_eq!(bodies(&got), [&*body]);
    let (token, _) = got[0].lock.unwrap();
    let all = queue(&topics, "all");
    let (reason, text) = ("bad".to_owned(), "it is".to_owned());
    let settled = all.dead_letter(vec![token], reason, text, None);
    assert_eq!(settled.await.unwrap(), [Ok(())]);
    let got = receive(&queue(&topics, "red"), SubQueue::Main, peek_lock).await;
    let (token, _) = got[0].lock.unwrap();
    let properties = vec![("late".to_owned(), "yes".to_owned())];
    let in_red = queue(&topics, "red");
    let deferred = in_red.defer(vec![token], Some(properties.clone()));
    assert_eq!(deferred.await.unwrap(), [Ok(())]);
    let deferred_seq = got[0].seq;
    let delete = ReceiveMode::ReceiveAndDelete;
    let got = receive(&queue(&topics, "marked"), SubQueue::Main, delete).await;
    assert_eq!(bodies(&got), [&*body]);
    assert_eq!(got[0].message.content.properties[0].1, "dark");
    a_second().await;
    assert!(topic_bytes(&topics).await > 100_000, "two need it");

    let topics = crash(&log, topics, &clock).await;
    let dead = receive(&queue(&topics, "all"), SubQueue::DeadLetters, delete).await;
    assert_eq!(bodies(&dead), [&*body]);
    let peeked = queue(&topics, "red").peek(SubQueue::Main, 0, 10).await;
    let peeked = peeked.unwrap();
    assert_eq!(peeked[0].seq, deferred_seq);
    let content = &peeked[0].message.content;
    assert_eq!(
        (content.body.len(), &content.properties),
        (100_000, &properties)
    );
    a_second().await;
    assert!(topic_bytes(&topics).await > 100_000, "one needs it");
    assert_eq!(queue(&topics, "red").purge(SubQueue::Main).await, Ok(1));
    a_second().await;
    assert_eq!(topic_bytes(&topics).await, 0, "nobody needs it");
    topics.stop().await;
}

// proves A3
#[tokio::test(start_paused = true)]
async fn a_deleted_subscription_and_expired_messages_need_no_bodies() {
    let log = Gated::new();
    let (topics, clock) = topic(&log).await;
    let short = NewMessage {
        time_to_live_ms: Some(5000),
        ..message("short")
    };
    assert!(send(&topics, vec![short, message("long")]).await);
    a_second().await;
    let both = topic_bytes(&topics).await;
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    let one = topic_bytes(&topics).await;
    assert!(0 < one && one < both, "{one} of {both}");
    let topics = crash(&log, topics, &clock).await;
    let got = receive(
        &queue(&topics, "all"),
        SubQueue::Main,
        ReceiveMode::PeekLock,
    )
    .await;
    assert_eq!(bodies(&got), ["long"]);
    topics.delete_subscription("t", "all").await.unwrap();
    a_second().await;
    assert_eq!(topic_bytes(&topics).await, 0);

    // It expires before a full subscription has it.
    let full = Settings {
        bytes_max: 150,
        ..Settings::default()
    };
    let put = topics.create_subscription("t", "full", full, Vec::new());
    put.await.unwrap();
    let late = NewMessage {
        time_to_live_ms: Some(5000),
        ..message("late")
    };
    let many = vec![message("1"), message("2"), late];
    assert!(send(&topics, many).await);
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    let delete = ReceiveMode::ReceiveAndDelete;
    let got = receive(&queue(&topics, "full"), SubQueue::Main, delete).await;
    assert_eq!(bodies(&got), ["1", "2"]);
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    assert_eq!(topic_bytes(&topics).await, 0, "nobody gets it");
    topics.stop().await;
}

// proves A3
#[tokio::test(start_paused = true)]
async fn a_full_disk_loses_no_body_and_keeps_none() {
    let log = Gated::new();
    let (topics, _) = topic(&log).await;
    assert!(send(&topics, vec![red("a"), red("b")]).await);
    a_second().await;
    log.set_full(true);
    let all = queue(&topics, "all");
    let delete = ReceiveRequest {
        mode: ReceiveMode::ReceiveAndDelete,
        ..ReceiveRequest::default()
    };
    assert!(all.receive(delete).await.is_err());
    a_second().await;
    log.set_full(false);
    for _ in 0..5 {
        a_second().await;
    }
    let delete = ReceiveMode::ReceiveAndDelete;
    for name in NAMES {
        let got = receive(&queue(&topics, name), SubQueue::Main, delete).await;
        assert_eq!(bodies(&got), ["a", "b"], "{name}");
    }
    for _ in 0..3 {
        a_second().await;
    }
    assert_eq!(topic_bytes(&topics).await, 0);
    topics.stop().await;
}

/// What one subscription was asked to complete, and what was confirmed.
#[derive(Default)]
struct Completions {
    asked: BTreeSet<String>,
    confirmed: BTreeSet<String>,
}

/// One topic under senders and receivers whose node crashes.
struct World {
    random: Random,
    log: Gated,
    clock: Arc<TokioClock>,
    accepted: BTreeSet<String>,
    completions: BTreeMap<&'static str, Completions>,
    next: usize,
}

impl World {
    /// Sends and completes while appends wait; some become durable, in any order; then the node crashes or continues.
    async fn round(&mut self, topics: Topics) -> Topics {
        let mut held = Vec::new();
        for name in NAMES {
            let receive = ReceiveRequest {
                limit: ReceiveLimit::from(2),
                ..ReceiveRequest::default()
            };
            let got = queue(&topics, name).receive(receive).await.unwrap();
            held.push((name, got));
        }
        self.log.close();
        let text = format!("{:0>50}", self.next);
        self.next += 1;
        let (to, sent) = (topics.get("t").unwrap().queue().clone(), text.clone());
        let sending = tokio::spawn(async move { to.send(vec![red(&sent)]).await });
        let mut completing = Vec::new();
        for (name, got) in held {
            let bodies = bodies(&got);
            let completions = self.completions.entry(name).or_default();
            completions.asked.extend(bodies.iter().cloned());
            let tokens = got
                .iter()
                .map(|delivery| delivery.lock.unwrap().0)
                .collect();
            let queue = queue(&topics, name);
            let task = tokio::spawn(async move { queue.complete(tokens).await });
            completing.push((name, bodies, task));
        }
        for _ in 0..self.random.below(12) {
            a_second().await;
            let random = &mut self.random;
            self.log
                .complete(|count| random.below(count.max(1) as u64) as usize);
        }
        a_second().await;
        if sending.is_finished() && sending.await.unwrap().is_ok() {
            self.accepted.insert(text);
        }
        for (name, bodies, task) in completing {
            if task.is_finished() && task.await.unwrap().is_ok() {
                let completions = self.completions.entry(name).or_default();
                completions.confirmed.extend(bodies);
            }
        }
        match self.random.below(2) {
            0 => crash(&self.log, topics, &self.clock).await,
            _ => {
                self.log.open();
                topics
            }
        }
    }

    /// After all locks have ended, each subscription has exactly its uncompleted messages.
    async fn check(&self, topics: &Topics, seed: u64) {
        tokio::time::sleep(std::time::Duration::from_secs(120)).await;
        for name in NAMES {
            let delete = ReceiveMode::ReceiveAndDelete;
            let got = receive(&queue(topics, name), SubQueue::Main, delete).await;
            let left = bodies(&got);
            let unique: BTreeSet<String> = left.iter().cloned().collect();
            assert_eq!(
                unique.len(),
                left.len(),
                "seed {seed}: {name} has one twice"
            );
            let Completions { asked, confirmed } = &self.completions[name];
            assert!(unique.is_disjoint(confirmed), "seed {seed}: {name}");
            let known: BTreeSet<String> = asked.union(&unique).cloned().collect();
            assert!(
                known.is_superset(&self.accepted),
                "seed {seed}: {name} lost one"
            );
            assert!(left.iter().all(|body| body.len() == 50), "seed {seed}");
        }
        a_second().await;
        assert_eq!(topic_bytes(topics).await, 0, "seed {seed}: all are done");
    }
}

// proves A3
#[tokio::test(start_paused = true)]
async fn every_subscription_gets_every_message_once_with_its_body_through_crashes() {
    let seeds = std::env::var("HIGHWATER_SEEDS").ok();
    let seeds = seeds.and_then(|text| text.parse().ok()).unwrap_or(40_u64);
    for seed in 0..seeds {
        let log = Gated::new();
        let (mut topics, clock) = topic(&log).await;
        let mut world = World {
            random: Random::seeded(seed),
            log,
            clock,
            accepted: BTreeSet::new(),
            completions: BTreeMap::new(),
            next: 0,
        };
        for _ in 0..8 {
            topics = world.round(topics).await;
            a_second().await;
        }
        world.check(&topics, seed).await;
        topics.stop().await;
    }
}
