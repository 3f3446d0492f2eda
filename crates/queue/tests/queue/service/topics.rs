//! Topics and their subscriptions.

use std::sync::Arc;
use std::time::Duration;

use highwater_env::random::Random;
use highwater_queue::{
    Content, Error, Filter, MessageProperties, NewMessage, Options, Property, PropertyChange,
    PropertyMap, Queue, ReceiveLimit, ReceiveMode, ReceiveRequest, Refusal, Rule, Settings,
    SqlAction, SqlFilter, TopicError, TopicLimits, Topics, Value,
};

use crate::service::common::{Gated, TokioClock, bodies, message};

/// Properties that are texts.
pub(super) struct Texts;

impl PropertyMap for Texts {
    fn properties(&self, content: &Content) -> MessageProperties {
        let mut properties = MessageProperties::default();
        for (name, text) in &content.properties {
            properties.set_user(name, Some(Value::Text(text.clone())));
        }
        properties
    }

    fn apply(&self, content: &mut Content, changes: &[PropertyChange]) {
        for change in changes {
            let Property::User(name) = &change.property else {
                continue;
            };
            content.properties.retain(|(known, _)| known != name);
            if let Some(Value::Text(text)) = &change.value {
                content.properties.push((name.clone(), text.clone()));
            }
        }
    }
}

pub(super) async fn open(log: &Gated, clock: &Arc<TokioClock>) -> Topics {
    let (log, options) = (Arc::new(log.clone()), Options::default());
    let random = Random::from_os();
    let opened = Topics::open(log, clock.clone(), random, options, Arc::new(Texts)).await;
    assert!(opened.1.is_empty(), "{:?}", opened.1);
    opened.0
}

/// A topic `t` with these subscriptions, each with a filter.
async fn topic(log: &Gated, subscriptions: &[(&str, &str)]) -> (Topics, Arc<TokioClock>) {
    let clock = TokioClock::new();
    let topics = open(log, &clock).await;
    topics.create_topic("t", Settings::default()).await.unwrap();
    for (name, filter) in subscriptions {
        let rules = match filter.is_empty() {
            true => Vec::new(),
            false => vec![sql("r", filter)],
        };
        let settings = Settings::default();
        let put = topics.create_subscription("t", name, settings, rules).await;
        put.unwrap();
    }
    (topics, clock)
}

pub(super) fn sql(name: &str, filter: &str) -> Rule {
    Rule {
        name: name.into(),
        filter: Filter::Sql(SqlFilter::parse(filter).unwrap()),
        action: None,
        created_ms: 0,
    }
}

pub(super) fn red(body: &str) -> NewMessage {
    let mut red = message(body);
    red.content.properties = vec![("colour".into(), "red".into())];
    red
}

async fn send(topics: &Topics, messages: Vec<NewMessage>) {
    let topic = topics.get("t").unwrap();
    topic.queue().send(messages).await.unwrap();
}

fn queue(topics: &Topics, name: &str) -> Queue {
    let topic = topics.get("t").unwrap();
    topic.subscription(name).unwrap().queue().clone()
}

async fn all(topics: &Topics, name: &str) -> Vec<String> {
    let receive = ReceiveRequest {
        limit: ReceiveLimit::from(1000),
        mode: ReceiveMode::ReceiveAndDelete,
        ..ReceiveRequest::default()
    };
    bodies(&queue(topics, name).receive(receive).await.unwrap())
}

pub(super) async fn a_second() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

// proves A3
#[tokio::test(start_paused = true)]
async fn a_message_goes_to_every_subscription_that_selects_it_and_leaves_the_topic() {
    let log = Gated::new();
    let (topics, _) = topic(&log, &[("all", ""), ("red", "colour = 'red'")]).await;
    let later = NewMessage {
        scheduled_ms: Some(1_700_000_000_000 + 60_000),
        ..red("scheduled")
    };
    send(&topics, vec![message("plain"), later, red("red")]).await;
    a_second().await;
    assert_eq!(all(&topics, "all").await, ["plain", "red"]);
    assert_eq!(all(&topics, "red").await, ["red"]);
    a_second().await;
    let stats = topics.get("t").unwrap().queue().stats().await.unwrap();
    assert_eq!((stats.counts.active, stats.counts.scheduled), (0, 1));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(all(&topics, "all").await, ["scheduled"]);
    assert_eq!(all(&topics, "red").await, ["scheduled"]);
    topics.stop().await;
}

