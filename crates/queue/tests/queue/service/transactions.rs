//! Transactions over several queues: all of it or nothing, through any crashes.

use std::sync::Arc;

use highwater_env::random::Random;
use highwater_queue::{
    Content, Delivery, Disposition, Error, NewMessage, Options, Queue, Queues, ReceiveLimit,
    ReceiveMode, ReceiveRequest, Refusal, Settings, SubQueue, Topics, TransactionOperation,
    TransactionPart, Transactions,
};

use crate::service::common::{Gated, TokioClock, bodies, message};
use crate::service::topics::{Texts, a_second};

struct Node {
    queues: Queues,
    topics: Topics,
    transactions: Transactions,
}

impl Node {
    async fn open(log: &Gated, clock: &Arc<TokioClock>) -> Node {
        let queues = log.open_queues(clock.clone(), Options::default()).await;
        let (log, texts) = (Arc::new(log.clone()), Arc::new(Texts));
        let (random, options) = (Random::from_os(), Options::default());
        let opened = Topics::open(log.clone(), clock.clone(), random, options, texts).await;
        let (topics, failed) = opened;
        assert!(failed.is_empty(), "{failed:?}");
        let transactions = Transactions::open(log, &queues, &topics).await.unwrap();
        Node {
            queues,
            topics,
            transactions,
        }
    }

    /// With queues `a`, `b` and a topic `t` with a subscription `s`.
    async fn new(log: &Gated, clock: &Arc<TokioClock>) -> Node {
        let node = Node::open(log, clock).await;
        for name in ["a", "b"] {
            node.queues.create(name, Settings::default()).await.unwrap();
        }
        node.topics
            .create_topic("t", Settings::default())
            .await
            .unwrap();
        let put = node
            .topics
            .create_subscription("t", "s", Settings::default(), Vec::new());
        put.await.unwrap();
        node
    }

    fn queue(&self, name: &str) -> Queue {
        match name {
            "t" => self.topics.get("t").unwrap().queue().clone(),
            "s" => {
                let topic = self.topics.get("t").unwrap();
                topic.subscription("s").unwrap().queue().clone()
            }
            name => self.queues.get(name).unwrap(),
        }
    }

    async fn crash(self, log: &Gated, clock: &Arc<TokioClock>) -> Node {
        drop(self);
        tokio::task::yield_now().await;
        log.crash();
        Node::open(log, clock).await
    }
}

fn sends(queue: Queue, texts: &[&str]) -> TransactionPart {
    let messages = texts.iter().map(|text| message(text)).collect();
    TransactionPart {
        queue,
        operations: vec![TransactionOperation::Send(messages)],
    }
}

fn settles(queue: Queue, delivery: &Delivery, how: Disposition) -> TransactionPart {
    let (token, _) = delivery.lock.unwrap();
    TransactionPart {
        queue,
        operations: vec![TransactionOperation::Settle { token, how }],
    }
}

async fn lock_one(queue: &Queue) -> Delivery {
    let got = queue.receive(ReceiveRequest::default()).await.unwrap();
    got.into_iter().next().unwrap()
}

async fn all(queue: &Queue, sub_queue: SubQueue) -> Vec<String> {
    let receive = ReceiveRequest {
        sub_queue,
        limit: ReceiveLimit::from(1000),
        mode: ReceiveMode::ReceiveAndDelete,
        ..ReceiveRequest::default()
    };
    bodies(&queue.receive(receive).await.unwrap())
}

// proves A3
#[tokio::test(start_paused = true)]
async fn a_transaction_of_one_queue_or_of_several_is_done_as_a_whole() {
    let (log, clock) = (Gated::new(), TokioClock::new());
    let node = Node::new(&log, &clock).await;
    let [a, b, t, s] = ["a", "b", "t", "s"].map(|name| node.queue(name));
    let work = vec![message("1"), message("2"), message("3")];
    a.send(work).await.unwrap();
    let (first, second) = (lock_one(&a).await, lock_one(&a).await);

    let alone = vec![
        sends(a.clone(), &["4"]),
        settles(a.clone(), &first, Disposition::Complete),
    ];
    node.transactions.commit(alone).await.unwrap();
    let dead_letter = Disposition::DeadLetter {
        reason: "r".into(),
        description: "d".into(),
        edit: None,
    };
    let together = vec![
        settles(a.clone(), &second, dead_letter),
        sends(b.clone(), &["b1", "b2"]),
        sends(t, &["t1"]),
    ];
    node.transactions.commit(together).await.unwrap();
    a_second().await;
    assert_eq!(all(&a, SubQueue::DeadLetters).await, ["2"]);
    assert_eq!(all(&b, SubQueue::Main).await, ["b1", "b2"]);
    let from_topic = lock_one(&s).await;
    let forward = vec![
        settles(s.clone(), &from_topic, Disposition::Complete),
        sends(b.clone(), &["from t"]),
    ];
    node.transactions.commit(forward).await.unwrap();
    let node = node.crash(&log, &clock).await;
    assert_eq!(all(&node.queue("a"), SubQueue::Main).await, ["3", "4"]);
    assert_eq!(all(&node.queue("b"), SubQueue::Main).await, ["from t"]);
    assert!(all(&node.queue("s"), SubQueue::Main).await.is_empty());
}

