//! Consumer groups, asked of their coordinators.

mod wire;

use std::collections::BTreeMap;
use std::time::Duration;

use highwater_log::{
    Commit, GroupError, GroupInfo, GroupState, Groups, Join, Joined, Leaving, Membership,
    OffsetStored, Pending, Place, SyncGroup, Synced,
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
use super::cluster::{Ask, Key, To};
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
    place: impl Fn(&'a T) -> &'a Place,
    one: impl Fn(&'a T) -> U,
) -> BTreeMap<&'a str, Vec<U>> {
    let mut hubs: BTreeMap<&str, Vec<U>> = BTreeMap::new();
    for item in items {
        let hub = place(item).hub.as_str();
        hubs.entry(hub).or_default().push(one(item));
    }
    hubs
}

fn to(group: &str) -> Ask {
    Ask::new(To::Coordinator(Key::Group(group.into())))
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

impl Groups for Remote {
    /// Where the client is from, the coordinator sees for itself.
    fn join(&self, request: Join) -> Pending<Result<Joined, GroupError>> {
        let cluster = self.cluster();
        Box::pin(async move {
            let ask = Ask {
                held: Some(request.rebalance_timeout),
                client: Some(request.client_id.clone()).filter(|name| !name.is_empty()),
                ..to(&request.group)
            };
            let make = |version| join_request(version, &request);
            let asked = cluster.ask(ask, make, |answer| match kind(answer.error_code) {
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
            match asked.await {
                Ok(joined) => joined,
                Err(failure) => Err(group_error(&member, None, failure)),
            }
        })
    }

    fn sync(&self, request: SyncGroup) -> Pending<Result<Synced, GroupError>> {
        let cluster = self.cluster();
        Box::pin(async move {
            let ask = Ask {
                held: Some(SYNC_HELD),
                ..to(&request.member.group)
            };
            let make = |version| sync_request(version, &request);
            let asked = cluster.ask(ask, make, |answer| {
                ok(answer.error_code)?;
                let said = |said: Option<_>, asked: &Option<String>| match said {
                    Some(said) => ToString::to_string(&said),
                    None => asked.clone().unwrap_or_default(),
                };
                Ok(Synced {
                    protocol_type: said(answer.protocol_type, &request.protocol_type),
                    protocol: said(answer.protocol_name, &request.protocol),
                    assignment: answer.assignment,
                })
            });
            let asked = asked.await;
            asked.map_err(|failure| group_error(&request.member, None, failure))
        })
    }

    fn heartbeat(&self, member: Membership) -> Pending<Result<(), GroupError>> {
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
            let asked = cluster.ask(to(&member.group), make, |answer| ok(answer.error_code));
            let asked = asked.await;
            asked.map_err(|failure| group_error(&member, None, failure))
        })
    }

    fn leave(
        &self,
        group: String,
        leaving: Vec<Leaving>,
    ) -> Pending<Result<Vec<Result<(), GroupError>>, GroupError>> {
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
                let asked = cluster.ask(to(&group), make, |answer| left_one(&answer));
                left.push(match asked.await {
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

    fn commit(&self, request: Commit) -> Pending<Result<(), GroupError>> {
        let cluster = self.cluster();
        Box::pin(async move {
            let group = &request.member.group;
            let make = |version| commit_request(version, &request);
            let asked = cluster.ask(to(group), make, |answer| {
                let topics = answer.topics.iter();
                let partitions = topics.flat_map(|topic| topic.partitions.iter());
                all_ok(partitions.map(|one| one.error_code))
            });
            let place = request.offsets.first().map(|(place, _)| place);
            let asked = asked.await;
            asked.map_err(|failure| group_error(&request.member, place, failure))
        })
    }

    fn committed(
        &self,
        group: String,
        places: Option<Vec<Place>>,
        stable: bool,
    ) -> Pending<Result<Vec<OffsetStored>, GroupError>> {
        let cluster = self.cluster();
        Box::pin(async move {
            let topics = places.as_deref().map(|places| {
                let hubs = by_hub(places, |place| place, |place| place.partition as i32);
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
            let asked = cluster.ask(to(&group), make, |answer| {
                ok(answer.error_code)?;
                positions(answer.topics)
            });
            let place = places.as_ref().and_then(|places| places.first());
            let asked = asked.await;
            let stored = asked.map_err(|failure| group_error(&outsider(&group), place, failure))?;
            Ok(match places {
                Some(places) => {
                    let with = |place: Place| {
                        let stored = stored.get(&place).cloned();
                        (place, stored)
                    };
                    places.into_iter().map(with).collect()
                }
                None => {
                    let all = stored.into_iter();
                    all.map(|(place, stored)| (place, Some(stored))).collect()
                }
            })
        })
    }

    /// Of the brokers that answer.
    fn list(&self) -> Pending<Vec<GroupInfo>> {
        let remote = self.clone();
        Box::pin(async move {
            let view = remote.cluster().view();
            let mut groups = Vec::new();
            for address in view.anybody() {
                match remote.groups_of(To::Broker(address.clone())).await {
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

    fn describe(&self, group: String) -> Pending<Option<GroupInfo>> {
        let remote = self.clone();
        Box::pin(async move {
            let to = To::Coordinator(Key::Group(group.clone()));
            match remote.described(to, vec![group_id(&group)]).await {
                Ok(mut described) => described.pop(),
                Err(failure) => {
                    tracing::warn!(group, %failure, "nobody tells of a group");
                    None
                }
            }
        })
    }

    fn delete(&self, group: String) -> Pending<Result<(), GroupError>> {
        let cluster = self.cluster();
        Box::pin(async move {
            let make = |_| DeleteGroupsRequest::default().with_groups_names(vec![group_id(&group)]);
            let asked = cluster.ask(to(&group), make, |answer| {
                let codes = answer.results.iter().map(|result| result.error_code);
                all_ok(codes)
            });
            let asked = asked.await;
            asked.map_err(|failure| group_error(&outsider(&group), None, failure))
        })
    }

    fn forget(&self, group: String, places: Vec<Place>) -> Pending<Result<(), GroupError>> {
        let cluster = self.cluster();
        Box::pin(async move {
            let make = |_| {
                let one = |place: &Place| {
                    OffsetDeleteRequestPartition::default()
                        .with_partition_index(place.partition as i32)
                };
                let hubs = by_hub(&places, |place| place, one).into_iter();
                let topics = hubs.map(|(hub, partitions)| {
                    OffsetDeleteRequestTopic::default()
                        .with_name(topic(hub))
                        .with_partitions(partitions)
                });
                OffsetDeleteRequest::default()
                    .with_group_id(group_id(&group))
                    .with_topics(topics.collect())
            };
            let asked = cluster.ask(to(&group), make, |answer| {
                ok(answer.error_code)?;
                let topics = answer.topics.iter();
                let partitions = topics.flat_map(|topic| topic.partitions.iter());
                all_ok(partitions.map(|one| one.error_code))
            });
            let asked = asked.await;
            asked.map_err(|failure| group_error(&outsider(&group), places.first(), failure))
        })
    }
}

impl Remote {
    async fn groups_of(&self, broker: To) -> Result<Vec<GroupInfo>, Failure> {
        let (make, cluster) = (|_| ListGroupsRequest::default(), self.cluster());
        let listed = cluster.ask(Ask::new(broker.clone()), make, |answer| {
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
    async fn described(&self, to: To, groups: Vec<GroupId>) -> Result<Vec<GroupInfo>, Failure> {
        let make = |_| DescribeGroupsRequest::default().with_groups(groups.clone());
        let cluster = self.cluster();
        let described = cluster.ask(Ask::new(to), make, |answer| {
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
