//! The transaction coordinator over a log: visibility, durability, fencing.

use std::collections::BTreeSet;
use std::time::Duration;

use highwater_log::testing::GatedLog;
use highwater_log::{
    AppendError, GroupCoordinator, GroupError, InitProducerRequest, Log, Producer,
    TransactionCoordinator, TransactionError, TransactionMarker, TransactionPhase, TransactionRef,
};

use super::HUB;
use super::state::State;
use super::testing::{Node, TIMEOUT, committed_offsets};
use crate::coordinator::testing::topic_partition;

const START: Duration = Duration::from_secs(20_000 * 24 * 3600);

async fn settle() {
    for _ in 0..30 {
        tokio::task::yield_now().await;
    }
}

async fn start(log: &GatedLog) -> Node {
    let node = Node::start(log, START);
    settle().await;
    node
}

async fn fresh() -> (GatedLog, Node) {
    let log = GatedLog::default();
    log.create_hub("a", 2);
    log.create_hub("b", 1);
    let node = start(&log).await;
    (log, node)
}

/// A transaction that has written 1 to both hubs and an offset of the group.
async fn begun(node: &Node, id: &str) -> TransactionRef {
    let transaction = node.init(id).await.unwrap();
    begin(node, &transaction).await;
    transaction
}

async fn begin(node: &Node, transaction: &TransactionRef) {
    let topic_partitions = vec![topic_partition("a", 0), topic_partition("b", 0)];
    let transactions = &node.transactions;
    transactions
        .add_partitions(transaction.clone(), topic_partitions.clone())
        .await
        .unwrap();
    transactions
        .add_group(transaction.clone(), "g".into())
        .await
        .unwrap();
    for topic_partition in &topic_partitions {
        node.send(transaction, topic_partition, 0, 1).await.unwrap();
    }
    let commit = committed_offsets("g", &topic_partition("a", 0), 1);
    transactions
        .commit_transaction_offsets(transaction.clone(), commit)
        .await
        .unwrap();
}

async fn end(
    node: &Node,
    transaction: &TransactionRef,
    commit: bool,
) -> Result<(), TransactionError> {
    node.transactions.end(transaction.clone(), commit).await
}

/// The visible values of such a transaction, which must be the same everywhere.
async fn seen(node: &Node) -> bool {
    let a = node.committed(&topic_partition("a", 0)).await;
    let b = node.committed(&topic_partition("b", 0)).await;
    let offset = node.committed_offset("g", &topic_partition("a", 0)).await;
    assert_eq!(a, b);
    assert_eq!(a.last().copied(), offset);
    !a.is_empty()
}

fn state(node: &Node) -> State {
    node.transactions.states()[0]
}

#[tokio::test(start_paused = true)]
async fn a_transaction_is_seen_everywhere_when_it_commits_and_nowhere_when_it_aborts() {
    for commit in [true, false] {
        let (_, node) = fresh().await;
        let transaction = begun(&node, "t").await;
        assert!(!seen(&node).await);
        end(&node, &transaction, commit).await.unwrap();
        assert_eq!(seen(&node).await, commit);
        end(&node, &transaction, commit).await.unwrap();
        let other = end(&node, &transaction, !commit).await;
        assert!(matches!(other, Err(TransactionError::InvalidState(_))));
    }
}

#[tokio::test(start_paused = true)]
async fn open_and_ended_transactions_are_listed() {
    let (log, node) = fresh().await;
    let transaction = begun(&node, "t").await;
    let list = async || node.transactions.transactions().await.unwrap();
    let open = list().await;
    assert_eq!(
        (open[0].id.as_str(), open[0].producer),
        ("t", transaction.producer)
    );
    assert_eq!(open[0].phase, TransactionPhase::Ongoing);
    assert!(open[0].started_ms.is_some());
    let expected = [topic_partition("a", 0), topic_partition("b", 0)];
    assert_eq!(open[0].topic_partitions, expected);
    let producers = Log::partition(&log, "a", 0).unwrap().producers().unwrap();
    assert_eq!(producers[0].producer, transaction.producer);
    assert!(producers[0].open.is_some() && producers[0].last_sequence == Some(0));
    end(&node, &transaction, true).await.unwrap();
    let ended = list().await;
    assert_eq!(
        (ended[0].phase, ended[0].started_ms),
        (TransactionPhase::CompleteCommit, None)
    );
}

