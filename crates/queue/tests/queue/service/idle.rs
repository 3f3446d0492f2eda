//! Queues, topics and subscriptions that are deleted when idle.

use std::sync::Arc;
use std::time::Duration;

use highwater_log::Log;
use highwater_queue::{
    NewMessage, NewQueue, NewSubscription, NewTopic, Options, Queue, Queues, ReceiveRequest,
    Settings, SubQueue, Topics,
};
use tokio::time::sleep;

use crate::service::common::{Gated, TokioClock, bodies, message};
use crate::service::topics::{open, sql};

const MINUTE: Duration = Duration::from_secs(60);

/// Deleted after an hour.
fn idle() -> Settings {
    Settings {
        auto_delete_on_idle: Some(60 * MINUTE),
        ..Settings::default()
    }
}

async fn deleted(queues: &Queues) -> Vec<String> {
    let deleted = queues.delete_idle().await.into_iter();
    deleted
        .map(|(name, result)| {
            result.unwrap();
            name
        })
        .collect()
}

async fn deleted_topics(topics: &Topics) -> Vec<String> {
    let deleted = topics.delete_idle().await.into_iter();
    deleted
        .map(|(name, result)| {
            result.unwrap();
            name
        })
        .collect()
}

// proves A3
#[tokio::test(start_paused = true)]
async fn a_queue_is_deleted_after_its_time_without_use_and_stays_deleted() {
    let log = Gated::new();
    let (queues, queue, clock) = log.queue(idle()).await;
    queues.create("kept", Settings::default()).await.unwrap();
    queue.send(vec![message("a")]).await.unwrap();
    sleep(59 * MINUTE).await;
    // Neither the node nor a look at the settings is use.
    queue.stats().await.unwrap();
    assert_eq!(deleted(&queues).await, Vec::<String>::new());
    sleep(MINUTE).await;
    assert_eq!(deleted(&queues).await, ["q"]);
    assert!(queues.get("q").is_none() && log.hub("__queue.q").is_none());
    assert!(queue.send(vec![message("b")]).await.is_err());
    queues.stop().await;
    let queues = log.open_queues(clock, Options::default()).await;
    let names: Vec<String> = queues
        .list()
        .iter()
        .map(|it| it.name().to_owned())
        .collect();
    assert_eq!(names, ["kept"]);
}

/// The uses of a queue that are requests of clients.
async fn use_queue(queues: &Queues, queue: &Queue, how: usize) {
    match how {
        0 => drop(queue.send(vec![message("a")]).await.unwrap()),
        1 => drop(queue.receive(ReceiveRequest::default()).await.unwrap()),
        2 => drop(queue.peek(SubQueue::Main, 0, 1).await.unwrap()),
        _ => queues.change(queue.name(), idle()).await.unwrap(),
    }
}

// proves A3
#[tokio::test(start_paused = true)]
async fn sends_receives_peeks_and_changes_keep_a_queue() {
    for how in 0..4 {
        let (queues, queue, _) = Gated::new().queue(idle()).await;
        for _ in 0..3 {
            sleep(50 * MINUTE).await;
            assert_eq!(deleted(&queues).await, Vec::<String>::new(), "{how}");
            use_queue(&queues, &queue, how).await;
        }
        sleep(60 * MINUTE).await;
        assert_eq!(deleted(&queues).await, ["q"], "{how}");
    }
}

// proves A3
#[tokio::test(start_paused = true)]
async fn a_waiting_receiver_a_scheduled_message_and_forwarding_keep_a_queue() {
    let (queues, queue, clock) = Gated::new().queue(idle()).await;
    let receive = ReceiveRequest {
        wait: 300 * MINUTE,
        ..ReceiveRequest::default()
    };
    let receiver = tokio::spawn({
        let queue = queue.clone();
        async move { queue.receive(receive).await }
    });
    sleep(200 * MINUTE).await;
    assert_eq!(deleted(&queues).await, Vec::<String>::new());
    queue.send(vec![message("a")]).await.unwrap();
    assert_eq!(bodies(&receiver.await.unwrap().unwrap()), ["a"]);
    let now_ms = (highwater_env::Clock::unix_nanos(&*clock) / 1_000_000) as i64;
    let later = NewMessage {
        scheduled_ms: Some(now_ms + 7_200_000),
        ..message("b")
    };
    queue.send(vec![later]).await.unwrap();
    sleep(119 * MINUTE).await;
    assert_eq!(deleted(&queues).await, Vec::<String>::new());
    sleep(2 * MINUTE).await;
    assert_eq!(
        deleted(&queues).await,
        ["q"],
        "the message is due, and nobody came for it"
    );

    let forwarding = Settings {
        forward_to: Some("other".into()),
        ..idle()
    };
    queues.create("f", forwarding).await.unwrap();
    sleep(200 * MINUTE).await;
    assert_eq!(deleted(&queues).await, Vec::<String>::new());
}

