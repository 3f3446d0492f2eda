//! Requests to group coordinators in each version, and their responses.

use std::collections::BTreeMap;

use highwater_log::{
    GroupInfo, GroupState, JoinRequest, JoinResponse, JoinResponseMember, MemberIdentity,
    MemberInfo, Offset, OffsetAndMetadata, OffsetCommit, SyncRequest, TopicPartition,
};
use kafka_protocol::messages::describe_groups_response::DescribedGroup;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_response::OffsetFetchResponseTopic;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    GroupId, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse,
    OffsetCommitRequest, SyncGroupRequest, leave_group_request,
};

use super::{ASSIGNMENT, by_hub, millis};
use crate::client::errors::{BrokerError, ok};
use crate::client::names::{ClusterNames, MemberMessage};
use crate::handlers::text;

const SUBSCRIPTION: MemberMessage = MemberMessage::Subscription;

/// The first versions with a group instance id.
const JOIN_INSTANCE: i16 = 5;
const SYNC_INSTANCE: i16 = 3;
pub(super) const HEARTBEAT_INSTANCE: i16 = 3;
const LEAVE_INSTANCE: i16 = 3;
const COMMIT_INSTANCE: i16 = 7;

pub(super) fn join_request(
    version: i16,
    join: &JoinRequest,
    names: &ClusterNames,
) -> JoinGroupRequest {
    let protocols = join.protocols.iter().map(|(name, metadata)| {
        JoinGroupRequestProtocol::default()
            .with_name(text(&**name))
            .with_metadata(names.outgoing(SUBSCRIPTION, &join.protocol_type, metadata))
    });
    let request = JoinGroupRequest::default()
        .with_group_id(names.group(&join.group))
        .with_session_timeout_ms(millis(join.session_timeout))
        .with_rebalance_timeout_ms(millis(join.rebalance_timeout))
        .with_member_id(text(&*join.member))
        .with_protocol_type(text(&*join.protocol_type))
        .with_protocols(protocols.collect());
    match version >= JOIN_INSTANCE {
        true => request.with_group_instance_id(join.instance.as_deref().map(text)),
        false => request,
    }
}

pub(super) fn joined(response: JoinGroupResponse, names: &ClusterNames) -> JoinResponse {
    let owned = |text: Option<kafka_protocol::protocol::StrBytes>| {
        text.map(|text| text.to_string()).unwrap_or_default()
    };
    let protocol_type = response
        .protocol_type
        .map_or_else(|| "consumer".into(), |name| name.to_string());
    let members = response
        .members
        .into_iter()
        .map(|member| JoinResponseMember {
            member: member.member_id.to_string(),
            instance: member
                .group_instance_id
                .map(|instance| instance.to_string()),
            metadata: names.incoming(SUBSCRIPTION, &protocol_type, member.metadata),
        })
        .collect();
    JoinResponse {
        generation: response.generation_id,
        protocol_type,
        protocol: owned(response.protocol_name),
        leader: response.leader.to_string(),
        member: response.member_id.to_string(),
        led_as: response
            .skip_assignment
            .then(|| response.leader.to_string()),
        members,
    }
}

pub(super) fn sync_request(
    version: i16,
    sync: &SyncRequest,
    names: &ClusterNames,
) -> SyncGroupRequest {
    let member = &sync.member;
    let protocol_type = sync.protocol_type.as_deref().unwrap_or("consumer");
    let assignments = sync.assignments.iter().map(|(member, assignment)| {
        SyncGroupRequestAssignment::default()
            .with_member_id(text(&**member))
            .with_assignment(names.outgoing(ASSIGNMENT, protocol_type, assignment))
    });
    let mut request = SyncGroupRequest::default()
        .with_group_id(names.group(&member.group))
        .with_generation_id(member.generation)
        .with_member_id(text(&*member.member))
        .with_assignments(assignments.collect());
    if version >= SYNC_INSTANCE {
        request.group_instance_id = member.instance.as_deref().map(text);
    }
    if version >= 5 {
        request.protocol_type = sync.protocol_type.as_deref().map(text);
        request.protocol_name = sync.protocol.as_deref().map(text);
    }
    request
}

