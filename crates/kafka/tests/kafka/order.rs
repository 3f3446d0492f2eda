//! Order, waiting and shutdown of a connection.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::common::*;
use highwater_log::batch::{Batch, BatchOptions};
use highwater_log::{
    AdminError, AppendError, AppendInfo, BoxFuture, HubId, HubInfo, HubName, HubSettings, HubSpec,
    Log, LogLayer, Offset, Partition, PartitionLayer, Producer, TopicPartition,
};
use kafka_protocol::messages::*;
use tokio::io::AsyncReadExt;
use tokio::sync::watch;

/// A log with a slow disk: appends are ordered immediately, and durable when the test says so. The name `taken` exists
/// without a hub.
struct SlowLog {
    inner: Arc<dyn Log>,
    synced: watch::Receiver<u32>,
    failure: Option<Failure>,
}

/// The result of every append.
type Failure = fn(TopicPartition) -> AppendError;

struct SlowPartition {
    inner: Arc<dyn Partition>,
    synced: watch::Receiver<u32>,
    failure: Option<Failure>,
}

impl LogLayer for SlowLog {
    fn inner(&self) -> &dyn Log {
        &*self.inner
    }

    fn partition(&self, hub: &str, partition: u32) -> Option<Arc<dyn Partition>> {
        Some(Arc::new(SlowPartition {
            inner: self.inner.partition(hub, partition)?,
            synced: self.synced.clone(),
            failure: self.failure,
        }))
    }

    fn create_automatically(&self, spec: HubSpec) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        LogLayer::create(self, spec)
    }

    fn create(&self, spec: HubSpec) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        if spec.name.as_str() == "taken" {
            return Box::pin(std::future::ready(Err(AdminError::Exists(spec.name))));
        }
        let (inner, mut synced) = (Arc::clone(&self.inner), self.synced.clone());
        Box::pin(async move {
            let _ = synced.wait_for(|count| *count > 0).await;
            inner.create(spec).await
        })
    }
}

impl PartitionLayer for SlowPartition {
    fn inner(&self) -> &dyn Partition {
        &*self.inner
    }

    fn append(&self, batch: Batch) -> BoxFuture<Result<AppendInfo, AppendError>> {
        if let Some(failure) = self.failure {
            let topic_partition = self.inner.topic_partition().clone();
            return Box::pin(std::future::ready(Err(failure(topic_partition))));
        }
        let appended = self.inner.append(batch);
        let mut synced = self.synced.clone();
        Box::pin(async move {
            let _ = synced.wait_for(|count| *count > 0).await;
            appended.await
        })
    }
}

async fn slow_server() -> (TestServer, watch::Sender<u32>) {
    server_with(None).await
}

async fn server_with(failure: Option<Failure>) -> (TestServer, watch::Sender<u32>) {
    let (sync, synced) = watch::channel(0);
    let server = start_with(|_, services| {
        services.log = Arc::new(SlowLog {
            inner: Arc::clone(&services.log),
            synced,
            failure,
        });
    })
    .await;
    (server, sync)
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}

fn is_ready<F: Future + Unpin>(future: &mut F) -> bool {
    let mut context = Context::from_waker(std::task::Waker::noop());
    matches!(Pin::new(future).poll(&mut context), Poll::Ready(_))
}

// proves L3, L4
#[tokio::test]
async fn pipelined_produces_do_not_wait_for_each_others_sync_and_are_answered_in_order() {
    let (server, sync) = slow_server().await;
    let hub = server.make("t", 1).await;
    let mut client = server.connect().await;
    for value in ["a", "b", "c"] {
        client
            .send(9, &produce(&hub, 9, -1, &[(0, batch(&[value]))]))
            .await;
    }
    // All three are in the log, but none is durable.
    let partition = server.log.partition("t", 0).unwrap();
    until(|| partition.bounds().end == Offset(3)).await;
    let mut byte = [0];
    assert!(!is_ready(&mut Box::pin(client.stream.peek(&mut byte))));
    sync.send(1).unwrap();
    for (number, offset) in [(1, 0), (2, 1), (3, 2)] {
        let (answered, response) = client.receive::<ProduceRequest>(9).await;
        let partition = &response.responses[0].partition_responses[0];
        assert_eq!((answered, partition.base_offset), (number, offset));
    }
}

