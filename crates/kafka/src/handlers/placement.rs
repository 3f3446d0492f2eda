//! Requests about the placement of replicas. Every partition has one replica, on this node: elections are never needed,
//! and nothing is ever moved.

use highwater_log::TopicPartition;
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::alter_partition_reassignments_request::ReassignablePartition;
use kafka_protocol::messages::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use kafka_protocol::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use kafka_protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, BrokerId,
    ElectLeadersRequest, ElectLeadersResponse, ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse, TopicName,
};

use super::{distinct, some_text};
use crate::access::Resource;
use crate::codes::code_of;
use crate::request::RequestContext;

/// Without a list all partitions are meant, and the response has those with a new leader.
pub(crate) async fn elect_leaders(
    context: &RequestContext,
    request: ElectLeadersRequest,
) -> ElectLeadersResponse {
    let allowed = context.allow(Resource::Node);
    let elect = |topic: &TopicName, index: i32| -> Result<(), Code> {
        allowed?;
        context.topic_partition(topic, index)?;
        Err(Code::ElectionNotNeeded)
    };
    let topics = request.topic_partitions.unwrap_or_default().into_iter();
    let results = topics.map(|topic| {
        let partitions = distinct(topic.partitions).into_iter().map(|index| {
            let elected = elect(&topic.topic, index);
            PartitionResult::default()
                .with_partition_id(index)
                .with_error_code(context.count_error(code_of(&elected)))
                .with_error_message(elected.err().and_then(some_text))
        });
        let partitions = partitions.collect();
        ReplicaElectionResult::default()
            .with_topic(topic.topic)
            .with_partition_result(partitions)
    });
    let response = ElectLeadersResponse::default().with_replica_election_results(results.collect());
    match context.version {
        0 => response,
        _ => response.with_error_code(code_of(&allowed)),
    }
}

pub(crate) async fn alter_reassignments(
    context: &RequestContext,
    request: AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse {
    let allows_change = request.allow_replication_factor_change;
    let response = AlterPartitionReassignmentsResponse::default();
    let response = match context.version {
        0 => response,
        _ => response.with_allow_replication_factor_change(allows_change),
    };
    if let Err(code) = context.allow(Resource::Node) {
        return response
            .with_error_code(context.error_code(&code))
            .with_error_message(some_text(code));
    }
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            let altered = reassign(context, &topic.name, partition);
            ReassignablePartitionResponse::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(context.count_error(code_of(&altered)))
                .with_error_message(altered.err().and_then(some_text))
        });
        let partitions = partitions.collect();
        ReassignableTopicResponse::default()
            .with_name(topic.name)
            .with_partitions(partitions)
    });
    response.with_responses(topics.collect())
}

/// A partition can be assigned to the node that has it. Without replicas a move is cancelled, and there is none.
fn reassign(
    context: &RequestContext,
    topic: &TopicName,
    partition: &ReassignablePartition,
) -> Result<TopicPartition, Code> {
    let found = context.topic_partition(topic, partition.partition_index)?;
    let here = [BrokerId(context.broker.options.node_id)];
    match &partition.replicas {
        None => Err(Code::NoReassignmentInProgress),
        Some(replicas) if replicas[..] == here => Ok(found),
        Some(_) => Err(Code::InvalidReplicaAssignment),
    }
}

pub(crate) async fn list_reassignments(
    context: &RequestContext,
    _request: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    let response = ListPartitionReassignmentsResponse::default();
    match context.allow(Resource::Node) {
        Ok(()) => response,
        Err(code) => response
            .with_error_code(context.error_code(&code))
            .with_error_message(some_text(code)),
    }
}
