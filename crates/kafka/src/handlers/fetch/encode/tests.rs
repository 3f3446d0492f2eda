use std::sync::Arc;

use bytes::Bytes;
use highwater_log::{Bounds, Offset};
use kafka_protocol::messages::fetch_response::{
    AbortedTransaction, FetchableTopicResponse, PartitionData,
};
use kafka_protocol::messages::{ApiKey, FetchResponse, ProducerId, TopicName};
use kafka_protocol::protocol::StrBytes;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::Identity;
use crate::api::Api;
use crate::call::ListenerInfo;

fn call(version: i16) -> Call {
    Call {
        api: Api::of(ApiKey::Fetch as i16).unwrap(),
        version,
        correlation: 77,
        client_id: StrBytes::default(),
        who: Identity::anonymous(),
        client_host: "/127.0.0.1".into(),
        listener_info: Arc::new(ListenerInfo {
            host: StrBytes::default(),
            port: 0,
            sasl: false,
        }),
    }
}

/// The same answer in the words of the codec.
fn in_words_of_the_codec(answer: &Answer, version: i16) -> FetchResponse {
    let partition = |found: &Found| {
        let bounds = found.bounds;
        let aborted = found.aborted.iter().map(|aborted| {
            AbortedTransaction::default()
                .with_producer_id(ProducerId(aborted.producer_id))
                .with_first_offset(aborted.first.0)
        });
        PartitionData::default()
            .with_partition_index(found.index)
            .with_error_code(found.code)
            .with_high_watermark(bounds.map_or(-1, |bounds| bounds.end.0))
            .with_last_stable_offset(bounds.map_or(-1, |bounds| bounds.stable.0))
            .with_log_start_offset(bounds.map_or(-1, |bounds| bounds.start.0))
            .with_aborted_transactions(Some(aborted.collect()))
            .with_records(Some(found.pieces.concat().into()))
    };
    let topics = answer.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(partition).collect();
        let answer = FetchableTopicResponse::default().with_partitions(partitions);
        match version >= BY_ID {
            true => answer.with_topic_id(topic.id),
            false => answer.with_topic(TopicName(topic.name.clone())),
        }
    });
    let code = if version >= 7 { answer.code } else { 0 };
    FetchResponse::default()
        .with_error_code(code)
        .with_responses(topics.collect())
}

fn pieces() -> impl Strategy<Value = Vec<Bytes>> {
    let piece = prop::collection::vec(any::<u8>(), 0..200).prop_map(Bytes::from);
    prop::collection::vec(piece, 0..4)
}

prop_compose! {
    fn found()(
        index in any::<i32>(),
        code in any::<i16>(),
        bounds in prop::option::of((any::<i64>(), any::<i64>(), any::<i64>())),
        aborted in prop::collection::vec((any::<i64>(), any::<i64>()), 0..3),
        pieces in pieces(),
    ) -> Found {
        Found {
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
        partitions in prop::collection::vec(found(), 0..4),
    ) -> Topic {
        Topic { name: StrBytes::from_string(name), id: Uuid::from_u128(id), partitions }
    }
}

proptest! {
    // proves L6
    #[test]
    fn every_version_is_what_the_codec_would_write(
        code in any::<i16>(),
        topics in prop::collection::vec(topic(), 0..4),
        version in 4i16..=16,
    ) {
        let answer = Answer { code, topics };
        let call = call(version);
        let codec = call.encode(&in_words_of_the_codec(&answer, version)).unwrap();
        let ours = encode(&call, answer).unwrap();
        prop_assert_eq!(ours.pieces.concat(), codec.pieces.concat());
    }
}