#[tokio::test]
async fn a_produce_behind_the_creation_of_its_hub_waits_for_it() {
    let (server, sync) = slow_server().await;
    let mut client = server.connect().await;
    let wanted = create_topics_request::CreatableTopic::default()
        .with_name(topic("new"))
        .with_num_partitions(1)
        .with_replication_factor(1);
    let create = CreateTopicsRequest::default().with_topics(vec![wanted]);
    client.send(7, &create).await;
    let nobody = HubInfo {
        name: HubName::new("new").unwrap(),
        id: HubId([0; 16]),
        partitions: 1,
        settings: HubSettings::default(),
        created_ms: 0,
    };
    client
        .send(9, &produce(&nobody, 9, -1, &[(0, batch(&["a"]))]))
        .await;
    sync.send(1).unwrap();
    assert_eq!(
        client.receive::<CreateTopicsRequest>(7).await.1.topics[0].error_code,
        0
    );
    let (_, response) = client.receive::<ProduceRequest>(9).await;
    assert_eq!(response.responses[0].partition_responses[0].error_code, 0);
}

fn long_fetch(partitions: i32, from: i64, min_bytes: i32) -> FetchRequest {
    let wanted = (0..partitions).map(|index| {
        fetch_request::FetchPartition::default()
            .with_partition(index)
            .with_fetch_offset(from)
            .with_partition_max_bytes(1 << 20)
    });
    FetchRequest::default()
        .with_max_wait_ms(60_000)
        .with_min_bytes(min_bytes)
        .with_max_bytes(1 << 20)
        .with_topics(vec![
            fetch_request::FetchTopic::default()
                .with_topic(topic("t"))
                .with_partitions(wanted.collect()),
        ])
}

fn sizes(response: &FetchResponse) -> Vec<usize> {
    let found = response.responses[0].partitions.iter();
    found
        .map(|found| found.records.as_ref().map_or(0, |records| records.len()))
        .collect()
}

#[tokio::test]
async fn a_long_poll_wakes_when_any_of_its_partitions_grows_and_blocks_no_other_connection() {
    let server = start().await;
    let hub = server.make("t", 3).await;
    let (mut reader, mut writer) = (server.connect().await, server.connect().await);
    reader.send(11, &long_fetch(3, 0, 1)).await;
    writer
        .call(9, &produce(&hub, 9, -1, &[(1, batch(&["a"]))]))
        .await;
    let (_, response) = reader.receive::<FetchRequest>(11).await;
    assert_eq!(sizes(&response), [0, batch(&["a"]).len(), 0]);
}

