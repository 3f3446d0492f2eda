//! Consumer groups: membership and administration.

use std::time::Duration;

use highwater_log::{
    GroupError, GroupInfo, GroupState, GroupSummary, JoinRequest, JoinResponse, MemberIdentity,
    MemberInfo, Membership, SyncRequest, SyncResponse,
};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse,
    GroupId, HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse,
    LeaveGroupRequest, LeaveGroupResponse, ListGroupsRequest, ListGroupsResponse, SyncGroupRequest,
    SyncGroupResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::{distinct, some_text, text};
use crate::access::Resource;
use crate::codes::{ErrorCode, OK, code_of};
use crate::request::RequestContext;

/// The protocol of a group, as Kafka names it.
fn type_name(group: &GroupSummary) -> &'static str {
    match group.is_consumer {
        true => "Consumer",
        false => "Classic",
    }
}

pub(super) fn owned(text: Option<StrBytes>) -> Option<String> {
    text.map(|text| text.to_string())
}

pub(super) fn membership(
    group: &GroupId,
    generation: i32,
    member: &StrBytes,
    instance: Option<StrBytes>,
) -> Membership {
    Membership {
        group: group.to_string(),
        generation,
        member: member.to_string(),
        instance: owned(instance),
    }
}

fn millis(value: i32) -> Duration {
    Duration::from_millis(u64::try_from(value).unwrap_or(0))
}

pub(crate) async fn join(context: &RequestContext, request: JoinGroupRequest) -> JoinGroupResponse {
    let member = request.member_id.clone();
    if let Err(code) = context.allow(Resource::Group(&request.group_id)) {
        return join_error(context, context.error_code(&code), member);
    }
    match context.groups().join(join_request(context, request)).await {
        Ok(joined) => join_response(context, joined),
        Err(GroupError::MemberIdRequired { member }) => {
            join_error(context, Code::MemberIdRequired.code(), text(member))
        }
        Err(error) => join_error(context, context.error_code(&error), member),
    }
}

fn join_request(context: &RequestContext, request: JoinGroupRequest) -> JoinRequest {
    let rebalance_timeout_ms = match context.version {
        0 => request.session_timeout_ms,
        _ => request.rebalance_timeout_ms,
    };
    let protocols = request.protocols.into_iter();
    JoinRequest {
        group: request.group_id.to_string(),
        member: request.member_id.to_string(),
        expects_member_id: context.version >= 4 && request.group_instance_id.is_none(),
        instance: owned(request.group_instance_id),
        client_id: context.client_id.to_string(),
        client_host: context.client_host.to_string(),
        session_timeout: millis(request.session_timeout_ms),
        rebalance_timeout: millis(rebalance_timeout_ms),
        protocol_type: request.protocol_type.to_string(),
        protocols: protocols
            .map(|protocol| (protocol.name.to_string(), protocol.metadata))
            .collect(),
    }
}

fn join_response(context: &RequestContext, mut joined: JoinResponse) -> JoinGroupResponse {
    let skips = joined.led_as.is_some();
    if let Some(former) = joined.led_as
        && context.version < 9
    {
        // The version cannot express "make no assignment". A client that sees another leader makes none.
        joined.leader = former;
        joined.members.clear();
    }
    let members = joined.members.into_iter().map(|member| {
        let instance = member.instance.filter(|_| context.version >= 5);
        JoinGroupResponseMember::default()
            .with_member_id(text(member.member))
            .with_group_instance_id(instance.map(text))
            .with_metadata(member.metadata)
    });
    JoinGroupResponse::default()
        .with_generation_id(joined.generation)
        .with_protocol_type((context.version >= 7).then(|| text(joined.protocol_type)))
        .with_protocol_name(Some(text(joined.protocol)))
        .with_leader(text(joined.leader))
        .with_skip_assignment(context.version >= 9 && skips)
        .with_member_id(text(joined.member))
        .with_members(members.collect())
}

