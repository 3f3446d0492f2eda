//! Consumer groups: their members, and what tools ask about them.

use std::time::Duration;

use highwater_log::{
    GroupError, GroupInfo, GroupState, JoinRequest, JoinResponse, MemberIdentity, MemberInfo,
    Membership, SyncRequest, SyncResponse,
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

use super::{metadata, some_text, text};
use crate::access::{Resource, Right};
use crate::broker::Broker;
use crate::call::Call;
use crate::codes::{ErrorCode, OK, code_of};

/// The only kind of group there is here, against those of Kafka's newer protocol.
const CLASSIC: &str = "classic";

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

/// Whether the caller may be in the group.
pub(super) fn may_join(broker: &Broker, call: &Call, group: &str) -> Result<(), Code> {
    broker.allow(call, Right::Listen, Resource::Group(group))
}

fn millis(value: i32) -> Duration {
    Duration::from_millis(u64::try_from(value).unwrap_or(0))
}

pub(crate) async fn join(
    broker: &Broker,
    call: &Call,
    request: JoinGroupRequest,
) -> JoinGroupResponse {
    let member = request.member_id.clone();
    if let Err(code) = may_join(broker, call, &request.group_id) {
        return not_joined(call, broker.fail(&code), member);
    }
    match broker.services.groups.join(join_of(call, request)).await {
        Ok(joined) => joined_answer(call, joined),
        Err(GroupError::MemberIdRequired { member }) => {
            not_joined(call, Code::MemberIdRequired.code(), text(member))
        }
        Err(error) => not_joined(call, broker.fail(&error), member),
    }
}

fn join_of(call: &Call, request: JoinGroupRequest) -> JoinRequest {
    let rebalance_timeout_ms = match call.version {
        0 => request.session_timeout_ms,
        _ => request.rebalance_timeout_ms,
    };
    let protocols = request.protocols.into_iter();
    JoinRequest {
        group: request.group_id.to_string(),
        member: request.member_id.to_string(),
        expects_member_id: call.version >= 4 && request.group_instance_id.is_none(),
        instance: owned(request.group_instance_id),
        client_id: call.client_id.to_string(),
        client_host: call.client_host.to_string(),
        session_timeout: millis(request.session_timeout_ms),
        rebalance_timeout: millis(rebalance_timeout_ms),
        protocol_type: request.protocol_type.to_string(),
        protocols: protocols
            .map(|protocol| (protocol.name.to_string(), protocol.metadata))
            .collect(),
    }
}

fn joined_answer(call: &Call, mut joined: JoinResponse) -> JoinGroupResponse {
    let skips = joined.led_as.is_some();
    if let Some(former) = joined.led_as
        && call.version < 9
    {
        // Too old to be told to make no assignment. Told that somebody else leads, it makes none.
        joined.leader = former;
        joined.members.clear();
    }
    let members = joined.members.into_iter().map(|member| {
        let instance = member.instance.filter(|_| call.version >= 5);
        JoinGroupResponseMember::default()
            .with_member_id(text(member.member))
            .with_group_instance_id(instance.map(text))
            .with_metadata(member.metadata)
    });
    JoinGroupResponse::default()
        .with_generation_id(joined.generation)
        .with_protocol_type((call.version >= 7).then(|| text(joined.protocol_type)))
        .with_protocol_name(Some(text(joined.protocol)))
        .with_leader(text(joined.leader))
        .with_skip_assignment(call.version >= 9 && skips)
        .with_member_id(text(joined.member))
        .with_members(members.collect())
}

/// The name of a protocol may be null from version 7 on and must be empty before.
fn not_joined(call: &Call, code: i16, member: StrBytes) -> JoinGroupResponse {
    JoinGroupResponse::default()
        .with_error_code(code)
        .with_generation_id(-1)
        .with_protocol_name((call.version < 7).then(StrBytes::default))
        .with_member_id(member)
}

pub(crate) async fn sync(
    broker: &Broker,
    call: &Call,
    request: SyncGroupRequest,
) -> SyncGroupResponse {
    match synced(broker, call, request).await {
        Ok(synced) => {
            let answer = SyncGroupResponse::default().with_assignment(synced.assignment);
            match call.version >= 5 {
                true => answer
                    .with_protocol_type(Some(text(synced.protocol_type)))
                    .with_protocol_name(Some(text(synced.protocol))),
                false => answer,
            }
        }
        Err(code) => SyncGroupResponse::default().with_error_code(broker.fail(&code)),
    }
}

async fn synced(
    broker: &Broker,
    call: &Call,
    request: SyncGroupRequest,
) -> Result<SyncResponse, Code> {
    may_join(broker, call, &request.group_id)?;
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
    let synced = broker.services.groups.sync(sync).await;
    synced.map_err(|error| error.kind())
}

pub(crate) async fn heartbeat(
    broker: &Broker,
    call: &Call,
    request: HeartbeatRequest,
) -> HeartbeatResponse {
    let alive = match may_join(broker, call, &request.group_id) {
        Ok(()) => {
            let member = membership(
                &request.group_id,
                request.generation_id,
                &request.member_id,
                request.group_instance_id,
            );
            let alive = broker.services.groups.heartbeat(member).await;
            alive.map_err(|error| error.kind())
        }
        Err(code) => Err(code),
    };
    HeartbeatResponse::default().with_error_code(broker.noted(code_of(&alive)))
}

pub(crate) async fn leave(
    broker: &Broker,
    call: &Call,
    request: LeaveGroupRequest,
) -> LeaveGroupResponse {
    let answer = LeaveGroupResponse::default();
    if let Err(code) = may_join(broker, call, &request.group_id) {
        return answer.with_error_code(broker.fail(&code));
    }
    let leaving: Vec<MemberIdentity> = match call.version < 3 {
        true => vec![MemberIdentity {
            member: request.member_id.to_string(),
            instance: None,
        }],
        false => request.members.iter().map(leaving).collect(),
    };
    let group = request.group_id.to_string();
    let left = match broker.services.groups.leave(group, leaving.clone()).await {
        Ok(left) => left,
        Err(error) => return answer.with_error_code(broker.fail(&error)),
    };
    if call.version < 3 {
        let code = left.first().map_or(OK, code_of);
        return answer.with_error_code(broker.noted(code));
    }
    let members = leaving.into_iter().zip(left).map(|(leaving, left)| {
        MemberResponse::default()
            .with_member_id(text(leaving.member))
            .with_group_instance_id(leaving.instance.map(text))
            .with_error_code(broker.noted(code_of(&left)))
    });
    answer.with_members(members.collect())
}

fn leaving(who: &kafka_protocol::messages::leave_group_request::MemberIdentity) -> MemberIdentity {
    MemberIdentity {
        member: who.member_id.to_string(),
        instance: owned(who.group_instance_id.clone()),
    }
}

pub(crate) async fn describe(
    broker: &Broker,
    call: &Call,
    request: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    let mut groups = Vec::with_capacity(request.groups.len());
    for id in request.groups {
        let described = match may_join(broker, call, &id) {
            Ok(()) => match broker.services.groups.describe(id.to_string()).await {
                Some(info) => described(call, info),
                None => nobody(call),
            },
            Err(code) => DescribedGroup::default().with_error_code(broker.fail(&code)),
        };
        let described = match request.include_authorized_operations {
            true => described.with_authorized_operations(metadata::operations(
                broker,
                call,
                Resource::Group(&id),
            )),
            false => described,
        };
        groups.push(described.with_group_id(id));
    }
    DescribeGroupsResponse::default().with_groups(groups)
}

/// A group that nobody has heard of is dead, and since version 6 an error too.
fn nobody(call: &Call) -> DescribedGroup {
    let dead = DescribedGroup::default().with_group_state(text(name_of(GroupState::Dead)));
    match call.version >= 6 {
        true => dead
            .with_error_code(Code::GroupIdNotFound.code())
            .with_error_message(some_text(GroupError::NotFound)),
        false => dead,
    }
}

fn described(call: &Call, info: GroupInfo) -> DescribedGroup {
    let members = info
        .members
        .into_iter()
        .map(|member| described_member(call, member));
    DescribedGroup::default()
        .with_group_state(text(name_of(info.state)))
        .with_protocol_type(text(info.protocol_type))
        .with_protocol_data(text(info.protocol))
        .with_members(members.collect())
}

fn described_member(call: &Call, member: MemberInfo) -> DescribedGroupMember {
    let instance = member.instance.filter(|_| call.version >= 4);
    DescribedGroupMember::default()
        .with_member_id(text(member.member))
        .with_group_instance_id(instance.map(text))
        .with_client_id(text(member.client_id))
        .with_client_host(text(member.client_host))
        .with_member_metadata(member.metadata)
        .with_member_assignment(member.assignment)
}

fn name_of(state: GroupState) -> &'static str {
    match state {
        GroupState::Empty => "Empty",
        GroupState::PreparingRebalance => "PreparingRebalance",
        GroupState::CompletingRebalance => "CompletingRebalance",
        GroupState::Stable => "Stable",
        GroupState::Dead => "Dead",
    }
}

