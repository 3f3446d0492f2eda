//! Producers' timestamps: kept beside the enqueue time, served as they came, found by ListOffsets, and bounded.
// proves K4

use bytes::{Bytes, BytesMut};
use highwater_log::batch::{BatchOptions, Batches, Codec, Decompressor, TimestampType};
use highwater_log::{EnqueueTime, HubInfo, Isolation, Offset};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::*;
use kafka_protocol::records::{
    Compression, Record, RecordBatchDecoder, RecordBatchEncoder, RecordEncodeOptions,
    TimestampType as WireTimestampType,
};
use std::sync::Arc;

use crate::common::*;

/// A batch as another client writes it, with a timestamp of each record.
fn created_batch(timestamps: &[i64], key: Option<&'static str>) -> Bytes {
    let record = |(offset, timestamp): (usize, &i64)| Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: -1,
        producer_id: -1,
        producer_epoch: -1,
        timestamp_type: WireTimestampType::Creation,
        offset: offset as i64,
        sequence: offset as i32,
        timestamp: *timestamp,
        key: key.map(Bytes::from),
        value: Some(Bytes::from_static(b"value")),
        headers: Default::default(),
    };
    let records: Vec<Record> = timestamps.iter().enumerate().map(record).collect();
    let options = RecordEncodeOptions {
        version: 2,
        compression: Compression::None,
    };
    let mut bytes = BytesMut::new();
    RecordBatchEncoder::encode(&mut bytes, &records, &options).unwrap();
    bytes.freeze()
}

async fn create(client: &mut Client, name: &str, configs: &[(&str, &str)]) -> i16 {
    let config = |(name, value): &(&str, &str)| {
        create_topics_request::CreatableTopicConfig::default()
            .with_name(text(name))
            .with_value(Some(text(value)))
    };
    let wanted = create_topics_request::CreatableTopic::default()
        .with_name(topic(name))
        .with_num_partitions(1)
        .with_replication_factor(1)
        .with_configs(configs.iter().map(config).collect());
    let request = CreateTopicsRequest::default().with_topics(vec![wanted]);
    let response = client.call(7, &request).await;
    response.topics[0].error_code
}

async fn send(client: &mut Client, hub: &HubInfo, batch: Bytes) -> (i16, i64) {
    let response = client.call(9, &produce(hub, 9, -1, &[(0, batch)])).await;
    let answer = &response.responses[0].partition_responses[0];
    (answer.error_code, answer.log_append_time_ms)
}

fn fetch(hub: &HubInfo, isolation: i8, wait_ms: i32) -> FetchRequest {
    let partition = fetch_request::FetchPartition::default()
        .with_fetch_offset(0)
        .with_partition_max_bytes(1 << 20);
    let of_topic = fetch_request::FetchTopic::default()
        .with_topic(topic(hub.name.as_str()))
        .with_partitions(vec![partition]);
    FetchRequest::default()
        .with_max_wait_ms(wait_ms)
        .with_min_bytes(1)
        .with_max_bytes(1 << 20)
        .with_isolation_level(isolation)
        .with_topics(vec![of_topic])
}

/// Offset and timestamp of the answers to these timestamps.
async fn offsets(client: &mut Client, name: &str, timestamps: &[i64]) -> Vec<(i64, i64)> {
    let wanted = timestamps
        .iter()
        .map(|time| list_offsets_request::ListOffsetsPartition::default().with_timestamp(*time));
    let of_topic = list_offsets_request::ListOffsetsTopic::default()
        .with_name(topic(name))
        .with_partitions(wanted.collect());
    let request = ListOffsetsRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_topics(vec![of_topic]);
    let response = client.call(7, &request).await;
    let found = response.topics[0].partitions.iter();
    found.map(|found| (found.offset, found.timestamp)).collect()
}

async fn created_hub(server: &TestServer, client: &mut Client) -> Arc<HubInfo> {
    assert_eq!(create(client, "t", &[]).await, 0);
    server.log.hub("t").unwrap()
}