#[tokio::test]
async fn a_long_poll_waits_for_its_minimum_of_bytes() {
    let server = start().await;
    let hub = server.make("t", 2).await;
    let (mut reader, mut writer) = (server.connect().await, server.connect().await);
    let one = batch(&["a"]).len();
    reader.send(11, &long_fetch(2, 0, 3 * one as i32)).await;
    for partition in [0, 1, 0] {
        writer
            .call(9, &produce(&hub, 9, -1, &[(partition, batch(&["a"]))]))
            .await;
    }
    let (_, response) = reader.receive::<FetchRequest>(11).await;
    assert_eq!(sizes(&response), [2 * one, one]);
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_ends_empty_after_its_timeout() {
    let server = start().await;
    server.make("t", 1).await;
    let mut reader = server.connect().await;
    let response = reader.call(11, &long_fetch(1, 0, 1)).await;
    assert_eq!(sizes(&response), [0]);
}

#[tokio::test]
async fn at_least_one_batch_is_returned_whatever_the_limit_and_no_second_one() {
    let server = start().await;
    let hub = server.make("t", 2).await;
    let mut client = server.connect().await;
    for partition in [0, 0, 1] {
        client
            .call(9, &produce(&hub, 9, -1, &[(partition, batch(&["large"]))]))
            .await;
    }
    let request = long_fetch(2, 0, 1).with_max_bytes(1);
    let response = client.call(11, &request).await;
    assert_eq!(sizes(&response), [batch(&["large"]).len(), 0]);
}

#[tokio::test]
async fn an_offset_outside_is_an_error_at_once() {
    let server = start().await;
    server.make("t", 1).await;
    let mut client = server.connect().await;
    let response = client.call(11, &long_fetch(1, 7, 1)).await;
    assert_eq!(response.responses[0].partitions[0].error_code, 1);
}

#[tokio::test]
async fn a_produce_without_acknowledgement_gets_no_answer() {
    let server = start().await;
    let hub = server.make("t", 1).await;
    let mut client = server.connect().await;
    client
        .send(9, &produce(&hub, 9, 0, &[(0, batch(&["a"]))]))
        .await;
    let response = client.call(11, &long_fetch(1, 0, 1)).await;
    assert_eq!(sizes(&response), [batch(&["a"]).len()]);
}

#[tokio::test]
async fn a_failed_produce_without_acknowledgement_closes_the_connection() {
    let server = start().await;
    let hub = server.make("t", 1).await;
    let mut client = server.connect().await;
    client
        .send(9, &produce(&hub, 9, 0, &[(7, batch(&["a"]))]))
        .await;
    assert_eq!(client.receive_frame().await, None);
}

#[tokio::test]
async fn requests_beyond_the_limit_stay_in_the_socket_and_are_answered() {
    let server = start_with(|options, _| {
        options.inflight_requests_max = 2;
        options.inflight_bytes_max = 100;
        options.server_inflight_bytes_max = 2048;
    })
    .await;
    let hub = server.make("t", 1).await;
    let mut client = server.connect().await;
    for _ in 0..50 {
        client
            .send(9, &produce(&hub, 9, -1, &[(0, batch(&["abc"]))]))
            .await;
    }
    for number in 1..=50 {
        assert_eq!(client.receive::<ProduceRequest>(9).await.0, number);
    }
    assert_eq!(
        server.log.partition("t", 0).unwrap().bounds().end,
        Offset(50)
    );
}

#[tokio::test]
async fn a_client_that_disconnects_within_a_request_leaves_nothing_behind() {
    let server = start().await;
    let hub = server.make("t", 1).await;
    let mut client = server.connect().await;
    let whole = frame(1, 9, &produce(&hub, 9, -1, &[(0, batch(&["a"]))]));
    client.send_raw(&whole[..whole.len() - 1]).await;
    drop(client);
    let mut waiting = server.connect().await;
    waiting.send(11, &long_fetch(1, 0, 1)).await;
    drop(waiting);
    until(|| server.metrics().connections_total == 2 && server.metrics().connections == 0).await;
    assert_eq!(
        server.log.partition("t", 0).unwrap().bounds().end,
        Offset(0)
    );
}

#[tokio::test]
async fn shutdown_finishes_requests_in_flight_and_accepts_no_new_ones() {
    let (server, sync) = slow_server().await;
    let hub = server.make("t", 1).await;
    let mut client = server.connect().await;
    client
        .send(9, &produce(&hub, 9, -1, &[(0, batch(&["a"]))]))
        .await;
    let partition = server.log.partition("t", 0).unwrap();
    until(|| partition.bounds().end == Offset(1)).await;
    let stopping = tokio::spawn(server.stop());
    sync.send(1).unwrap();
    let (_, response) = client.receive::<ProduceRequest>(9).await;
    assert_eq!(response.responses[0].partition_responses[0].error_code, 0);
    assert_eq!(client.receive_frame().await, None);
    stopping.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn shutdown_has_a_time_limit() {
    let (server, _sync) = slow_server().await;
    let hub = server.make("t", 1).await;
    let mut client = server.connect().await;
    client
        .send(9, &produce(&hub, 9, -1, &[(0, batch(&["a"]))]))
        .await;
    let partition = server.log.partition("t", 0).unwrap();
    until(|| partition.bounds().end == Offset(1)).await;
    server.stop().await;
    let mut rest = Vec::new();
    client.stream.read_to_end(&mut rest).await.unwrap_or(0);
    assert!(rest.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_in_time() {
    let server = start().await;
    let mut client = server.connect().await;
    client.call(0, &ApiVersionsRequest::default()).await;
    let began = tokio::time::Instant::now();
    assert_eq!(client.receive_frame().await, None);
    let idle = began.elapsed();
    assert!(
        idle >= Duration::from_secs(600) && idle <= Duration::from_secs(901),
        "{idle:?}"
    );
}

#[tokio::test]
async fn a_connection_above_the_limit_is_closed() {
    let server = start_with(|options, _| options.connections_max = 1).await;
    let mut first = server.connect().await;
    first.call(0, &ApiVersionsRequest::default()).await;
    let mut second = server.connect().await;
    assert_eq!(second.receive_frame().await, None);
    first.call(0, &ApiVersionsRequest::default()).await;
    assert_eq!(server.metrics().connections_refused, 1);
}

#[tokio::test]
async fn metadata_creates_a_hub_only_if_client_and_server_allow_it() {
    let server = start().await;
    let mut client = server.connect().await;
    let asking = |name: &str, allowed| {
        let wanted = metadata_request::MetadataRequestTopic::default().with_name(Some(topic(name)));
        MetadataRequest::default()
            .with_topics(Some(vec![wanted]))
            .with_allow_auto_topic_creation(allowed)
    };
    for (name, allowed, code) in [("a", false, 3), ("__b", true, 3), ("c", true, 0)] {
        let response = client.call(9, &asking(name, allowed)).await;
        assert_eq!(response.topics[0].error_code, code, "{name}");
    }
    assert_eq!(server.log.hub("c").unwrap().partitions, 4);
    assert_eq!(server.log.hubs().len(), 1);
}

#[tokio::test]
async fn a_name_that_is_taken_without_a_hub_is_unknown() {
    let (server, _sync) = slow_server().await;
    let mut client = server.connect().await;
    let wanted = metadata_request::MetadataRequestTopic::default().with_name(Some(topic("taken")));
    let request = MetadataRequest::default().with_topics(Some(vec![wanted]));
    let response = client.call(9, &request).await;
    assert_eq!(response.topics[0].error_code, 3);
}

#[tokio::test]
async fn internal_hubs_are_visible_and_read_only() {
    let server = start().await;
    let hub = server.make("__groups", 1).await;
    let mut client = server.connect().await;
    let response = client
        .call(9, &MetadataRequest::default().with_topics(None))
        .await;
    assert!(response.topics[0].is_internal);
    let response = client
        .call(9, &produce(&hub, 9, -1, &[(0, batch(&["a"]))]))
        .await;
    assert_eq!(response.responses[0].partition_responses[0].error_code, 29);

    let grow = create_partitions_request::CreatePartitionsTopic::default()
        .with_name(topic("__groups"))
        .with_count(2);
    let grow = CreatePartitionsRequest::default().with_topics(vec![grow]);
    assert_eq!(client.call(2, &grow).await.results[0].error_code, 17);
    let delete = DeleteTopicsRequest::default().with_topic_names(vec![topic("__groups")]);
    assert_eq!(client.call(4, &delete).await.responses[0].error_code, 73);
    let all = delete_records_request::DeleteRecordsPartition::default().with_offset(-1);
    let all = delete_records_request::DeleteRecordsTopic::default()
        .with_name(topic("__groups"))
        .with_partitions(vec![all]);
    let trim = DeleteRecordsRequest::default().with_topics(vec![all]);
    let response = client.call(2, &trim).await;
    assert_eq!(response.topics[0].partitions[0].error_code, 44);
    assert_eq!(server.log.hub("__groups").as_ref(), Some(&hub));
}

#[tokio::test]
async fn an_invalid_batch_fails_its_partition() {
    let server = start().await;
    let hub = server.make("t", 1).await;
    let mut client = server.connect().await;
    let good = batch(&["a"]);
    let mut bad_checksum = good.to_vec();
    *bad_checksum.last_mut().unwrap() ^= 1;
    let two = [&good[..], &good[..]].concat();
    for (records, code) in [(bad_checksum, 2), (two, 87), (good[..20].to_vec(), 2)] {
        let response = client
            .call(9, &produce(&hub, 9, -1, &[(0, records.into())]))
            .await;
        assert_eq!(
            response.responses[0].partition_responses[0].error_code,
            code
        );
    }
    let response = client.call(9, &produce(&hub, 9, 5, &[(0, good)])).await;
    assert_eq!(response.responses[0].partition_responses[0].error_code, 21);
}

// proves L4
#[tokio::test(start_paused = true)]
async fn a_full_partition_throttles_the_client() {
    let full: Failure = |topic_partition| AppendError::QueueFull {
        topic_partition,
        waiting: 1,
    };
    let disk_full: Failure = |topic_partition| AppendError::DiskFull {
        topic_partition,
        reason: "quota exceeded".into(),
    };
    for (failure, code) in [(full, 19), (disk_full, 56)] {
        let (server, _sync) = server_with(Some(failure)).await;
        let hub = server.make("t", 1).await;
        let mut client = server.connect().await;
        let response = client
            .call(9, &produce(&hub, 9, -1, &[(0, batch(&["a"]))]))
            .await;
        let partition = &response.responses[0].partition_responses[0];
        assert_eq!(partition.error_code, code);
        assert_eq!(response.throttle_time_ms, 50);
        let began = tokio::time::Instant::now();
        client.call(0, &ApiVersionsRequest::default()).await;
        assert!(began.elapsed() >= Duration::from_millis(45));
        assert_eq!(server.metrics().throttled, 1);
    }
}

// proves L3
#[tokio::test]
async fn a_partition_with_a_failed_disk_acknowledges_nothing() {
    let stopped = |topic_partition| AppendError::Stopped {
        topic_partition,
        reason: "no space left".into(),
    };
    let (server, _sync) = server_with(Some(stopped)).await;
    let hub = server.make("t", 1).await;
    let mut client = server.connect().await;
    let request = produce(&hub, 9, -1, &[(0, batch(&["a"]))]);
    let response = client.call(9, &request).await;
    let partition = &response.responses[0].partition_responses[0];
    assert_eq!((partition.error_code, partition.base_offset), (56, -1));
    let said = partition.error_message.as_deref().unwrap();
    assert!(said.contains("no space left"), "{said}");
}

#[tokio::test]
async fn batches_with_sequence_numbers_are_appended_once_and_in_order() {
    let server = start().await;
    let hub = server.make("t", 1).await;
    let mut client = server.connect().await;
    let sent = |epoch, sequence| BatchOptions {
        producer: Some((Producer { id: 9, epoch }, sequence)),
        ..BatchOptions::default()
    };
    // Epoch and sequence, then code and offset: the first batch, its duplicate, the next, a gap, a newer epoch, the
    // old epoch.
    let steps = [
        ((0, 0), (0, 0)),
        ((0, 0), (0, 0)),
        ((0, 1), (0, 1)),
        ((0, 7), (45, -1)),
        ((1, 0), (0, 2)),
        ((0, 2), (47, -1)),
    ];
    for ((epoch, sequence), expected) in steps {
        let records = batch_with(&["a"], &sent(epoch, sequence));
        let request = produce(&hub, 9, -1, &[(0, records)]);
        let response = client.call(9, &request).await;
        let partition = &response.responses[0].partition_responses[0];
        let got = (partition.error_code, partition.base_offset);
        assert_eq!(got, expected, "epoch {epoch}, number {sequence}");
    }
}

#[tokio::test]
async fn responses_become_smaller_when_memory_is_short_and_release_it() {
    let server = start_with(|options, _| options.server_fetch_bytes_max = 1024).await;
    let hub = server.make("t", 1).await;
    let mut client = server.connect().await;
    let large = batch(&[&"x".repeat(600)]);
    for _ in 0..3 {
        let request = produce(&hub, 9, -1, &[(0, large.clone())]);
        client.call(9, &request).await;
    }
    for _ in 0..3 {
        let response = client.call(11, &long_fetch(1, 0, 1)).await;
        assert_eq!(sizes(&response), [large.len()]);
    }
}

// proves U3
#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_its_responses_is_disconnected() {
    let server = start().await;
    let hub = server.make("t", 1).await;
    let mut client = server.connect().await;
    let large = batch(&[&"x".repeat(1_000_000)]);
    for _ in 0..16 {
        let request = produce(&hub, 9, -1, &[(0, large.clone())]);
        client.call(9, &request).await;
    }
    let mut greedy = long_fetch(1, 0, 1).with_max_bytes(i32::MAX);
    greedy.topics[0].partitions[0].partition_max_bytes = i32::MAX;
    for _ in 0..4 {
        client.send(11, &greedy).await;
    }
    until(|| server.metrics().bytes_out > 1_000_000).await;
    for _ in 0..100 {
        tokio::time::advance(Duration::from_secs(30)).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(server.metrics().connections, 0);
    assert!(server.metrics().bytes_out < 4 * 16_000_000);
}

#[tokio::test]
async fn a_hub_created_again_has_another_id() {
    let server = start().await;
    let old = server.make("t", 1).await;
    server.log.delete(&old.name).await.unwrap();
    let new = server.make("t", 1).await;
    let mut client = server.connect().await;
    for (hub, code) in [(old, 100), (new, 0)] {
        let mut request = long_fetch(1, 0, 0);
        let topic = request.topics.remove(0).with_topic(topic(""));
        let topic = topic.with_topic_id(uuid::Uuid::from_bytes(hub.id.0));
        let request = request.with_topics(vec![topic]);
        let response = client.call(13, &request).await;
        assert_eq!(response.responses[0].partitions[0].error_code, code);
    }
}

#[tokio::test]
async fn an_unknown_fetch_session_is_not_found() {
    let server = start().await;
    let mut client = server.connect().await;
    let request = long_fetch(1, 0, 1).with_session_id(7).with_session_epoch(3);
    assert_eq!(client.call(11, &request).await.error_code, 70);
}

#[tokio::test]
async fn an_empty_fetch_is_answered_immediately() {
    let server = start().await;
    let mut client = server.connect().await;
    let request = long_fetch(1, 0, 1).with_topics(vec![]);
    assert!(client.call(11, &request).await.responses.is_empty());
}
