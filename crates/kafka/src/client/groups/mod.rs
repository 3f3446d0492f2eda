//! Consumer groups, asked of their coordinators.

mod wire;

use std::collections::BTreeMap;
use std::time::Duration;

use highwater_log::{
    BoxFuture, CommittedOffset, GroupCoordinator, GroupError, GroupInfo, GroupState, JoinRequest,
    JoinResponse, MemberIdentity, Membership, OffsetCommit, SyncRequest, SyncResponse,
    TopicPartition,
};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, GroupId, HeartbeatRequest, ListGroupsRequest,
    OffsetDeleteRequest, OffsetFetchRequest,
};

use super::Remote;
use super::cluster::{ClusterRequest, Destination, Key};
use super::errors::{Failure, all_ok, group_error, kind, ok};
use crate::handlers::{text, topic};
use wire::{
    HEARTBEAT_INSTANCE, commit_request, group_id, info, join_request, joined, leave_request,
    left_one, positions, sync_request,
};

/// How long the leader of a group may take to say who reads what.
const SYNC_HELD: Duration = Duration::from_secs(300);

pub(super) fn millis(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
}

/// What belongs to one hub together, as requests want it.
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

fn to(group: &str) -> ClusterRequest {
    ClusterRequest::new(Destination::Coordinator(Key::Group(group.into())))
}

/// Somebody who has no place in a group.
fn outsider(group: &str) -> Membership {
    Membership {
        group: group.into(),
        generation: -1,
        member: String::new(),
        instance: None,
    }
}

impl GroupCoordinator for Remote {
    /// Where the client is from, the coordinator sees for itself.
    fn join(&self, request: JoinRequest) -> BoxFuture<Result<JoinResponse, GroupError>> {
        let cluster = self.cluster();
        Box::pin(async move {
            let ask = ClusterRequest {
                held: Some(request.rebalance_timeout),
                client: Some(request.client_id.clone()).filter(|name| !name.is_empty()),
                ..to(&request.group)
            };
            let make = |version| join_request(version, &request);
            let requested = cluster.ask(ask, make, |answer| match kind(answer.error_code) {
                Code::MemberIdRequired => Ok(Err(GroupError::MemberIdRequired {
                    member: answer.member_id.to_string(),
                })),
                _ => ok(answer.error_code).map(|()| Ok(joined(answer))),
            });
            let member = Membership {
                member: request.member.clone(),
                instance: request.instance.clone(),
                ..outsider(&request.group)
            };
            match requested.await {
                Ok(joined) => joined,
                Err(failure) => Err(group_error(&member, None, failure)),
            }
        })
    }

    fn sync(&self, request: SyncRequest) -> BoxFuture<Result<SyncResponse, GroupError>> {
        let cluster = self.cluster();
        Box::pin(async move {
            let ask = ClusterRequest {
                held: Some(SYNC_HELD),
                ..to(&request.member.group)
            };
            let make = |version| sync_request(version, &request);
            let requested = cluster.ask(ask, make, |answer| {
                ok(answer.error_code)?;
                let answered_or = |answered: Option<_>, requested: &Option<String>| match answered {
                    Some(name) => ToString::to_string(&name),
                    None => requested.clone().unwrap_or_default(),
                };
                Ok(SyncResponse {
                    protocol_type: answered_or(answer.protocol_type, &request.protocol_type),
                    protocol: answered_or(answer.protocol_name, &request.protocol),
                    assignment: answer.assignment,
                })
            });
            let requested = requested.await;
            requested.map_err(|failure| group_error(&request.member, None, failure))
        })
    }

