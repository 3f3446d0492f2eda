//! Producers with numbers, and transactions.

use std::sync::Arc;
use std::time::Duration;

use highwater_log::batch::Batch;
use highwater_log::{
    AppendError, AppendInfo, BoxFuture, GroupError, InitProducerRequest, OffsetCommit, Partition,
    Producer, TopicPartition, TransactionCoordinator, TransactionError, TransactionRef,
};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, EndTxnRequest, GroupId,
    InitProducerIdRequest, ProducerId, TransactionalId, TxnOffsetCommitRequest,
};

use super::Remote;
use super::cluster::{Cluster, ClusterRequest, Destination, Key};
use super::errors::{Failure, all_ok, group_error, ok, transaction_error};
use super::groups::{by_hub, millis};
use crate::handlers::{text, topic};

/// From this version on a producer may say whom it was before.
const CURRENT: i16 = 3;
/// From this version on positions of a transaction come with the member that stores them.
const MEMBER: i16 = 3;

/// A producer that is idempotent and no more.
pub(super) async fn init_producer(cluster: &Cluster) -> Result<Producer, Failure> {
    let request = InitProducerRequest {
        transactional_id: None,
        timeout: Duration::from_secs(60),
        current: None,
    };
    init(cluster, &request).await
}

async fn init(cluster: &Cluster, request: &InitProducerRequest) -> Result<Producer, Failure> {
    let id = request.transactional_id.as_deref();
    let to = id.map_or(Destination::Anybody, coordinator);
    let make = |version| {
        let requested = InitProducerIdRequest::default()
            .with_transactional_id(id.map(name))
            .with_transaction_timeout_ms(millis(request.timeout));
        match (request.current, version >= CURRENT) {
            (Some(current), true) => requested
                .with_producer_id(ProducerId(current.id))
                .with_producer_epoch(current.epoch),
            (None, true) => requested
                .with_producer_id(ProducerId(-1))
                .with_producer_epoch(-1),
            (_, false) => requested,
        }
    };
    let requested = cluster.ask(ClusterRequest::new(to), make, |answer| {
        ok(answer.error_code)?;
        let (id, epoch) = (answer.producer_id.0, answer.producer_epoch);
        Ok(Producer { id, epoch })
    });
    requested.await
}

fn coordinator(id: &str) -> Destination {
    Destination::Coordinator(Key::Transaction(id.into()))
}

fn name(id: &str) -> TransactionalId {
    TransactionalId(text(id))
}

impl TransactionCoordinator for Remote {
    fn init_producer(
        &self,
        request: InitProducerRequest,
    ) -> BoxFuture<Result<Producer, TransactionError>> {
        let cluster = self.cluster();
        Box::pin(async move {
            init(&cluster, &request)
                .await
                .map_err(|failure| match failure.code() {
                    Some(Code::InvalidRequest) => TransactionError::InvalidId,
                    Some(Code::InvalidTransactionTimeout) => TransactionError::Timeout {
                        requested: request.timeout,
                        // The cluster's is not told; this is Kafka's, unless it was set.
                        max: Duration::from_secs(15 * 60),
                    },
                    _ => {
                        let transaction = TransactionRef {
                            id: request.transactional_id.unwrap_or_default(),
                            producer: request.current.unwrap_or(Producer { id: -1, epoch: -1 }),
                        };
                        transaction_error(&transaction, None, failure)
                    }
                })
        })
    }

    fn add_partitions(
        &self,
        transaction: TransactionRef,
        topic_partitions: Vec<TopicPartition>,
    ) -> BoxFuture<Result<(), TransactionError>> {
        let cluster = self.cluster();
        Box::pin(async move {
            let topics: Vec<_> = by_hub(
                &topic_partitions,
                |topic_partition| topic_partition,
                |topic_partition| topic_partition.partition as i32,
            )
            .into_iter()
            .map(|(hub, partitions)| {
                AddPartitionsToTxnTopic::default()
                    .with_name(topic(hub))
                    .with_partitions(partitions)
            })
            .collect();
            let make = |_| {
                AddPartitionsToTxnRequest::default()
                    .with_v3_and_below_transactional_id(name(&transaction.id))
                    .with_v3_and_below_producer_id(ProducerId(transaction.producer.id))
                    .with_v3_and_below_producer_epoch(transaction.producer.epoch)
                    .with_v3_and_below_topics(topics.clone())
            };
            let requested = cluster.ask(
                ClusterRequest::new(coordinator(&transaction.id)),
                make,
                |answer| {
                    let topics = answer.results_by_topic_v3_and_below.iter();
                    let partitions = topics.flat_map(|topic| topic.results_by_partition.iter());
                    // Those with nothing wrong are told so, if any other is wrong.
                    let codes = partitions.map(|one| one.partition_error_code);
                    all_ok(codes.filter(|code| *code != Code::OperationNotAttempted.code()))
                },
            );
            let requested = requested.await;
            requested.map_err(|failure| {
                transaction_error(&transaction, topic_partitions.first(), failure)
            })
        })
    }

