//! The throttle time of responses, which tells a client above its quota how long to wait.

use kafka_protocol::messages::{
    AddOffsetsToTxnResponse, AddPartitionsToTxnResponse, AlterClientQuotasResponse,
    AlterConfigsResponse, AlterPartitionReassignmentsResponse, AlterReplicaLogDirsResponse,
    AlterUserScramCredentialsResponse, ApiVersionsResponse, ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatResponse, CreateAclsResponse, CreatePartitionsResponse,
    CreateTopicsResponse, DeleteAclsResponse, DeleteGroupsResponse, DeleteRecordsResponse,
    DeleteTopicsResponse, DescribeAclsResponse, DescribeClientQuotasResponse,
    DescribeClusterResponse, DescribeConfigsResponse, DescribeGroupsResponse,
    DescribeLogDirsResponse, DescribeProducersResponse, DescribeQuorumResponse,
    DescribeTopicPartitionsResponse, DescribeTransactionsResponse,
    DescribeUserScramCredentialsResponse, ElectLeadersResponse, EndTxnResponse,
    FindCoordinatorResponse, GetTelemetrySubscriptionsResponse, HeartbeatResponse,
    IncrementalAlterConfigsResponse, InitProducerIdResponse, JoinGroupResponse, LeaveGroupResponse,
    ListConfigResourcesResponse, ListGroupsResponse, ListOffsetsResponse,
    ListPartitionReassignmentsResponse, ListTransactionsResponse, MetadataResponse,
    OffsetCommitResponse, OffsetDeleteResponse, OffsetFetchResponse, ProduceResponse,
    PushTelemetryResponse, SaslAuthenticateResponse, SaslHandshakeResponse, SyncGroupResponse,
    TxnOffsetCommitResponse, UpdateFeaturesResponse, WriteTxnMarkersResponse,
};

/// A response that can tell the client to wait.
pub(crate) trait Throttle {
    /// The field of the response; `None` if it has none.
    fn throttle_time_ms(&mut self) -> Option<&mut i32>;
}

macro_rules! throttle {
    ($($response:ident)*) => {$(
        impl Throttle for $response {
            fn throttle_time_ms(&mut self) -> Option<&mut i32> {
                Some(&mut self.throttle_time_ms)
            }
        }
    )*};
}

macro_rules! no_throttle {
    ($($response:ident)*) => {$(
        impl Throttle for $response {
            fn throttle_time_ms(&mut self) -> Option<&mut i32> {
                None
            }
        }
    )*};
}

// A Fetch response has an encoder of its own.
throttle! {
    ProduceResponse ListOffsetsResponse MetadataResponse OffsetCommitResponse OffsetFetchResponse
    FindCoordinatorResponse JoinGroupResponse HeartbeatResponse LeaveGroupResponse SyncGroupResponse
    DescribeGroupsResponse ListGroupsResponse ApiVersionsResponse CreateTopicsResponse
    DeleteTopicsResponse DeleteRecordsResponse InitProducerIdResponse AddPartitionsToTxnResponse
    AddOffsetsToTxnResponse EndTxnResponse TxnOffsetCommitResponse DescribeConfigsResponse
    AlterConfigsResponse CreatePartitionsResponse DeleteGroupsResponse
    IncrementalAlterConfigsResponse OffsetDeleteResponse DescribeClusterResponse
    ConsumerGroupHeartbeatResponse ConsumerGroupDescribeResponse ElectLeadersResponse
    AlterPartitionReassignmentsResponse ListPartitionReassignmentsResponse
    DescribeClientQuotasResponse DescribeTransactionsResponse ListTransactionsResponse
    ListConfigResourcesResponse DescribeTopicPartitionsResponse DescribeLogDirsResponse
    DescribeProducersResponse AlterClientQuotasResponse DescribeUserScramCredentialsResponse
    AlterUserScramCredentialsResponse DescribeAclsResponse CreateAclsResponse DeleteAclsResponse
    UpdateFeaturesResponse AlterReplicaLogDirsResponse GetTelemetrySubscriptionsResponse
    PushTelemetryResponse
}
no_throttle! {
    SaslHandshakeResponse SaslAuthenticateResponse WriteTxnMarkersResponse DescribeQuorumResponse
}
