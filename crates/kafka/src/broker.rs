//! What all connections share, and the way from a request to its answer.

use std::sync::Arc;

use bytes::Bytes;
use highwater_env::Clock;
use highwater_log::{
    BoxFuture, GroupCoordinator, HubInfo, HubName, Log, Partition, TopicPartition,
    TransactionCoordinator,
};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::ApiKey;

use crate::access::{Authorizer, Resource, Right};
use crate::answer::Outcome;
use crate::call::{Call, ProtocolError};
use crate::codes::{ErrorCode, OK};
use crate::handlers::{
    cluster, configs, fetch, groups, list_offsets, metadata, offsets, partitions, produce, sasl,
    topics, transactions, versions,
};
use crate::memory_budget::MemoryBudget;
use crate::metrics::Metrics;
use crate::options::Options;

/// What the server stands in front of.
#[derive(Clone)]
pub struct Services {
    pub log: Arc<dyn Log>,
    pub groups: Arc<dyn GroupCoordinator>,
    pub transactions: Arc<dyn TransactionCoordinator>,
    pub authorizer: Arc<dyn Authorizer>,
    pub clock: Arc<dyn Clock>,
}

pub(crate) struct Broker {
    pub services: Services,
    pub options: Options,
    pub metrics: Arc<Metrics>,
    /// For what Fetch has read and nobody has taken yet.
    pub fetch_memory: MemoryBudget,
}

impl Broker {
    /// Starts on a request. A produce takes its place in its partitions now; everything else happens
    /// when the answer is awaited.
    pub fn begin(
        self: &Arc<Broker>,
        call: Call,
        body: Bytes,
    ) -> BoxFuture<Result<Outcome, ProtocolError>> {
        self.metrics.request(call.api.key);
        let broker = Arc::clone(self);
        if call.api.key == ApiKey::Produce && call.api.reads(call.version) {
            return produce::begin(broker, call, body);
        }
        Box::pin(async move { broker.answer(&call, body).await })
    }

    async fn answer(&self, call: &Call, body: Bytes) -> Result<Outcome, ProtocolError> {
        macro_rules! answer {
            ($handler:path) => {{
                let request = call.decode(body)?;
                call.encode(&$handler(self, call, request).await)
            }};
        }
        if !call.api.reads(call.version) {
            return versions::unsupported(call);
        }
        match call.api.key {
            ApiKey::Fetch => fetch::fetch(self, call, call.decode(body)?).await,
            ApiKey::ListOffsets => answer!(list_offsets::list_offsets),
            ApiKey::Metadata => answer!(metadata::metadata),
            ApiKey::OffsetCommit => answer!(offsets::commit),
            ApiKey::OffsetFetch => answer!(offsets::fetch),
            ApiKey::OffsetDelete => answer!(offsets::delete),
            ApiKey::FindCoordinator => answer!(cluster::find_coordinator),
            ApiKey::JoinGroup => answer!(groups::join),
            ApiKey::SyncGroup => answer!(groups::sync),
            ApiKey::Heartbeat => answer!(groups::heartbeat),
            ApiKey::LeaveGroup => answer!(groups::leave),
            ApiKey::DescribeGroups => answer!(groups::describe),
            ApiKey::ListGroups => answer!(groups::list),
            ApiKey::DeleteGroups => answer!(groups::delete),
            ApiKey::SaslHandshake => sasl::handshake(call, call.decode(body)?),
            ApiKey::SaslAuthenticate => sasl::authenticate(self, call, call.decode(body)?).await,
            ApiKey::ApiVersions => versions::versions(call, call.decode(body)?),
            ApiKey::CreateTopics => answer!(topics::create),
            ApiKey::DeleteTopics => answer!(topics::delete),
            ApiKey::CreatePartitions => answer!(partitions::create),
            ApiKey::DeleteRecords => answer!(partitions::delete_records),
            ApiKey::DescribeConfigs => answer!(configs::describe),
            ApiKey::AlterConfigs => answer!(configs::alter),
            ApiKey::IncrementalAlterConfigs => answer!(configs::alter_by_steps),
            ApiKey::DescribeCluster => answer!(cluster::describe),
            ApiKey::InitProducerId => answer!(transactions::init_producer),
            ApiKey::AddPartitionsToTxn => answer!(transactions::add_partitions),
            ApiKey::AddOffsetsToTxn => answer!(transactions::add_offsets),
            ApiKey::TxnOffsetCommit => answer!(transactions::commit_transaction_offsets),
            ApiKey::EndTxn => answer!(transactions::end),
            _ => Err(ProtocolError::UnknownKey(call.api.key as i16)),
        }
    }

    /// Counts what is sent as an error.
    pub fn noted(&self, code: i16) -> i16 {
        if code != OK {
            self.metrics.errors.add(1);
        }
        code
    }

    pub fn fail(&self, error: &impl ErrorCode) -> i16 {
        self.noted(error.code())
    }

    pub fn may(&self, call: &Call, right: Right, on: Resource<'_>) -> bool {
        self.services.authorizer.may(&call.who, right, on)
    }

    pub fn allow(&self, call: &Call, right: Right, on: Resource<'_>) -> Result<(), Code> {
        match (self.may(call, right, on), on) {
            (true, _) => Ok(()),
            (false, Resource::Hub(_)) => Err(Code::TopicAuthorizationFailed),
            (false, Resource::Group(_)) => Err(Code::GroupAuthorizationFailed),
            (false, Resource::Transaction(_)) => Err(Code::TransactionalIdAuthorizationFailed),
            (false, Resource::Node) => Err(Code::ClusterAuthorizationFailed),
        }
    }

    /// Whether a hub may be known to the caller.
    pub fn may_see(&self, call: &Call, hub: &str) -> bool {
        [Right::Listen, Right::Send, Right::Manage]
            .into_iter()
            .any(|right| self.may(call, right, Resource::Hub(hub)))
    }

    /// A hub that the caller may know and that is there.
    pub fn hub(&self, call: &Call, right: Right, name: &str) -> Result<Arc<HubInfo>, Code> {
        self.allow(call, right, Resource::Hub(name))?;
        let hub = self.services.log.hub(name);
        hub.ok_or(Code::UnknownTopicOrPartition)
    }

    pub fn partition(&self, hub: &str, index: i32) -> Result<Arc<dyn Partition>, Code> {
        u32::try_from(index)
            .ok()
            .and_then(|index| self.services.log.partition(hub, index))
            .ok_or(Code::UnknownTopicOrPartition)
    }

    /// A place that exists.
    pub fn topic_partition(&self, hub: &str, index: i32) -> Result<TopicPartition, Code> {
        let known = self.services.log.hub(hub);
        let topic_partition = topic_partition(hub, index).ok_or(Code::UnknownTopicOrPartition)?;
        known
            .filter(|hub| topic_partition.partition < hub.partitions)
            .map(|_| topic_partition)
            .ok_or(Code::UnknownTopicOrPartition)
    }
}

/// A place that may exist.
pub(crate) fn topic_partition(hub: &str, index: i32) -> Option<TopicPartition> {
    Some(TopicPartition {
        hub: HubName::new(hub).ok()?,
        partition: u32::try_from(index).ok()?,
    })
}
