//! The client against another broker. `tests/clients/remote` runs it against Apache Kafka:
//!
//! ```text
//! HIGHWATER_KAFKA=127.0.0.1:19092 cargo test -p highwater-kafka --test remote -- --ignored real::
//! ```
// proves L6 X1

use std::sync::Arc;
use std::time::Duration;

use highwater_env::random::Random;
use highwater_kafka::client::{Options, Remote};
use highwater_log::batch::NewRecord;
use highwater_log::{
    AdminError, AppendError, Bounds, CleanupPolicy, EnqueueTime, GroupCoordinator, GroupState,
    HubSettings, HubSpec, Isolation, Log, MemberIdentity, Membership, Offset, Partition, Producer,
    ReadError, TransactionCoordinator,
};

use crate::cluster::*;
use crate::{claims, groups, transactions};

async fn remote() -> Remote {
    let server = std::env::var("HIGHWATER_KAFKA").expect("HIGHWATER_KAFKA names a broker");
    connect(Options::new([server])).await.unwrap()
}

/// A name that no earlier run has used.
fn fresh(what: &str) -> String {
    format!("{what}-{:016x}", Random::from_os().next_u64())
}

async fn hub(remote: &Remote, partitions: u32) -> Arc<dyn Partition> {
    let name = fresh("hub");
    remote.create(spec(&name, partitions)).await.unwrap();
    remote.partition(&name, 0).unwrap()
}

async fn values(partition: &Arc<dyn Partition>, from: i64) -> Vec<String> {
    let read = partition.read(Offset(from), 1 << 20, Isolation::Committed);
    let found = contents(&read.await.unwrap()).into_iter();
    found.map(|(.., value)| value).collect()
}

#[tokio::test]
#[ignore = "needs a broker"]
async fn hubs_are_created_changed_grown_and_deleted() {
    let remote = remote().await;
    let (name_of, partitions) = (name(&fresh("hub")), 2);
    let settings = HubSettings {
        cleanup: CleanupPolicy::Compact,
        retention: Some(Duration::from_secs(3_600)),
        retention_bytes: Some(1 << 20),
        batch_bytes_max: 5_000,
        ..HubSettings::default()
    };
    let wanted = HubSpec {
        name: name_of.clone(),
        partitions,
        settings: settings.clone(),
    };
    let made = remote.create(wanted.clone()).await.unwrap();
    assert_eq!((made.partitions, &made.settings), (2, &settings));
    let again = remote.create(wanted).await;
    assert_eq!(again, Err(AdminError::Exists(name_of.clone())));
    assert_eq!(remote.grow(&name_of, 3).await.unwrap().partitions, 3);
    let changed = HubSettings {
        cleanup: CleanupPolicy::Delete,
        retention: None,
        ..settings
    };
    let updated = remote.change(&name_of, changed.clone()).await.unwrap();
    assert_eq!(updated.settings, changed);
    let partition = remote.partition(name_of.as_str(), 2).unwrap();
    let long = "x".repeat(6_000);
    let refused = partition
        .append(batch(&[&long], None, false))
        .await
        .unwrap_err();
    assert!(matches!(refused, AppendError::TooLarge { .. }), "{refused}");
    assert_eq!(append(&partition, &["fits"]).await, 0);

    Log::delete(&remote, &name_of).await.unwrap();
    assert!(remote.hub(name_of.as_str()).is_none());
    let deleted = partition.append_records(&[value("x")]).await.unwrap_err();
    assert!(matches!(deleted, AppendError::Deleted(_)), "{deleted}");
    let deleted = partition.read(Offset(0), 1, Isolation::Committed).await;
    assert!(matches!(deleted, Err(ReadError::Deleted(_))), "{deleted:?}");
}

