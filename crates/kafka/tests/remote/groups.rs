//! Consumer groups over the wire.
// proves C1 C2

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use highwater_kafka::client::Remote;
use highwater_log::{
    GroupCoordinator, GroupError, GroupState, JoinRequest, JoinResponse, MemberIdentity,
    Membership, Offset, OffsetAndMetadata, OffsetCommit, SyncRequest, TopicPartition,
};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::{
    ApiKey, HeartbeatRequest, HeartbeatResponse, OffsetCommitRequest, OffsetCommitResponse,
};

use crate::cluster::*;
use crate::proxy::ProxyAction;

fn request(group: &str, member: &str, instance: Option<&str>) -> JoinRequest {
    JoinRequest {
        group: group.into(),
        member: member.into(),
        instance: instance.map(Into::into),
        client_id: "test".into(),
        client_host: String::new(),
        session_timeout: Duration::from_secs(60),
        rebalance_timeout: Duration::from_secs(60),
        protocol_type: "readers".into(),
        protocols: vec![("range".into(), Bytes::from_static(b"metadata"))],
        expects_member_id: true,
    }
}

async fn join(
    groups: &dyn GroupCoordinator,
    group: &str,
    member: &str,
) -> Result<JoinResponse, GroupError> {
    match groups.join(request(group, member, None)).await {
        Err(GroupError::MemberIdRequired { member }) => {
            groups.join(request(group, &member, None)).await
        }
        joined => joined,
    }
}

fn member(joined: &JoinResponse) -> Membership {
    Membership {
        group: "readers".into(),
        generation: joined.generation,
        member: joined.member.clone(),
        instance: None,
    }
}

