use bytes::Bytes;
use highwater_log::{Bounds, Offset};
use kafka_protocol::messages::fetch_response::{
    AbortedTransaction, FetchableTopicResponse, PartitionData,
};
use kafka_protocol::messages::{FetchResponse, ProducerId, TopicName};
use kafka_protocol::protocol::StrBytes;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::api::Api;
use crate::request;

/// The same response as a value of the codec.
fn codec_response(body: &FetchBody, version: i16) -> FetchResponse {
    let partition = |partition: &FetchedPartition| {
        let bounds = partition.bounds;
        let aborted = partition.aborted.iter().map(|aborted| {
            AbortedTransaction::default()
                .with_producer_id(ProducerId(aborted.producer_id))
                .with_first_offset(aborted.first.0)
        });
        PartitionData::default()
            .with_partition_index(partition.index)
            .with_error_code(partition.code)
            .with_high_watermark(bounds.map_or(-1, |bounds| bounds.end.0))
            .with_last_stable_offset(bounds.map_or(-1, |bounds| bounds.stable.0))
            .with_log_start_offset(bounds.map_or(-1, |bounds| bounds.start.0))
            .with_aborted_transactions(Some(aborted.collect()))
            .with_records(Some(partition.pieces.concat().into()))
    };
    let topics = body.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(partition).collect();
        let body = FetchableTopicResponse::default().with_partitions(partitions);
        match version >= BY_ID {
            true => body.with_topic_id(topic.id),
            false => body.with_topic(TopicName(topic.name.clone())),
        }
    });
    let code = if version >= 7 { body.code } else { 0 };
    FetchResponse::default()
        .with_throttle_time_ms(5)
        .with_error_code(code)
        .with_responses(topics.collect())
}

fn pieces() -> impl Strategy<Value = Vec<Bytes>> {
    let piece = prop::collection::vec(any::<u8>(), 0..200).prop_map(Bytes::from);
    prop::collection::vec(piece, 0..4)
}

prop_compose! {
    fn partition()(
        index in any::<i32>(),
        code in any::<i16>(),
        bounds in prop::option::of((any::<i64>(), any::<i64>(), any::<i64>())),
        aborted in prop::collection::vec((any::<i64>(), any::<i64>()), 0..3),
        pieces in pieces(),
    ) -> FetchedPartition {
        FetchedPartition {
            index,
            code,
            bounds: bounds.map(|(start, stable, end)| Bounds {
                start: Offset(start),
                stable: Offset(stable),
                end: Offset(end),
                ..Bounds::default()
            }),
            aborted: aborted
                .into_iter()
                .map(|(producer_id, first)| highwater_log::AbortedTransaction { producer_id, first: Offset(first) })
                .collect(),
            pieces,
        }
    }
}

prop_compose! {
    fn topic()(
        name in "[a-z]{0,200}",
        id in any::<u128>(),
        partitions in prop::collection::vec(partition(), 0..4),
    ) -> FetchedTopic {
        FetchedTopic { name: StrBytes::from_string(name), id: Uuid::from_u128(id), partitions }
    }
}

proptest! {
    // proves L6
    #[test]
    fn every_version_equals_the_codecs_encoding(
        code in any::<i16>(),
        topics in prop::collection::vec(topic(), 0..4),
        version in 4i16..=16,
    ) {
        let body = FetchBody { throttle_ms: 5, code, topics };
        let api = Api::of(ApiKey::Fetch as i16).unwrap();
        let codec = request::encode(&api, version, 77, &codec_response(&body, version)).unwrap();
        let ours = encode(version, 77, body).unwrap();
        prop_assert_eq!(ours.pieces.concat(), codec.pieces.concat());
    }
}