    /// With the name of the transaction, which brokers ask its coordinator about.
    fn append(
        &self,
        transaction: &TransactionRef,
        partition: &Arc<dyn Partition>,
        batch: Batch,
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        let topic_partition = partition.topic_partition();
        match self.remote_partition(topic_partition.hub.as_str(), topic_partition.partition) {
            Some(partition) => partition.append_in(&transaction.id, batch),
            None => Box::pin(std::future::ready(Err(AppendError::Deleted(
                topic_partition.clone(),
            )))),
        }
    }

    fn add_group(
        &self,
        transaction: TransactionRef,
        group: String,
    ) -> BoxFuture<Result<(), TransactionError>> {
        let cluster = self.cluster();
        Box::pin(async move {
            let make = |_| {
                AddOffsetsToTxnRequest::default()
                    .with_transactional_id(name(&transaction.id))
                    .with_producer_id(ProducerId(transaction.producer.id))
                    .with_producer_epoch(transaction.producer.epoch)
                    .with_group_id(GroupId(text(&*group)))
            };
            let requested = cluster.ask(
                ClusterRequest::new(coordinator(&transaction.id)),
                make,
                |answer| ok(answer.error_code),
            );
            let requested = requested.await;
            requested.map_err(|failure| transaction_error(&transaction, None, failure))
        })
    }

    fn commit_transaction_offsets(
        &self,
        transaction: TransactionRef,
        commit: OffsetCommit,
    ) -> BoxFuture<Result<(), GroupError>> {
        let cluster = self.cluster();
        Box::pin(async move {
            let member = &commit.member;
            let to = Destination::Coordinator(Key::Group(member.group.clone()));
            let requested = cluster.ask(
                ClusterRequest::new(to),
                |version| offsets(version, &transaction, &commit),
                |answer| {
                    let topics = answer.topics.iter();
                    let partitions = topics.flat_map(|topic| topic.partitions.iter());
                    all_ok(partitions.map(|one| one.error_code))
                },
            );
            let topic_partition = commit
                .offsets
                .first()
                .map(|(topic_partition, _)| topic_partition);
            requested.await.map_err(|failure| match failure.code() {
                Some(
                    Code::InvalidProducerIdMapping
                    | Code::InvalidProducerEpoch
                    | Code::ProducerFenced
                    | Code::InvalidTxnState
                    | Code::ConcurrentTransactions,
                ) => transaction_error(&transaction, None, failure).into(),
                _ => group_error(member, topic_partition, failure),
            })
        })
    }

    /// Ready when the outcome is certain. Markers may come to the partitions a moment later; the next
    /// transaction waits for that.
    fn end(
        &self,
        transaction: TransactionRef,
        commit: bool,
    ) -> BoxFuture<Result<(), TransactionError>> {
        let cluster = self.cluster();
        Box::pin(async move {
            let make = |_| {
                EndTxnRequest::default()
                    .with_transactional_id(name(&transaction.id))
                    .with_producer_id(ProducerId(transaction.producer.id))
                    .with_producer_epoch(transaction.producer.epoch)
                    .with_committed(commit)
            };
            let requested = cluster.ask(
                ClusterRequest::new(coordinator(&transaction.id)),
                make,
                |answer| ok(answer.error_code),
            );
            let requested = requested.await;
            requested.map_err(|failure| transaction_error(&transaction, None, failure))
        })
    }
}

fn offsets(
    version: i16,
    transaction: &TransactionRef,
    commit: &OffsetCommit,
) -> TxnOffsetCommitRequest {
    let partition =
        |(topic_partition, stored): &(TopicPartition, highwater_log::OffsetAndMetadata)| {
            let stored_at = TxnOffsetCommitRequestPartition::default()
                .with_partition_index(topic_partition.partition as i32)
                .with_committed_offset(stored.offset.0)
                .with_committed_metadata(Some(text(&*stored.metadata)));
            match version >= 2 {
                true => stored_at.with_committed_leader_epoch(stored.leader_epoch),
                false => stored_at,
            }
        };
    let topics = by_hub(
        &commit.offsets,
        |(topic_partition, _)| topic_partition,
        partition,
    );
    let topics = topics.into_iter().map(|(hub, partitions)| {
        TxnOffsetCommitRequestTopic::default()
            .with_name(topic(hub))
            .with_partitions(partitions)
    });
    let member = &commit.member;
    let request = TxnOffsetCommitRequest::default()
        .with_transactional_id(name(&transaction.id))
        .with_group_id(GroupId(text(&*member.group)))
        .with_producer_id(ProducerId(transaction.producer.id))
        .with_producer_epoch(transaction.producer.epoch)
        .with_topics(topics.collect());
    match version >= MEMBER {
        true => request
            .with_generation_id(member.generation)
            .with_member_id(text(&*member.member))
            .with_group_instance_id(member.instance.as_deref().map(text)),
        false => request,
    }
}
