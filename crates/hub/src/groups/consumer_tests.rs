//! The coordinator with groups of the consumer protocol: durability, protocols that change, patterns.

use std::time::Duration;

use highwater_log::testing::GatedLog;
use highwater_log::{
    ConsumerHeartbeat, ConsumerHeartbeatResponse, GroupCoordinator, GroupError, GroupState,
    HubView, Log, Membership,
};

use super::tests::{anonymous, commit, fresh, request, settle, stable, start, state};
use super::{HUB, Handle};
use crate::coordinator::testing::topic_partition;

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
        visible: HubView::new(|hub| match hub {
            "secret" => None,
            "__own" => Some("__known"),
            _ => Some(hub),
        }),
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

fn who(member: &str, generation: i32) -> Membership {
    Membership {
        member: member.into(),
        generation,
        ..anonymous()
    }
}

/// Epoch and number of assigned partitions.
fn epoch_and_count(response: &ConsumerHeartbeatResponse) -> (i32, Option<usize>) {
    let count = |hubs: &Vec<(_, Vec<u32>)>| hubs.iter().map(|(_, all)| all.len()).sum();
    (response.epoch, response.assignment.as_ref().map(count))
}

async fn send(
    handle: &Handle,
    request: ConsumerHeartbeat,
) -> Result<(i32, Option<usize>), GroupError> {
    let response = handle.consumer_heartbeat(request).await?;
    Ok(epoch_and_count(&response))
}

#[tokio::test(start_paused = true)]
async fn a_member_joins_commits_and_goes_on_after_a_restart() {
    // proves K1, L6
    let (log, node) = fresh().await;
    let joined = node.consumer_heartbeat(join("")).await.unwrap();
    assert_eq!(epoch_and_count(&joined), (1, Some(4)));
    assert!(joined.member.starts_with("c-"), "{joined:?}");
    let member = &*joined.member;
    assert_eq!(
        node.commit_offsets(commit(who(member, 1), 0, 5)).await,
        Ok(())
    );
    drop(node);
    let node = start(&log).await;
    assert_eq!(state(&node).await, Some(GroupState::Stable));
    assert_eq!(
        send(&node, beat(member, 1)).await,
        Ok((1, None)),
        "nothing has changed"
    );
    let stale = GroupError::StaleEpoch {
        received: 0,
        current: 1,
    };
    let refused = node.commit_offsets(commit(who(member, 0), 0, 6)).await;
    assert_eq!(refused, Err(stale.clone()));
    let check = |epoch| node.check_member_epoch("g".into(), member.to_owned(), epoch);
    assert_eq!(check(1).await, Ok(()));
    assert_eq!(check(0).await, Err(stale));
    let uses = node
        .delete_offsets("g".into(), vec![topic_partition("toll", 0)])
        .await;
    assert_eq!(uses, Err(GroupError::Subscribed));
}

