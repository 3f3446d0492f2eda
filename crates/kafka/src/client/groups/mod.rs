//! Consumer groups, by requests to their coordinators.

mod wire;

use std::collections::BTreeMap;
use std::time::Duration;

use highwater_log::{
    BoxFuture, CommittedOffset, GroupCoordinator, GroupError, GroupInfo, GroupState, GroupSummary,
    JoinRequest, JoinResponse, MemberIdentity, Membership, OffsetCommit, SyncRequest, SyncResponse,
    TopicPartition,
};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, GroupId, HeartbeatRequest,
    HeartbeatResponse, ListGroupsRequest, OffsetCommitResponse, OffsetDeleteRequest,
    OffsetDeleteResponse, OffsetFetchRequest, OffsetFetchResponse,
};
use kafka_protocol::protocol::Request;

use super::Remote;
use super::cluster::{CoordinatorKey, Destination, Route};
use super::errors::{BrokerError, Failure, all_ok, code_from, group_error, ok};
use super::names::{ClusterNames, MemberMessage};
use crate::handlers::text;
use wire::{
    HEARTBEAT_INSTANCE, commit_request, committed_offsets, info, join_request, joined,
    leave_request, left_one, sync_request,
};

const ASSIGNMENT: MemberMessage = MemberMessage::Assignment;

/// How long the leader of a group may take to assign partitions.
const SYNC_HOLD_MAX: Duration = Duration::from_secs(300);

pub(super) fn millis(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
}

/// Groups items by hub, as requests do.
pub(super) fn by_hub<'a, T, U>(
    items: &'a [T],
    topic_partition: impl Fn(&'a T) -> &'a TopicPartition,
    one: impl Fn(&'a T) -> U,
) -> BTreeMap<&'a str, Vec<U>> {
    let mut hubs: BTreeMap<&str, Vec<U>> = BTreeMap::new();
    for item in items {
        let hub = topic_partition(item).hub.as_str();
        hubs.entry(hub).or_default().push(one(item));
    }
    hubs
}

fn coordinator(group: &str) -> Route {
    Route::new(Destination::Coordinator(CoordinatorKey::Group(
        group.into(),
    )))
}

/// A client that is not a member of the group.
fn non_member(group: &str) -> Membership {
    Membership {
        group: group.into(),
        generation: -1,
        member: String::new(),
        instance: None,
    }
}

impl GroupCoordinator for Remote {
    /// The coordinator takes the client's host from the connection.
    fn join(&self, request: JoinRequest) -> BoxFuture<Result<JoinResponse, GroupError>> {
        let remote = self.clone();
        Box::pin(async move {
            let route = Route {
                hold_max: Some(request.rebalance_timeout),
                client: Some(request.client_id.clone()).filter(|name| !name.is_empty()),
                ..coordinator(&request.group)
            };
            let cluster = remote.cluster();
            let names = &cluster.options.names;
            let make = |version| join_request(version, &request, names);
            let member = Membership {
                member: request.member.clone(),
                instance: request.instance.clone(),
                ..non_member(&request.group)
            };
            let joined =
                remote.call_group(route, &member, None, make, |response| {
                    match code_from(response.error_code) {
                        Code::MemberIdRequired => Ok(Err(GroupError::MemberIdRequired {
                            member: response.member_id.to_string(),
                        })),
                        _ => ok(response.error_code).map(|()| Ok(joined(response, names))),
                    }
                });
            joined.await?
        })
    }

    fn sync(&self, request: SyncRequest) -> BoxFuture<Result<SyncResponse, GroupError>> {
        let remote = self.clone();
        Box::pin(async move {
            let route = Route {
                hold_max: Some(SYNC_HOLD_MAX),
                ..coordinator(&request.member.group)
            };
            let cluster = remote.cluster();
            let names = &cluster.options.names;
            let make = |version| sync_request(version, &request, names);
            let synced = remote.call_group(route, &request.member, None, make, |response| {
                ok(response.error_code)?;
                let or_requested = |name: Option<_>, requested: &Option<String>| match name {
                    Some(name) => ToString::to_string(&name),
                    None => requested.clone().unwrap_or_default(),
                };
                let protocol_type = or_requested(response.protocol_type, &request.protocol_type);
                let assignment = response.assignment;
                Ok(SyncResponse {
                    protocol: or_requested(response.protocol_name, &request.protocol),
                    assignment: names.incoming(ASSIGNMENT, &protocol_type, assignment),
                    protocol_type,
                })
            });
            synced.await
        })
    }