#[tokio::test]
async fn consumers_get_the_producers_timestamps_and_the_log_keeps_its_own() {
    let server = start().await;
    let mut client = server.connect().await;
    let hub = created_hub(&server, &mut client).await;
    assert_eq!(hub.settings.timestamps.kind, TimestampType::Create);
    let times = [[500, 300, 700], [200, 250, 240]];
    for times in &times {
        let sent = created_batch(times, Some("key"));
        assert_eq!(send(&mut client, &hub, sent).await, (0, -1));
    }
    let response = client.call(12, &fetch(&hub, 0, 0)).await;
    let mut records = response.responses[0].partitions[0].records.clone().unwrap();
    let decoded = RecordBatchDecoder::decode_all(&mut records).unwrap();
    let decoded: Vec<_> = decoded.into_iter().flat_map(|set| set.records).collect();
    let found: Vec<i64> = decoded.iter().map(|record| record.timestamp).collect();
    assert_eq!(found, times.concat());
    for (offset, record) in decoded.iter().enumerate() {
        assert_eq!(record.timestamp_type, WireTimestampType::Creation);
        assert_eq!(record.offset, offset as i64);
    }
    let partition = server.log.partition("t", 0).unwrap();
    let read = partition.read(Offset(0), 1 << 20, Isolation::Committed);
    for piece in read.await.unwrap().pieces {
        for batch in Batches::new(&piece) {
            assert_eq!(batch.unwrap().enqueue_time(), EnqueueTime(1_000));
        }
    }
}

