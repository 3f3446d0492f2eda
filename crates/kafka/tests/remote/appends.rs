//! Appending over connections that break: nothing lost, nothing twice, nothing out of order.
// proves L6 X1

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use highwater_env::random::Random;
use highwater_kafka::client::Options;
use highwater_log::{AppendError, HubSettings, HubSpec, Log, Offset, Partition};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{
    ApiKey, BrokerId, MetadataRequest, MetadataResponse, ProduceRequest, ProduceResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;

use crate::proxy::{Act, Head, Proxy};
use crate::world::*;

fn refusal(head: Head, code: Code) -> Act {
    let partition = PartitionProduceResponse::default()
        .with_error_code(code.code())
        .with_base_offset(-1);
    let topic = TopicProduceResponse::default().with_partition_responses(vec![partition]);
    head.say::<ProduceRequest>(&ProduceResponse::default().with_responses(vec![topic]))
}

/// Hands over values without waiting, in batches and as records, and waits for all of them.
async fn append_all(partition: &Arc<dyn Partition>, values: &[String]) {
    let mut pending = Vec::new();
    for (n, text) in values.iter().enumerate() {
        pending.push(match n % 2 {
            0 => partition.append(batch(&[text], None, false)),
            _ => partition.append_records(&[value(text)]),
        });
        // Some go out before the others are there, so that there are requests in flight.
        if n % 7 == 0 {
            tokio::task::yield_now().await;
        }
    }
    for (n, appended) in pending.into_iter().enumerate() {
        assert_eq!(appended.await.unwrap().offset, Offset(n as i64));
    }
}

fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|n| n.to_string()).collect()
}

#[tokio::test]
async fn what_was_appended_before_its_answer_was_lost_is_not_appended_again() {
    for act in [Act::Lose, Act::LoseHalf, Act::Cut] {
        let world = world().await;
        let remote = world.with_hub("h", 1).await;
        let partition = remote.partition("h", 0).unwrap();
        world.proxy.first(ApiKey::Produce, 3, {
            let act = act.clone();
            move |_| act.clone()
        });
        let values = numbers(40);
        append_all(&partition, &values).await;
        assert_eq!(stored(&world, "h", 0).await, values, "{act:?}");
        assert!(world.proxy.count(ApiKey::Produce) > 3);
    }
}

/// Whatever happens to requests and answers, in whatever order, the log holds what was handed over.
#[tokio::test]
async fn a_log_behind_bad_connections_is_the_same_log() {
    for seed in 0..8 {
        let world = world().await;
        let remote = world.with_hub("h", 1).await;
        let partition = remote.partition("h", 0).unwrap();
        let mut random = Random::seeded(seed);
        world.proxy.script(move |head| {
            let codes = [Code::NotLeaderOrFollower, Code::NotEnoughReplicas];
            match (head.is(ApiKey::Produce), random.below(20)) {
                (false, _) => Act::Forward,
                (true, 0) => Act::Cut,
                (true, 1) => Act::Lose,
                (true, 2) => Act::LoseHalf,
                (true, 3) => refusal(head, codes[random.below(2) as usize]),
                _ => Act::Forward,
            }
        });
        let values = numbers(200);
        append_all(&partition, &values).await;
        assert_eq!(stored(&world, "h", 0).await, values, "seed {seed}");
    }
}

#[tokio::test]
async fn a_batch_with_its_own_number_is_sent_again_under_it() {
    let world = world().await;
    let remote = world.with_hub("h", 1).await;
    let partition = remote.partition("h", 0).unwrap();
    let producer = highwater_log::Producer { id: 77, epoch: 2 };
    let mut pending = Vec::new();
    world.proxy.first(ApiKey::Produce, 2, |_| Act::Lose);
    for n in 0..10 {
        let numbered = Some((producer, n));
        pending.push(partition.append(batch(&[&n.to_string()], numbered, false)));
    }
    for (n, appended) in pending.into_iter().enumerate() {
        assert_eq!(appended.await.unwrap().offset, Offset(n as i64));
    }
    assert_eq!(stored(&world, "h", 0).await, numbers(10));
}

#[tokio::test]
async fn one_that_is_refused_leaves_no_gap_for_those_behind_it() {
    let world = world().await;
    let settings = HubSettings {
        batch_bytes_max: 200,
        ..HubSettings::default()
    };
    let (name, partitions) = (name("h"), 1);
    let spec = HubSpec {
        name,
        partitions,
        settings,
    };
    world.log.create(spec).await.unwrap();
    let remote = world.remote().await;
    let partition = remote.partition("h", 0).unwrap();
    append(&partition, &["first"]).await;
    let long = "x".repeat(200);
    let texts = ["a", &long, "b", "c", &long, "d"];
    let pending = texts.map(|text| partition.append(batch(&[text], None, false)));
    let mut outcomes = Vec::new();
    for appended in pending {
        outcomes.push(appended.await.map(|appended| appended.offset.0).ok());
    }
    assert_eq!(outcomes, [Some(1), None, Some(2), Some(3), None, Some(4)]);
    assert_eq!(stored(&world, "h", 0).await, ["first", "a", "b", "c", "d"]);
    // They moved up under the same producer.
    assert_eq!(world.proxy.count(ApiKey::InitProducerId), 1);
}

#[tokio::test]
async fn a_producer_that_the_broker_has_forgotten_begins_anew() {
    let world = world().await;
    let remote = world.with_hub("h", 1).await;
    let partition = remote.partition("h", 0).unwrap();
    append(&partition, &["a"]).await;
    let before = world.proxy.count(ApiKey::InitProducerId);
    world.proxy.first(ApiKey::Produce, 1, |head| {
        refusal(head, Code::UnknownProducerId)
    });
    append(&partition, &["b"]).await;
    assert_eq!(world.proxy.count(ApiKey::InitProducerId), before + 1);
    assert_eq!(stored(&world, "h", 0).await, ["a", "b"]);
}

