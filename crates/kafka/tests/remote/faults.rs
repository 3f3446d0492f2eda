//! Reads and other requests with brokers that disconnect, send wrong data or are silent.
// proves L6 X1

use std::time::Duration;

use bytes::Bytes;
use highwater_kafka::client::{Options, Remote};
use highwater_log::{Isolation, Log, Offset, ReadError};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::{
    ApiKey, FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse,
};

use crate::cluster::*;
use crate::proxy::{ProxyAction, RequestHead};

fn fetched(head: RequestHead, data: PartitionData) -> ProxyAction {
    let topic = FetchableTopicResponse::default().with_partitions(vec![data]);
    head.respond::<FetchRequest>(&FetchResponse::default().with_responses(vec![topic]))
}

async fn read(remote: &Remote) -> Result<Vec<String>, ReadError> {
    let partition = remote.partition("h", 0).unwrap();
    let read = partition.read(Offset(0), 1 << 20, Isolation::Uncommitted);
    let found = contents(&read.await?).into_iter();
    Ok(found.map(|(_, _, value)| value).collect())
}

async fn with_records() -> (TestCluster, Remote) {
    let cluster = cluster().await;
    let remote = cluster.with_hub("h", 1).await;
    append(&remote.partition("h", 0).unwrap(), &["a", "b"]).await;
    (cluster, remote)
}

#[tokio::test]
async fn a_read_with_a_truncated_response_is_retried() {
    let (cluster, remote) = with_records().await;
    for act in [
        ProxyAction::Drop,
        ProxyAction::DropResponse,
        ProxyAction::TruncateResponse,
    ] {
        cluster.proxy.first(ApiKey::Fetch, 2, move |_| act.clone());
        assert_eq!(read(&remote).await.unwrap(), ["a", "b"]);
    }
}

#[tokio::test]
async fn wrong_lengths_close_only_their_connection() {
    let (cluster, remote) = with_records().await;
    // Lengths of a frame: too long, negative, too short.
    for lie in [
        &[0x7F, 0xFF, 0xFF, 0xFF][..],
        &[0x80, 0, 0, 0],
        &[0, 0, 0, 3, 0, 0, 0],
    ] {
        let lie = Bytes::from_static(lie);
        cluster
            .proxy
            .first(ApiKey::Fetch, 2, move |_| ProxyAction::SendRaw(lie.clone()));
        assert_eq!(read(&remote).await.unwrap(), ["a", "b"]);
    }
    // The length of an array: the end of the header, ten bytes, and a claim of 2^32-1 elements.
    cluster.proxy.first(ApiKey::Fetch, 2, |head| {
        let mut body = vec![0; 11];
        body.extend([0xFF, 0xFF, 0xFF, 0xFF, 0x0F]);
        head.respond_raw(&body)
    });
    assert_eq!(read(&remote).await.unwrap(), ["a", "b"]);
}

#[tokio::test]
async fn a_response_with_another_correlation_id_closes_the_connection() {
    let (cluster, remote) = with_records().await;
    let other = Bytes::from_static(&[0, 0, 0, 4, 0x55, 0x55, 0x55, 0x55]);
    cluster.proxy.first(ApiKey::Fetch, 1, move |_| {
        ProxyAction::SendRaw(other.clone())
    });
    assert_eq!(read(&remote).await.unwrap(), ["a", "b"]);
}

#[tokio::test]
async fn a_silent_broker_times_out() {
    let (cluster, _) = with_records().await;
    let options = Options {
        request_timeout: Duration::from_millis(300),
        ..cluster.options()
    };
    let remote = connect(options).await.unwrap();
    cluster
        .proxy
        .first(ApiKey::Fetch, 2, |_| ProxyAction::SendRaw(Bytes::new()));
    assert_eq!(read(&remote).await.unwrap(), ["a", "b"]);
}

#[tokio::test]
async fn corrupt_batches_are_reported_and_not_returned() {
    let (cluster, remote) = with_records().await;
    let mut damaged = batch(&["a"], None, false).to_bytes().to_vec();
    if let Some(last) = damaged.last_mut() {
        *last ^= 1;
    }
    let damaged = Bytes::from(damaged);
    cluster.proxy.first(ApiKey::Fetch, 1, move |head| {
        let data = PartitionData::default().with_high_watermark(2);
        fetched(head, data.with_records(Some(damaged.clone())))
    });
    let error = read(&remote).await.unwrap_err();
    assert!(
        matches!(error, ReadError::Damaged { position: 0, .. }),
        "{error}"
    );
}

#[tokio::test]
async fn a_hub_that_a_broker_does_not_know_yet_does_not_count_as_deleted() {
    let (cluster, remote) = with_records().await;
    for code in [
        Code::UnknownTopicOrPartition,
        Code::UnknownTopicId,
        Code::NotLeaderOrFollower,
    ] {
        cluster.proxy.first(ApiKey::Fetch, 2, move |head| {
            fetched(head, PartitionData::default().with_error_code(code.code()))
        });
        assert_eq!(read(&remote).await.unwrap(), ["a", "b"]);
    }
}