// proves A3
#[tokio::test(start_paused = true)]
async fn nothing_is_lost_or_repeated_through_crashes() {
    let log = Gated::new();
    let (mut topics, clock) = topic(&log, &[("a", ""), ("b", "colour = 'red'")]).await;
    let (mut in_a, mut in_b) = (Vec::new(), Vec::new());
    for round in 0..5 {
        let text = move |kind: &str| format!("{round}{kind}");
        send(&topics, vec![red(&text("x")), red(&text("y"))]).await;
        a_second().await;
        in_a.extend(all(&topics, "a").await);
        // Some of the copies are in flight when the node stops.
        log.close();
        let queue = topics.get("t").unwrap().queue().clone();
        let sending = tokio::spawn(async move { queue.send(vec![red(&text("z"))]).await });
        for _ in 0..round {
            a_second().await;
            log.complete_first();
        }
        a_second().await;
        drop(topics);
        tokio::task::yield_now().await;
        log.crash();
        let accepted = sending.await.unwrap().is_ok();
        topics = open(&log, &clock).await;
        if !accepted {
            // The sender sends it again; it may have been stored before.
            send(&topics, vec![red(&format!("{round}again"))]).await;
        }
        a_second().await;
        in_b.extend(all(&topics, "b").await);
    }
    a_second().await;
    in_a.extend(all(&topics, "a").await);
    a_second().await;
    assert_eq!(in_a, in_b);
    for round in 0..5 {
        let count = |kind: &str| {
            in_a.iter()
                .filter(|body| **body == format!("{round}{kind}"))
                .count()
        };
        assert_eq!((count("x"), count("y")), (1, 1), "{in_a:?}");
        assert!(
            count("z") <= 1 && count("z") + count("again") >= 1,
            "{in_a:?}"
        );
    }
    let stats = topics.get("t").unwrap().queue().stats().await.unwrap();
    assert_eq!(stats.counts.bytes, 0, "all subscriptions have everything");
    topics.stop().await;
}

// proves A3
#[tokio::test(start_paused = true)]
async fn rules_can_be_changed_and_survive_a_crash() {
    let log = Gated::new();
    let (topics, clock) = topic(&log, &[("s", "")]).await;
    let subscription = topics.get("t").unwrap().subscription("s").unwrap();
    let names = |rules: &[Arc<Rule>]| {
        rules
            .iter()
            .map(|rule| rule.name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&subscription.rules()), ["$Default"]);
    subscription.remove_rule("$Default").await.unwrap();
    send(&topics, vec![message("nobody")]).await;
    let mut marked = sql("marked", "colour = 'red'");
    marked.action = Some(SqlAction::parse("SET colour = 'dark ' + colour").unwrap());
    subscription.add_rule(marked.clone()).await.unwrap();
    let exists = Error::Refused(Refusal::RuleExists("marked".into()));
    assert_eq!(
        subscription.add_rule(marked).await,
        Err(TopicError::Queue(exists))
    );
    let unknown = Error::Refused(Refusal::NoSuchRule("$Default".into()));
    let removed = subscription.remove_rule("$Default").await;
    assert_eq!(removed, Err(TopicError::Queue(unknown)));
    drop((subscription, topics));
    tokio::task::yield_now().await;
    log.crash();

    let topics = open(&log, &clock).await;
    let subscription = topics.get("t").unwrap().subscription("s").unwrap();
    assert_eq!(names(&subscription.rules()), ["marked"]);
    send(&topics, vec![message("plain"), red("red")]).await;
    a_second().await;
    let receive = ReceiveRequest {
        limit: ReceiveLimit::from(10),
        ..ReceiveRequest::default()
    };
    let got = queue(&topics, "s").receive(receive).await.unwrap();
    assert_eq!(bodies(&got), ["red"]);
    let properties = &got[0].message.content.properties;
    let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    assert_eq!(
        *properties,
        [pair("colour", "dark red"), pair("RuleName", "marked")]
    );
    topics.stop().await;
}