#[tokio::test]
async fn an_append_goes_where_the_leader_has_gone() {
    let world = world().await;
    let remote = world.with_hub("h", 1).await;
    let partition = remote.partition("h", 0).unwrap();
    append(&partition, &["here"]).await;

    // Another broker, which is the same one behind another door, takes over.
    let other = Proxy::bind().await;
    other.serve(world.upstream);
    let (moved, id) = (
        Arc::new(AtomicBool::new(false)),
        world.log.hub("h").unwrap().id,
    );
    let doors = [world.proxy.address.port(), other.address.port()];
    let metadata = move |head: Head| {
        let broker = |n: usize| {
            MetadataResponseBroker::default()
                .with_node_id(BrokerId(n as i32))
                .with_host(StrBytes::from_static_str("127.0.0.1"))
                .with_port(i32::from(doors[n]))
        };
        let partition = MetadataResponsePartition::default().with_leader_id(BrokerId(1));
        let topic = MetadataResponseTopic::default()
            .with_name(Some(TopicName(StrBytes::from_static_str("h"))))
            .with_topic_id(uuid::Uuid::from_bytes(id.0))
            .with_partitions(vec![partition]);
        head.say::<MetadataRequest>(
            &MetadataResponse::default()
                .with_brokers(vec![broker(0), broker(1)])
                .with_controller_id(BrokerId(0))
                .with_topics(vec![topic]),
        )
    };
    other.script(move |head| match head.is(ApiKey::Metadata) {
        true => metadata(head),
        false => Act::Forward,
    });
    world.proxy.script({
        let moved = Arc::clone(&moved);
        move |head| match head.is(ApiKey::Metadata) {
            true => metadata(head),
            false if head.is(ApiKey::Produce) => {
                moved.store(true, Ordering::Relaxed);
                refusal(head, Code::NotLeaderOrFollower)
            }
            false => Act::Forward,
        }
    });
    append(&partition, &["there"]).await;
    assert_eq!(stored(&world, "h", 0).await, ["here", "there"]);
    // It had heard of the move before it asked, or was told.
    assert!(moved.load(Ordering::Relaxed) || other.count(ApiKey::Produce) > 0);
    assert_eq!(other.count(ApiKey::Produce), 1);
}

#[tokio::test]
async fn an_append_that_nobody_answers_fails_without_saying_that_it_did_not_happen() {
    let world = world().await;
    world.log.create(spec("h", 1)).await.unwrap();
    let options = Options {
        patience: Duration::from_secs(2),
        ..world.options()
    };
    let remote = connect(options).await.unwrap();
    let partition = remote.partition("h", 0).unwrap();
    world.proxy.script(|head| match head.is(ApiKey::Produce) {
        true => Act::Lose,
        false => Act::Forward,
    });
    let unanswered = partition.append_records(&[value("a")]).await.unwrap_err();
    assert!(
        matches!(unanswered, AppendError::OutcomeUnknown { .. }),
        "{unanswered}"
    );
    world.proxy.script(|_| Act::Forward);
    let offset = append(&partition, &["b"]).await;
    // It was there after all, and once, however often it was sent.
    assert_eq!(stored(&world, "h", 0).await, ["a", "b"]);
    assert_eq!(offset, 1);
}

#[tokio::test]
async fn an_append_may_come_from_a_thread_without_a_runtime() {
    let world = world().await;
    let remote = world.with_hub("h", 1).await;
    let partition = remote.partition("h", 0).unwrap();
    let begun = std::thread::spawn(move || partition.append_records(&[value("a")]));
    let appended = begun.join().unwrap().await.unwrap();
    assert_eq!(appended.offset, Offset(0));
}

#[tokio::test]
async fn what_is_appended_no_longer_waits() {
    let world = world().await;
    world.log.create(spec("h", 1)).await.unwrap();
    let options = Options {
        waiting_bytes_max: 10_000,
        ..world.options()
    };
    let remote = connect(options).await.unwrap();
    let partition = remote.partition("h", 0).unwrap();
    // Many times the limit, but never much of it at once, and most of them in a batch with others.
    for round in 0..100 {
        let pending: Vec<_> = (0..20)
            .map(|_| partition.append_records(&[value("x")]))
            .collect();
        for appended in pending {
            let refused = appended.await.err();
            assert_eq!(refused, None, "round {round}");
        }
    }
}

#[tokio::test]
async fn what_waits_has_a_limit() {
    let world = world().await;
    world.log.create(spec("h", 1)).await.unwrap();
    let options = Options {
        waiting_bytes_max: 1_000,
        ..world.options()
    };
    let remote = connect(options).await.unwrap();
    let partition = remote.partition("h", 0).unwrap();
    world.proxy.script(|head| match head.is(ApiKey::Produce) {
        true => refusal(head, Code::NotEnoughReplicas),
        false => Act::Forward,
    });
    let text = "x".repeat(400);
    let mut pending = Vec::new();
    let full = loop {
        let appended = partition.append(batch(&[&text], None, false));
        tokio::select! {
            biased;
            refused = appended => break refused.unwrap_err(),
            () = std::future::ready(()) => {}
        }
        pending.push(());
        assert!(pending.len() < 20, "there is no limit");
    };
    assert!(matches!(full, AppendError::QueueFull { .. }), "{full}");
    // What was taken is appended when it can be, though nobody waits for it any more.
    world.proxy.script(|_| Act::Forward);
    let offset = loop {
        match partition.append_records(&[value("last")]).await {
            Ok(appended) => break appended.offset.0,
            Err(AppendError::QueueFull { .. }) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(offset, pending.len() as i64);
}