#[tokio::test]
#[ignore = "needs a broker"]
async fn records_are_read_as_written() {
    let remote = remote().await;
    let partition = hub(&remote, 1).await;
    let waiting = tokio::spawn(partition.wait_past(Offset(0), Isolation::Committed));
    let headers = [("kind", Some(&b"toll"[..])), ("empty", None)];
    let record = NewRecord {
        key: Some(b"key"),
        value: Some(b"value"),
        headers: &headers,
    };
    let appended = partition.append_records(&[record]).await.unwrap();
    assert!(
        appended.time > EnqueueTime(1_500_000_000_000),
        "{appended:?}"
    );
    waiting.await.unwrap();
    let fetched = partition
        .read(Offset(0), 1 << 20, Isolation::Committed)
        .await
        .unwrap();
    assert_eq!(contents(&fetched), [(0, appended.time.0, "value".into())]);

    let producer = remote.init_producer(highwater_log::InitProducerRequest {
        transactional_id: None,
        timeout: Duration::from_secs(60),
        current: None,
    });
    let producer: Producer = producer.await.unwrap();
    for sequence in [0, 0, 1] {
        let numbered = batch(&[&sequence.to_string()], Some((producer, sequence)), false);
        let appended = partition.append(numbered).await.unwrap();
        assert_eq!(appended.offset, Offset(1 + i64::from(sequence)));
    }
    let gap = batch(&["9"], Some((producer, 9)), false);
    let refused = partition.append(gap).await.unwrap_err();
    assert!(
        matches!(refused, AppendError::OutOfSequence { .. }),
        "{refused}"
    );

    let mut pending = Vec::new();
    for n in 0..500 {
        pending.push(partition.append(batch(&[&n.to_string()], None, false)));
    }
    for (n, appended) in pending.into_iter().enumerate() {
        assert_eq!(appended.await.unwrap().offset, Offset(3 + n as i64));
    }
    let found = partition
        .offset_for_time(appended.time)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found, (Offset(0), appended.time));
    assert_eq!(
        partition
            .offset_for_time(EnqueueTime(i64::MAX / 2))
            .await
            .unwrap(),
        None
    );
    assert_eq!(partition.trim(Offset(500)).await, Ok(Offset(500)));
    let bounds = partition.fetch_bounds().await.unwrap();
    let (start, end) = (Offset(500), Offset(503));
    assert_eq!((bounds.start, bounds.stable, bounds.end), (start, end, end));
    assert_eq!(values(&partition, 500).await, ["497", "498", "499"]);
    let outside = partition.read(Offset(499), 1, Isolation::Committed).await;
    let range = |bounds: Bounds| (bounds.start, bounds.end);
    assert_eq!(range(partition.bounds()), (start, end));
    assert!(matches!(
        outside,
        Err(ReadError::OutOfRange {
            start: Offset(500),
            ..
        })
    ));
}

#[tokio::test]
#[ignore = "needs a broker"]
async fn transactions_commit_and_abort() {
    let remote = remote().await;
    let partition = hub(&remote, 1).await;
    let transaction = transactions::begin(&remote, &fresh("transaction")).await;
    transactions::write(&remote, &transaction, &partition, "kept", 0).await;
    assert!(transactions::seen(&partition).await.is_empty());
    remote.end(transaction.clone(), true).await.unwrap();
    partition.wait_past(Offset(1), Isolation::Committed).await;
    transactions::write(&remote, &transaction, &partition, "dropped", 1).await;
    remote.end(transaction.clone(), false).await.unwrap();
    append(&partition, &["after"]).await;
    partition.wait_past(Offset(4), Isolation::Committed).await;
    assert_eq!(transactions::seen(&partition).await, ["kept", "after"]);

    let new = transactions::begin(&remote, &transaction.id).await;
    assert!(new.producer.epoch > transaction.producer.epoch);
    let fenced = remote.end(transaction.clone(), true).await.unwrap_err();
    let expected = highwater_log::TransactionError::Fenced(transaction.producer);
    assert_eq!(fenced, expected);
    let group = fresh("readers");
    transactions::offsets_count_when_it_commits(&remote, &new, &group, partition.topic_partition())
        .await;
}

#[tokio::test]
#[ignore = "needs a broker"]
async fn groups_share_partitions_and_commit_offsets() {
    let remote = remote().await;
    let partition = hub(&remote, 2).await;
    let (group, topic_partition) = (fresh("readers"), partition.topic_partition().clone());
    let member = groups::stable(&remote, &group).await;
    remote.heartbeat(member.clone()).await.unwrap();
    remote
        .commit_offsets(groups::commit(member.clone(), topic_partition.clone(), 42))
        .await
        .unwrap();
    let stored = remote
        .fetch_offsets(group.clone(), None, true)
        .await
        .unwrap();
    assert_eq!(stored.len(), 1);
    assert_eq!(stored[0].1.as_ref().unwrap().offset, Offset(42));
    let client = Membership {
        member: "nobody".into(),
        ..member.clone()
    };
    let refused = remote.heartbeat(client).await.unwrap_err();
    assert_eq!(
        refused,
        highwater_log::GroupError::UnknownMember("nobody".into())
    );
    let described = remote.describe(group.clone()).await.unwrap();
    assert_eq!(
        (described.state, described.members.len()),
        (GroupState::Stable, 1)
    );
    assert!(
        remote
            .list()
            .await
            .iter()
            .any(|listed| listed.group == group)
    );
    let (member, instance) = (member.member, None);
    remote
        .leave(group.clone(), vec![MemberIdentity { member, instance }])
        .await
        .unwrap();
    remote
        .delete_offsets(group.clone(), vec![topic_partition])
        .await
        .unwrap();
    assert_eq!(
        remote.fetch_offsets(group.clone(), None, true).await,
        Ok(Vec::new())
    );
    let _ = GroupCoordinator::delete(&remote, group.clone()).await;
    assert_eq!(remote.describe(group).await, None);
}

#[tokio::test]
#[ignore = "needs a broker"]
async fn a_new_owner_fences_the_old_one() {
    let (first, second) = (remote().await, remote().await);
    let name = fresh("journal");
    first.create(spec(&name, 1)).await.unwrap();
    second.refresh().await.unwrap();
    claims::check_owners(&first, &second, &name).await;
}