#[tokio::test(start_paused = true)]
async fn a_producer_id_is_never_given_out_twice() {
    let log = GatedLog::default();
    let mut ids = BTreeSet::new();
    let request = || InitProducerRequest {
        transactional_id: None,
        timeout: TIMEOUT,
        current: None,
    };
    for _ in 0..3 {
        let node = start(&log).await;
        for _ in 0..1500 {
            let producer = node.transactions.init_producer(request()).await.unwrap();
            assert_eq!(producer.epoch, 0);
            assert!(ids.insert(producer.id));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requests_wait_until_the_hub_has_been_read() {
    let log = GatedLog::default();
    let node = Node::start(&log, START);
    assert_eq!(node.init("t").await.err(), Some(TransactionError::Loading));
}

#[tokio::test(start_paused = true)]
async fn invalid_requests_are_refused() {
    let (_, node) = fresh().await;
    assert_eq!(node.init("").await.err(), Some(TransactionError::InvalidId));
    let long = "t".repeat(1025);
    assert_eq!(
        node.init(&long).await.err(),
        Some(TransactionError::InvalidId)
    );
    let request = InitProducerRequest {
        transactional_id: Some("t".into()),
        timeout: Duration::from_secs(3600),
        current: None,
    };
    let refused = node.transactions.init_producer(request).await;
    assert!(matches!(refused, Err(TransactionError::Timeout { .. })));
    let transaction = node.init("t").await.unwrap();
    for unknown in [
        topic_partition("a", 2),
        topic_partition("c", 0),
        topic_partition(HUB, 0),
    ] {
        let add = node
            .transactions
            .add_partitions(transaction.clone(), vec![unknown.clone()]);
        assert_eq!(add.await, Err(TransactionError::UnknownPartition(unknown)));
    }
    let stranger = TransactionRef {
        id: "nobody".into(),
        ..transaction.clone()
    };
    let unknown = TransactionError::UnknownProducer(transaction.producer);
    assert_eq!(end(&node, &stranger, true).await, Err(unknown));
}

#[tokio::test(start_paused = true)]
async fn a_new_holder_of_the_id_fences_the_old_one_and_ends_its_transaction() {
    let (_, node) = fresh().await;
    let old = begun(&node, "t").await;
    assert_eq!(
        node.init("t").await.err(),
        Some(TransactionError::Concurrent)
    );
    settle().await;
    let new = node.init("t").await.unwrap();
    assert_eq!(new.producer.id, old.producer.id);
    let fenced = TransactionError::Fenced(old.producer);
    assert_eq!(end(&node, &old, true).await, Err(fenced.clone()));
    let commit = committed_offsets("g", &topic_partition("a", 0), 2);
    let late = node
        .transactions
        .commit_transaction_offsets(old.clone(), commit)
        .await;
    assert_eq!(late, Err(GroupError::Transaction(fenced)));
    let late = node.send(&old, &topic_partition("a", 0), 1, 2).await;
    assert!(matches!(late, Err(AppendError::Fenced { .. })), "{late:?}");
    assert!(!seen(&node).await);
}

#[tokio::test(start_paused = true)]
async fn a_transaction_open_for_too_long_is_aborted_and_its_producer_fenced() {
    let (_, node) = fresh().await;
    let slow = begun(&node, "t").await;
    tokio::time::sleep(TIMEOUT - Duration::from_secs(1)).await;
    assert_eq!(state(&node), State::Ongoing);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(state(&node), State::Complete(TransactionMarker::Abort));
    assert!(!seen(&node).await);
    let fenced = TransactionError::Fenced(slow.producer);
    assert_eq!(end(&node, &slow, true).await, Err(fenced));
    let back = node.init_as("t", Some(slow.producer)).await.unwrap();
    assert_eq!(back.producer.epoch, slow.producer.epoch + 1);
    begin(&node, &back).await;
    end(&node, &back, true).await.unwrap();
    assert!(seen(&node).await);
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_transaction_runs_on_over_a_restart() {
    let (log, node) = fresh().await;
    begun(&node, "t").await;
    drop(node);
    let node = Node::start(&log, START + TIMEOUT / 2);
    settle().await;
    assert_eq!(state(&node), State::Ongoing);
    tokio::time::sleep(TIMEOUT / 2 + Duration::from_secs(1)).await;
    assert_eq!(state(&node), State::Complete(TransactionMarker::Abort));
}

#[tokio::test(start_paused = true)]
async fn an_open_transaction_goes_on_after_a_restart() {
    let (log, node) = fresh().await;
    let transaction = begun(&node, "t").await;
    drop(node);
    let node = start(&log).await;
    node.send(&transaction, &topic_partition("a", 0), 1, 2)
        .await
        .unwrap();
    node.send(&transaction, &topic_partition("b", 0), 1, 2)
        .await
        .unwrap();
    let commit = committed_offsets("g", &topic_partition("a", 0), 2);
    node.transactions
        .commit_transaction_offsets(transaction.clone(), commit)
        .await
        .unwrap();
    end(&node, &transaction, true).await.unwrap();
    assert!(seen(&node).await);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_arrives_after_the_end_is_rejected() {
    let (log, node) = fresh().await;
    let transaction = begun(&node, "t").await;
    end(&node, &transaction, true).await.unwrap();
    let none = |topic_partition: &highwater_log::TopicPartition| AppendError::NoTransaction {
        producer: transaction.producer,
        topic_partition: topic_partition.clone(),
    };
    for topic_partition in [topic_partition("a", 0), topic_partition("a", 1)] {
        let late = node.send(&transaction, &topic_partition, 1, 2).await;
        assert_eq!(late, Err(none(&topic_partition)));
    }
    let bounds = log.partition("a", 0).unwrap().bounds();
    assert_eq!(bounds.stable, bounds.end, "nothing is left open");
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_for_the_markers_and_the_next_transaction_for_the_end() {
    let (log, node) = fresh().await;
    let transaction = begun(&node, "t").await;
    let other = begun_elsewhere(&node).await;
    log.set_full("b", true);
    let ending = tokio::spawn(node.transactions.end(transaction.clone(), true));
    settle().await;
    assert!(!ending.is_finished());
    assert_eq!(state(&node), State::Preparing(TransactionMarker::Commit));
    let concurrent = Err(TransactionError::Concurrent);
    assert_eq!(end(&node, &transaction, true).await, concurrent);
    let add = node
        .transactions
        .add_partitions(transaction.clone(), vec![topic_partition("a", 1)]);
    assert_eq!(add.await, concurrent);
    assert_eq!(end(&node, &other, true).await, Ok(()), "nobody else waits");
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(ending.await.unwrap(), concurrent, "the wait has a timeout");
    log.set_full("b", false);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(end(&node, &transaction, true).await, Ok(()));
    assert!(seen(&node).await);
}

async fn begun_elsewhere(node: &Node) -> TransactionRef {
    let other = node.init("u").await.unwrap();
    let add = node
        .transactions
        .add_partitions(other.clone(), vec![topic_partition("a", 1)]);
    add.await.unwrap();
    other
}

#[tokio::test(start_paused = true)]
async fn a_decision_is_carried_out_after_a_restart() {
    for commit in [true, false] {
        let (log, node) = fresh().await;
        let transaction = begun(&node, "t").await;
        log.set_full("b", true);
        let ending = tokio::spawn(node.transactions.end(transaction.clone(), commit));
        settle().await;
        assert!(!ending.is_finished());
        drop(node);
        log.set_full("b", false);
        let node = start(&log).await;
        settle().await;
        assert_eq!(seen(&node).await, commit);
        assert_eq!(end(&node, &transaction, commit).await, Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_hub_deleted_meanwhile_is_skipped() {
    let (log, node) = fresh().await;
    let transaction = begun(&node, "t").await;
    log.delete_hub("b");
    end(&node, &transaction, true).await.unwrap();
    assert_eq!(node.committed(&topic_partition("a", 0)).await, [1]);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_cannot_be_stored_changes_nothing() {
    let (log, node) = fresh().await;
    let transaction = begun(&node, "t").await;
    log.set_full(HUB, true);
    let failed = end(&node, &transaction, true).await;
    assert!(matches!(failed, Err(TransactionError::Storage(_))));
    assert_eq!(state(&node), State::Ongoing);
    let failed = node.init("new").await;
    assert!(matches!(failed, Err(TransactionError::Storage(_))));
    assert_eq!(node.transactions.states().len(), 1);
    tokio::time::sleep(TIMEOUT * 2).await;
    assert_eq!(state(&node), State::Ongoing);
    log.set_full(HUB, false);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(
        state(&node),
        State::Complete(TransactionMarker::Abort),
        "it timed out"
    );
}

#[tokio::test(start_paused = true)]
async fn offsets_need_a_group_that_is_part_of_the_transaction() {
    let (_, node) = fresh().await;
    let transaction = begun(&node, "t").await;
    let commit = || committed_offsets("other", &topic_partition("a", 0), 2);
    let refused = node
        .transactions
        .commit_transaction_offsets(transaction.clone(), commit())
        .await;
    assert!(matches!(refused, Err(GroupError::Transaction(_))));
    assert_eq!(node.groups.describe("other".into()).await, None);
}

#[tokio::test(start_paused = true)]
async fn an_unused_id_is_deleted() {
    let (log, node) = fresh().await;
    let transaction = begun(&node, "t").await;
    end(&node, &transaction, true).await.unwrap();
    let day = Duration::from_secs(24 * 3600);
    tokio::time::sleep(day * 6).await;
    assert_eq!(node.transactions.states().len(), 1);
    tokio::time::sleep(day * 2).await;
    assert_eq!(node.transactions.states(), []);
    let unknown = TransactionError::UnknownProducer(transaction.producer);
    assert_eq!(end(&node, &transaction, true).await, Err(unknown));
    drop(node);
    let node = start(&log).await;
    assert_eq!(node.transactions.states(), []);
    let producer: Producer = node.init("t").await.unwrap().producer;
    assert_ne!(producer.id, transaction.producer.id);
}

/// Commits, and returns the transaction that follows.
async fn end_raising(
    node: &Node,
    transaction: &TransactionRef,
    commit: bool,
) -> Result<TransactionRef, TransactionError> {
    let ended = (node.transactions).end_raising_epoch(transaction.clone(), commit);
    let producer = ended.await?;
    let id = transaction.id.clone();
    Ok(TransactionRef { id, producer })
}

// proves L3, K3
#[tokio::test(start_paused = true)]
async fn batches_that_add_their_partitions_keep_their_order() {
    let (log, node) = fresh().await;
    let transaction = node.init("t").await.unwrap();
    let (a, b) = (topic_partition("a", 0), topic_partition("b", 0));
    log.close();
    let sent = [
        node.send_adding(&transaction, &a, 0, 1),
        node.send_adding(&transaction, &b, 0, 2),
        node.send_adding(&transaction, &a, 1, 3),
        node.send_adding(&transaction, &a, 2, 4),
    ];
    settle().await;
    let offset = committed_offsets("g", &a, 4);
    let stored =
        tokio::spawn((node.transactions).commit_offsets_adding(transaction.clone(), offset));
    settle().await;
    let bounds = Log::partition(&log, "a", 0).unwrap().bounds();
    assert_eq!(
        bounds.end.0, 0,
        "nothing is appended before its partition is stored"
    );
    log.open();
    for appended in sent {
        appended.await.unwrap();
    }
    stored.await.unwrap().unwrap();
    let next = end_raising(&node, &transaction, true).await.unwrap();
    assert_eq!(next.producer.epoch, transaction.producer.epoch + 1);
    assert_eq!(node.committed(&a).await, [1, 3, 4]);
    assert_eq!(node.committed(&b).await, [2]);
    assert_eq!(node.committed_offset("g", &a).await, Some(4));
}

// proves K3
#[tokio::test(start_paused = true)]
async fn what_is_late_cannot_touch_the_next_transaction() {
    let (_, node) = fresh().await;
    let a = topic_partition("a", 0);
    let first = node.init("t").await.unwrap();
    node.send_adding(&first, &a, 0, 1).await.unwrap();
    let second = end_raising(&node, &first, true).await.unwrap();
    let again = end_raising(&node, &first, true).await;
    assert_eq!(again, Ok(second.clone()), "the answer was lost");
    node.send_adding(&second, &a, 0, 2).await.unwrap();
    let late = node.send_adding(&first, &a, 1, 9).await;
    assert!(matches!(late, Err(AppendError::Fenced { .. })), "{late:?}");
    for commit in [true, false] {
        let late = end_raising(&node, &first, commit).await;
        assert_eq!(late, Err(TransactionError::Fenced(first.producer)));
    }
    let third = end_raising(&node, &second, false).await.unwrap();
    assert_eq!(node.committed(&a).await, [1]);
    let nothing = end_raising(&node, &third, true).await;
    assert!(matches!(nothing, Err(TransactionError::InvalidState(_))));
    let fourth = end_raising(&node, &third, false).await.unwrap();
    assert_eq!(fourth.producer.epoch, third.producer.epoch + 1);
}

#[tokio::test(start_paused = true)]
async fn batches_wait_for_no_transaction_that_cannot_be_stored() {
    let (log, node) = fresh().await;
    let transaction = node.init("t").await.unwrap();
    log.set_full(HUB, true);
    let refused = node
        .send_adding(&transaction, &topic_partition("a", 0), 0, 1)
        .await;
    assert!(
        matches!(refused, Err(AppendError::Busy { .. })),
        "{refused:?}"
    );
    log.set_full(HUB, false);
    let sent = node
        .send_adding(&transaction, &topic_partition("a", 0), 0, 1)
        .await;
    assert!(sent.is_ok(), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn both_versions_of_the_protocol_can_follow_one_another() {
    let (_, node) = fresh().await;
    let a = topic_partition("a", 0);
    let first = begun(&node, "t").await;
    end(&node, &first, true).await.unwrap();
    node.send_adding(&first, &a, 1, 2).await.unwrap();
    let second = end_raising(&node, &first, true).await.unwrap();
    begin(&node, &second).await;
    end(&node, &second, true).await.unwrap();
    assert_eq!(node.committed(&a).await, [1, 2, 1]);
}
