//! Consumers of a group are exchanged for others of the other protocol, one by one.

use bytes::Bytes;
use highwater_log::{
    ConsumerHeartbeat, ConsumerHeartbeatResponse, GroupCoordinator, GroupError, HubPartitions,
    HubView, JoinRequest, JoinResponse, MemberIdentity, Membership, SyncRequest,
};
use std::collections::BTreeSet;
use std::time::Duration;

use super::Handle;
use super::subscription::{put_assignment, read_assignment};
use super::tests::{anonymous, commit, fresh, request, settle, start};

/// A subscription to `toll` of a consumer that has nothing.
const SUBSCRIPTION: &[u8] = b"\0\x01\0\0\0\x01\0\x04toll\xff\xff\xff\xff\0\0\0\0";

fn classic(member: &str) -> JoinRequest {
    JoinRequest {
        protocols: vec![("range".into(), Bytes::from_static(SUBSCRIPTION))],
        ..request(member)
    }
}

/// A cooperative consumer that has these partitions.
fn cooperative(member: &str, owned: &[u32]) -> JoinRequest {
    let mut metadata = SUBSCRIPTION[..SUBSCRIPTION.len() - 4].to_vec();
    metadata.extend(b"\0\0\0\x01\0\x04toll");
    metadata.extend((owned.len() as u32).to_be_bytes());
    (owned.iter()).for_each(|partition| metadata.extend(partition.to_be_bytes()));
    JoinRequest {
        protocols: vec![("cooperative-sticky".into(), metadata.into())],
        ..request(member)
    }
}

fn who(joined: &JoinResponse) -> Membership {
    Membership {
        generation: joined.generation,
        member: joined.member.clone(),
        ..anonymous()
    }
}

fn beat(member: &str, epoch: i32) -> ConsumerHeartbeat {
    ConsumerHeartbeat {
        group: "g".into(),
        member: member.into(),
        epoch,
        instance: None,
        rack: None,
        rebalance_timeout: None,
        names: None,
        pattern: None,
        assignor: None,
        owned: None,
        client_id: "c".into(),
        client_host: "h".into(),
        visible: HubView::new(|hub| Some(hub)),
    }
}

fn join(member: &str) -> ConsumerHeartbeat {
    ConsumerHeartbeat {
        rebalance_timeout: Some(Duration::from_secs(60)),
        names: Some(vec!["toll".into()]),
        owned: Some(Vec::new()),
        ..beat(member, 0)
    }
}

fn numbers(assignment: &Option<HubPartitions>) -> BTreeSet<u32> {
    let all = assignment.iter().flatten();
    all.flat_map(|(_, numbers)| numbers.clone()).collect()
}

/// The partitions that a classic member gets, which does not lead.
async fn sync(node: &Handle, joined: &JoinResponse) -> Result<BTreeSet<u32>, GroupError> {
    sync_as(node, joined, Vec::new()).await
}

async fn sync_as(
    node: &Handle,
    joined: &JoinResponse,
    assignments: Vec<(String, Bytes)>,
) -> Result<BTreeSet<u32>, GroupError> {
    let request = SyncRequest {
        member: who(joined),
        protocol_type: Some("consumer".into()),
        protocol: Some(joined.protocol.clone()),
        assignments,
    };
    let assignment = node.sync(request).await?.assignment;
    let named = read_assignment(&assignment).unwrap();
    Ok(named.into_iter().flat_map(|(_, numbers)| numbers).collect())
}

/// A classic group of one member, which has all four partitions.
async fn classic_group(node: &Handle) -> JoinResponse {
    let joined = node.join(classic("")).await.unwrap();
    let all = put_assignment(1, &vec![("toll".into(), vec![0, 1, 2, 3])]);
    let assigned = sync_as(node, &joined, vec![(joined.member.clone(), all)]).await;
    assert_eq!(assigned, Ok([0, 1, 2, 3].into()));
    settle().await;
    joined
}