#[tokio::test]
async fn an_offset_is_found_by_the_timestamp_of_its_record() {
    let server = start().await;
    let mut client = server.connect().await;
    let hub = created_hub(&server, &mut client).await;
    for times in [[500, 300, 700], [200, 250, 240], [900, 100, 800]] {
        let sent = created_batch(&times, Some("key"));
        assert_eq!(send(&mut client, &hub, sent).await.0, 0);
    }
    // A punctuation has the log's time, which is later than all of them.
    let partition = server.log.partition("t", 0).unwrap();
    partition.punctuate(Offset(9)).await.unwrap().unwrap();
    let asked = [0, 500, 501, 701, 901, -3];
    let found = offsets(&mut client, "t", &asked).await;
    let expected = [(0, 500), (0, 500), (2, 700), (6, 900), (-1, -1), (6, 900)];
    assert_eq!(found, expected);
    partition.trim(Offset(7)).await.unwrap();
    let found = offsets(&mut client, "t", &asked).await;
    let expected = [(7, 100), (8, 800), (8, 800), (8, 800), (-1, -1), (8, 800)];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn with_the_logs_timestamps_everything_is_found_by_the_time_of_the_append() {
    let server = start().await;
    let mut client = server.connect().await;
    let configs = [("message.timestamp.type", "LogAppendTime")];
    assert_eq!(create(&mut client, "t", &configs).await, 0);
    let hub = server.log.hub("t").unwrap();
    let sent = created_batch(&[500, 300], None);
    assert_eq!(send(&mut client, &hub, sent).await, (0, 1_000));
    let found = offsets(&mut client, "t", &[0, 1_000, 1_001, -3]).await;
    assert_eq!(found, [(0, 1_000), (0, 1_000), (-1, -1), (0, 1_000)]);
}

#[tokio::test]
async fn a_topic_that_a_request_creates_has_the_timestamps_of_the_node() {
    for kind in [TimestampType::Create, TimestampType::LogAppend] {
        let server = start_with(|options, _| options.topics.timestamp_type = kind).await;
        let mut client = server.connect().await;
        let wanted = metadata_request::MetadataRequestTopic::default();
        let request = MetadataRequest::default()
            .with_topics(Some(vec![wanted.with_name(Some(topic("auto")))]))
            .with_allow_auto_topic_creation(true);
        assert_eq!(client.call(9, &request).await.topics[0].error_code, 0);
        assert_eq!(create(&mut client, "made", &[]).await, 0);
        for name in ["auto", "made"] {
            let hub = server.log.hub(name).unwrap();
            assert_eq!(hub.settings.timestamps.kind, kind, "{name}");
        }
    }
}

#[tokio::test]
async fn timestamps_too_far_from_the_clock_are_refused() {
    let server = start().await;
    let mut client = server.connect().await;
    let configs = [
        ("message.timestamp.before.max.ms", "0"),
        ("message.timestamp.after.max.ms", "50"),
    ];
    assert_eq!(create(&mut client, "t", &configs).await, 0);
    let hub = server.log.hub("t").unwrap();
    let refused = Code::InvalidTimestamp.code();
    // The clock of the server stands at 0.
    for (times, code) in [
        (vec![0, 50], 0),
        (vec![0, 51], refused),
        (vec![-5], refused),
        (vec![-1], 0),
    ] {
        let sent = created_batch(&times, None);
        assert_eq!(send(&mut client, &hub, sent).await.0, code, "{times:?}");
    }
    let newest = offsets(&mut client, "t", &[-3]).await;
    assert_eq!(newest, [(2, 1_000)], "without a timestamp it has the log's");
}

#[tokio::test]
async fn a_compacted_topic_takes_no_record_without_a_key() {
    let server = start().await;
    let mut client = server.connect().await;
    for policy in ["compact", "compact,delete"] {
        let name = policy.replace(',', "-");
        let configs = [("cleanup.policy", policy)];
        assert_eq!(create(&mut client, &name, &configs).await, 0);
        let hub = server.log.hub(&name).unwrap();
        let refused = send(&mut client, &hub, created_batch(&[1], None)).await;
        assert_eq!(refused.0, Code::InvalidRecord.code());
        // The response names the records.
        let batches = [(0, created_batch(&[1, 2], None))];
        let response = client.call(9, &produce(&hub, 9, -1, &batches)).await;
        let errors = response.responses[0].partition_responses[0]
            .record_errors
            .iter();
        let errors: Vec<i32> = errors.map(|error| error.batch_index).collect();
        assert_eq!(errors, [0, 1]);
        let taken = send(&mut client, &hub, created_batch(&[1], Some("key"))).await;
        assert_eq!(taken.0, 0);
    }
}

#[tokio::test]
async fn a_batch_is_stored_in_the_compression_of_its_topic() {
    let server = start().await;
    let mut client = server.connect().await;
    for (name, codec) in [("gzip", Codec::Gzip), ("uncompressed", Codec::None)] {
        let configs = [("compression.type", name)];
        assert_eq!(create(&mut client, name, &configs).await, 0);
        let hub = server.log.hub(name).unwrap();
        for sent in [Codec::None, Codec::Zstd, codec] {
            let options = BatchOptions {
                codec: sent,
                timestamp: Some(5),
                ..BatchOptions::default()
            };
            let batch = batch_with(&["some value", "another"], &options);
            assert_eq!(send(&mut client, &hub, batch).await.0, 0);
        }
        let response = client.call(12, &fetch(&hub, 0, 0)).await;
        let records = response.responses[0].partitions[0].records.clone().unwrap();
        let mut values = Vec::new();
        for batch in Batches::new(&records) {
            let batch = batch.unwrap();
            batch.check().unwrap();
            assert_eq!(batch.header.codec(), Ok(codec));
            for record in batch.records(&mut Decompressor::default()).unwrap() {
                let record = record.unwrap();
                assert_eq!(record.timestamp, 5);
                values.push(String::from_utf8(record.value.unwrap().to_vec()).unwrap());
            }
        }
        assert_eq!(values, ["some value", "another"].repeat(3));
    }
}

/// A reader of committed records is not woken by a record of an open transaction, but learns that the partition grew.
#[tokio::test]
async fn a_long_poll_that_expires_has_the_current_high_watermark() {
    let server = start().await;
    let hub = server.make("t", 1).await;
    let mut client = server.connect().await;
    let sent = client.send(12, &fetch(&hub, 1, 300)).await;
    let fetches = || {
        let requests = server.metrics().requests;
        requests
            .iter()
            .any(|(name, count)| name == "Fetch" && *count > 0)
    };
    while !fetches() {
        tokio::task::yield_now().await;
    }
    let producer = highwater_log::Producer { id: 1, epoch: 0 };
    let options = BatchOptions {
        producer: Some((producer, 0)),
        transactional: true,
        ..BatchOptions::default()
    };
    let sent_batch = batch_with(&["open"], &options);
    let (batch, _) = highwater_log::batch::Batch::parse(sent_batch).unwrap();
    let partition = server.log.partition("t", 0).unwrap();
    partition.append(batch).await.unwrap();
    let (answered, response) = client.receive::<FetchRequest>(12).await;
    assert_eq!(answered, sent);
    let found = &response.responses[0].partitions[0];
    assert_eq!((found.high_watermark, found.last_stable_offset), (1, 0));
}
