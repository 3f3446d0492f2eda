//! The consumer protocol of groups (KIP-848): heartbeats and descriptions.

use std::time::Duration;

use highwater_log::{
    ConsumerGroupInfo, ConsumerHeartbeat, ConsumerHeartbeatResponse, ConsumerMemberInfo,
    GroupError, GroupInfo, HubPartitions, HubView, MemberInfo,
};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::consumer_group_describe_response::{
    Assignment as DescribedAssignment, DescribedGroup, Member, TopicPartitions as DescribedTopic,
};
use kafka_protocol::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse, GroupId,
};
use uuid::Uuid;

use super::groups::{owned, state_name};
use super::{Refusal, distinct, hub_id, some_text, text, topic, with_refusal};
use crate::access::Resource;
use crate::codes::ErrorCode;
use crate::internal_names::{inner_name, kafka_name};
use crate::request::RequestContext;

/// The types of members, by their protocol.
const CLASSIC_MEMBER: i8 = 0;
const CONSUMER_MEMBER: i8 = 1;

/// The memory of a partition in an assignment, while it is built.
const PARTITION_BYTES: usize = 12;

/// An upper bound of the memory of a response: a member that joins may get all partitions. Later responses have only
/// assignments that changed.
pub(crate) fn response_bytes(
    context: &RequestContext,
    request: &ConsumerGroupHeartbeatRequest,
) -> usize {
    if request.topic_partitions.is_none() || request.member_epoch < 0 {
        return 0;
    }
    let hubs = context.log().hubs();
    let partitions: usize = hubs.iter().map(|hub| hub.partitions as usize).sum();
    partitions * PARTITION_BYTES
}

pub(crate) async fn heartbeat(
    context: &RequestContext,
    request: ConsumerGroupHeartbeatRequest,
) -> ConsumerGroupHeartbeatResponse {
    let response = ConsumerGroupHeartbeatResponse::default();
    let beat = beat(context, request).await;
    let response = match &beat {
        Ok(beat) => response
            .with_member_id(Some(text(&*beat.member)))
            .with_member_epoch(beat.epoch)
            .with_heartbeat_interval_ms(
                i32::try_from(beat.interval.as_millis()).unwrap_or(i32::MAX),
            )
            .with_assignment(beat.assignment.as_ref().map(assignment)),
        Err(_) => response,
    };
    with_refusal!(context, response, beat)
}

async fn beat(
    context: &RequestContext,
    request: ConsumerGroupHeartbeatRequest,
) -> Result<ConsumerHeartbeatResponse, Refusal> {
    context.allow(Resource::Group(&request.group_id))?;
    for name in request.subscribed_topic_names.iter().flatten() {
        context.allow(Resource::Hub(name))?;
    }
    // From version 1 on clients choose their ids.
    if context.version >= 1 && request.member_id.is_empty() {
        let reason = GroupError::InvalidRequest("a member needs an id");
        return Err(Refusal::new(Code::InvalidRequest, reason));
    }
    let beat = context
        .groups()
        .consumer_heartbeat(consumer_heartbeat(context, request));
    beat.await
        .map_err(|error| Refusal::new(error.kind(), error))
}

fn consumer_heartbeat(
    context: &RequestContext,
    request: ConsumerGroupHeartbeatRequest,
) -> ConsumerHeartbeat {
    let names = |names: Vec<kafka_protocol::messages::TopicName>| {
        (names.iter().map(|name| inner_name(name).to_owned())).collect()
    };
    let partition = |index: &i32| u32::try_from(*index).ok();
    let of_topics = |topics: Vec<
        kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions,
    >| {
        let topics = topics.into_iter();
        topics
            .map(|topic| {
                let partitions = topic.partitions.iter().filter_map(partition).collect();
                (hub_id(topic.topic_id), partitions)
            })
            .collect()
    };
    let reader = context.clone();
    ConsumerHeartbeat {
        group: request.group_id.to_string(),
        member: request.member_id.to_string(),
        epoch: request.member_epoch,
        instance: owned(request.instance_id),
        rack: owned(request.rack_id),
        rebalance_timeout: u64::try_from(request.rebalance_timeout_ms)
            .ok()
            .map(Duration::from_millis),
        names: request.subscribed_topic_names.map(names),
        pattern: owned(request.subscribed_topic_regex),
        assignor: owned(request.server_assignor),
        owned: request.topic_partitions.map(of_topics),
        client_id: context.client_id.to_string(),
        client_host: context.client_host.to_string(),
        visible: HubView::new(move |hub| reader.may(Resource::Hub(hub)).then(|| kafka_name(hub))),
    }
}