#[tokio::test]
async fn a_waiter_survives_an_outage() {
    let (cluster, remote) = with_records().await;
    let partition = remote.partition("h", 0).unwrap();
    cluster.proxy.script(|_| ProxyAction::Drop);
    let waiting = tokio::spawn(partition.wait_past(Offset(2), Isolation::Committed));
    let inner = cluster.log.partition("h", 0).unwrap();
    append(&inner, &["c"]).await;
    while cluster.proxy.count(ApiKey::ApiVersions) < 5 {
        tokio::task::yield_now().await;
    }
    assert!(!waiting.is_finished());
    cluster.proxy.script(|_| ProxyAction::Forward);
    waiting.await.unwrap();
    assert_eq!(partition.bounds().end, Offset(3));
}

#[tokio::test]
async fn many_partitions_wait_with_few_requests() {
    let cluster = cluster().await;
    cluster.log.create(spec("h", 40)).await.unwrap();
    let options = Options {
        poll: Duration::from_millis(50),
        ..cluster.options()
    };
    let remote = connect(options).await.unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..40 {
        let partition = remote.partition("h", number).unwrap();
        waiting.spawn(async move {
            partition.wait_past(Offset(0), Isolation::Committed).await;
            number
        });
    }
    // Until all waiters are in a poll, and then as long again.
    for polls in [8, 16] {
        while cluster.proxy.count(ApiKey::Fetch) < polls {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let mut woken = Vec::new();
    for number in (0..40).rev() {
        append(&cluster.log.partition("h", number).unwrap(), &["x"]).await;
        woken.push(waiting.join_next().await.unwrap().unwrap());
    }
    assert_eq!(woken, (0..40).rev().collect::<Vec<_>>());
}

#[tokio::test]
async fn hubs_that_others_create_or_grow_become_visible() {
    let cluster = cluster().await;
    let remote = cluster.remote().await;
    assert!(remote.hub("h").is_none());
    cluster.log.create(spec("h", 2)).await.unwrap();
    while remote.hub("h").is_none_or(|hub| hub.partitions != 2) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // A hub that exists becomes visible immediately.
    cluster.log.create(spec("other", 1)).await.unwrap();
    let exists = remote.create(spec("other", 1)).await.unwrap_err();
    assert_eq!(exists, highwater_log::AdminError::Exists(name("other")));
    assert!(remote.partition("other", 0).is_some());
    cluster.log.grow(&name("h"), 3).await.unwrap();
    while remote.partition("h", 2).is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn an_unreachable_cluster_is_an_error_within_the_patience() {
    let options = Options {
        patience: Duration::from_millis(100),
        ..Options::new(["127.0.0.1:1"])
    };
    let error = connect(options).await.err().unwrap();
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
    for server in ["nowhere", "host:port"] {
        let error = connect(Options::new([server])).await.err().unwrap();
        assert!(error.to_string().contains(server), "{error}");
    }
}

/// A broker that is beyond its quota says so, and reads the next request of the connection after that time.
#[tokio::test]
async fn a_client_that_is_throttled_waits() {
    let (cluster, remote) = with_records().await;
    let pause = Duration::from_millis(300);
    cluster.proxy.first(ApiKey::ListOffsets, 1, move |head| {
        let start = ListOffsetsPartitionResponse::default().with_offset(0);
        let topic = ListOffsetsTopicResponse::default().with_partitions(vec![start]);
        head.respond::<ListOffsetsRequest>(
            &ListOffsetsResponse::default()
                .with_throttle_time_ms(pause.as_millis() as i32)
                .with_topics(vec![topic]),
        )
    });
    let began = tokio::time::Instant::now();
    // Start, stable end and end, one after another.
    let bounds = remote.partition("h", 0).unwrap().fetch_bounds().await;
    assert_eq!(bounds.unwrap().end, Offset(2));
    assert!(began.elapsed() >= pause, "{:?}", began.elapsed());
}

#[tokio::test]
async fn the_bounds_of_all_partitions_in_use_are_read_at_once() {
    let (cluster, remote) = with_records().await;
    let partition = remote.partition("h", 0).unwrap();
    let behind = cluster.log.partition("h", 0).unwrap();
    append(&behind, &["c"]).await;
    assert_eq!(partition.bounds().end, Offset(2));
    remote.refresh_bounds().await;
    assert_eq!(partition.bounds().end, Offset(3));
    cluster.log.delete(&name("h")).await.unwrap();
    remote.refresh_bounds().await;
    assert_eq!(partition.bounds().end, Offset(3), "the last known");
}
