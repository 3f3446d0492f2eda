//! Small requests cannot make the server build large responses, or hold memory with them.
// proves U3

use std::time::Duration;

use crate::common::*;
use highwater_log::batch::{BatchOptions, Codec};
use highwater_log::{HubInfo, Producer};
use kafka_protocol::messages::*;

/// Repetitions of a name in a request.
const TIMES: usize = 5_000;

fn metadata(names: &[&str]) -> MetadataRequest {
    let topics = names
        .iter()
        .map(|name| metadata_request::MetadataRequestTopic::default().with_name(Some(topic(name))));
    MetadataRequest::default().with_topics(Some(topics.collect()))
}

#[tokio::test]
async fn repeated_names_are_answered_once() {
    let server = start().await;
    server.make("t", 1_000).await;
    let mut client = server.connect().await;

    let response = client.call(9, &metadata(&["t"; TIMES])).await;
    assert_eq!(response.topics.len(), 1);
    assert_eq!(response.topics[0].partitions.len(), 1_000);

    let resource = describe_configs_request::DescribeConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text("t"))
        .with_configuration_keys(None);
    let request = DescribeConfigsRequest::default().with_resources(vec![resource; TIMES]);
    assert_eq!(client.call(4, &request).await.results.len(), 1);

    let groups = vec![GroupId(text("g")); TIMES];
    let request = DescribeGroupsRequest::default().with_groups(groups);
    assert_eq!(client.call(5, &request).await.groups.len(), 1);

    let request = FindCoordinatorRequest::default().with_coordinator_keys(vec![text("g"); TIMES]);
    assert_eq!(client.call(4, &request).await.coordinators.len(), 1);

    let of_topic = offset_fetch_request::OffsetFetchRequestTopics::default()
        .with_name(topic("t"))
        .with_partition_indexes(vec![0; TIMES]);
    let group = offset_fetch_request::OffsetFetchRequestGroup::default()
        .with_group_id(GroupId(text("g")))
        .with_topics(Some(vec![of_topic]));
    let request = OffsetFetchRequest::default().with_groups(vec![group]);
    let response = client.call(8, &request).await;
    assert_eq!(response.groups[0].topics[0].partitions.len(), 1);
}

#[tokio::test]
async fn a_broker_has_settings_under_its_own_id_only() {
    let server = start().await;
    let mut client = server.connect().await;
    for (name, code) in [("1", 0), ("", 0), ("2", 42)] {
        let node = describe_configs_request::DescribeConfigsResource::default()
            .with_resource_type(4)
            .with_resource_name(text(name));
        let request = DescribeConfigsRequest::default().with_resources(vec![node]);
        let response = client.call(4, &request).await;
        assert_eq!(response.results[0].error_code, code, "{name}");
    }
}

#[tokio::test]
async fn a_request_with_too_many_elements_closes_its_connection() {
    let server = start_with(|options, _| options.request_elements_max = 100).await;
    let mut client = server.connect().await;
    let names: Vec<String> = (0..101).map(|number| format!("t{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let request = metadata(&names[..100]).with_allow_auto_topic_creation(false);
    assert_eq!(client.call(9, &request).await.topics.len(), 100);
    client.send(9, &metadata(&names)).await;
    assert_eq!(client.receive_frame().await, None);
    assert_eq!(server.metrics().malformed, 1);
}

/// The memory for responses has one large response at a time. A client that does not read its own is disconnected, and
/// the next client gets the memory.
#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_holds_the_memory_no_longer_than_the_write_timeout() {
    let server = start_with(|options, _| {
        options.server_response_bytes_max = 1 << 10;
        options.write_timeout = Duration::from_secs(5);
    })
    .await;
    for number in 0..100 {
        server.make(&format!("t{number}"), 1_000).await;
    }
    let all = MetadataRequest::default().with_topics(None);
    let mut slow = server.connect().await;
    for _ in 0..20 {
        slow.send(9, &all).await;
    }
    while server.metrics().bytes_out < 1_000_000 {
        tokio::task::yield_now().await;
    }
    let mut client = server.connect().await;
    let response = client.call(9, &all).await;
    assert_eq!(response.topics.len(), 100);
    while server.metrics().connections > 1 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(client.call(9, &all).await.topics.len(), 100);
}

// proves G2
#[tokio::test(start_paused = true)]
async fn descriptions_of_groups_are_charged_before_they_are_encoded() {
    let server = start_with(|options, _| {
        options.server_response_bytes_max = 38 << 20;
        options.write_timeout = Duration::from_secs(5);
    })
    .await;
    // There is memory for one of 20 MiB and for what is reserved while the size of another is unknown, not for two. The
    // second one waits until the first client, which does not read, is disconnected.
    let groups = vec![GroupId(text("large"))];
    let describe = DescribeGroupsRequest::default().with_groups(groups);
    let mut slow = server.connect().await;
    slow.send(4, &describe).await;
    while server.metrics().bytes_out < 1_000_000 {
        tokio::task::yield_now().await;
    }
    let started = tokio::time::Instant::now();
    let mut client = server.connect().await;
    let described = client.call(4, &describe).await;
    let metadata = &described.groups[0].members[0].member_metadata;
    assert_eq!(metadata.len(), 20 << 20);
    assert!(started.elapsed() >= Duration::from_secs(4));
}

/// A batch with a valid checksum, from one that was built.
fn resealed(batch: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = batch.to_vec();
    change(&mut bytes);
    let length = bytes.len() as i32 - 12;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    let mut crc = !0u32;
    for byte in &bytes[21..] {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82F6_3B78 & (crc & 1).wrapping_neg());
        }
    }
    bytes[17..21].copy_from_slice(&(!crc).to_be_bytes());
    bytes
}