    fn heartbeat(&self, member: Membership) -> BoxFuture<Result<(), GroupError>> {
        let cluster = self.cluster();
        Box::pin(async move {
            let make = |version| {
                let beat = HeartbeatRequest::default()
                    .with_group_id(group_id(&member.group))
                    .with_generation_id(member.generation)
                    .with_member_id(text(&*member.member));
                match version >= HEARTBEAT_INSTANCE {
                    true => beat.with_group_instance_id(member.instance.as_deref().map(text)),
                    false => beat,
                }
            };
            let requested = cluster.ask(to(&member.group), make, |answer| ok(answer.error_code));
            let requested = requested.await;
            requested.map_err(|failure| group_error(&member, None, failure))
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
            // One after another, which every version can.
            for who in &leaving {
                let member = Membership {
                    member: who.member.clone(),
                    instance: who.instance.clone(),
                    ..outsider(&group)
                };
                let make = |version| leave_request(version, &group, who);
                let requested = cluster.ask(to(&group), make, |answer| left_one(&answer));
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
        let cluster = self.cluster();
        Box::pin(async move {
            let group = &request.member.group;
            let make = |version| commit_request(version, &request);
            let requested = cluster.ask(to(group), make, |answer| {
                let topics = answer.topics.iter();
                let partitions = topics.flat_map(|topic| topic.partitions.iter());
                all_ok(partitions.map(|one| one.error_code))
            });
            let topic_partition = request
                .offsets
                .first()
                .map(|(topic_partition, _)| topic_partition);
            let requested = requested.await;
            requested.map_err(|failure| group_error(&request.member, topic_partition, failure))
        })
    }

    fn fetch_offsets(
        &self,
        group: String,
        topic_partitions: Option<Vec<TopicPartition>>,
        stable: bool,
    ) -> BoxFuture<Result<Vec<CommittedOffset>, GroupError>> {
        let cluster = self.cluster();
        Box::pin(async move {
            let topics = topic_partitions.as_deref().map(|topic_partitions| {
                let hubs = by_hub(
                    topic_partitions,
                    |topic_partition| topic_partition,
                    |topic_partition| topic_partition.partition as i32,
                );
                let hubs = hubs.into_iter().map(|(hub, partitions)| {
                    OffsetFetchRequestTopic::default()
                        .with_name(topic(hub))
                        .with_partition_indexes(partitions)
                });
                hubs.collect::<Vec<_>>()
            });
            let make = |version| {
                let request = OffsetFetchRequest::default()
                    .with_group_id(group_id(&group))
                    .with_topics(topics.clone());
                match version >= 7 {
                    true => request.with_require_stable(stable),
                    false => request,
                }
            };
            let requested = cluster.ask(to(&group), make, |answer| {
                ok(answer.error_code)?;
                positions(answer.topics)
            });
            let topic_partition = topic_partitions
                .as_ref()
                .and_then(|topic_partitions| topic_partitions.first());
            let requested = requested.await;
            let stored = requested
                .map_err(|failure| group_error(&outsider(&group), topic_partition, failure))?;
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

    /// Of the brokers that answer.
    fn list(&self) -> BoxFuture<Vec<GroupInfo>> {
        let remote = self.clone();
        Box::pin(async move {
            let view = remote.cluster().view();
            let mut groups = Vec::new();
            for address in view.anybody() {
                match remote.groups_of(Destination::Broker(address.clone())).await {
                    Ok(found) => groups.extend(found),
                    Err(failure) => {
                        tracing::warn!(%address, %failure, "a broker does not tell its groups");
                    }
                }
            }
            groups.sort_by(|a: &GroupInfo, b| a.group.cmp(&b.group));
            groups
        })
    }

    fn describe(&self, group: String) -> BoxFuture<Option<GroupInfo>> {
        let remote = self.clone();
        Box::pin(async move {
            let to = Destination::Coordinator(Key::Group(group.clone()));
            match remote.described(to, vec![group_id(&group)]).await {
                Ok(mut described) => described.pop(),
                Err(failure) => {
                    tracing::warn!(group, %failure, "nobody tells of a group");
                    None
                }
            }
        })
    }

    fn delete(&self, group: String) -> BoxFuture<Result<(), GroupError>> {
        let cluster = self.cluster();
        Box::pin(async move {
            let make = |_| DeleteGroupsRequest::default().with_groups_names(vec![group_id(&group)]);
            let requested = cluster.ask(to(&group), make, |answer| {
                let codes = answer.results.iter().map(|result| result.error_code);
                all_ok(codes)
            });
            let requested = requested.await;
            requested.map_err(|failure| group_error(&outsider(&group), None, failure))
        })
    }

    fn delete_offsets(
        &self,
        group: String,
        topic_partitions: Vec<TopicPartition>,
    ) -> BoxFuture<Result<(), GroupError>> {
        let cluster = self.cluster();
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
                        .with_name(topic(hub))
                        .with_partitions(partitions)
                });
                OffsetDeleteRequest::default()
                    .with_group_id(group_id(&group))
                    .with_topics(topics.collect())
            };
            let requested = cluster.ask(to(&group), make, |answer| {
                ok(answer.error_code)?;
                let topics = answer.topics.iter();
                let partitions = topics.flat_map(|topic| topic.partitions.iter());
                all_ok(partitions.map(|one| one.error_code))
            });
            let requested = requested.await;
            requested.map_err(|failure| {
                group_error(&outsider(&group), topic_partitions.first(), failure)
            })
        })
    }
}

impl Remote {
    async fn groups_of(&self, broker: Destination) -> Result<Vec<GroupInfo>, Failure> {
        let (make, cluster) = (|_| ListGroupsRequest::default(), self.cluster());
        let listed = cluster.ask(ClusterRequest::new(broker.clone()), make, |answer| {
            ok(answer.error_code)?;
            let groups = answer.groups.into_iter();
            Ok(groups.map(|group| group.group_id).collect::<Vec<_>>())
        });
        match listed.await? {
            none if none.is_empty() => Ok(Vec::new()),
            some => self.described(broker, some).await,
        }
    }

    /// Those of the groups that somebody has heard of.
    async fn described(
        &self,
        to: Destination,
        groups: Vec<GroupId>,
    ) -> Result<Vec<GroupInfo>, Failure> {
        let make = |_| DescribeGroupsRequest::default().with_groups(groups.clone());
        let cluster = self.cluster();
        let described = cluster.ask(ClusterRequest::new(to), make, |answer| {
            let codes = answer.groups.iter().map(|group| group.error_code);
            let unknown = Code::GroupIdNotFound.code();
            all_ok(codes.filter(|code| *code != unknown))?;
            let groups = answer.groups.into_iter().map(info);
            Ok(groups
                .filter(|info| info.state != GroupState::Dead)
                .collect())
        });
        described.await
    }
}