    fn heartbeat(&self, member: Membership) -> BoxFuture<Result<(), GroupError>> {
        let remote = self.clone();
        Box::pin(async move {
            let make = |version| {
                let beat = HeartbeatRequest::default()
                    .with_group_id(remote.names().group(&member.group))
                    .with_generation_id(member.generation)
                    .with_member_id(text(&*member.member));
                match version >= HEARTBEAT_INSTANCE {
                    true => beat.with_group_instance_id(member.instance.as_deref().map(text)),
                    false => beat,
                }
            };
            let route = coordinator(&member.group);
            let read = |response: HeartbeatResponse| ok(response.error_code);
            remote.call_group(route, &member, None, make, read).await
        })
    }

    fn leave(
        &self,
        group: String,
        leaving: Vec<MemberIdentity>,
    ) -> BoxFuture<Result<Vec<Result<(), GroupError>>, GroupError>> {
        let cluster = self.cluster();
        Box::pin(async move {
            let mut left = Vec::with_capacity(leaving.len());
            // One request for each, which every version supports.
            for who in &leaving {
                let member = Membership {
                    member: who.member.clone(),
                    instance: who.instance.clone(),
                    ..non_member(&group)
                };
                let id = cluster.options.names.group(&group);
                let make = |version| leave_request(version, id.clone(), who);
                let requested =
                    cluster.call(coordinator(&group), make, |response| left_one(&response));
                left.push(match requested.await {
                    Ok(()) => Ok(()),
                    Err(failure @ Failure::Call(_)) => {
                        return Err(group_error(&member, None, failure));
                    }
                    Err(failure) => Err(group_error(&member, None, failure)),
                });
            }
            Ok(left)
        })
    }

    fn commit_offsets(&self, request: OffsetCommit) -> BoxFuture<Result<(), GroupError>> {
        let remote = self.clone();
        Box::pin(async move {
            let group = &request.member.group;
            let make = |version| commit_request(version, &request, remote.names());
            let first = request.offsets.first();
            let first = first.map(|(topic_partition, _)| topic_partition);
            let read = |response: OffsetCommitResponse| {
                let topics = response.topics.iter();
                let partitions = topics.flat_map(|topic| topic.partitions.iter());
                all_ok(partitions.map(|one| one.error_code))
            };
            remote
                .call_group(coordinator(group), &request.member, first, make, read)
                .await
        })
    }

    fn fetch_offsets(
        &self,
        group: String,
        topic_partitions: Option<Vec<TopicPartition>>,
        stable: bool,
    ) -> BoxFuture<Result<Vec<CommittedOffset>, GroupError>> {
        let remote = self.clone();
        Box::pin(async move {
            let topics = topic_partitions.as_deref().map(|topic_partitions| {
                let hubs = by_hub(
                    topic_partitions,
                    |topic_partition| topic_partition,
                    |topic_partition| topic_partition.partition as i32,
                );
                let hubs = hubs.into_iter().map(|(hub, partitions)| {
                    OffsetFetchRequestTopic::default()
                        .with_name(remote.names().topic(hub))
                        .with_partition_indexes(partitions)
                });
                hubs.collect::<Vec<_>>()
            });
            let make = |version| {
                let request = OffsetFetchRequest::default()
                    .with_group_id(remote.names().group(&group))
                    .with_topics(topics.clone());
                match version >= 7 {
                    true => request.with_require_stable(stable),
                    false => request,
                }
            };
            let first = topic_partitions.as_ref().and_then(|all| all.first());
            let read = |response: OffsetFetchResponse| {
                ok(response.error_code)?;
                committed_offsets(response.topics, remote.names())
            };
            let stored = remote
                .call_group(coordinator(&group), &non_member(&group), first, make, read)
                .await?;
            Ok(match topic_partitions {
                Some(topic_partitions) => {
                    let with = |topic_partition: TopicPartition| {
                        let stored = stored.get(&topic_partition).cloned();
                        (topic_partition, stored)
                    };
                    topic_partitions.into_iter().map(with).collect()
                }
                None => {
                    let all = stored.into_iter();
                    all.map(|(topic_partition, stored)| (topic_partition, Some(stored)))
                        .collect()
                }
            })
        })
    }

    /// The groups of all brokers that respond.
    fn list(&self) -> BoxFuture<Vec<GroupSummary>> {
        let remote = self.clone();
        Box::pin(async move {
            let view = remote.cluster().view();
            let mut groups = Vec::new();
            for address in view.addresses() {
                match remote.groups_of(Destination::Broker(address.clone())).await {
                    Ok(found) => groups.extend(found.iter().map(GroupInfo::summary)),
                    Err(failure) => {
                        tracing::warn!(%address, %failure, "cannot list the groups of a broker");
                    }
                }
            }
            groups.sort_by(|a: &GroupSummary, b| a.group.cmp(&b.group));
            groups
        })
    }