// proves G2
#[tokio::test]
async fn a_compressed_batch_is_charged_before_it_is_decompressed() {
    const MESSAGE_TOO_LARGE: i16 = 10;
    let server = start_with(|options, _| options.server_unpack_bytes_max = 100 << 10).await;
    let hub = server.make("t", 1).await;
    let mut client = server.connect().await;
    let value = "x".repeat(10_000);
    for (codec, code) in [
        (Codec::None, 0),
        (Codec::Snappy, 0),
        (Codec::Gzip, MESSAGE_TOO_LARGE),
        (Codec::Lz4, MESSAGE_TOO_LARGE),
        (Codec::Zstd, MESSAGE_TOO_LARGE),
    ] {
        let options = BatchOptions {
            codec,
            ..BatchOptions::default()
        };
        let request = produce(&hub, 9, -1, &[(0, batch_with(&[&value], &options))]);
        let response = client.call(9, &request).await;
        let partition = &response.responses[0].partition_responses[0];
        assert_eq!(partition.error_code, code, "{codec:?}");
    }
}

/// The error code of the first batch of a producer.
async fn first_batch(client: &mut Client, hub: &HubInfo, id: i64) -> i16 {
    let options = BatchOptions {
        producer: Some((Producer { id, epoch: 0 }, 0)),
        ..BatchOptions::default()
    };
    let request = produce(hub, 9, -1, &[(0, batch_with(&["x"], &options))]);
    let response = client.call(9, &request).await;
    response.responses[0].partition_responses[0].error_code
}

// proves G2
#[tokio::test(start_paused = true)]
async fn a_client_with_ever_new_producer_ids_is_throttled() {
    const NOT_ENOUGH_REPLICAS: i16 = 19;
    let server = start_with(|options, _| options.producer_ids_max = 3).await;
    let hub = server.make("t", 1).await;
    let mut client = server.connect().await;
    for id in 0..3 {
        assert_eq!(first_batch(&mut client, &hub, id).await, 0);
    }
    let refused = first_batch(&mut client, &hub, 3).await;
    assert_eq!(refused, NOT_ENOUGH_REPLICAS);
    assert_eq!(first_batch(&mut client, &hub, 2).await, 0, "a repeat");
}

// proves L6
#[tokio::test]
async fn a_batch_that_cannot_be_read_is_an_invalid_record() {
    const INVALID_RECORD: i16 = 87;
    const MESSAGE_TOO_LARGE: i16 = 10;
    let server = start().await;
    let hub = server.make("t", 1).await;
    let mut client = server.connect().await;
    let good = batch(&["a"]);
    let claims = |count: i32| {
        resealed(&good, |bytes| {
            bytes[23..27].copy_from_slice(&(count - 1).to_be_bytes());
            bytes[57..61].copy_from_slice(&count.to_be_bytes());
        })
    };
    let compressed = |codec: u8, payload: &[u8]| {
        resealed(&good, |bytes| {
            bytes[22] = codec;
            bytes.splice(61.., payload.iter().copied());
        })
    };
    let oversized = compressed(1, &[0; 2 << 20]);
    for (records, code) in [
        (resealed(&good, |_| {}), 0),
        (claims(2), INVALID_RECORD),
        (claims(i32::MAX), INVALID_RECORD),
        (compressed(1, b"no gzip"), INVALID_RECORD),
        (
            compressed(2, b"\xFF\xFF\xFF\xFF\x07no snappy"),
            INVALID_RECORD,
        ),
        (compressed(3, b"no lz4"), INVALID_RECORD),
        (compressed(4, b"no zstd"), INVALID_RECORD),
        (oversized, MESSAGE_TOO_LARGE),
    ] {
        let request = produce(&hub, 9, -1, &[(0, records.into())]);
        let response = client.call(9, &request).await;
        let partition = &response.responses[0].partition_responses[0];
        assert_eq!(partition.error_code, code, "{:?}", partition.error_message);
    }
    assert_eq!(server.log.partition("t", 0).unwrap().bounds().end.0, 1);
}