pub(super) fn leave_request(
    version: i16,
    group: GroupId,
    member: &MemberIdentity,
) -> LeaveGroupRequest {
    let request = LeaveGroupRequest::default().with_group_id(group);
    match version >= LEAVE_INSTANCE {
        true => request.with_members(vec![
            leave_group_request::MemberIdentity::default()
                .with_member_id(text(&*member.member))
                .with_group_instance_id(member.instance.as_deref().map(text)),
        ]),
        false => request.with_member_id(text(&*member.member)),
    }
}

pub(super) fn left_one(response: &LeaveGroupResponse) -> Result<(), BrokerError> {
    ok(response.error_code)?;
    response
        .members
        .first()
        .map_or(Ok(()), |member| ok(member.error_code))
}

pub(super) fn commit_request(
    version: i16,
    commit: &OffsetCommit,
    names: &ClusterNames,
) -> OffsetCommitRequest {
    let partition = |(topic_partition, stored): &(TopicPartition, OffsetAndMetadata)| {
        let stored_at = OffsetCommitRequestPartition::default()
            .with_partition_index(topic_partition.partition as i32)
            .with_committed_offset(stored.offset.0)
            .with_committed_metadata(Some(text(&*stored.metadata)));
        match version >= 6 {
            true => stored_at.with_committed_leader_epoch(stored.leader_epoch),
            false => stored_at,
        }
    };
    let hubs = by_hub(
        &commit.offsets,
        |(topic_partition, _)| topic_partition,
        partition,
    )
    .into_iter();
    let topics = hubs.map(|(hub, partitions)| {
        OffsetCommitRequestTopic::default()
            .with_name(names.topic(hub))
            .with_partitions(partitions)
    });
    let member = &commit.member;
    let request = OffsetCommitRequest::default()
        .with_group_id(names.group(&member.group))
        .with_generation_id_or_member_epoch(member.generation)
        .with_member_id(text(&*member.member))
        .with_topics(topics.collect());
    match version >= COMMIT_INSTANCE {
        true => request.with_group_instance_id(member.instance.as_deref().map(text)),
        false => request,
    }
}

pub(super) fn committed_offsets(
    topics: Vec<OffsetFetchResponseTopic>,
    names: &ClusterNames,
) -> Result<BTreeMap<TopicPartition, OffsetAndMetadata>, BrokerError> {
    let mut stored = BTreeMap::new();
    for topic in topics {
        let Some(hub) = names.hub(&topic.name) else {
            continue;
        };
        for one in topic.partitions {
            ok(one.error_code)?;
            let (Ok(partition), true) = (
                u32::try_from(one.partition_index),
                one.committed_offset >= 0,
            ) else {
                continue;
            };
            let hub = hub.clone();
            let metadata = one
                .metadata
                .map(|metadata| metadata.to_string())
                .unwrap_or_default();
            let at = OffsetAndMetadata {
                offset: Offset(one.committed_offset),
                leader_epoch: one.committed_leader_epoch,
                metadata,
            };
            stored.insert(TopicPartition { hub, partition }, at);
        }
    }
    Ok(stored)
}

/// `None` if it is no group of the node.
pub(super) fn info(group: DescribedGroup, names: &ClusterNames) -> Option<GroupInfo> {
    let kind = group.protocol_type.to_string();
    let members = group.members.into_iter().map(|member| MemberInfo {
        member: member.member_id.to_string(),
        instance: member
            .group_instance_id
            .map(|instance| instance.to_string()),
        client_id: member.client_id.to_string(),
        client_host: member.client_host.to_string(),
        metadata: names.incoming(SUBSCRIPTION, &kind, member.member_metadata),
        assignment: names.incoming(ASSIGNMENT, &kind, member.member_assignment),
    });
    let members = members.collect();
    Some(GroupInfo {
        state: state(&group.group_state),
        group: names.own_group(&group.group_id)?,
        protocol: group.protocol_data.to_string(),
        members,
        protocol_type: kind,
        consumer: None,
    })
}

/// Includes the states of Kafka's newer group protocol.
fn state(name: &str) -> GroupState {
    match name {
        "Empty" => GroupState::Empty,
        "PreparingRebalance" => GroupState::PreparingRebalance,
        "CompletingRebalance" => GroupState::CompletingRebalance,
        "Assigning" => GroupState::Assigning,
        "Reconciling" => GroupState::Reconciling,
        "Stable" => GroupState::Stable,
        _ => GroupState::Dead,
    }
}
