//! The group coordinator over a log: durability, visibility, pending requests.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use highwater_env::random::Random;
use highwater_log::testing::GatedLog;
use highwater_log::{
    GroupCoordinator, GroupError, GroupState, JoinRequest, JoinResponse, Log, MemberIdentity,
    Membership, Offset, OffsetAndMetadata, OffsetCommit, SyncRequest, TopicPartition,
    TransactionMarker,
};

use super::{HUB, Handle, Options, Service};
use crate::coordinator::testing::{TokioClock, topic_partition};

const SESSION: Duration = Duration::from_secs(10);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn options() -> Options {
    Options {
        initial_delay: Duration::ZERO,
        ..Options::default()
    }
}

/// The groups of a node; dropping it is a crash.
pub(super) struct Node {
    handle: Handle,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl std::ops::Deref for Node {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

pub(super) async fn start(log: &GatedLog) -> Node {
    let clock = TokioClock::new(DAY * 20_000);
    let service = Service::new(Arc::new(log.clone()), clock, Random::seeded(1), options());
    let handle = service.handle();
    let run = async move { service.run(std::future::pending()).await.unwrap() };
    let task = tokio::spawn(run);
    settle().await;
    Node { handle, task }
}

/// A log with a hub to read, and groups over it.
pub(super) async fn fresh() -> (GatedLog, Node) {
    let log = GatedLog::default();
    log.create_hub("toll", 4);
    let node = start(&log).await;
    (log, node)
}

/// Runs every task as far as possible without advancing time.
pub(super) async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

pub(super) fn request(member: &str) -> JoinRequest {
    JoinRequest {
        group: "g".into(),
        member: member.into(),
        instance: None,
        client_id: "c".into(),
        client_host: "h".into(),
        session_timeout: SESSION,
        rebalance_timeout: Duration::from_secs(60),
        protocol_type: "consumer".into(),
        protocols: vec![(
            "range".into(),
            Bytes::from_static(b"\0\x01\0\0\0\x01\0\x04toll"),
        )],
        expects_member_id: false,
    }
}

pub(super) fn anonymous() -> Membership {
    Membership {
        group: "g".into(),
        generation: -1,
        member: String::new(),
        instance: None,
    }
}

fn member(joined: &JoinResponse) -> Membership {
    Membership {
        generation: joined.generation,
        member: joined.member.clone(),
        ..anonymous()
    }
}

fn at(offset: i64) -> OffsetAndMetadata {
    OffsetAndMetadata {
        offset: Offset(offset),
        leader_epoch: -1,
        metadata: String::new(),
    }
}

pub(super) fn commit(member: Membership, partition: u32, offset: i64) -> OffsetCommit {
    let offsets = vec![(topic_partition("toll", partition), at(offset))];
    OffsetCommit { member, offsets }
}

async fn stored_offsets(handle: &Handle) -> Vec<(u32, i64)> {
    let all = handle.fetch_offsets("g".into(), None, false).await.unwrap();
    let flat = |(topic_partition, stored): (TopicPartition, Option<OffsetAndMetadata>)| {
        (topic_partition.partition, stored.unwrap().offset.0)
    };
    all.into_iter().map(flat).collect()
}

pub(super) async fn stable(handle: &Handle) -> Membership {
    stable_for(handle, SESSION).await
}

async fn stable_for(handle: &Handle, session_timeout: Duration) -> Membership {
    let request = JoinRequest {
        session_timeout,
        ..request("")
    };
    let joined = handle.join(request).await.unwrap();
    let request = SyncRequest {
        member: member(&joined),
        protocol_type: Some("consumer".into()),
        protocol: Some("range".into()),
        assignments: vec![(joined.member.clone(), Bytes::from_static(b"all"))],
    };
    let synced = handle.sync(request).await.unwrap();
    assert_eq!(synced.assignment, "all");
    member(&joined)
}

pub(super) async fn state(handle: &Handle) -> Option<GroupState> {
    Some(handle.describe("g".into()).await?.state)
}

#[tokio::test(start_paused = true)]
async fn requests_wait_until_the_hub_has_been_read() {
    let log = GatedLog::default();
    let clock = TokioClock::new(DAY);
    let service = Service::new(Arc::new(log), clock, Random::seeded(1), options());
    let handle = service.handle();
    assert_eq!(
        handle.commit_offsets(commit(anonymous(), 0, 1)).await,
        Err(GroupError::Loading)
    );
    assert_eq!(handle.join(request("")).await, Err(GroupError::Loading));
}

#[tokio::test(start_paused = true)]
async fn offsets_survive_a_restart() {
    // proves L2, C2
    let (log, node) = fresh().await;
    node.commit_offsets(commit(anonymous(), 0, 5))
        .await
        .unwrap();
    node.commit_offsets(commit(anonymous(), 1, 7))
        .await
        .unwrap();
    node.commit_offsets(commit(anonymous(), 0, 6))
        .await
        .unwrap();
    drop(node);
    assert_eq!(stored_offsets(&*start(&log).await).await, [(0, 6), (1, 7)]);
}

#[tokio::test(start_paused = true)]
async fn an_offset_is_shown_and_acknowledged_when_it_is_durable() {
    let (log, node) = fresh().await;
    log.close();
    let waiting = tokio::spawn(node.commit_offsets(commit(anonymous(), 0, 5)));
    settle().await;
    assert!(!waiting.is_finished());
    assert_eq!(stored_offsets(&node).await, []);
    log.open();
    waiting.await.unwrap().unwrap();
    assert_eq!(stored_offsets(&node).await, [(0, 5)]);
}

#[tokio::test(start_paused = true)]
async fn a_commit_counts_even_if_its_client_has_hung_up() {
    let (log, node) = fresh().await;
    log.close();
    let waiting = tokio::spawn(node.commit_offsets(commit(anonymous(), 0, 5)));
    settle().await;
    waiting.abort();
    log.open();
    settle().await;
    assert_eq!(stored_offsets(&node).await, [(0, 5)]);
}

#[tokio::test(start_paused = true)]
async fn a_commit_of_many_places_is_one_append() {
    let (log, node) = fresh().await;
    let before = log.appends();
    let offsets = (0..4).map(|partition| (topic_partition("toll", partition), at(1)));
    let commit = OffsetCommit {
        member: anonymous(),
        offsets: offsets.collect(),
    };
    node.commit_offsets(commit).await.unwrap();
    assert_eq!(log.appends() - before, 1);
    assert_eq!(stored_offsets(&node).await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_failed_store_is_neither_acknowledged_nor_visible() {
    let (log, node) = fresh().await;
    log.set_full(HUB, true);
    let refused = node.commit_offsets(commit(anonymous(), 0, 5)).await;
    assert!(
        matches!(refused, Err(GroupError::Storage(_))),
        "{refused:?}"
    );
    log.set_full(HUB, false);
    assert_eq!(stored_offsets(&node).await, []);
    assert_eq!(state(&node).await, None, "nothing of the group is left");
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_not_there_and_too_much_metadata_are_refused() {
    let (_, node) = fresh().await;
    let unknown = Err(GroupError::UnknownPartition(topic_partition("toll", 9)));
    assert_eq!(
        node.commit_offsets(commit(anonymous(), 9, 1)).await,
        unknown
    );
    let mut large = commit(anonymous(), 0, 1);
    large.offsets[0].1.metadata = "x".repeat(4097);
    let (bytes, max) = (4097, 4096);
    let refused = Err(GroupError::MetadataTooLarge { bytes, max });
    assert_eq!(node.commit_offsets(large).await, refused);
}

#[tokio::test(start_paused = true)]
async fn a_hub_created_again_under_its_name_starts_without_offsets() {
    let (log, node) = fresh().await;
    node.commit_offsets(commit(anonymous(), 0, 5))
        .await
        .unwrap();
    log.delete_hub("toll");
    assert_eq!(stored_offsets(&node).await, []);
    log.create_hub("toll", 4);
    assert_eq!(stored_offsets(&node).await, []);
    let requested = vec![topic_partition("toll", 0)];
    let stored = node
        .fetch_offsets("g".into(), Some(requested), false)
        .await
        .unwrap();
    assert_eq!(stored, [(topic_partition("toll", 0), None)]);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_group_has_no_offsets_and_no_members() {
    let (_, node) = fresh().await;
    let requested = vec![topic_partition("toll", 0)];
    let none = node
        .fetch_offsets("g".into(), Some(requested.clone()), true)
        .await;
    assert_eq!(none.unwrap(), [(topic_partition("toll", 0), None)]);
    let unknown = Err(GroupError::UnknownMember("m".into()));
    assert_eq!(
        node.join(request("m")).await,
        unknown.clone().map(|()| unreachable())
    );
    let who = Membership {
        generation: 1,
        member: "m".into(),
        ..anonymous()
    };
    assert_eq!(node.heartbeat(who.clone()).await, unknown);
    let stale = GroupError::IllegalGeneration {
        requested: 1,
        current: 0,
    };
    assert_eq!(node.commit_offsets(commit(who, 0, 1)).await, Err(stale));
    assert_eq!(node.delete("g".into()).await, Err(GroupError::NotFound));
    assert_eq!(
        node.delete_offsets("g".into(), requested).await,
        Err(GroupError::NotFound)
    );
    assert_eq!(node.list().await, []);
    let nameless = JoinRequest {
        group: String::new(),
        ..request("")
    };
    assert_eq!(node.join(nameless).await, Err(GroupError::InvalidGroup));
}

// proves G2
#[tokio::test(start_paused = true)]
async fn a_group_with_a_very_long_name_is_refused() {
    let (_, node) = fresh().await;
    let who = |bytes: usize| Membership {
        group: "g".repeat(bytes),
        ..anonymous()
    };
    assert!(node.commit_offsets(commit(who(1024), 0, 1)).await.is_ok());
    let refused = node.commit_offsets(commit(who(1025), 0, 1)).await;
    assert_eq!(refused.err(), Some(GroupError::InvalidGroup));
    assert_eq!(node.list().await.len(), 1);
}

fn unreachable() -> JoinResponse {
    unreachable!("no member joined")
}

#[tokio::test(start_paused = true)]
async fn a_group_goes_on_after_a_restart_with_its_members() {
    let (log, node) = fresh().await;
    let who = stable(&node).await;
    drop(node);
    let node = start(&log).await;
    assert_eq!(node.heartbeat(who.clone()).await, Ok(()));
    assert_eq!(node.commit_offsets(commit(who.clone(), 0, 3)).await, Ok(()));
    tokio::time::sleep(SESSION + Duration::from_millis(2)).await;
    assert_eq!(state(&node).await, Some(GroupState::Empty));
    let gone = Err(GroupError::UnknownMember(who.member.clone()));
    assert_eq!(node.commit_offsets(commit(who, 0, 4)).await, gone);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_falls_silent_is_given_up_on_time() {
    let (_, node) = fresh().await;
    let who = stable(&node).await;
    for _ in 0..5 {
        tokio::time::sleep(SESSION / 2).await;
        assert_eq!(node.heartbeat(who.clone()).await, Ok(()));
    }
    tokio::time::sleep(SESSION + Duration::from_millis(2)).await;
    assert_eq!(state(&node).await, Some(GroupState::Empty));
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_that_hangs_up_leaves_nothing_behind() {
    let (_, node) = fresh().await;
    let who = stable(&node).await;
    let waiting = tokio::spawn(node.join(request("")));
    settle().await;
    assert_eq!(state(&node).await, Some(GroupState::PreparingRebalance));
    waiting.abort();
    settle().await;
    let members = node.describe("g".into()).await.unwrap().members;
    assert_eq!(members.len(), 1);
    let entry = node.coordinator().slots.get("g").unwrap();
    assert!(entry.lock().joins.is_empty());
    let again = node.join(request(&who.member)).await.unwrap();
    assert_eq!(again.members.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_member_waits_for_the_others_until_they_leave() {
    let (_, node) = fresh().await;
    let who = stable(&node).await;
    let waiting = tokio::spawn(node.join(request("")));
    settle().await;
    let leaving = vec![MemberIdentity {
        member: who.member,
        instance: None,
    }];
    let left = node.leave("g".into(), leaving).await.unwrap();
    assert_eq!(left, [Ok(())]);
    let joined = waiting.await.unwrap().unwrap();
    assert_eq!(joined.leader, joined.member);
}

#[tokio::test(start_paused = true)]
async fn a_group_without_members_is_deleted_with_its_offsets() {
    let (log, node) = fresh().await;
    let who = stable(&node).await;
    node.commit_offsets(commit(who.clone(), 0, 5))
        .await
        .unwrap();
    assert_eq!(node.delete("g".into()).await, Err(GroupError::NotEmpty));
    tokio::time::sleep(SESSION * 2).await;
    assert_eq!(node.delete("g".into()).await, Ok(()));
    assert_eq!(node.list().await, []);
    drop(node);
    let node = start(&log).await;
    assert_eq!(node.list().await, []);
    assert_eq!(stored_offsets(&node).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_group_being_deleted_can_be_asked_nothing() {
    let (log, node) = fresh().await;
    node.commit_offsets(commit(anonymous(), 0, 5))
        .await
        .unwrap();
    log.close();
    let deleting = tokio::spawn(node.delete("g".into()));
    settle().await;
    let refused = node.commit_offsets(commit(anonymous(), 0, 6)).await;
    assert_eq!(refused, Err(GroupError::Loading));
    log.open();
    deleting.await.unwrap().unwrap();
    assert_eq!(node.commit_offsets(commit(anonymous(), 0, 6)).await, Ok(()));
    assert_eq!(stored_offsets(&node).await, [(0, 6)]);
}

#[tokio::test(start_paused = true)]
async fn a_group_is_deleted_with_offsets_that_are_not_durable_yet() {
    let (log, node) = fresh().await;
    node.commit_offsets(commit(anonymous(), 0, 5))
        .await
        .unwrap();
    log.close();
    let storing = tokio::spawn(node.commit_offsets(commit(anonymous(), 1, 6)));
    settle().await;
    let deleting = tokio::spawn(node.delete("g".into()));
    settle().await;
    log.open();
    storing.await.unwrap().unwrap();
    deleting.await.unwrap().unwrap();
    drop(node);
    assert_eq!(stored_offsets(&*start(&log).await).await, []);
}

#[tokio::test(start_paused = true)]
async fn offsets_are_deleted_unless_a_member_uses_them() {
    let (log, node) = fresh().await;
    log.create_hub("other", 1);
    let who = stable(&node).await;
    let offsets = vec![
        (topic_partition("toll", 0), at(1)),
        (topic_partition("other", 0), at(2)),
    ];
    let both = OffsetCommit {
        member: who,
        offsets,
    };
    node.commit_offsets(both).await.unwrap();
    let used = node
        .delete_offsets("g".into(), vec![topic_partition("toll", 0)])
        .await;
    assert_eq!(used, Err(GroupError::Subscribed));
    node.delete_offsets("g".into(), vec![topic_partition("other", 0)])
        .await
        .unwrap();
    assert_eq!(stored_offsets(&node).await, [(0, 1)]);
    drop(node);
    assert_eq!(stored_offsets(&*start(&log).await).await, [(0, 1)]);
}

#[tokio::test(start_paused = true)]
async fn offsets_of_a_group_that_is_empty_for_long_are_forgotten() {
    let (log, node) = fresh().await;
    let beat = Duration::from_secs(1500);
    let who = stable_for(&node, Duration::from_secs(1800)).await;
    node.commit_offsets(commit(who.clone(), 0, 5))
        .await
        .unwrap();
    for _ in 0..DAY.as_secs() * 8 / beat.as_secs() {
        // A live member keeps its offsets, however old.
        tokio::time::sleep(beat).await;
        node.heartbeat(who.clone()).await.unwrap();
    }
    assert_eq!(stored_offsets(&node).await, [(0, 5)]);
    tokio::time::sleep(DAY * 6).await;
    assert_eq!(stored_offsets(&node).await, [(0, 5)]);
    tokio::time::sleep(DAY * 2).await;
    assert_eq!(node.list().await, []);
    drop(node);
    assert_eq!(start(&log).await.list().await, []);
}

#[tokio::test(start_paused = true)]
async fn offsets_of_a_transaction_count_when_it_commits() {
    for (marker, expected) in [
        (TransactionMarker::Commit, vec![(0, 9)]),
        (TransactionMarker::Abort, vec![(0, 5)]),
    ] {
        for restart in [false, true] {
            let (log, mut node) = fresh().await;
            node.commit_offsets(commit(anonymous(), 0, 5))
                .await
                .unwrap();
            node.commit_pending(77, commit(anonymous(), 0, 8))
                .await
                .unwrap();
            node.commit_pending(77, commit(anonymous(), 0, 9))
                .await
                .unwrap();
            if restart {
                drop(node);
                node = start(&log).await;
            }
            assert_eq!(stored_offsets(&node).await, [(0, 5)]);
            let requested = Some(vec![topic_partition("toll", 0)]);
            let stable = node
                .fetch_offsets("g".into(), requested.clone(), true)
                .await;
            assert_eq!(stable, Err(GroupError::Unstable));
            assert_eq!(node.delete("g".into()).await, Err(GroupError::NotEmpty));
            node.resolve("g", 77, marker).await.unwrap();
            assert_eq!(stored_offsets(&node).await, expected);
            assert!(
                node.fetch_offsets("g".into(), requested, true)
                    .await
                    .is_ok()
            );
            node.resolve("g", 77, marker).await.unwrap();
            drop(node);
            assert_eq!(stored_offsets(&*start(&log).await).await, expected);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_understood_stops_the_start() {
    let log = GatedLog::default();
    drop(start(&log).await);
    let record = highwater_log::batch::NewRecord {
        key: Some(b"\x63\0\0\0\0"),
        value: None,
        headers: &[],
    };
    let partition = log.partition(HUB, 0).unwrap();
    partition.append_records(&[record]).await.unwrap();
    let clock = TokioClock::new(DAY);
    let service = Service::new(Arc::new(log), clock, Random::seeded(1), options());
    let stopped = service.run(std::future::pending()).await.unwrap_err();
    let expected = "`__groups/0` holds a record at 0 that cannot be understood: kind 99 is unknown to this version of Highwater: use the one that wrote it, or a later one";
    assert_eq!(stopped.to_string(), expected);
}

/// All requests about offsets, at random.
async fn disturb(handle: Handle, mut random: Random) {
    for _ in 0..20 {
        let group = format!("g{}", random.below(2));
        let (partition, offset) = (random.below(2) as u32, random.below(1000) as i64);
        let producer = random.below(2) as i64;
        let commit = commit(
            Membership {
                group: group.clone(),
                ..anonymous()
            },
            partition,
            offset,
        );
        // Each may fail because of concurrent requests.
        let _ = match random.below(20) {
            0 => handle.delete(group).await,
            1 => {
                handle
                    .delete_offsets(group, vec![topic_partition("toll", partition)])
                    .await
            }
            2 => handle.commit_pending(producer, commit).await,
            3 => {
                handle
                    .resolve(&group, producer, TransactionMarker::Commit)
                    .await
            }
            4 => {
                handle
                    .resolve(&group, producer, TransactionMarker::Abort)
                    .await
            }
            5 => {
                tokio::task::yield_now().await;
                Ok(())
            }
            _ => handle.commit_offsets(commit).await,
        };
    }
}

async fn all_offsets(handle: &Handle) -> Vec<(String, Vec<highwater_log::CommittedOffset>)> {
    let mut all = Vec::new();
    for info in handle.list().await {
        let stored = handle.fetch_offsets(info.group.clone(), None, false).await;
        all.push((info.group, stored.unwrap()));
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_restart_rebuilds_the_state_in_memory() {
    for seed in 0..60 {
        let log = GatedLog::default();
        log.create_hub("toll", 4);
        let node = start_and_wait(&log).await;
        let mut random = Random::seeded(seed);
        log.delay_answers(move || random.below(8));
        let tasks: Vec<_> = (0..24)
            .map(|task| {
                tokio::spawn(disturb(
                    node.handle.clone(),
                    Random::seeded(seed * 100 + task),
                ))
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let before = all_offsets(&node).await;
        drop(node);
        let after = all_offsets(&*start_and_wait(&log).await).await;
        assert_eq!(before, after, "seed {seed}");
    }
}

async fn start_and_wait(log: &GatedLog) -> Node {
    let node = start(log).await;
    while node.commit_offsets(commit(anonymous(), 99, 0)).await == Err(GroupError::Loading) {
        tokio::task::yield_now().await;
    }
    node
}

#[tokio::test(start_paused = true)]
async fn the_members_of_all_groups_share_a_budget_that_is_given_back() {
    let log = GatedLog::default();
    let options = Options {
        members_bytes_max: 150_000,
        ..options()
    };
    let clock = TokioClock::new(DAY);
    let service = Service::new(Arc::new(log), clock, Random::seeded(1), options);
    let handle = service.handle();
    let task = tokio::spawn(async move { service.run(std::future::pending()).await });
    settle().await;
    let large = |group: &str| JoinRequest {
        group: group.into(),
        protocols: vec![("range".into(), Bytes::from(vec![0; 100_000]))],
        ..request("")
    };
    let member = handle.join(large("one")).await.unwrap().member;
    let refused = handle.join(large("two")).await;
    assert_eq!(
        refused.err(),
        Some(GroupError::OutOfMemory { max: 150_000 })
    );
    let leaving = MemberIdentity {
        member,
        instance: None,
    };
    handle.leave("one".into(), vec![leaving]).await.unwrap();
    handle.join(large("two")).await.unwrap();
    task.abort();
}