/// The protocol name may be null from version 7 on and must be empty before.
fn join_error(context: &RequestContext, code: i16, member: StrBytes) -> JoinGroupResponse {
    JoinGroupResponse::default()
        .with_error_code(code)
        .with_generation_id(-1)
        .with_protocol_name((context.version < 7).then(StrBytes::default))
        .with_member_id(member)
}

pub(crate) async fn sync(context: &RequestContext, request: SyncGroupRequest) -> SyncGroupResponse {
    match sync_group(context, request).await {
        Ok(synced) => {
            let response = SyncGroupResponse::default().with_assignment(synced.assignment);
            match context.version >= 5 {
                true => response
                    .with_protocol_type(Some(text(synced.protocol_type)))
                    .with_protocol_name(Some(text(synced.protocol))),
                false => response,
            }
        }
        Err(code) => SyncGroupResponse::default().with_error_code(context.error_code(&code)),
    }
}

async fn sync_group(
    context: &RequestContext,
    request: SyncGroupRequest,
) -> Result<SyncResponse, Code> {
    context.allow(Resource::Group(&request.group_id))?;
    let assignments = request.assignments.into_iter();
    let sync = SyncRequest {
        member: membership(
            &request.group_id,
            request.generation_id,
            &request.member_id,
            request.group_instance_id,
        ),
        protocol_type: owned(request.protocol_type),
        protocol: owned(request.protocol_name),
        assignments: assignments
            .map(|one| (one.member_id.to_string(), one.assignment))
            .collect(),
    };
    let synced = context.groups().sync(sync).await;
    synced.map_err(|error| error.kind())
}

pub(crate) async fn heartbeat(
    context: &RequestContext,
    request: HeartbeatRequest,
) -> HeartbeatResponse {
    let code = match context.allow(Resource::Group(&request.group_id)) {
        Ok(()) => {
            let member = membership(
                &request.group_id,
                request.generation_id,
                &request.member_id,
                request.group_instance_id,
            );
            code_of(&context.groups().heartbeat(member).await)
        }
        Err(code) => code.code(),
    };
    HeartbeatResponse::default().with_error_code(context.count_error(code))
}

pub(crate) async fn leave(
    context: &RequestContext,
    request: LeaveGroupRequest,
) -> LeaveGroupResponse {
    let response = LeaveGroupResponse::default();
    if let Err(code) = context.allow(Resource::Group(&request.group_id)) {
        return response.with_error_code(context.error_code(&code));
    }
    let leaving: Vec<MemberIdentity> = match context.version < 3 {
        true => vec![MemberIdentity {
            member: request.member_id.to_string(),
            instance: None,
        }],
        false => request.members.iter().map(member_identity).collect(),
    };
    let group = request.group_id.to_string();
    let left = match context.groups().leave(group, leaving.clone()).await {
        Ok(left) => left,
        Err(error) => return response.with_error_code(context.error_code(&error)),
    };
    if context.version < 3 {
        let code = left.first().map_or(OK, code_of);
        return response.with_error_code(context.count_error(code));
    }
    let members = leaving.into_iter().zip(left).map(|(leaving, left)| {
        MemberResponse::default()
            .with_member_id(text(leaving.member))
            .with_group_instance_id(leaving.instance.map(text))
            .with_error_code(context.count_error(code_of(&left)))
    });
    response.with_members(members.collect())
}

fn member_identity(
    member: &kafka_protocol::messages::leave_group_request::MemberIdentity,
) -> MemberIdentity {
    MemberIdentity {
        member: member.member_id.to_string(),
        instance: owned(member.group_instance_id.clone()),
    }
}

pub(crate) async fn describe(
    context: &RequestContext,
    request: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    let ids = distinct(request.groups);
    let mut groups = Vec::with_capacity(ids.len());
    for id in ids {
        let described = match context.allow(Resource::Group(&id)) {
            Ok(()) => match context.groups().describe(id.to_string()).await {
                Some(info) if info.consumer.is_none() => described_group(context, info),
                Some(_) => unknown_group(context, "the group is not a classic group"),
                None => unknown_group(context, "there is no such group"),
            },
            Err(code) => DescribedGroup::default().with_error_code(context.error_code(&code)),
        };
        let described = match request.include_authorized_operations {
            true => described
                .with_authorized_operations(context.authorized_operations(Resource::Group(&id))),
            false => described,
        };
        groups.push(described.with_group_id(id));
    }
    DescribeGroupsResponse::default().with_groups(groups)
}

