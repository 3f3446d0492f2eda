//! The versions of each request that the client supports, and the choice among them for a broker.
//!
//! The highest are those with a benefit: hub ids, so that a hub created again under its name is not mistaken for the
//! old one; instance ids; the skipped assignment of a leader that rejoins. The lowest are those of Kafka 2.1 and
//! Azure Event Hubs.

use std::collections::BTreeMap;

use kafka_protocol::messages::ApiKey;

/// The first version of Produce and Fetch that names topics by id.
pub(crate) const BY_ID: i16 = 13;
/// The last version of Produce in which the client adds partitions to a transaction. From the next on the broker
/// does, and expects the rest of that newer protocol.
pub(crate) const PRODUCE_IN_TRANSACTION_MAX: i16 = 11;

/// The requests that the client sends, with the first and last version.
pub(crate) const SUPPORTED: [(ApiKey, i16, i16); 29] = [
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

/// The versions that a broker supports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Versions(BTreeMap<i16, (i16, i16)>);

impl Versions {
    pub(crate) fn new(ranges: impl IntoIterator<Item = (i16, i16, i16)>) -> Versions {
        let range = |(key, min, max)| (key, (min, max));
        Versions(ranges.into_iter().map(range).collect())
    }

    /// The highest version that both sides support, at most `max`.
    pub(crate) fn highest(&self, key: i16, max: i16) -> Option<i16> {
        let own = SUPPORTED.iter().find(|(own, ..)| *own as i16 == key);
        let (_, own_min, own_max) = own?;
        let (min, theirs) = self.0.get(&key)?;
        let version = max.min(*own_max).min(*theirs);
        (version >= *own_min && version >= *min).then_some(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::tests::for_each_request;
    use kafka_protocol::messages::*;
    use kafka_protocol::protocol::{Message, Request};

    fn codec<R: Request>() -> (i16, i16) {
        let (request, response) = (R::VERSIONS, R::Response::VERSIONS);
        (request.min.max(response.min), request.max.min(response.max))
    }

    fn own<R: Request>() -> Option<(ApiKey, i16, i16)> {
        SUPPORTED
            .into_iter()
            .find(|(key, ..)| *key as i16 == R::KEY)
    }

    #[test]
    fn supported_versions_can_be_encoded_and_decoded() {
        macro_rules! check {
            ($($key:ident $request:ident,)*) => {
                $(if let Some((key, min, max)) = own::<$request>() {
                    let (codec_min, codec_max) = codec::<$request>();
                    assert!(codec_min <= min && max <= codec_max, "{key:?}");
                })*
            };
        }
        for_each_request!(check);
    }

    #[test]
    fn the_highest_common_version_is_chosen() {
        let fetch = ApiKey::Fetch as i16;
        let with = |min, max| Versions::new([(fetch, min, max)]);
        assert_eq!(with(0, 99).highest(fetch, i16::MAX), Some(13));
        assert_eq!(with(0, 11).highest(fetch, i16::MAX), Some(11));
        assert_eq!(with(0, 11).highest(fetch, 9), Some(9));
        assert_eq!(with(0, 3).highest(fetch, i16::MAX), None);
        assert_eq!(with(14, 20).highest(fetch, i16::MAX), None);
        assert_eq!(with(0, 9).highest(ApiKey::Produce as i16, i16::MAX), None);
    }
}