fn sync(joined: &JoinResponse, assignments: &[(&str, &'static [u8])]) -> SyncRequest {
    let own =
        |(member, bytes): &(&str, &'static [u8])| (member.to_string(), Bytes::from_static(bytes));
    SyncRequest {
        member: member(joined),
        protocol_type: Some("readers".into()),
        protocol: Some("range".into()),
        assignments: assignments.iter().map(own).collect(),
    }
}

pub(crate) fn commit(
    member: Membership,
    topic_partition: TopicPartition,
    offset: i64,
) -> OffsetCommit {
    let stored = OffsetAndMetadata {
        offset: Offset(offset),
        leader_epoch: -1,
        metadata: "note".into(),
    };
    OffsetCommit {
        member,
        offsets: vec![(topic_partition, stored)],
    }
}

/// A group of one, and its member.
pub(crate) async fn stable(remote: &Remote, group: &str) -> Membership {
    let joined = join(remote, group, "").await.unwrap();
    let assigned = [(joined.member.as_str(), &b"all"[..])];
    let mut first = sync(&joined, &assigned);
    first.member.group = group.into();
    let synced = remote.sync(first.clone()).await.unwrap();
    assert_eq!(&synced.assignment[..], b"all");
    assert_eq!(
        (synced.protocol_type.as_str(), synced.protocol.as_str()),
        ("readers", "range")
    );
    first.member
}

#[tokio::test]
async fn two_members_of_one_client_join_the_same_generation() {
    let cluster = cluster().await;
    let remote = Arc::new(cluster.with_hub("h", 2).await);
    let first = stable(&remote, "readers").await;
    remote.heartbeat(first.clone()).await.unwrap();
    let second = tokio::spawn({
        let remote = Arc::clone(&remote);
        async move { join(&*remote, "readers", "").await }
    });
    // The second waits for the first, whose heartbeat tells it to rejoin.
    while remote.heartbeat(first.clone()).await != Err(GroupError::Rebalancing) {
        tokio::task::yield_now().await;
    }
    let first = join(&*remote, "readers", &first.member).await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert_eq!(first.generation, second.generation);
    let (leader, follower) = match first.leader == first.member {
        true => (first, second),
        false => (second, first),
    };
    assert_eq!(leader.members.len(), 2);
    assert!(follower.members.is_empty());
    let waiting = tokio::spawn(remote.sync(sync(&follower, &[])));
    let shares = [
        (leader.member.as_str(), &b"left"[..]),
        (follower.member.as_str(), b"right"),
    ];
    let led = remote.sync(sync(&leader, &shares)).await.unwrap();
    let followed = waiting.await.unwrap().unwrap();
    assert_eq!(
        (&led.assignment[..], &followed.assignment[..]),
        (&b"left"[..], &b"right"[..])
    );

    let group = remote.describe("readers".into()).await.unwrap();
    assert_eq!((group.state, group.members.len()), (GroupState::Stable, 2));
    assert!(
        group
            .members
            .iter()
            .all(|member| member.client_id == "test"),
        "{group:?}"
    );
    assert_eq!(remote.list().await, [group.summary()]);
    let gone = MemberIdentity {
        member: "nobody".into(),
        instance: None,
    };
    let leaving = MemberIdentity {
        member: follower.member.clone(),
        instance: None,
    };
    let left = remote
        .leave("readers".into(), vec![gone, leaving])
        .await
        .unwrap();
    assert_eq!(
        left,
        [Err(GroupError::UnknownMember("nobody".into())), Ok(())]
    );
    let result = remote.heartbeat(member(&leader)).await;
    assert_eq!(result, Err(GroupError::Rebalancing));
}

#[tokio::test]
async fn offsets_are_committed_by_members_and_fetched_by_all() {
    let cluster = cluster().await;
    let remote = cluster.with_hub("h", 2).await;
    let member = stable(&remote, "readers").await;
    remote
        .commit_offsets(commit(member.clone(), topic_partition("h", 1), 42))
        .await
        .unwrap();

    let other = cluster.remote().await;
    let topic_partitions = Some(vec![topic_partition("h", 0), topic_partition("h", 1)]);
    let stored = other
        .fetch_offsets("readers".into(), topic_partitions, true)
        .await
        .unwrap();
    let offset = |stored: &Option<OffsetAndMetadata>| stored.as_ref().map(|stored| stored.offset.0);
    assert_eq!(
        (offset(&stored[0].1), offset(&stored[1].1)),
        (None, Some(42))
    );
    let all = other
        .fetch_offsets("readers".into(), None, false)
        .await
        .unwrap();
    assert_eq!(all, stored[1..]);
    assert_eq!(all[0].1.as_ref().unwrap().metadata, "note");

    let stale = Membership {
        generation: member.generation + 1,
        ..member.clone()
    };
    let refused = remote
        .commit_offsets(commit(stale, topic_partition("h", 1), 43))
        .await;
    assert!(matches!(refused, Err(GroupError::IllegalGeneration { .. })));
    let client = Membership {
        member: "nobody".into(),
        ..member.clone()
    };
    let refused = remote
        .commit_offsets(commit(client, topic_partition("h", 1), 43))
        .await;
    assert_eq!(refused, Err(GroupError::UnknownMember("nobody".into())));
    let elsewhere = remote
        .commit_offsets(commit(member.clone(), topic_partition("h", 9), 1))
        .await;
    assert_eq!(
        elsewhere,
        Err(GroupError::UnknownPartition(topic_partition("h", 9)))
    );

    assert_eq!(
        remote.delete("readers".into()).await,
        Err(GroupError::NotEmpty)
    );
    let (member, instance) = (member.member, None);
    let leaving = vec![MemberIdentity { member, instance }];
    remote.leave("readers".into(), leaving).await.unwrap();
    remote
        .delete_offsets("readers".into(), vec![topic_partition("h", 1)])
        .await
        .unwrap();
    assert_eq!(
        remote.fetch_offsets("readers".into(), None, true).await,
        Ok(Vec::new())
    );
    remote.delete("readers".into()).await.unwrap();
    assert_eq!(remote.describe("readers".into()).await, None);
    assert_eq!(
        remote.delete("readers".into()).await,
        Err(GroupError::NotFound)
    );
}

#[tokio::test]
async fn a_static_member_rejoins_with_its_assignment() {
    let cluster = cluster().await;
    let remote = cluster.with_hub("h", 1).await;
    let joined = remote
        .join(request("readers", "", Some("reader-0")))
        .await
        .unwrap();
    let named = |joined: &JoinResponse| Membership {
        instance: Some("reader-0".into()),
        ..member(joined)
    };
    let assigned = [(joined.member.as_str(), &b"all"[..])];
    let mut first = sync(&joined, &assigned);
    first.member = named(&joined);
    remote.sync(first).await.unwrap();
    let again = cluster.remote().await;
    let back = again
        .join(request("readers", "", Some("reader-0")))
        .await
        .unwrap();
    assert_eq!(back.generation, joined.generation);
    assert_ne!(back.member, joined.member);
    // It is the leader already, so it makes no new assignment.
    assert!(back.leader != back.member || back.led_as.is_some());
    let fenced = remote.heartbeat(named(&joined)).await;
    assert_eq!(fenced, Err(GroupError::FencedInstance("reader-0".into())));
}

#[tokio::test]
async fn a_coordinator_that_has_moved_is_looked_up() {
    let cluster = cluster().await;
    let remote = cluster.with_hub("h", 1).await;
    let member = stable(&remote, "readers").await;
    let before = cluster.proxy.count(ApiKey::FindCoordinator);
    for code in [
        Code::NotCoordinator,
        Code::CoordinatorNotAvailable,
        Code::CoordinatorLoadInProgress,
    ] {
        cluster.proxy.first(ApiKey::Heartbeat, 1, move |head| {
            head.respond::<HeartbeatRequest>(
                &HeartbeatResponse::default().with_error_code(code.code()),
            )
        });
        remote.heartbeat(member.clone()).await.unwrap();
        cluster.proxy.first(ApiKey::OffsetCommit, 1, move |head| {
            let one = OffsetCommitResponsePartition::default().with_error_code(code.code());
            let topic = OffsetCommitResponseTopic::default().with_partitions(vec![one]);
            let response = OffsetCommitResponse::default().with_topics(vec![topic]);
            head.respond::<OffsetCommitRequest>(&response)
        });
        remote
            .commit_offsets(commit(member.clone(), topic_partition("h", 0), 7))
            .await
            .unwrap();
    }
    assert_eq!(cluster.proxy.count(ApiKey::FindCoordinator), before + 6);
}

#[tokio::test]
async fn a_group_survives_failing_connections() {
    let cluster = cluster().await;
    let remote = cluster.with_hub("h", 1).await;
    // The second join of a new member: the group waits for the member id that it assigned in the first.
    let requests = [
        (ApiKey::FindCoordinator, 1),
        (ApiKey::JoinGroup, 2),
        (ApiKey::SyncGroup, 1),
        (ApiKey::OffsetCommit, 1),
    ];
    for (key, which) in requests {
        let mut seen = 0;
        cluster.proxy.script(move |head| {
            seen += u32::from(head.is(key));
            match head.is(key) && seen == which {
                true => ProxyAction::DropResponse,
                false => ProxyAction::Forward,
            }
        });
        let member = stable(&remote, "readers").await;
        remote
            .commit_offsets(commit(member.clone(), topic_partition("h", 0), 7))
            .await
            .unwrap();
        let (member, instance) = (member.member, None);
        remote
            .leave("readers".into(), vec![MemberIdentity { member, instance }])
            .await
            .unwrap();
    }
    let topic_partitions = Some(vec![topic_partition("h", 0)]);
    let stored = remote
        .fetch_offsets("readers".into(), topic_partitions, true)
        .await
        .unwrap();
    assert_eq!(stored[0].1.as_ref().unwrap().offset, Offset(7));
}