pub(crate) async fn list(
    broker: &Broker,
    call: &Call,
    request: ListGroupsRequest,
) -> ListGroupsResponse {
    let wanted = |names: &[StrBytes], name: &str| {
        names.is_empty() || names.iter().any(|wanted| wanted.eq_ignore_ascii_case(name))
    };
    let groups = broker.services.groups.list().await.into_iter();
    let listed = groups
        .filter(|info| may_join(broker, call, &info.group).is_ok())
        .filter(|info| wanted(&request.states_filter, name_of(info.state)))
        .filter(|_| wanted(&request.types_filter, CLASSIC))
        .map(|info| {
            let listed = ListedGroup::default()
                .with_group_id(GroupId(text(info.group)))
                .with_protocol_type(text(info.protocol_type));
            match call.version {
                ..4 => listed,
                4 => listed.with_group_state(text(name_of(info.state))),
                5.. => listed
                    .with_group_state(text(name_of(info.state)))
                    .with_group_type(text(CLASSIC)),
            }
        });
    ListGroupsResponse::default().with_groups(listed.collect())
}

pub(crate) async fn delete(
    broker: &Broker,
    call: &Call,
    request: DeleteGroupsRequest,
) -> DeleteGroupsResponse {
    let mut results = Vec::with_capacity(request.groups_names.len());
    for id in request.groups_names {
        let deleted = match broker.allow(call, Right::Manage, Resource::Group(&id)) {
            Ok(()) => {
                let deleted = broker.services.groups.delete(id.to_string()).await;
                deleted.map_err(|error| error.kind())
            }
            Err(code) => Err(code),
        };
        results.push(
            DeletableGroupResult::default()
                .with_group_id(id)
                .with_error_code(broker.noted(code_of(&deleted))),
        );
    }
    DeleteGroupsResponse::default().with_results(results)
}
