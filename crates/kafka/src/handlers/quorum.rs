//! DescribeQuorum: this node is the controller, the leader and the only voter.
//!
//! Kafka's controllers share a log of metadata, whose offsets the response has. There is no such log here, so they are
//! 0, as is the epoch: the leader never changes.

use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::describe_quorum_response::{
    Listener, Node, PartitionData, ReplicaState, TopicData,
};
use kafka_protocol::messages::{
    BrokerId, DescribeQuorumRequest, DescribeQuorumResponse, describe_quorum_request,
};

use super::{LEADER_EPOCH, Refusal, some_text, text, with_refusal};
use crate::access::Resource;
use crate::request::RequestContext;

/// Kafka's name of the log of metadata. It has one partition.
const METADATA_TOPIC: &str = "__cluster_metadata";

pub(crate) async fn describe(
    context: &RequestContext,
    request: DescribeQuorumRequest,
) -> DescribeQuorumResponse {
    let response = DescribeQuorumResponse::default().with_error_message(None);
    if let Err(code) = context.allow(Resource::Node) {
        return response
            .with_error_code(context.error_code(&code))
            .with_error_message(some_text(code));
    }
    let topics = request.topics.into_iter();
    let described = topics.map(|topic| described(context, topic)).collect();
    let response = response.with_topics(described);
    match context.version {
        2.. => response.with_nodes(vec![this_node(context)]),
        _ => response,
    }
}

fn described(context: &RequestContext, topic: describe_quorum_request::TopicData) -> TopicData {
    let is_metadata = topic.topic_name.as_str() == METADATA_TOPIC;
    let partitions = topic.partitions.into_iter().map(|asked| {
        let index = asked.partition_index;
        let partition = PartitionData::default().with_partition_index(index);
        match is_metadata && index == 0 {
            true => with_refusal!(context, quorum(context, partition), Ok::<_, Refusal>(())),
            false => {
                let reason = format!("only {METADATA_TOPIC}-0 has a quorum");
                let unknown = Refusal::new(Code::UnknownTopicOrPartition, reason);
                with_refusal!(context, partition, Err::<(), _>(unknown))
            }
        }
    });
    TopicData::default()
        .with_topic_name(topic.topic_name)
        .with_partitions(partitions.collect())
}

fn quorum(context: &RequestContext, partition: PartitionData) -> PartitionData {
    let this = BrokerId(context.broker.options.node_id);
    let now_ms = context.broker.services.clock.unix_millis();
    let voter = ReplicaState::default()
        .with_replica_id(this)
        .with_last_fetch_timestamp(now_ms)
        .with_last_caught_up_timestamp(now_ms);
    partition
        .with_leader_id(this)
        .with_leader_epoch(LEADER_EPOCH)
        .with_current_voters(vec![voter])
}

fn this_node(context: &RequestContext) -> Node {
    let listener = Listener::default()
        .with_name(text(context.listener.protocol()))
        .with_host(context.listener.host.clone())
        .with_port(context.listener.port);
    Node::default()
        .with_node_id(BrokerId(context.broker.options.node_id))
        .with_listeners(vec![listener])
}
