//! A delayed batch of a transaction that arrives after the end of the transaction.

use std::future::pending;
use std::sync::Arc;

use crate::common::*;
use highwater_env::RealClock;
use highwater_env::random::Random;
use highwater_hub::{groups, transactions};
use highwater_kafka::Services;
use highwater_log::batch::BatchOptions;
use highwater_log::{HubInfo, Producer};
use kafka_protocol::messages::*;

const LOADING: i16 = 14;
const INVALID_TXN_STATE: i16 = 48;

/// A server with the transactions of a node instead of fakes.
async fn server() -> TestServer {
    start_with(|_, services: &mut Services| {
        let clock = Arc::new(RealClock::new());
        let log = Arc::clone(&services.log);
        let options = groups::Options::default();
        let groups =
            groups::Service::new(Arc::clone(&log), clock.clone(), Random::seeded(1), options);
        let options = transactions::Options::default();
        let ends = transactions::Service::new(log, clock, groups.handle(), options);
        services.transactions = Arc::new(ends.handle());
        tokio::spawn(groups.run(pending()));
        tokio::spawn(ends.run(pending()));
    })
    .await
}

async fn init(client: &mut Client) -> Producer {
    let request = InitProducerIdRequest::default()
        .with_transactional_id(Some(transactional("mine")))
        .with_transaction_timeout_ms(60_000);
    loop {
        let response = client.call(4, &request).await;
        if response.error_code == 0 {
            return Producer {
                id: response.producer_id.0,
                epoch: response.producer_epoch,
            };
        }
        assert_eq!(response.error_code, LOADING);
        tokio::task::yield_now().await;
    }
}

async fn begin(client: &mut Client, producer: Producer) {
    let of_topic = add_partitions_to_txn_request::AddPartitionsToTxnTopic::default()
        .with_name(topic("t"))
        .with_partitions(vec![0]);
    let request = AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(transactional("mine"))
        .with_v3_and_below_producer_id(ProducerId(producer.id))
        .with_v3_and_below_producer_epoch(producer.epoch)
        .with_v3_and_below_topics(vec![of_topic]);
    let response = client.call(3, &request).await;
    let results = &response.results_by_topic_v3_and_below[0].results_by_partition;
    assert_eq!(results[0].partition_error_code, 0);
}

async fn end(client: &mut Client, producer: Producer, committed: bool) {
    let request = EndTxnRequest::default()
        .with_transactional_id(transactional("mine"))
        .with_producer_id(ProducerId(producer.id))
        .with_producer_epoch(producer.epoch)
        .with_committed(committed);
    assert_eq!(client.call(3, &request).await.error_code, 0);
}

/// The error code of a batch that belongs to the transaction.
async fn send(client: &mut Client, hub: &HubInfo, producer: Producer, number: i32) -> i16 {
    let seal = BatchOptions {
        producer: Some((producer, number)),
        transactional: true,
        ..BatchOptions::default()
    };
    let request = produce(hub, 9, -1, &[(0, batch_with(&["x"], &seal))])
        .with_transactional_id(Some(transactional("mine")));
    let response = client.call(9, &request).await;
    response.responses[0].partition_responses[0].error_code
}

/// The end of the partition, and its last stable offset.
async fn ends(client: &mut Client) -> (i64, i64) {
    let partition = fetch_request::FetchPartition::default().with_partition_max_bytes(1 << 20);
    let of_topic = fetch_request::FetchTopic::default()
        .with_topic(topic("t"))
        .with_partitions(vec![partition]);
    let request = FetchRequest::default()
        .with_max_bytes(1 << 20)
        .with_isolation_level(1)
        .with_topics(vec![of_topic]);
    let response = client.call(12, &request).await;
    let found = &response.responses[0].partitions[0];
    assert_eq!(found.error_code, 0);
    (found.high_watermark, found.last_stable_offset)
}

// proves L6
#[tokio::test]
async fn a_batch_after_the_end_is_refused_and_blocks_no_reader() {
    for committed in [true, false] {
        let server = server().await;
        let hub = server.make("t", 1).await;
        let mut client = server.connect().await;
        let producer = init(&mut client).await;
        begin(&mut client, producer).await;
        assert_eq!(send(&mut client, &hub, producer, 0).await, 0);
        assert_eq!(ends(&mut client).await, (1, 0));
        end(&mut client, producer, committed).await;
        assert_eq!(ends(&mut client).await, (2, 2), "a record and a marker");

        let late = send(&mut client, &hub, producer, 1).await;
        assert_eq!(late, INVALID_TXN_STATE);
        let plain = produce(&hub, 9, -1, &[(0, batch(&["y"]))]);
        let response = client.call(9, &plain).await;
        assert_eq!(response.responses[0].partition_responses[0].error_code, 0);
        assert_eq!(ends(&mut client).await, (3, 3), "committed: {committed}");

        // The next transaction may use the refused sequence number.
        begin(&mut client, producer).await;
        assert_eq!(send(&mut client, &hub, producer, 1).await, 0);
        server.stop().await;
    }
}
