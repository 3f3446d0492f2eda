//! Transactions over the wire.
// proves S4

use std::sync::Arc;
use std::time::Duration;

use highwater_kafka::client::Remote;
use highwater_log::{
    AppendError, GroupCoordinator, GroupError, InitProducerRequest, Isolation, Log, Membership,
    Offset, OffsetAndMetadata, OffsetCommit, Partition, TopicPartition, TransactionCoordinator,
    TransactionError, TransactionRef,
};
use kafka_protocol::messages::ApiKey;

use crate::cluster::*;
use crate::proxy::ProxyAction;

pub(crate) async fn begin(remote: &Remote, id: &str) -> TransactionRef {
    let producer = remote.init_producer(InitProducerRequest {
        transactional_id: Some(id.into()),
        timeout: Duration::from_secs(60),
        current: None,
    });
    TransactionRef {
        id: id.into(),
        producer: producer.await.unwrap(),
    }
}

pub(crate) async fn write(
    remote: &Remote,
    transaction: &TransactionRef,
    partition: &Arc<dyn Partition>,
    text: &str,
    sequence: i32,
) {
    let topic_partitions = vec![partition.topic_partition().clone()];
    remote
        .add_partitions(transaction.clone(), topic_partitions)
        .await
        .unwrap();
    let batch = batch(&[text], Some((transaction.producer, sequence)), true);
    remote.append(transaction, partition, batch).await.unwrap();
}

/// The records that a reader of committed records gets.
pub(crate) async fn seen(partition: &Arc<dyn Partition>) -> Vec<String> {
    let read = partition.read(Offset(0), 1 << 20, Isolation::Committed);
    let fetched = read.await.unwrap();
    let mut skip = highwater_log::batch::ReadCommittedFilter::new(&fetched.aborted);
    let mut seen = Vec::new();
    for piece in &fetched.pieces {
        for stored in highwater_log::batch::Batches::new(piece) {
            let stored = stored.unwrap();
            if !skip.skips(&stored.header) {
                let bytes = bytes::Bytes::copy_from_slice(stored.bytes());
                let only = highwater_log::FetchData {
                    pieces: vec![bytes],
                    ..fetched.clone()
                };
                seen.extend(contents(&only).into_iter().map(|(.., value)| value));
            }
        }
    }
    seen
}

#[tokio::test]
async fn a_transaction_is_visible_when_it_commits_and_not_when_it_aborts() {
    for key in [
        None,
        Some(ApiKey::AddPartitionsToTxn),
        Some(ApiKey::EndTxn),
        Some(ApiKey::Produce),
    ] {
        let cluster = cluster().await;
        let remote = cluster.with_hub("h", 1).await;
        let partition = remote.partition("h", 0).unwrap();
        if let Some(key) = key {
            // The broker executed it, but the response is lost.
            cluster.proxy.first(key, 1, |_| ProxyAction::DropResponse);
        }
        let transaction = begin(&remote, "t").await;
        write(&remote, &transaction, &partition, "kept", 0).await;
        assert!(seen(&partition).await.is_empty());
        remote.end(transaction.clone(), true).await.unwrap();
        assert_eq!(seen(&partition).await, ["kept"], "{key:?}");
        write(&remote, &transaction, &partition, "dropped", 1).await;
        remote.end(transaction.clone(), false).await.unwrap();
        append(&partition, &["after"]).await;
        assert_eq!(seen(&partition).await, ["kept", "after"]);
    }
}

#[tokio::test]
async fn a_new_holder_of_the_id_fences_the_old_one() {
    let cluster = cluster().await;
    let remote = cluster.with_hub("h", 1).await;
    let partition = remote.partition("h", 0).unwrap();
    let old = begin(&remote, "t").await;
    write(&remote, &old, &partition, "old", 0).await;
    let new = begin(&cluster.remote().await, "t").await;
    assert!(new.producer.epoch > old.producer.epoch);
    let fenced = remote.end(old.clone(), true).await;
    assert_eq!(fenced, Err(TransactionError::Fenced(old.producer)));
    let late = batch(&["late"], Some((old.producer, 1)), true);
    let refused = remote.append(&old, &partition, late).await.unwrap_err();
    assert!(
        matches!(
            refused,
            AppendError::Fenced { .. } | AppendError::NoTransaction { .. }
        ),
        "{refused}"
    );
}

#[tokio::test]
async fn offsets_of_a_transaction_count_when_it_commits() {
    let cluster = cluster().await;
    let remote = cluster.with_hub("h", 1).await;
    let transaction = begin(&remote, "t").await;
    offsets_count_when_it_commits(&remote, &transaction, "readers", &topic_partition("h", 0)).await;
}

pub(crate) async fn offsets_count_when_it_commits(
    remote: &Remote,
    transaction: &TransactionRef,
    group: &str,
    topic_partition: &TopicPartition,
) {
    remote
        .add_group(transaction.clone(), group.into())
        .await
        .unwrap();
    let stored = OffsetAndMetadata {
        offset: Offset(5),
        leader_epoch: -1,
        metadata: String::new(),
    };
    let commit = OffsetCommit {
        member: Membership {
            group: group.into(),
            generation: -1,
            member: String::new(),
            instance: None,
        },
        offsets: vec![(topic_partition.clone(), stored)],
    };
    remote
        .commit_transaction_offsets(transaction.clone(), commit)
        .await
        .unwrap();
    let positions = async |stable| {
        let topic_partitions = Some(vec![topic_partition.clone()]);
        let stored = remote
            .fetch_offsets(group.into(), topic_partitions, stable)
            .await?;
        Ok::<_, GroupError>(stored[0].1.as_ref().map(|stored| stored.offset.0))
    };
    assert_eq!(positions(false).await, Ok(None));
    assert_eq!(positions(true).await, Err(GroupError::Unstable));
    remote.end(transaction.clone(), true).await.unwrap();
    while positions(true).await == Err(GroupError::Unstable) {
        tokio::task::yield_now().await;
    }
    assert_eq!(positions(true).await, Ok(Some(5)));
}