/// An unknown group is dead, and from version 6 on an error. So is one of the consumer protocol, which has a request of
/// its own.
fn unknown_group(context: &RequestContext, reason: &str) -> DescribedGroup {
    let dead = DescribedGroup::default().with_group_state(text(state_name(GroupState::Dead)));
    match context.version >= 6 {
        true => dead
            .with_error_code(Code::GroupIdNotFound.code())
            .with_error_message(some_text(reason)),
        false => dead,
    }
}

fn described_group(context: &RequestContext, info: GroupInfo) -> DescribedGroup {
    let members = info
        .members
        .into_iter()
        .map(|member| described_member(context, member));
    DescribedGroup::default()
        .with_group_state(text(state_name(info.state)))
        .with_protocol_type(text(info.protocol_type))
        .with_protocol_data(text(info.protocol))
        .with_members(members.collect())
}

fn described_member(context: &RequestContext, member: MemberInfo) -> DescribedGroupMember {
    let instance = member.instance.filter(|_| context.version >= 4);
    DescribedGroupMember::default()
        .with_member_id(text(member.member))
        .with_group_instance_id(instance.map(text))
        .with_client_id(text(member.client_id))
        .with_client_host(text(member.client_host))
        .with_member_metadata(member.metadata)
        .with_member_assignment(member.assignment)
}

pub(super) fn state_name(state: GroupState) -> &'static str {
    match state {
        GroupState::Empty => "Empty",
        GroupState::PreparingRebalance => "PreparingRebalance",
        GroupState::CompletingRebalance => "CompletingRebalance",
        GroupState::Assigning => "Assigning",
        GroupState::Reconciling => "Reconciling",
        GroupState::Stable => "Stable",
        GroupState::Dead => "Dead",
    }
}

pub(crate) async fn list(
    context: &RequestContext,
    request: ListGroupsRequest,
) -> ListGroupsResponse {
    let matches = |filter: &[StrBytes], name: &str| {
        filter.is_empty() || filter.iter().any(|one| one.eq_ignore_ascii_case(name))
    };
    let groups = context.groups().list().await.into_iter();
    let listed = groups
        .filter(|info| context.may(Resource::Group(&info.group)))
        .filter(|info| matches(&request.states_filter, state_name(info.state)))
        .filter(|info| matches(&request.types_filter, type_name(info)))
        .map(|info| {
            let group_type = type_name(&info);
            let listed = ListedGroup::default()
                .with_group_id(GroupId(text(info.group)))
                .with_protocol_type(text(info.protocol_type));
            match context.version {
                ..4 => listed,
                4 => listed.with_group_state(text(state_name(info.state))),
                5.. => listed
                    .with_group_state(text(state_name(info.state)))
                    .with_group_type(text(group_type)),
            }
        });
    ListGroupsResponse::default().with_groups(listed.collect())
}

pub(crate) async fn delete(
    context: &RequestContext,
    request: DeleteGroupsRequest,
) -> DeleteGroupsResponse {
    let ids = distinct(request.groups_names);
    let mut results = Vec::with_capacity(ids.len());
    for id in ids {
        let deleted = match context.allow(Resource::Group(&id)) {
            Ok(()) => {
                let deleted = context.groups().delete(id.to_string()).await;
                deleted.map_err(|error| error.kind())
            }
            Err(code) => Err(code),
        };
        context.audit(&id, deleted.err());
        results.push(
            DeletableGroupResult::default()
                .with_group_id(id)
                .with_error_code(context.count_error(code_of(&deleted))),
        );
    }
    DeleteGroupsResponse::default().with_results(results)
}
