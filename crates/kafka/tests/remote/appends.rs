//! Appends over failing connections: nothing lost, duplicated or out of order.
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

use crate::cluster::*;
use crate::proxy::{Proxy, ProxyAction, RequestHead};

fn refusal(head: RequestHead, code: Code) -> ProxyAction {
    let partition = PartitionProduceResponse::default()
        .with_error_code(code.code())
        .with_base_offset(-1);
    let topic = TopicProduceResponse::default().with_partition_responses(vec![partition]);
    head.respond::<ProduceRequest>(&ProduceResponse::default().with_responses(vec![topic]))
}

/// Appends values without waiting, in batches and as records, then waits for all of them.
async fn append_all(partition: &Arc<dyn Partition>, values: &[String]) {
    let mut pending = Vec::new();
    for (n, text) in values.iter().enumerate() {
        pending.push(match n % 2 {
            0 => partition.append(batch(&[text], None, false)),
            _ => partition.append_records(&[value(text)]),
        });
        // Some are sent before the others are appended, so that requests are in flight.
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
async fn a_lost_response_does_not_duplicate_its_batch() {
    for act in [
        ProxyAction::DropResponse,
        ProxyAction::TruncateResponse,
        ProxyAction::Drop,
    ] {
        let cluster = cluster().await;
        let remote = cluster.with_hub("h", 1).await;
        let partition = remote.partition("h", 0).unwrap();
        cluster.proxy.first(ApiKey::Produce, 3, {
            let act = act.clone();
            move |_| act.clone()
        });
        let values = numbers(40);
        append_all(&partition, &values).await;
        assert_eq!(stored(&cluster, "h", 0).await, values, "{act:?}");
        assert!(cluster.proxy.count(ApiKey::Produce) > 3);
    }
}

#[tokio::test]
async fn a_log_behind_failing_connections_has_every_append_once() {
    for seed in 0..8 {
        let cluster = cluster().await;
        let remote = cluster.with_hub("h", 1).await;
        let partition = remote.partition("h", 0).unwrap();
        let mut random = Random::seeded(seed);
        cluster.proxy.script(move |head| {
            let codes = [Code::NotLeaderOrFollower, Code::NotEnoughReplicas];
            match (head.is(ApiKey::Produce), random.below(20)) {
                (false, _) => ProxyAction::Forward,
                (true, 0) => ProxyAction::Drop,
                (true, 1) => ProxyAction::DropResponse,
                (true, 2) => ProxyAction::TruncateResponse,
                (true, 3) => refusal(head, codes[random.below(2) as usize]),
                _ => ProxyAction::Forward,
            }
        });
        let values = numbers(200);
        append_all(&partition, &values).await;
        assert_eq!(stored(&cluster, "h", 0).await, values, "seed {seed}");
    }
}

#[tokio::test]
async fn a_batch_with_a_sequence_number_keeps_it_when_resent() {
    let cluster = cluster().await;
    let remote = cluster.with_hub("h", 1).await;
    let partition = remote.partition("h", 0).unwrap();
    let producer = highwater_log::Producer { id: 77, epoch: 2 };
    let mut pending = Vec::new();
    cluster
        .proxy
        .first(ApiKey::Produce, 2, |_| ProxyAction::DropResponse);
    for n in 0..10 {
        let numbered = Some((producer, n));
        pending.push(partition.append(batch(&[&n.to_string()], numbered, false)));
    }
    for (n, appended) in pending.into_iter().enumerate() {
        assert_eq!(appended.await.unwrap().offset, Offset(n as i64));
    }
    assert_eq!(stored(&cluster, "h", 0).await, numbers(10));
}

#[tokio::test]
async fn a_refused_batch_leaves_no_gap_for_the_next() {
    let cluster = cluster().await;
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
    cluster.log.create(spec).await.unwrap();
    let remote = cluster.remote().await;
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
    assert_eq!(
        stored(&cluster, "h", 0).await,
        ["first", "a", "b", "c", "d"]
    );
    // The others moved up with the same producer.
    assert_eq!(cluster.proxy.count(ApiKey::InitProducerId), 1);
}

#[tokio::test]
async fn a_producer_unknown_to_the_broker_is_replaced() {
    let cluster = cluster().await;
    let remote = cluster.with_hub("h", 1).await;
    let partition = remote.partition("h", 0).unwrap();
    append(&partition, &["a"]).await;
    let before = cluster.proxy.count(ApiKey::InitProducerId);
    cluster.proxy.first(ApiKey::Produce, 1, |head| {
        refusal(head, Code::UnknownProducerId)
    });
    append(&partition, &["b"]).await;
    assert_eq!(cluster.proxy.count(ApiKey::InitProducerId), before + 1);
    assert_eq!(stored(&cluster, "h", 0).await, ["a", "b"]);
}

#[tokio::test]
async fn an_append_follows_the_leader() {
    let cluster = cluster().await;
    let remote = cluster.with_hub("h", 1).await;
    let partition = remote.partition("h", 0).unwrap();
    append(&partition, &["here"]).await;

    // Another broker takes over: the same server on another port.
    let other = Proxy::bind().await;
    other.serve(cluster.upstream);
    let (moved, id) = (
        Arc::new(AtomicBool::new(false)),
        cluster.log.hub("h").unwrap().id,
    );
    let doors = [cluster.proxy.address.port(), other.address.port()];
    let metadata = move |head: RequestHead| {
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
        head.respond::<MetadataRequest>(
            &MetadataResponse::default()
                .with_brokers(vec![broker(0), broker(1)])
                .with_controller_id(BrokerId(0))
                .with_topics(vec![topic]),
        )
    };
    other.script(move |head| match head.is(ApiKey::Metadata) {
        true => metadata(head),
        false => ProxyAction::Forward,
    });
    cluster.proxy.script({
        let moved = Arc::clone(&moved);
        move |head| match head.is(ApiKey::Metadata) {
            true => metadata(head),
            false if head.is(ApiKey::Produce) => {
                moved.store(true, Ordering::Relaxed);
                refusal(head, Code::NotLeaderOrFollower)
            }
            false => ProxyAction::Forward,
        }
    });
    append(&partition, &["there"]).await;
    assert_eq!(stored(&cluster, "h", 0).await, ["here", "there"]);
    // The client knew of the move, or an error told it.
    assert!(moved.load(Ordering::Relaxed) || other.count(ApiKey::Produce) > 0);
    assert_eq!(other.count(ApiKey::Produce), 1);
}

#[tokio::test]
async fn an_append_without_a_response_fails_with_unknown_outcome() {
    let cluster = cluster().await;
    cluster.log.create(spec("h", 1)).await.unwrap();
    let options = Options {
        patience: Duration::from_secs(2),
        ..cluster.options()
    };
    let remote = connect(options).await.unwrap();
    let partition = remote.partition("h", 0).unwrap();
    cluster.proxy.script(|head| match head.is(ApiKey::Produce) {
        true => ProxyAction::DropResponse,
        false => ProxyAction::Forward,
    });
    let unanswered = partition.append_records(&[value("a")]).await.unwrap_err();
    assert!(
        matches!(unanswered, AppendError::OutcomeUnknown { .. }),
        "{unanswered}"
    );
    cluster.proxy.script(|_| ProxyAction::Forward);
    let offset = append(&partition, &["b"]).await;
    // It is in the log, and once, however often it was sent.
    assert_eq!(stored(&cluster, "h", 0).await, ["a", "b"]);
    assert_eq!(offset, 1);
}

#[tokio::test]
async fn an_append_may_come_from_a_thread_without_a_runtime() {
    let cluster = cluster().await;
    let remote = cluster.with_hub("h", 1).await;
    let partition = remote.partition("h", 0).unwrap();
    let begun = std::thread::spawn(move || partition.append_records(&[value("a")]));
    let appended = begun.join().unwrap().await.unwrap();
    assert_eq!(appended.offset, Offset(0));
}

#[tokio::test]
async fn appended_batches_leave_the_queue() {
    let cluster = cluster().await;
    cluster.log.create(spec("h", 1)).await.unwrap();
    let options = Options {
        waiting_bytes_max: 10_000,
        ..cluster.options()
    };
    let remote = connect(options).await.unwrap();
    let partition = remote.partition("h", 0).unwrap();
    // Many times the limit, but never much at once, and mostly in shared batches.
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
async fn the_append_queue_has_a_limit() {
    let cluster = cluster().await;
    cluster.log.create(spec("h", 1)).await.unwrap();
    let options = Options {
        waiting_bytes_max: 1_000,
        ..cluster.options()
    };
    let remote = connect(options).await.unwrap();
    let partition = remote.partition("h", 0).unwrap();
    cluster.proxy.script(|head| match head.is(ApiKey::Produce) {
        true => refusal(head, Code::NotEnoughReplicas),
        false => ProxyAction::Forward,
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
    // Accepted batches are appended later, even without a waiting caller.
    cluster.proxy.script(|_| ProxyAction::Forward);
    let offset = loop {
        match partition.append_records(&[value("last")]).await {
            Ok(appended) => break appended.offset.0,
            Err(AppendError::QueueFull { .. }) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(offset, pending.len() as i64);
}