fn numbers(partitions: &[u32]) -> Vec<i32> {
    partitions
        .iter()
        .map(|partition| *partition as i32)
        .collect()
}

fn assignment(partitions: &HubPartitions) -> Assignment {
    let topics = partitions.iter().map(|(hub, partitions)| {
        TopicPartitions::default()
            .with_topic_id(Uuid::from_bytes(hub.0))
            .with_partitions(numbers(partitions))
    });
    Assignment::default().with_topic_partitions(topics.collect())
}

pub(crate) async fn describe(
    context: &RequestContext,
    request: ConsumerGroupDescribeRequest,
) -> ConsumerGroupDescribeResponse {
    let ids = distinct(request.group_ids);
    let mut groups = Vec::with_capacity(ids.len());
    for id in ids {
        let described = described_group(context, &id).await;
        let group = match &described {
            Ok(group) => group.clone(),
            Err(_) => DescribedGroup::default(),
        };
        let group = with_refusal!(context, group, described);
        let group = match request.include_authorized_operations {
            true => group
                .with_authorized_operations(context.authorized_operations(Resource::Group(&id))),
            false => group,
        };
        groups.push(group.with_group_id(id));
    }
    ConsumerGroupDescribeResponse::default().with_groups(groups)
}

async fn described_group(
    context: &RequestContext,
    id: &GroupId,
) -> Result<DescribedGroup, Refusal> {
    context.allow(Resource::Group(id))?;
    let not_found = |reason: &str| Refusal::new(Code::GroupIdNotFound, reason);
    let info = context.groups().describe(id.to_string()).await;
    let info = info.ok_or_else(|| not_found("there is no such group"))?;
    let Some(consumer) = info.consumer.clone() else {
        return Err(not_found("the group is not a consumer group"));
    };
    for name in consumer.members.iter().flat_map(|member| &member.names) {
        context.allow(Resource::Hub(name))?;
    }
    Ok(consumer_group(context, info, consumer))
}

fn consumer_group(
    context: &RequestContext,
    info: GroupInfo,
    consumer: ConsumerGroupInfo,
) -> DescribedGroup {
    let members = info.members.into_iter().zip(consumer.members);
    DescribedGroup::default()
        .with_group_state(text(state_name(info.state)))
        .with_group_epoch(consumer.epoch)
        .with_assignment_epoch(consumer.assignment_epoch)
        .with_assignor_name(text(info.protocol))
        .with_members(
            members
                .map(|(info, member)| described_member(context, info, member))
                .collect(),
        )
}

fn described_member(
    context: &RequestContext,
    info: MemberInfo,
    member: ConsumerMemberInfo,
) -> Member {
    // Only members of the classic protocol have metadata.
    let kind = match info.metadata.is_empty() {
        true => CONSUMER_MEMBER,
        false => CLASSIC_MEMBER,
    };
    let described = Member::default()
        .with_member_id(text(info.member))
        .with_instance_id(info.instance.map(text))
        .with_rack_id(member.rack.map(text))
        .with_member_epoch(member.epoch)
        .with_client_id(text(info.client_id))
        .with_client_host(text(info.client_host))
        .with_subscribed_topic_names(
            member
                .names
                .iter()
                .map(|name| topic(kafka_name(name)))
                .collect(),
        )
        .with_subscribed_topic_regex(member.pattern.map(text))
        .with_assignment(described_assignment(context, &member.assigned))
        .with_target_assignment(described_assignment(context, &member.target));
    match context.version >= 1 {
        true => described.with_member_type(kind),
        false => described,
    }
}

/// Hubs that were deleted, or that the client may not know, are left out.
fn described_assignment(
    context: &RequestContext,
    partitions: &HubPartitions,
) -> DescribedAssignment {
    let topics = partitions.iter().filter_map(|(hub, partitions)| {
        let hub = context.log().hub_by_id(*hub)?;
        if !context.may(Resource::Hub(hub.name.as_str())) {
            return None;
        }
        Some(
            DescribedTopic::default()
                .with_topic_id(Uuid::from_bytes(hub.id.0))
                .with_topic_name(topic(hub.name.as_str()))
                .with_partitions(numbers(partitions)),
        )
    });
    DescribedAssignment::default().with_topic_partitions(topics.collect())
}
