//! The second version of transactions over the wire, and markers that an administrator writes.
// proves L3, K3

use std::sync::Arc;

use highwater_log::Producer;
use highwater_log::batch::BatchOptions;
use kafka_protocol::messages::*;

use crate::common::*;

fn batch_of(producer: Producer, sequence: i32) -> bytes::Bytes {
    let seal = BatchOptions {
        producer: Some((producer, sequence)),
        transactional: true,
        ..BatchOptions::default()
    };
    batch_with(&["x"], &seal)
}

/// Opens a transaction in partition 0 without its coordinator.
async fn hang(server: &TestServer, producer: Producer) {
    let (batch, _) = highwater_log::batch::Batch::parse(batch_of(producer, 0)).unwrap();
    let partition = server.log.partition("t", 0).unwrap();
    partition.append(batch).await.unwrap();
}

fn marker(producer: Producer, name: &str, indexes: Vec<i32>) -> WriteTxnMarkersRequest {
    let of_topic = write_txn_markers_request::WritableTxnMarkerTopic::default()
        .with_name(topic(name))
        .with_partition_indexes(indexes);
    let marker = write_txn_markers_request::WritableTxnMarker::default()
        .with_producer_id(ProducerId(producer.id))
        .with_producer_epoch(producer.epoch)
        .with_transaction_result(false)
        .with_topics(vec![of_topic]);
    WriteTxnMarkersRequest::default().with_markers(vec![marker])
}

#[tokio::test]
async fn an_administrator_ends_a_transaction_that_hangs() {
    let server = start().await;
    server.make("t", 1).await;
    server.make("__internal", 1).await;
    let producer = Producer { id: 9, epoch: 4 };
    hang(&server, producer).await;
    let mut client = server.connect().await;
    let of_topic = describe_producers_request::TopicRequest::default()
        .with_name(topic("t"))
        .with_partition_indexes(vec![0]);
    let describe = DescribeProducersRequest::default().with_topics(vec![of_topic]);
    let described = client.call(0, &describe).await;
    let found = &described.topics[0].partitions[0].active_producers[0];
    assert_eq!((found.producer_id.0, found.producer_epoch), (9, 4));
    assert_eq!(found.current_txn_start_offset, 0);
    let bounds = || server.log.partition("t", 0).unwrap().bounds();
    assert_eq!(bounds().stable.0, 0);
    let codes = |response: WriteTxnMarkersResponse| -> Vec<i16> {
        let partitions = response.markers[0].topics[0].partitions.iter();
        partitions.map(|one| one.error_code).collect()
    };
    let older = Producer {
        epoch: 3,
        ..producer
    };
    let fenced = client.call(1, &marker(older, "t", vec![0])).await;
    assert_eq!(codes(fenced), [47]);
    let ended = client.call(1, &marker(producer, "t", vec![0, 7, 0])).await;
    assert_eq!(codes(ended), [0, 3]);
    assert_eq!(bounds().stable, bounds().end);
    let internal = client
        .call(1, &marker(producer, "__internal", vec![0]))
        .await;
    assert_eq!(codes(internal), [31]);
}

#[tokio::test]
async fn a_producer_of_the_second_version_adds_nothing_by_itself() {
    let (server, _tasks) = start_with_coordinators().await;
    let hub = server.make("t", 2).await;
    let mut client = server.connect().await;
    let init = InitProducerIdRequest::default()
        .with_transactional_id(Some(transactional("mine")))
        .with_transaction_timeout_ms(60_000);
    let mut response = client.call(5, &init).await;
    while response.error_code == 14 {
        tokio::task::yield_now().await;
        response = client.call(5, &init).await;
    }
    assert_eq!(response.error_code, 0);
    let mut producer = Producer {
        id: response.producer_id.0,
        epoch: response.producer_epoch,
    };
    for commit in [true, false, true] {
        let data = [(0, batch_of(producer, 0)), (1, batch_of(producer, 0))];
        let send = produce(&hub, 12, -1, &data).with_transactional_id(Some(transactional("mine")));
        let sent = client.call(12, &send).await;
        let codes = [0, 1].map(|at| sent.responses[0].partition_responses[at].error_code);
        assert_eq!(codes, [0, 0]);
        let end = EndTxnRequest::default()
            .with_transactional_id(transactional("mine"))
            .with_producer_id(ProducerId(producer.id))
            .with_producer_epoch(producer.epoch)
            .with_committed(commit);
        let ended = client.call(5, &end).await;
        assert_eq!(ended.error_code, 0);
        assert_eq!(ended.producer_id.0, producer.id);
        assert_eq!(ended.producer_epoch, producer.epoch + 1);
        let again = client.call(5, &end).await;
        assert_eq!(
            again.producer_epoch,
            producer.epoch + 1,
            "the answer was lost"
        );
        producer.epoch += 1;
    }
    for index in 0..2 {
        let bounds = server.log.partition("t", index).unwrap().bounds();
        assert_eq!((bounds.stable, bounds.end.0), (bounds.end, 6));
    }
    // The first version of the protocol does not add a partition with a batch.
    let data = [(0, batch_of(producer, 0))];
    let send = produce(&hub, 11, -1, &data).with_transactional_id(Some(transactional("mine")));
    let refused = client.call(11, &send).await;
    assert_eq!(refused.responses[0].partition_responses[0].error_code, 120);
}

/// A server whose groups and transactions are those of a node.
async fn start_with_coordinators() -> (TestServer, [tokio::task::JoinHandle<()>; 2]) {
    let mut tasks = None;
    let server = start_with(|_, services| {
        let (log, clock) = (services.log.clone(), services.clock.clone());
        let random = highwater_env::random::Random::seeded(1);
        let options = highwater_hub::groups::Options::default();
        let groups =
            highwater_hub::groups::Service::new(log.clone(), clock.clone(), random, options);
        let handle = groups.handle();
        let options = highwater_hub::transactions::Options::default();
        let transactions =
            highwater_hub::transactions::Service::new(log, clock, handle.clone(), options);
        services.groups = Arc::new(handle);
        services.transactions = Arc::new(transactions.handle());
        tasks = Some([
            tokio::spawn(async { groups.run(std::future::pending()).await.unwrap() }),
            tokio::spawn(async { transactions.run(std::future::pending()).await.unwrap() }),
        ]);
    })
    .await;
    (server, tasks.unwrap())
}