// proves A3
#[tokio::test(start_paused = true)]
async fn a_full_subscription_delays_only_itself() {
    let log = Gated::new();
    let (topics, _) = topic(&log, &[("fast", "")]).await;
    let small = Settings {
        bytes_max: 300,
        ..Settings::default()
    };
    let put = topics
        .create_subscription("t", "slow", small, Vec::new())
        .await;
    put.unwrap();
    let texts: Vec<String> = (10..30).map(|number| number.to_string()).collect();
    send(&topics, texts.iter().map(|text| message(text)).collect()).await;
    a_second().await;
    assert_eq!(all(&topics, "fast").await, texts);
    let mut seen = Vec::new();
    while seen.len() < texts.len() {
        let got = all(&topics, "slow").await;
        assert!(got.len() < texts.len());
        seen.extend(got);
        a_second().await;
    }
    assert_eq!(seen, texts, "all of them, once and in order");
    topics.stop().await;
}

// proves A3
#[tokio::test(start_paused = true)]
async fn a_topic_keeps_nothing_for_subscriptions_that_are_not_there() {
    let log = Gated::new();
    let (topics, clock) = topic(&log, &[]).await;
    send(&topics, vec![message("early")]).await;
    a_second().await;
    let stats = topics.get("t").unwrap().queue().stats().await.unwrap();
    assert_eq!(stats.counts.bytes, 0);
    let put = topics.create_subscription("t", "s", Settings::default(), Vec::new());
    put.await.unwrap();
    send(&topics, vec![message("late")]).await;
    a_second().await;
    assert_eq!(all(&topics, "s").await, ["late"]);
    topics.delete_subscription("t", "s").await.unwrap();
    assert!(topics.delete_subscription("t", "s").await.is_err());
    send(&topics, vec![message("too late")]).await;
    topics.delete_topic("t").await.unwrap();
    assert!(topics.get("t").is_none());
    topics.stop().await;
    assert!(open(&log, &clock).await.list().is_empty());
}

// proves A3
#[tokio::test(start_paused = true)]
async fn names_sizes_and_numbers_are_limited() {
    let log = Gated::new();
    let (topics, _) = topic(&log, &[("s", "")]).await;
    let long = "x".repeat(151);
    for name in ["", "a/b", &long] {
        assert!(
            topics
                .create_topic(name, Settings::default())
                .await
                .is_err(),
            "{name}"
        );
    }
    let put =
        |name: &'static str| topics.create_subscription("t", name, Settings::default(), Vec::new());
    for name in [
        "",
        "a/b",
        "x2345678901234567890123456789012345678901234567890x",
    ] {
        assert!(put(name).await.is_err(), "{name}");
    }
    let topic = topics.get("t").unwrap();
    let big = "x".repeat(TopicLimits::MESSAGE_BYTES_MAX as usize);
    let sent = topic
        .queue()
        .send(vec![message("small"), message(&big)])
        .await;
    assert!(
        matches!(sent, Err(Error::Refused(Refusal::TooLarge { .. }))),
        "all or none"
    );
    a_second().await;
    assert!(all(&topics, "s").await.is_empty());
    let subscription = topic.subscription("s").unwrap();
    for number in 0..99 {
        let rule = sql(&number.to_string(), "TRUE");
        subscription.add_rule(rule).await.unwrap();
    }
    let refused = Error::Refused(Refusal::TooManyRules(100));
    let added = subscription.add_rule(sql("more", "TRUE")).await;
    assert_eq!(added, Err(TopicError::Queue(refused)));
    send(&topics, vec![message("once")]).await;
    a_second().await;
    assert_eq!(all(&topics, "s").await, ["once"]);
    topics.stop().await;
}
