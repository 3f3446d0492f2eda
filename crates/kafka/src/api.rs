//! Which requests are understood, in which versions.
//!
//! The table is ours and not the codec's: some ranges are narrower, so that clients stay on the
//! transaction protocol that we speak, and Produce is announced from 0 on though only 3 and later
//! can be read. Old librdkafka looks for version 0 of Produce to decide whether it may compress, and
//! would otherwise send everything uncompressed without a word. Nobody sends versions 0 to 2.

use kafka_protocol::messages::ApiKey;

/// One kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Api {
    pub key: ApiKey,
    /// What is announced.
    pub min: i16,
    pub max: i16,
    /// The first version that can be read.
    pub readable: i16,
}

const fn api(key: ApiKey, min: i16, max: i16) -> Api {
    Api {
        key,
        min,
        max,
        readable: min,
    }
}

/// Every request understood, by key.
pub(crate) const APIS: [Api; 31] = [
    Api {
        readable: 3,
        ..api(ApiKey::Produce, 0, 13)
    },
    api(ApiKey::Fetch, 4, 16),
    api(ApiKey::ListOffsets, 1, 10),
    api(ApiKey::Metadata, 0, 13),
    api(ApiKey::OffsetCommit, 2, 9),
    api(ApiKey::OffsetFetch, 1, 9),
    api(ApiKey::FindCoordinator, 0, 6),
    api(ApiKey::JoinGroup, 0, 9),
    api(ApiKey::Heartbeat, 0, 4),
    api(ApiKey::LeaveGroup, 0, 5),
    api(ApiKey::SyncGroup, 0, 5),
    api(ApiKey::DescribeGroups, 0, 6),
    api(ApiKey::ListGroups, 0, 5),
    api(ApiKey::SaslHandshake, 0, 1),
    api(ApiKey::ApiVersions, 0, 4),
    api(ApiKey::CreateTopics, 2, 7),
    api(ApiKey::DeleteTopics, 1, 6),
    api(ApiKey::DeleteRecords, 0, 2),
    api(ApiKey::InitProducerId, 0, 5),
    api(ApiKey::AddPartitionsToTxn, 0, 3),
    api(ApiKey::AddOffsetsToTxn, 0, 3),
    api(ApiKey::EndTxn, 0, 3),
    api(ApiKey::TxnOffsetCommit, 0, 3),
    api(ApiKey::DescribeConfigs, 1, 4),
    api(ApiKey::AlterConfigs, 0, 2),
    api(ApiKey::SaslAuthenticate, 0, 2),
    api(ApiKey::CreatePartitions, 0, 3),
    api(ApiKey::DeleteGroups, 0, 2),
    api(ApiKey::IncrementalAlterConfigs, 0, 1),
    api(ApiKey::OffsetDelete, 0, 0),
    api(ApiKey::DescribeCluster, 0, 2),
];

impl Api {
    pub fn of(key: i16) -> Option<Api> {
        APIS.into_iter().find(|api| api.key as i16 == key)
    }

    pub fn reads(&self, version: i16) -> bool {
        (self.readable..=self.max).contains(&version)
    }

    /// From this version on strings and arrays are compact and structs end with tagged fields.
    pub fn is_flexible(&self, version: i16) -> bool {
        self.key.request_header_version(version) == 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kafka_protocol::messages::*;
    use kafka_protocol::protocol::{Message, Request};

    /// The announced range, held against what the codec reads and writes.
    fn check<R: Request>() {
        let api = Api::of(R::KEY).unwrap();
        let (request, response) = (R::VERSIONS, R::Response::VERSIONS);
        assert!(
            api.readable >= request.min.max(response.min),
            "{:?}",
            api.key
        );
        assert!(api.max <= request.max.min(response.max), "{:?}", api.key);
        assert!(api.min <= api.readable);
    }

    #[test]
    fn everything_announced_can_be_read_and_answered() {
        check::<ProduceRequest>();
        check::<FetchRequest>();
        check::<ListOffsetsRequest>();
        check::<MetadataRequest>();
        check::<OffsetCommitRequest>();
        check::<OffsetFetchRequest>();
        check::<FindCoordinatorRequest>();
        check::<JoinGroupRequest>();
        check::<HeartbeatRequest>();
        check::<LeaveGroupRequest>();
        check::<SyncGroupRequest>();
        check::<DescribeGroupsRequest>();
        check::<ListGroupsRequest>();
        check::<SaslHandshakeRequest>();
        check::<ApiVersionsRequest>();
        check::<CreateTopicsRequest>();
        check::<DeleteTopicsRequest>();
        check::<DeleteRecordsRequest>();
        check::<InitProducerIdRequest>();
        check::<AddPartitionsToTxnRequest>();
        check::<AddOffsetsToTxnRequest>();
        check::<EndTxnRequest>();
        check::<TxnOffsetCommitRequest>();
        check::<DescribeConfigsRequest>();
        check::<AlterConfigsRequest>();
        check::<SaslAuthenticateRequest>();
        check::<CreatePartitionsRequest>();
        check::<DeleteGroupsRequest>();
        check::<IncrementalAlterConfigsRequest>();
        check::<OffsetDeleteRequest>();
        check::<DescribeClusterRequest>();
    }

    #[test]
    fn the_table_is_in_order_of_keys() {
        assert!(APIS.is_sorted_by_key(|api| api.key as i16));
    }
}
