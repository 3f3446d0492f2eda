//! DescribeTopicPartitions: like Metadata, in pages, so that a response is small for any number of partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use highwater_log::{HubInfo, HubName};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition as Partition,
    DescribeTopicPartitionsResponseTopic as Topic,
};
use kafka_protocol::messages::{
    BrokerId, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
};

use super::{LEADER_EPOCH, topic, uuid_of};
use crate::access::Resource;
use crate::request::RequestContext;

/// The most partitions of a response.
const PARTITIONS_MAX: usize = 2000;

/// The memory of a partition and of a topic in a response, while it is built.
const PARTITION_BYTES: usize = 256;
const TOPIC_BYTES: usize = 400;

/// An upper bound of the memory of a response.
pub(crate) fn response_bytes(
    context: &RequestContext,
    request: &DescribeTopicPartitionsRequest,
) -> usize {
    let topics = match request.topics.len() {
        0 => context.log().hubs().len(),
        count => count,
    };
    page_size(request) * PARTITION_BYTES + topics * TOPIC_BYTES
}

fn page_size(request: &DescribeTopicPartitionsRequest) -> usize {
    let limit = usize::try_from(request.response_partition_limit).unwrap_or(1);
    limit.clamp(1, PARTITIONS_MAX)
}

/// Topics are in the order of their names, and a page starts at its cursor.
pub(crate) async fn describe(
    context: &RequestContext,
    request: DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    let mut room = page_size(&request);
    let (first, mut start) = match &request.cursor {
        Some(cursor) => (
            cursor.topic_name.to_string(),
            u32::try_from(cursor.partition_index).unwrap_or(0),
        ),
        None => (String::new(), 0),
    };
    let mut topics = Vec::new();
    for (name, found) in wanted(context, &request).range(first.clone()..) {
        let hub = match found {
            Ok(hub) => hub,
            Err(code) => {
                topics.push(failed(context, name, *code));
                continue;
            }
        };
        let from = if *name == first {
            start.min(hub.partitions)
        } else {
            0
        };
        if room == 0 {
            return page(topics, name, from);
        }
        let count = room.min((hub.partitions - from) as usize) as u32;
        topics.push(described(context, hub, from..from + count));
        room -= count as usize;
        start = from + count;
        if start < hub.partitions {
            return page(topics, name, start);
        }
    }
    DescribeTopicPartitionsResponse::default().with_topics(topics)
}

fn page(topics: Vec<Topic>, name: &str, partition: u32) -> DescribeTopicPartitionsResponse {
    let next = Cursor::default()
        .with_topic_name(topic(name))
        .with_partition_index(partition as i32);
    DescribeTopicPartitionsResponse::default()
        .with_topics(topics)
        .with_next_cursor(Some(next))
}

/// The named topics; without names, all that the client may see.
fn wanted(
    context: &RequestContext,
    request: &DescribeTopicPartitionsRequest,
) -> BTreeMap<String, Result<Arc<HubInfo>, Code>> {
    if request.topics.is_empty() {
        let hubs = context.log().hubs().into_iter();
        let visible = |hub: &Arc<HubInfo>| context.may(Resource::Hub(hub.name.as_str()));
        return hubs
            .filter(visible)
            .map(|hub| (hub.name.to_string(), Ok(hub)))
            .collect();
    }
    let find = |name: &str| match HubName::new(name) {
        Ok(_) => context.hub(name),
        Err(_) => Err(Code::InvalidTopicException),
    };
    let names = request.topics.iter().map(|topic| &topic.name);
    names.map(|name| (name.to_string(), find(name))).collect()
}

fn failed(context: &RequestContext, name: &str, code: Code) -> Topic {
    Topic::default()
        .with_name(Some(topic(name)))
        .with_error_code(context.error_code(&code))
}

fn described(context: &RequestContext, hub: &HubInfo, partitions: std::ops::Range<u32>) -> Topic {
    let node = BrokerId(context.broker.options.node_id);
    let partition = |index: u32| {
        Partition::default()
            .with_partition_index(index as i32)
            .with_leader_id(node)
            .with_leader_epoch(LEADER_EPOCH)
            .with_replica_nodes(vec![node])
            .with_isr_nodes(vec![node])
            // The protocol allows null, the Java client does not.
            .with_eligible_leader_replicas(Some(Vec::new()))
            .with_last_known_elr(Some(Vec::new()))
    };
    let name = hub.name.as_str();
    Topic::default()
        .with_name(Some(topic(name)))
        .with_topic_id(uuid_of(hub))
        .with_is_internal(hub.name.is_internal())
        .with_partitions(partitions.map(partition).collect())
        .with_topic_authorized_operations(context.authorized_operations(Resource::Hub(name)))
}