    fn summary(&self, group: String) -> BoxFuture<Option<GroupSummary>> {
        let described = self.describe(group);
        Box::pin(async move { described.await.as_ref().map(GroupInfo::summary) })
    }

    fn describe(&self, group: String) -> BoxFuture<Option<GroupInfo>> {
        let remote = self.clone();
        Box::pin(async move {
            let to = Destination::Coordinator(CoordinatorKey::Group(group.clone()));
            match remote
                .described(to, vec![remote.names().group(&group)])
                .await
            {
                Ok(mut described) => described.pop(),
                Err(failure) => {
                    tracing::warn!(group, %failure, "cannot describe a group");
                    None
                }
            }
        })
    }

    fn delete(&self, group: String) -> BoxFuture<Result<(), GroupError>> {
        let remote = self.clone();
        Box::pin(async move {
            let id = remote.names().group(&group);
            let make = |_| DeleteGroupsRequest::default().with_groups_names(vec![id.clone()]);
            let read = |response: DeleteGroupsResponse| {
                all_ok(response.results.iter().map(|result| result.error_code))
            };
            remote
                .call_group(coordinator(&group), &non_member(&group), None, make, read)
                .await
        })
    }

    fn delete_offsets(
        &self,
        group: String,
        topic_partitions: Vec<TopicPartition>,
    ) -> BoxFuture<Result<(), GroupError>> {
        let remote = self.clone();
        Box::pin(async move {
            let make = |_| {
                let one = |topic_partition: &TopicPartition| {
                    OffsetDeleteRequestPartition::default()
                        .with_partition_index(topic_partition.partition as i32)
                };
                let hubs =
                    by_hub(&topic_partitions, |topic_partition| topic_partition, one).into_iter();
                let topics = hubs.map(|(hub, partitions)| {
                    OffsetDeleteRequestTopic::default()
                        .with_name(remote.names().topic(hub))
                        .with_partitions(partitions)
                });
                OffsetDeleteRequest::default()
                    .with_group_id(remote.names().group(&group))
                    .with_topics(topics.collect())
            };
            let read = |response: OffsetDeleteResponse| {
                ok(response.error_code)?;
                let topics = response.topics.iter();
                let partitions = topics.flat_map(|topic| topic.partitions.iter());
                all_ok(partitions.map(|one| one.error_code))
            };
            let (member, first) = (non_member(&group), topic_partitions.first());
            remote
                .call_group(coordinator(&group), &member, first, make, read)
                .await
        })
    }
}

impl Remote {
    pub(super) fn names(&self) -> &ClusterNames {
        &self.0.cluster.options.names
    }

    async fn call_group<R: Request, T>(
        &self,
        route: Route,
        member: &Membership,
        topic_partition: Option<&TopicPartition>,
        make: impl Fn(i16) -> R,
        read: impl Fn(R::Response) -> Result<T, BrokerError>,
    ) -> Result<T, GroupError> {
        let called = self.cluster().call(route, make, read).await;
        called.map_err(|failure| group_error(member, topic_partition, failure))
    }

    async fn groups_of(&self, broker: Destination) -> Result<Vec<GroupInfo>, Failure> {
        let (make, cluster) = (|_| ListGroupsRequest::default(), self.cluster());
        let listed = cluster.call(Route::new(broker.clone()), make, |response| {
            ok(response.error_code)?;
            let groups = response.groups.into_iter();
            let own = groups.filter(|group| self.names().own_group(&group.group_id).is_some());
            Ok(own.map(|group| group.group_id).collect::<Vec<_>>())
        });
        match listed.await? {
            none if none.is_empty() => Ok(Vec::new()),
            some => self.described(broker, some).await,
        }
    }

    /// The groups that exist.
    async fn described(
        &self,
        to: Destination,
        groups: Vec<GroupId>,
    ) -> Result<Vec<GroupInfo>, Failure> {
        let make = |_| DescribeGroupsRequest::default().with_groups(groups.clone());
        let cluster = self.cluster();
        let described = cluster.call(Route::new(to), make, |response| {
            let codes = response.groups.iter().map(|group| group.error_code);
            let unknown = Code::GroupIdNotFound.code();
            all_ok(codes.filter(|code| *code != unknown))?;
            let groups = response.groups.into_iter();
            let groups = groups.filter_map(|group| info(group, self.names()));
            Ok(groups
                .filter(|info| info.state != GroupState::Dead)
                .collect())
        });
        described.await
    }
}
