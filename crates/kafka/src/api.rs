//! The supported requests and their versions.
//!
//! Some ranges are narrower than the codec's: later versions are for unsupported features, or for brokers only.
//! Produce is announced from version 0, though only 3 and later can be read: old librdkafka compresses only if
//! version 0 is announced. No client sends versions 0 to 2.

use kafka_protocol::messages::ApiKey;

/// A request type and its versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Api {
    pub key: ApiKey,
    /// The announced versions.
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

/// The supported requests, by key.
pub(crate) const APIS: [Api; 55] = [
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
    api(ApiKey::AddOffsetsToTxn, 0, 4),
    api(ApiKey::EndTxn, 0, 5),
    api(ApiKey::WriteTxnMarkers, 1, 1),
    api(ApiKey::TxnOffsetCommit, 0, 5),
    api(ApiKey::DescribeAcls, 1, 3),
    api(ApiKey::CreateAcls, 1, 3),
    api(ApiKey::DeleteAcls, 1, 3),
    api(ApiKey::DescribeConfigs, 1, 4),
    api(ApiKey::AlterConfigs, 0, 2),
    api(ApiKey::AlterReplicaLogDirs, 1, 2),
    api(ApiKey::DescribeLogDirs, 1, 4),
    api(ApiKey::SaslAuthenticate, 0, 2),
    api(ApiKey::CreatePartitions, 0, 3),
    api(ApiKey::DeleteGroups, 0, 2),
    api(ApiKey::ElectLeaders, 0, 2),
    api(ApiKey::IncrementalAlterConfigs, 0, 1),
    api(ApiKey::AlterPartitionReassignments, 0, 1),
    api(ApiKey::ListPartitionReassignments, 0, 0),
    api(ApiKey::OffsetDelete, 0, 0),
    api(ApiKey::DescribeClientQuotas, 0, 1),
    api(ApiKey::AlterClientQuotas, 0, 1),
    api(ApiKey::DescribeUserScramCredentials, 0, 0),
    api(ApiKey::AlterUserScramCredentials, 0, 0),
    api(ApiKey::DescribeQuorum, 0, 2),
    api(ApiKey::UpdateFeatures, 0, 2),
    api(ApiKey::DescribeCluster, 0, 2),
    api(ApiKey::DescribeProducers, 0, 0),
    api(ApiKey::DescribeTransactions, 0, 0),
    api(ApiKey::ListTransactions, 0, 2),
    api(ApiKey::ConsumerGroupHeartbeat, 0, 1),
    api(ApiKey::ConsumerGroupDescribe, 0, 1),
    api(ApiKey::GetTelemetrySubscriptions, 0, 0),
    api(ApiKey::PushTelemetry, 0, 0),
    api(ApiKey::ListConfigResources, 0, 1),
    api(ApiKey::DescribeTopicPartitions, 0, 0),
];

impl Api {
    /// An unsupported one, for the error response.
    pub(crate) fn unannounced(key: ApiKey, version: i16) -> Api {
        api(key, version, version)
    }

    pub(crate) fn of(key: i16) -> Option<Api> {
        APIS.into_iter().find(|api| api.key as i16 == key)
    }

    pub(crate) fn reads(&self, version: i16) -> bool {
        (self.readable..=self.max).contains(&version)
    }

    /// From this version on strings and arrays are compact and structs end with tagged fields.
    pub(crate) fn is_flexible(&self, version: i16) -> bool {
        self.key.request_header_version(version) == 2
    }
}

#[cfg(test)]
pub(crate) mod tests {
    /// Passes every supported request to a macro, as its API key and its type.
    macro_rules! for_each_request {
        ($macro:ident) => {
            $macro! {
                Produce ProduceRequest,
                Fetch FetchRequest,
                ListOffsets ListOffsetsRequest,
                Metadata MetadataRequest,
                OffsetCommit OffsetCommitRequest,
                OffsetFetch OffsetFetchRequest,
                FindCoordinator FindCoordinatorRequest,
                JoinGroup JoinGroupRequest,
                Heartbeat HeartbeatRequest,
                LeaveGroup LeaveGroupRequest,
                SyncGroup SyncGroupRequest,
                DescribeGroups DescribeGroupsRequest,
                ListGroups ListGroupsRequest,
                SaslHandshake SaslHandshakeRequest,
                ApiVersions ApiVersionsRequest,
                CreateTopics CreateTopicsRequest,
                DeleteTopics DeleteTopicsRequest,
                DeleteRecords DeleteRecordsRequest,
                InitProducerId InitProducerIdRequest,
                AddPartitionsToTxn AddPartitionsToTxnRequest,
                AddOffsetsToTxn AddOffsetsToTxnRequest,
                EndTxn EndTxnRequest,
                TxnOffsetCommit TxnOffsetCommitRequest,
                DescribeConfigs DescribeConfigsRequest,
                AlterConfigs AlterConfigsRequest,
                SaslAuthenticate SaslAuthenticateRequest,
                CreatePartitions CreatePartitionsRequest,
                DeleteGroups DeleteGroupsRequest,
                IncrementalAlterConfigs IncrementalAlterConfigsRequest,
                OffsetDelete OffsetDeleteRequest,
                DescribeCluster DescribeClusterRequest,
                ConsumerGroupHeartbeat ConsumerGroupHeartbeatRequest,
                ConsumerGroupDescribe ConsumerGroupDescribeRequest,
                ElectLeaders ElectLeadersRequest,
                DescribeLogDirs DescribeLogDirsRequest,
                AlterReplicaLogDirs AlterReplicaLogDirsRequest,
                DescribeProducers DescribeProducersRequest,
                AlterPartitionReassignments AlterPartitionReassignmentsRequest,
                ListPartitionReassignments ListPartitionReassignmentsRequest,
                DescribeClientQuotas DescribeClientQuotasRequest,
                AlterClientQuotas AlterClientQuotasRequest,
                DescribeUserScramCredentials DescribeUserScramCredentialsRequest,
                AlterUserScramCredentials AlterUserScramCredentialsRequest,
                DescribeAcls DescribeAclsRequest,
                CreateAcls CreateAclsRequest,
                DeleteAcls DeleteAclsRequest,
                WriteTxnMarkers WriteTxnMarkersRequest,
                DescribeQuorum DescribeQuorumRequest,
                UpdateFeatures UpdateFeaturesRequest,
                DescribeTransactions DescribeTransactionsRequest,
                ListTransactions ListTransactionsRequest,
                GetTelemetrySubscriptions GetTelemetrySubscriptionsRequest,
                PushTelemetry PushTelemetryRequest,
                ListConfigResources ListConfigResourcesRequest,
                DescribeTopicPartitions DescribeTopicPartitionsRequest,
            }
        };
    }
    pub(crate) use for_each_request;

    use super::*;
    use kafka_protocol::messages::*;
    use kafka_protocol::protocol::{Message, Request};

    /// Compares the announced range with the codec's.
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
    fn announced_versions_can_be_decoded_and_encoded() {
        macro_rules! check {
            ($($key:ident $request:ident,)*) => { $(check::<$request>();)* };
        }
        for_each_request!(check);
    }

    #[test]
    fn the_table_is_sorted_by_key() {
        assert!(APIS.is_sorted_by_key(|api| api.key as i16));
    }
}