async fn is_consumer_group(node: &Handle) -> bool {
    node.describe("g".into()).await.unwrap().consumer.is_some()
}

async fn send(node: &Handle, request: ConsumerHeartbeat) -> ConsumerHeartbeatResponse {
    node.consumer_heartbeat(request).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_group_takes_the_new_protocol_while_it_runs_and_the_old_one_again() {
    // proves K1
    let (log, node) = fresh().await;
    let old = classic_group(&node).await;
    node.commit_offsets(commit(who(&old), 0, 5)).await.unwrap();

    // A consumer of the new protocol joins: it waits for partitions that the old one still has.
    let joined = send(&node, join("a")).await;
    assert_eq!(numbers(&joined.assignment), BTreeSet::new());
    assert!(joined.epoch > old.generation);
    assert!(is_consumer_group(&node).await);
    let same_generation = node.commit_offsets(commit(who(&old), 0, 6)).await;
    assert_eq!(same_generation, Ok(()), "it works on until it joins again");

    // All of it is on disk.
    drop(node);
    let node = start(&log).await;
    assert!(is_consumer_group(&node).await);
    assert_eq!(
        node.heartbeat(who(&old)).await,
        Err(GroupError::Rebalancing)
    );
    let again = node.join(classic(&old.member)).await.unwrap();
    assert_eq!(
        (&again.member, again.generation),
        (&old.member, joined.epoch)
    );
    assert_ne!(again.leader, again.member, "nobody leads");
    let kept = sync(&node, &again).await.unwrap();
    assert_eq!(kept.len(), 2);
    assert_eq!(node.heartbeat(who(&again)).await, Ok(()));
    let got = send(&node, beat("a", joined.epoch)).await;
    let got = numbers(&got.assignment);
    assert_eq!(got.len(), 2);
    assert!(got.is_disjoint(&kept));
    let stale = node.commit_offsets(commit(who(&old), 0, 7)).await;
    assert!(
        matches!(stale, Err(GroupError::IllegalGeneration { .. })),
        "{stale:?}"
    );

    // The new one leaves: the group is a classic one again, and rebalances.
    send(&node, beat("a", -1)).await;
    settle().await;
    assert!(!is_consumer_group(&node).await);
    assert_eq!(
        node.heartbeat(who(&again)).await,
        Err(GroupError::Rebalancing)
    );
    let third = node.join(classic(&old.member)).await.unwrap();
    assert_eq!(third.leader, third.member);
    assert!(third.generation > again.generation);
    let all = put_assignment(1, &vec![("toll".into(), vec![0, 1, 2, 3])]);
    let assigned = sync_as(&node, &third, vec![(third.member.clone(), all)]).await;
    assert_eq!(assigned.map(|all| all.len()), Ok(4));
    drop(node);
    let node = start(&log).await;
    assert_eq!(node.heartbeat(who(&third)).await, Ok(()));

    // No member of the first change comes back with the second one.
    send(&node, join("b")).await;
    drop(node);
    let node = start(&log).await;
    let members = node.describe("g".into()).await.unwrap().members;
    let members: BTreeSet<String> = members.into_iter().map(|member| member.member).collect();
    assert_eq!(members, [third.member, "b".to_owned()].into());
}

#[tokio::test(start_paused = true)]
async fn a_cooperative_consumer_joins_a_group_of_the_new_protocol() {
    // proves K1
    let (_log, node) = fresh().await;
    let first = send(&node, join("a")).await;
    assert_eq!(numbers(&first.assignment).len(), 4);
    let joined = node.join(cooperative("", &[])).await.unwrap();
    assert_eq!(sync(&node, &joined).await, Ok(BTreeSet::new()));
    assert_eq!(
        node.heartbeat(who(&joined)).await,
        Ok(()),
        "nothing is free yet"
    );

    let revoking = send(&node, beat("a", first.epoch)).await;
    let kept = numbers(&revoking.assignment);
    assert_eq!(kept.len(), 2);
    let released = ConsumerHeartbeat {
        owned: revoking.assignment.clone(),
        ..beat("a", revoking.epoch)
    };
    send(&node, released).await;
    assert_eq!(
        node.heartbeat(who(&joined)).await,
        Err(GroupError::Rebalancing)
    );
    let joined = node.join(cooperative(&joined.member, &[])).await.unwrap();
    let got = sync(&node, &joined).await.unwrap();
    assert_eq!(got.len(), 2);
    assert!(got.is_disjoint(&kept));

    // Another one joins: it revokes one of its partitions by joining without it.
    let owned: Vec<u32> = got.iter().copied().collect();
    let third = send(&node, join("b")).await;
    assert_eq!(
        node.heartbeat(who(&joined)).await,
        Err(GroupError::Rebalancing)
    );
    let joined = node
        .join(cooperative(&joined.member, &owned))
        .await
        .unwrap();
    let fewer = sync(&node, &joined).await.unwrap();
    let lost = owned.len() - fewer.len();
    let owned: Vec<u32> = fewer.into_iter().collect();
    let joined = node
        .join(cooperative(&joined.member, &owned))
        .await
        .unwrap();
    assert_eq!(sync(&node, &joined).await.unwrap().len(), owned.len());
    let released = send(&node, beat("b", third.epoch)).await;
    assert_eq!(numbers(&released.assignment).len(), lost);
}

#[tokio::test(start_paused = true)]
async fn members_without_a_common_protocol_are_refused() {
    // proves K1
    let (_log, node) = fresh().await;
    send(&node, join("a")).await;
    let other_type = JoinRequest {
        protocol_type: "connect".into(),
        ..classic("")
    };
    let inconsistent = Err(GroupError::InconsistentProtocol);
    assert_eq!(node.join(other_type).await, inconsistent);
    assert_eq!(node.join(request("")).await, inconsistent, "unreadable");
    let id_first = JoinRequest {
        expects_member_id: true,
        ..classic("")
    };
    let Err(GroupError::MemberIdRequired { member }) = node.join(id_first).await else {
        panic!("it needs an id");
    };
    let joined = node.join(classic(&member)).await.unwrap();
    assert_eq!(joined.member, member);
    let none_in_common = node.join(cooperative("", &[])).await;
    assert_eq!(none_in_common, inconsistent);
    let leaving = |member: &str| MemberIdentity {
        member: member.into(),
        instance: None,
    };
    let leaving = vec![leaving(&member), leaving("nobody")];
    let left = node.leave("g".into(), leaving).await.unwrap();
    let unknown = GroupError::UnknownMember("nobody".into());
    assert_eq!(left, [Ok(()), Err(unknown)]);
    let gone = node.heartbeat(who(&joined)).await;
    assert_eq!(gone, Err(GroupError::UnknownMember(member)));
}

#[tokio::test(start_paused = true)]
async fn a_classic_member_that_does_not_join_again_loses_its_partitions() {
    // proves K1
    let (_log, node) = fresh().await;
    let old = classic_group(&node).await;
    let joined = send(&node, join("a")).await;
    assert_eq!(
        node.heartbeat(who(&old)).await,
        Err(GroupError::Rebalancing)
    );
    // It is alive, and does nothing: its rebalance timeout ends.
    let mut epoch = joined.epoch;
    for _ in 0..7 {
        tokio::time::sleep(Duration::from_secs(9)).await;
        let _ = node.heartbeat(who(&old)).await;
        epoch = send(&node, beat("a", epoch)).await.epoch;
    }
    let unknown = Err(GroupError::UnknownMember(old.member.clone()));
    assert_eq!(node.heartbeat(who(&old)).await, unknown);
    let full = ConsumerHeartbeat { epoch, ..join("a") };
    let all = send(&node, full).await;
    assert_eq!(numbers(&all.assignment).len(), 4);
}
