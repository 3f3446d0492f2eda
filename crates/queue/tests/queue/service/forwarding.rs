//! Messages and dead letters that are forwarded to other queues and topics.

use std::sync::Arc;
use std::time::Duration;

use highwater_env::random::Random;
use highwater_queue::{
    CreateError, Error, ForwardError, Forwarding, NewMessage, Options, Queue, Queues, ReceiveLimit,
    ReceiveMode, ReceiveRequest, Refusal, Settings, SubQueue, Topics,
};

use crate::service::common::{Gated, TokioClock, bodies, message};
use crate::service::topics::{Texts, a_second};

/// A node: queues, topics and what is forwarded.
struct Node {
    queues: Queues,
    topics: Topics,
    forwarding: Forwarding,
}

impl Node {
    async fn open(log: &Gated, clock: &Arc<TokioClock>) -> Node {
        let queues = log.open_queues(clock.clone(), Options::default()).await;
        let (log, texts) = (Arc::new(log.clone()), Arc::new(Texts));
        let (random, options) = (Random::from_os(), Options::default());
        let (topics, failed) = Topics::open(log, clock.clone(), random, options, texts).await;
        assert!(failed.is_empty(), "{failed:?}");
        let forwarding = Forwarding::start(&queues, &topics);
        Node {
            queues,
            topics,
            forwarding,
        }
    }

    fn queue(&self, name: &str) -> Queue {
        self.queues.get(name).unwrap()
    }

    async fn crash(self, log: &Gated, clock: &Arc<TokioClock>) -> Node {
        drop(self.forwarding);
        drop((self.queues, self.topics));
        tokio::task::yield_now().await;
        log.crash();
        Node::open(log, clock).await
    }
}