#[tokio::test(start_paused = true)]
async fn no_response_shows_what_is_not_stored() {
    // proves L6
    let (log, node) = fresh().await;
    send(&node, join("a")).await.unwrap();
    log.close();
    let joining = tokio::spawn(node.consumer_heartbeat(join("b")));
    settle().await;
    // The heartbeat of another member shows the new target, so it waits as well.
    let other = tokio::spawn(node.consumer_heartbeat(beat("a", 1)));
    settle().await;
    assert!(!joining.is_finished() && !other.is_finished());
    log.open();
    assert_eq!(
        epoch_and_count(&joining.await.unwrap().unwrap()),
        (2, Some(0))
    );
    assert_eq!(
        epoch_and_count(&other.await.unwrap().unwrap()),
        (1, Some(2))
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_not_stored_is_stored_by_the_next_heartbeat() {
    let (log, node) = fresh().await;
    log.set_full(HUB, true);
    let refused = send(&node, join("a")).await;
    assert!(
        matches!(refused, Err(GroupError::Storage(_))),
        "{refused:?}"
    );
    log.set_full(HUB, false);
    // It never got its epoch, so it joins again.
    assert_eq!(send(&node, join("a")).await, Ok((1, Some(4))));
    drop(node);
    let node = start(&log).await;
    assert_eq!(send(&node, beat("a", 1)).await, Ok((1, None)));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_crashes_before_the_store_has_shown_nothing() {
    let (log, node) = fresh().await;
    send(&node, join("a")).await.unwrap();
    log.close();
    let joining = tokio::spawn(node.consumer_heartbeat(join("b")));
    settle().await;
    drop(node);
    joining.abort();
    log.lose();
    log.open();
    let node = start(&log).await;
    assert_eq!(send(&node, beat("a", 1)).await, Ok((1, None)));
    let unknown = Err(GroupError::UnknownMember("b".into()));
    assert_eq!(send(&node, beat("b", 2)).await, unknown);
}

#[tokio::test(start_paused = true)]
async fn sessions_end_also_after_a_restart() {
    let (log, node) = fresh().await;
    send(&node, join("a")).await.unwrap();
    drop(node);
    let node = start(&log).await;
    tokio::time::sleep(Duration::from_millis(45_002)).await;
    assert_eq!(state(&node).await, Some(GroupState::Empty));
    drop(node);
    let node = start(&log).await;
    assert_eq!(state(&node).await, Some(GroupState::Empty));
    assert_eq!(
        send(&node, join("b")).await,
        Ok((3, Some(4))),
        "the epoch has not fallen"
    );
}

#[tokio::test(start_paused = true)]
async fn a_group_without_members_changes_its_protocol_and_one_with_members_does_not() {
    // proves K1
    let (log, node) = fresh().await;
    let classic = stable(&node).await;
    let mixed = Err(GroupError::NotConsumerGroup);
    assert_eq!(send(&node, join("a")).await, mixed);
    let leaving = highwater_log::MemberIdentity {
        member: classic.member.clone(),
        instance: None,
    };
    node.leave("g".into(), vec![leaving]).await.unwrap()[0]
        .clone()
        .unwrap();
    settle().await;
    let (epoch, count) = send(&node, join("a")).await.unwrap();
    assert!(epoch > classic.generation && count == Some(4));
    let mixed = Err(GroupError::InconsistentProtocol);
    assert_eq!(node.join(request("")).await, mixed);
    let unknown = Err(GroupError::UnknownMember(classic.member.clone()));
    assert_eq!(node.heartbeat(classic).await, unknown);
    assert_eq!(node.delete("g".into()).await, Err(GroupError::NotEmpty));
    assert_eq!(send(&node, beat("a", -1)).await, Ok((-1, None)));
    let again = stable(&node).await;
    assert!(again.generation > epoch);
    drop(node);
    let node = start(&log).await;
    assert_eq!(
        node.heartbeat(again).await,
        Ok(()),
        "the last protocol is that of the group"
    );
}

#[tokio::test(start_paused = true)]
async fn a_deleted_group_stays_deleted() {
    let (log, node) = fresh().await;
    send(&node, join("a")).await.unwrap();
    send(&node, beat("a", -1)).await.unwrap();
    assert_eq!(node.delete("g".into()).await, Ok(()));
    drop(node);
    let node = start(&log).await;
    assert_eq!(state(&node).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_pattern_matches_hubs_that_are_created_later_and_that_the_member_may_see() {
    // proves K1
    let (log, node) = fresh().await;
    log.create_hub("secret", 7);
    let pattern = |pattern: &str| ConsumerHeartbeat {
        names: None,
        pattern: Some(pattern.into()),
        ..join("a")
    };
    let invalid = send(&node, pattern("(")).await;
    assert!(
        matches!(invalid, Err(GroupError::InvalidPattern(_))),
        "{invalid:?}"
    );
    assert_eq!(
        send(&node, pattern("toll.*|secret|.*groups")).await,
        Ok((1, Some(4)))
    );
    log.create_hub("toll-2", 3);
    assert_eq!(
        send(&node, beat("a", 1)).await,
        Ok((1, None)),
        "it is evaluated now and then"
    );
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(send(&node, beat("a", 1)).await, Ok((2, Some(7))));
    log.delete_hub("toll-2");
    tokio::time::sleep(Duration::from_secs(10)).await;
    let (epoch, count) = send(&node, beat("a", 2)).await.unwrap();
    assert_eq!(
        (epoch, count),
        (2, Some(4)),
        "it is to give up the partitions of the hub"
    );
    let toll = Log::hub(&log, "toll").unwrap();
    let owned = ConsumerHeartbeat {
        owned: Some(vec![(toll.id, vec![0, 1, 2, 3])]),
        ..beat("a", 2)
    };
    assert_eq!(send(&node, owned).await, Ok((3, None)));
}

// proves K1
#[tokio::test(start_paused = true)]
async fn an_internal_hub_matches_a_pattern_that_names_it_as_the_member_knows_it() {
    let (log, node) = fresh().await;
    log.create_hub("__own", 2);
    let matched = async |pattern: &str| {
        let joins = ConsumerHeartbeat {
            names: None,
            pattern: Some(pattern.into()),
            ..join("a")
        };
        send(&node, joins).await.map(|(_, count)| count)
    };
    assert_eq!(matched(".*own").await, Ok(Some(0)));
    assert_eq!(matched("__own").await, Ok(Some(0)), "its other name");
    assert_eq!(matched("__known|none").await, Ok(Some(2)));
    assert_eq!(matched(".*").await, Ok(Some(4)), "toll alone");
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_grows_is_noticed() {
    let (log, node) = fresh().await;
    send(&node, join("a")).await.unwrap();
    let name = highwater_log::HubName::new("toll").unwrap();
    Log::grow(&log, &name, 6).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(send(&node, beat("a", 1)).await, Ok((2, Some(6))));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_assignor_and_an_unknown_group_are_refused() {
    let (_, node): (GatedLog, _) = fresh().await;
    let unsupported = ConsumerHeartbeat {
        assignor: Some("sticky".into()),
        ..join("a")
    };
    let refused = Err(GroupError::UnsupportedAssignor("sticky".into()));
    assert_eq!(send(&node, unsupported).await, refused);
    assert_eq!(
        send(&node, beat("a", 1)).await,
        Err(GroupError::UnknownMember("a".into()))
    );
    assert_eq!(node.list().await, [], "nothing of the group is left");
}