// proves A3
#[tokio::test(start_paused = true)]
async fn a_transaction_that_cannot_be_done_does_nothing() {
    let (log, clock) = (Gated::new(), TokioClock::new());
    let node = Node::new(&log, &clock).await;
    let [a, b] = ["a", "b"].map(|name| node.queue(name));
    a.send(vec![message("1")]).await.unwrap();
    let held = lock_one(&a).await;
    let long = NewMessage {
        content: Content {
            id: Some("x".repeat(1000)),
            ..Content::default()
        },
        ..NewMessage::default()
    };
    let wrong = TransactionPart {
        queue: b.clone(),
        operations: vec![TransactionOperation::Send(vec![long])],
    };
    let complete = || settles(a.clone(), &held, Disposition::Complete);
    let refused = node.transactions.commit(vec![complete(), wrong]).await;
    assert_eq!(refused, Err(Error::Refused(Refusal::IdTooLong(1000))));
    // It can be settled by itself, and after that no more.
    let (token, _) = held.lock.unwrap();
    assert_eq!(a.complete(vec![token]).await.unwrap(), [Ok(())]);
    let late = node
        .transactions
        .commit(vec![complete(), sends(b.clone(), &["no"])]);
    assert_eq!(late.await, Err(Error::Refused(Refusal::LockLost)));
    let twice = node.transactions.commit(vec![complete(), complete()]).await;
    assert_eq!(twice, Err(Error::Refused(Refusal::LockLost)));
    assert!(all(&b, SubQueue::Main).await.is_empty());
    assert_eq!(a.stats().await.unwrap().counts.bytes, 0);
}

// proves A3
#[tokio::test(start_paused = true)]
async fn wherever_the_node_crashes_all_of_a_transaction_is_done_or_nothing() {
    let seeds = std::env::var("HIGHWATER_SEEDS").ok();
    let seeds = seeds.and_then(|text| text.parse().ok()).unwrap_or(80_u64);
    let mut outcomes = [0, 0];
    for seed in 0..seeds {
        let mut random = Random::seeded(seed);
        let (log, clock) = (Gated::new(), TokioClock::new());
        let mut node = Node::new(&log, &clock).await;
        let mut done = Vec::new();
        for number in 0..4 {
            let text = number.to_string();
            node.queue("a").send(vec![message(&text)]).await.unwrap();
            // Locks that are left of an earlier round end.
            tokio::time::sleep(std::time::Duration::from_secs(120)).await;
            for got in all(&node.queue("b"), SubQueue::Main).await {
                assert!(!done.contains(&got), "seed {seed}: twice");
                done.push(got);
            }
            log.close();
            let held = {
                log.open();
                let receive = ReceiveRequest::default();
                let got = node.queue("a").receive(receive).await.unwrap();
                log.close();
                got
            };
            let parts = vec![
                settles(node.queue("a"), &held[0], Disposition::Complete),
                sends(node.queue("b"), &[&bodies(&held)[0]]),
                sends(node.queue("t"), &[&bodies(&held)[0]]),
            ];
            let transactions = node.transactions.clone();
            let committing = tokio::spawn(async move { transactions.commit(parts).await });
            for _ in 0..random.below(8) {
                a_second().await;
                log.complete(|count| random.below(count.max(1) as u64) as usize);
            }
            a_second().await;
            let is_told = committing.is_finished() && committing.await.unwrap().is_ok();
            node = node.crash(&log, &clock).await;
            a_second().await;
            let in_b = all(&node.queue("b"), SubQueue::Main).await;
            let is_done = in_b == bodies(&held);
            assert!(
                is_done || (in_b.is_empty() && !is_told),
                "seed {seed}: {in_b:?}"
            );
            done.extend(in_b);
            outcomes[usize::from(is_done)] += 1;
        }
        tokio::time::sleep(std::time::Duration::from_secs(120)).await;
        let mut in_topic = all(&node.queue("s"), SubQueue::Main).await;
        let mut in_a = all(&node.queue("a"), SubQueue::Main).await;
        for list in [&mut done, &mut in_topic, &mut in_a] {
            list.sort_unstable();
        }
        assert_eq!(done, in_topic, "seed {seed}: both have what was committed");
        in_a.extend(done);
        in_a.sort_unstable();
        assert_eq!(
            in_a,
            ["0", "1", "2", "3"],
            "seed {seed}: sent or still there"
        );
    }
    assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
}

// proves A3
#[tokio::test(start_paused = true)]
async fn a_decision_is_not_applied_to_another_queue_of_the_same_name() {
    let (log, clock) = (Gated::new(), TokioClock::new());
    let node = Node::new(&log, &clock).await;
    let parts = vec![
        sends(node.queue("a"), &["old"]),
        sends(node.queue("b"), &["old"]),
    ];
    node.transactions.commit(parts).await.unwrap();
    node.queues.delete("b").await.unwrap();
    node.queues.create("b", Settings::default()).await.unwrap();
    let node = node.crash(&log, &clock).await;
    assert!(all(&node.queue("b"), SubQueue::Main).await.is_empty());
    let parts = vec![
        sends(node.queue("a"), &["new"]),
        sends(node.queue("b"), &["new"]),
    ];
    node.transactions.commit(parts).await.unwrap();
    assert_eq!(all(&node.queue("a"), SubQueue::Main).await, ["old", "new"]);
    assert_eq!(all(&node.queue("b"), SubQueue::Main).await, ["new"]);
}