fn to(target: &str) -> Settings {
    Settings {
        forward_to: Some(target.into()),
        ..Settings::default()
    }
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
async fn messages_and_dead_letters_go_on_to_queues_and_topics() {
    let (log, clock) = (Gated::new(), TokioClock::new());
    let node = Node::open(&log, &clock).await;
    let queues = &node.queues;
    queues.create("end", Settings::default()).await.unwrap();
    queues.create("errors", Settings::default()).await.unwrap();
    node.topics
        .create_topic("t", Settings::default())
        .await
        .unwrap();
    let put = node
        .topics
        .create_subscription("t", "s", to("end"), Vec::new());
    put.await.unwrap();
    let settings = Settings {
        forward_dead_letters_to: Some("errors".into()),
        ..to("t")
    };
    queues.create("first", settings.clone()).await.unwrap();
    let first = node.queue("first");
    first.send(vec![message("a"), message("b")]).await.unwrap();
    a_second().await;
    assert_eq!(all(&node.queue("end"), SubQueue::Main).await, ["a", "b"]);
    let refused = first.receive(ReceiveRequest::default()).await;
    assert_eq!(refused, Err(Error::Refused(Refusal::Forwards("t".into()))));

    // Without forwarding of messages they stay; dead letters are forwarded.
    let settings = Settings {
        forward_to: None,
        ..settings
    };
    queues.change("first", settings).await.unwrap();
    first.send(vec![message("bad")]).await.unwrap();
    a_second().await;
    let got = first.receive(ReceiveRequest::default()).await.unwrap();
    let (token, _) = got[0].lock.unwrap();
    let (reason, text) = ("why".to_owned(), "how".to_owned());
    let dead = first.dead_letter(vec![token], reason, text, None);
    assert_eq!(dead.await.unwrap(), [Ok(())]);
    a_second().await;
    let errors = node
        .queue("errors")
        .peek(SubQueue::Main, 0, 10)
        .await
        .unwrap();
    let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    assert_eq!(
        errors[0].message.content.properties,
        [
            pair("DeadLetterReason", "why"),
            pair("DeadLetterErrorDescription", "how")
        ]
    );
    assert_eq!(first.stats().await.unwrap().counts.bytes, 0);
}

// proves A3
#[tokio::test(start_paused = true)]
async fn circles_chains_that_are_too_long_sessions_and_missing_targets_are_refused() {
    let (log, clock) = (Gated::new(), TokioClock::new());
    let node = Node::open(&log, &clock).await;
    let queues = &node.queues;
    let missing = queues.create("a", to("nothing")).await.err().unwrap();
    let unknown = ForwardError::UnknownTarget("nothing".into());
    assert_eq!(missing, CreateError::Forward(unknown));
    queues.create("e", Settings::default()).await.unwrap();
    for (name, target) in [("d", "e"), ("c", "d"), ("b", "c"), ("a", "b")] {
        queues.create(name, to(target)).await.unwrap();
    }
    for (name, target) in [("e", "a"), ("e", "e")] {
        let changed = queues.change(name, to(target)).await;
        assert!(matches!(changed, Err(CreateError::Forward(_))), "{name}");
    }
    let fifth = queues.create("z", to("a")).await;
    assert!(matches!(fifth, Err(CreateError::Forward(_))));
    let with_sessions = Settings {
        sessions: true,
        ..to("e")
    };
    let refused = queues.create("s", with_sessions).await;
    assert!(matches!(refused, Err(CreateError::Settings(_))));
    node.queue("a").send(vec![message("far")]).await.unwrap();
    for _ in 0..3 {
        a_second().await;
    }
    assert_eq!(all(&node.queue("e"), SubQueue::Main).await, ["far"]);
}

// proves A3
#[tokio::test(start_paused = true)]
async fn a_message_is_forwarded_once_wherever_the_node_crashes() {
    let seeds = std::env::var("HIGHWATER_SEEDS").ok();
    let seeds = seeds.and_then(|text| text.parse().ok()).unwrap_or(40_u64);
    for seed in 0..seeds {
        let mut random = Random::seeded(seed);
        let (log, clock) = (Gated::new(), TokioClock::new());
        let mut node = Node::open(&log, &clock).await;
        node.queues.create("c", Settings::default()).await.unwrap();
        node.queues.create("b", to("c")).await.unwrap();
        node.queues.create("a", to("b")).await.unwrap();
        let mut accepted = Vec::new();
        for number in 0..6 {
            log.close();
            let (queue, text) = (node.queue("a"), format!("{number:02}"));
            let sent = text.clone();
            let sending = tokio::spawn(async move { queue.send(vec![message(&sent)]).await });
            for _ in 0..random.below(10) {
                a_second().await;
                log.complete(|count| random.below(count.max(1) as u64) as usize);
            }
            a_second().await;
            if sending.is_finished() && sending.await.unwrap().is_ok() {
                accepted.push(text);
            }
            match random.below(3) {
                0 => log.open(),
                _ => node = node.crash(&log, &clock).await,
            }
        }
        for _ in 0..5 {
            a_second().await;
        }
        let got = all(&node.queue("c"), SubQueue::Main).await;
        assert!(got.is_sorted_by(|a, b| a < b), "seed {seed}: {got:?}");
        let is_there = |text: &String| got.contains(text);
        assert!(
            accepted.iter().all(is_there),
            "seed {seed}: {got:?} {accepted:?}"
        );
        for name in ["a", "b"] {
            let counts = node.queue(name).stats().await.unwrap().counts;
            assert_eq!(counts.bytes, 0, "seed {seed}: {name}");
        }
    }
}

// proves A3
#[tokio::test(start_paused = true)]
async fn a_queue_that_is_made_again_forwards_again_and_a_full_target_delays() {
    let (log, clock) = (Gated::new(), TokioClock::new());
    let node = Node::open(&log, &clock).await;
    let small = Settings {
        bytes_max: 150,
        ..Settings::default()
    };
    node.queues.create("small", small).await.unwrap();
    let mut seen = Vec::new();
    for round in 0..4 {
        node.queues.create("a", to("small")).await.unwrap();
        let texts = ["x", "y", "z"].map(|text| format!("{round}{text}"));
        let messages = texts.iter().map(|text| message(text)).collect();
        node.queue("a").send(messages).await.unwrap();
        let until = (round + 1) * 3;
        while seen.len() < until {
            tokio::time::sleep(Duration::from_secs(2)).await;
            seen.extend(all(&node.queue("small"), SubQueue::Main).await);
        }
        assert_eq!(seen[until - 3..], texts);
        a_second().await;
        node.queues.delete("a").await.unwrap();
    }
    let ttl = NewMessage {
        time_to_live_ms: Some(60_000),
        ..message("ttl")
    };
    node.queues.create("a", to("small")).await.unwrap();
    node.queue("a").send(vec![ttl]).await.unwrap();
    a_second().await;
    let peeked = node
        .queue("small")
        .peek(SubQueue::Main, 0, 1)
        .await
        .unwrap();
    assert!(peeked[0].message.expires_ms.is_some());
}
