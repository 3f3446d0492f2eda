//! Which versions of each request the client speaks, and which of them it speaks with a broker.
//!
//! The highest are no higher than something is gained by: ids of hubs, so that a hub made again under its
//! name is not taken for the one before; names of instances; what a join says of a leader that came back.
//! The lowest are those of Kafka 2.1, and what Azure Event Hubs answers to.

use std::collections::BTreeMap;

use kafka_protocol::messages::ApiKey;

/// From this version on Produce and Fetch name hubs by their ids.
pub(crate) const BY_ID: i16 = 13;
/// The last version of Produce in which a transaction says itself where it writes. From the next on the
/// broker does, and expects the rest of that newer protocol too.
pub(crate) const PRODUCE_IN_TRANSACTION_MAX: i16 = 11;

/// Every request that is sent, with the first and the last version.
pub(crate) const SPOKEN: [(ApiKey, i16, i16); 29] = [
    (ApiKey::Produce, 3, 13),
    (ApiKey::Fetch, 4, 13),
    (ApiKey::ListOffsets, 2, 5),
    (ApiKey::Metadata, 4, 12),
    (ApiKey::OffsetCommit, 2, 7),
    (ApiKey::OffsetFetch, 2, 7),
    (ApiKey::FindCoordinator, 1, 2),
    (ApiKey::JoinGroup, 2, 9),
    (ApiKey::Heartbeat, 1, 3),
    (ApiKey::LeaveGroup, 1, 3),
    (ApiKey::SyncGroup, 1, 5),
    (ApiKey::DescribeGroups, 0, 4),
    (ApiKey::ListGroups, 0, 4),
    (ApiKey::SaslHandshake, 1, 1),
    (ApiKey::ApiVersions, 0, 0),
    (ApiKey::CreateTopics, 2, 4),
    (ApiKey::DeleteTopics, 1, 3),
    (ApiKey::DeleteRecords, 0, 1),
    (ApiKey::InitProducerId, 0, 4),
    (ApiKey::AddPartitionsToTxn, 0, 2),
    (ApiKey::AddOffsetsToTxn, 0, 2),
    (ApiKey::EndTxn, 0, 2),
    (ApiKey::TxnOffsetCommit, 0, 3),
    (ApiKey::DescribeConfigs, 1, 2),
    (ApiKey::SaslAuthenticate, 0, 1),
    (ApiKey::CreatePartitions, 0, 1),
    (ApiKey::DeleteGroups, 0, 1),
    (ApiKey::IncrementalAlterConfigs, 0, 0),
    (ApiKey::OffsetDelete, 0, 0),
];

/// What a broker said it understands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Versions(BTreeMap<i16, (i16, i16)>);

impl Versions {
    pub fn new(ranges: impl IntoIterator<Item = (i16, i16, i16)>) -> Versions {
        let range = |(key, min, max)| (key, (min, max));
        Versions(ranges.into_iter().map(range).collect())
    }

    /// The highest version that both sides speak, and no higher than `max`.
    pub fn of(&self, key: i16, max: i16) -> Option<i16> {
        let spoken = SPOKEN.iter().find(|(spoken, ..)| *spoken as i16 == key);
        let (_, own_min, own_max) = spoken?;
        let (min, theirs) = self.0.get(&key)?;
        let version = max.min(*own_max).min(*theirs);
        (version >= *own_min && version >= *min).then_some(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kafka_protocol::messages::*;
    use kafka_protocol::protocol::{Message, Request};

    fn codec<R: Request>() -> (i16, i16, i16) {
        let (requested, answered) = (R::VERSIONS, R::Response::VERSIONS);
        (
            R::KEY,
            requested.min.max(answered.min),
            requested.max.min(answered.max),
        )
    }

    #[test]
    fn everything_spoken_can_be_written_and_read() {
        let codec = [
            codec::<ProduceRequest>(),
            codec::<FetchRequest>(),
            codec::<ListOffsetsRequest>(),
            codec::<MetadataRequest>(),
            codec::<OffsetCommitRequest>(),
            codec::<OffsetFetchRequest>(),
            codec::<FindCoordinatorRequest>(),
            codec::<JoinGroupRequest>(),
            codec::<HeartbeatRequest>(),
            codec::<LeaveGroupRequest>(),
            codec::<SyncGroupRequest>(),
            codec::<DescribeGroupsRequest>(),
            codec::<ListGroupsRequest>(),
            codec::<SaslHandshakeRequest>(),
            codec::<ApiVersionsRequest>(),
            codec::<CreateTopicsRequest>(),
            codec::<DeleteTopicsRequest>(),
            codec::<DeleteRecordsRequest>(),
            codec::<InitProducerIdRequest>(),
            codec::<AddPartitionsToTxnRequest>(),
            codec::<AddOffsetsToTxnRequest>(),
            codec::<EndTxnRequest>(),
            codec::<TxnOffsetCommitRequest>(),
            codec::<DescribeConfigsRequest>(),
            codec::<SaslAuthenticateRequest>(),
            codec::<CreatePartitionsRequest>(),
            codec::<DeleteGroupsRequest>(),
            codec::<IncrementalAlterConfigsRequest>(),
            codec::<OffsetDeleteRequest>(),
        ];
        for ((key, min, max), (of, codec_min, codec_max)) in SPOKEN.into_iter().zip(codec) {
            assert_eq!(key as i16, of);
            assert!(codec_min <= min && max <= codec_max, "{key:?}");
        }
    }

    #[test]
    fn the_highest_common_version_is_spoken_or_none() {
        let fetch = ApiKey::Fetch as i16;
        let with = |min, max| Versions::new([(fetch, min, max)]);
        assert_eq!(with(0, 99).of(fetch, i16::MAX), Some(13));
        assert_eq!(with(0, 11).of(fetch, i16::MAX), Some(11));
        assert_eq!(with(0, 11).of(fetch, 9), Some(9));
        assert_eq!(with(0, 3).of(fetch, i16::MAX), None);
        assert_eq!(with(14, 20).of(fetch, i16::MAX), None);
        assert_eq!(with(0, 9).of(ApiKey::Produce as i16, i16::MAX), None);
    }
}