// proves A3
#[tokio::test(start_paused = true)]
async fn the_start_of_a_node_counts_as_use_and_the_setting_is_durable() {
    let log = Gated::new();
    let (queues, _, clock) = log.queue(idle()).await;
    sleep(50 * MINUTE).await;
    drop(queues);
    log.crash();
    let queues = log.open_queues(clock, Options::default()).await;
    sleep(50 * MINUTE).await;
    assert_eq!(deleted(&queues).await, Vec::<String>::new());
    sleep(10 * MINUTE).await;
    assert_eq!(deleted(&queues).await, ["q"]);
    let short = Settings {
        auto_delete_on_idle: Some(4 * MINUTE),
        ..Settings::default()
    };
    let refused = queues.create("short", short).await.map(drop).unwrap_err();
    assert!(
        refused.to_string().contains("at least 5 minutes"),
        "{refused}"
    );
}

// proves A3
#[tokio::test(start_paused = true)]
async fn a_subscription_is_deleted_although_its_topic_is_used() {
    let log = Gated::new();
    let clock = TokioClock::new();
    let topics = open(&log, &clock).await;
    topics.create_topic("t", idle()).await.unwrap();
    for name in ["read", "unread"] {
        let put = topics
            .create_subscription("t", name, idle(), Vec::new())
            .await;
        put.unwrap();
    }
    let topic = topics.get("t").unwrap();
    let read = topic.subscription("read").unwrap();
    for _ in 0..2 {
        sleep(40 * MINUTE).await;
        topic.queue().send(vec![message("a")]).await.unwrap();
        let receive = ReceiveRequest {
            wait: MINUTE,
            ..ReceiveRequest::default()
        };
        let received = read.queue().receive(receive).await.unwrap();
        assert_eq!(bodies(&received), ["a"]);
    }
    assert_eq!(deleted_topics(&topics).await, ["t/Subscriptions/unread"]);
    // The use of a subscription is use of its topic, and so is a rule.
    sleep(40 * MINUTE).await;
    read.add_rule(sql("r", "colour = 'red'")).await.unwrap();
    sleep(40 * MINUTE).await;
    assert_eq!(deleted_topics(&topics).await, Vec::<String>::new());
    assert!(topic.queue().send(vec![message("b")]).await.is_ok());
    sleep(60 * MINUTE).await;
    let both = deleted_topics(&topics).await;
    assert_eq!(both, ["t/Subscriptions/read", "t"]);
    assert!(topics.list().is_empty());
    let topics = open(&log, &clock).await;
    assert!(topics.list().is_empty());
}

// proves A3
#[tokio::test(start_paused = true)]
async fn what_is_missing_is_created_together_and_survives() {
    let log = Gated::new();
    let clock = TokioClock::new();
    let queues = log.open_queues(clock.clone(), Options::default()).await;
    queues.create("b", idle()).await.unwrap();
    let new = ["a", "b", "c"].map(|name| NewQueue {
        name: name.into(),
        settings: Settings::default(),
    });
    let created = queues.create_missing(new.to_vec()).await;
    let created = created.map_err(|(_, error)| error).unwrap();
    let names: Vec<&str> = created.iter().map(Queue::name).collect();
    assert_eq!(names, ["a", "c"]);
    let spec = NewTopic {
        name: "t".into(),
        settings: Settings::default(),
        subscriptions: vec![NewSubscription {
            name: "s".into(),
            settings: Settings::default(),
            rules: vec![sql("r", "colour = 'red'")],
        }],
    };
    let topics = open(&log, &clock).await;
    for _ in 0..2 {
        topics.declare(std::slice::from_ref(&spec)).await.unwrap();
    }
    let wrong = NewQueue {
        name: "a/b".into(),
        settings: Settings::default(),
    };
    let refused = queues.create_missing(vec![wrong]).await;
    assert_eq!(refused.map(drop).unwrap_err().0, "a/b");
    drop((queues, topics));
    log.crash();
    let queues = log.open_queues(clock.clone(), Options::default()).await;
    let settings = queues.get("b").unwrap().stats().await.unwrap().settings;
    assert_eq!(settings, idle(), "what was there stays as it is");
    assert_eq!(queues.list().len(), 3);
    let topics = open(&log, &clock).await;
    let rules = topics.get("t").unwrap().subscription("s").unwrap().rules();
    assert_eq!(rules.len(), 1);
    assert!(Arc::clone(&rules)[0].name == "r");
}
