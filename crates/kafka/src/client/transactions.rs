//! Idempotent producers and transactions.

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
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest, EndTxnRequest,
    EndTxnResponse, InitProducerIdRequest, ProducerId, TxnOffsetCommitRequest,
};
use kafka_protocol::protocol::Request;

use super::Remote;
use super::cluster::{Cluster, CoordinatorKey, Destination, Route};
use super::errors::{BrokerError, Failure, all_ok, group_error, ok, transaction_error};
use super::groups::{by_hub, millis};
use super::names::ClusterNames;
use crate::handlers::text;

/// The first version with the current producer id and epoch.
const CURRENT: i16 = 3;
/// The first version of TxnOffsetCommit with the group member.
const MEMBER: i16 = 3;

/// An idempotent producer without transactions.
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
    let to = id.map_or(Destination::AnyBroker, coordinator);
    let make = |version| {
        let requested = InitProducerIdRequest::default()
            .with_transactional_id(id.map(|id| cluster.options.names.transaction(id)))
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
    let requested = cluster.call(Route::new(to), make, |response| {
        ok(response.error_code)?;
        let (id, epoch) = (response.producer_id.0, response.producer_epoch);
        Ok(Producer { id, epoch })
    });
    requested.await
}

fn coordinator(id: &str) -> Destination {
    Destination::Coordinator(CoordinatorKey::Transaction(id.into()))
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
                        // Kafka's default; the response does not have the limit of the cluster.
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
        let remote = self.clone();
        Box::pin(async move {
            let topics: Vec<_> = by_hub(
                &topic_partitions,
                |topic_partition| topic_partition,
                |topic_partition| topic_partition.partition as i32,
            )
            .into_iter()
            .map(|(hub, partitions)| {
                AddPartitionsToTxnTopic::default()
                    .with_name(remote.names().topic(hub))
                    .with_partitions(partitions)
            })
            .collect();
            let make = |_| {
                AddPartitionsToTxnRequest::default()
                    .with_v3_and_below_transactional_id(remote.names().transaction(&transaction.id))
                    .with_v3_and_below_producer_id(ProducerId(transaction.producer.id))
                    .with_v3_and_below_producer_epoch(transaction.producer.epoch)
                    .with_v3_and_below_topics(topics.clone())
            };
            let added =
                remote.call_coordinator(&transaction, topic_partitions.first(), make, |response| {
                    let topics = response.results_by_topic_v3_and_below.iter();
                    let partitions = topics.flat_map(|topic| topic.results_by_partition.iter());
                    // The valid partitions of a failed request have this code.
                    let codes = partitions.map(|one| one.partition_error_code);
                    all_ok(codes.filter(|code| *code != Code::OperationNotAttempted.code()))
                });
            added.await
        })
    }

    /// The transactional id goes with the batch; brokers verify it with the coordinator.
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
        let remote = self.clone();
        Box::pin(async move {
            let make = |_| {
                AddOffsetsToTxnRequest::default()
                    .with_transactional_id(remote.names().transaction(&transaction.id))
                    .with_producer_id(ProducerId(transaction.producer.id))
                    .with_producer_epoch(transaction.producer.epoch)
                    .with_group_id(remote.names().group(&group))
            };
            let read = |response: AddOffsetsToTxnResponse| ok(response.error_code);
            remote
                .call_coordinator(&transaction, None, make, read)
                .await
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
            let to = Destination::Coordinator(CoordinatorKey::Group(member.group.clone()));
            let requested = cluster.call(
                Route::new(to),
                |version| commit_request(version, &transaction, &commit, &cluster.options.names),
                |response| {
                    let topics = response.topics.iter();
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

    /// Ready when the outcome is durable. The markers may be written a moment later; the next transaction waits for
    /// them.
    fn end(
        &self,
        transaction: TransactionRef,
        commit: bool,
    ) -> BoxFuture<Result<(), TransactionError>> {
        let remote = self.clone();
        Box::pin(async move {
            let make = |_| {
                EndTxnRequest::default()
                    .with_transactional_id(remote.names().transaction(&transaction.id))
                    .with_producer_id(ProducerId(transaction.producer.id))
                    .with_producer_epoch(transaction.producer.epoch)
                    .with_committed(commit)
            };
            let read = |response: EndTxnResponse| ok(response.error_code);
            remote
                .call_coordinator(&transaction, None, make, read)
                .await
        })
    }
}

impl Remote {
    /// Sends a request to the coordinator of a transaction.
    async fn call_coordinator<R: Request>(
        &self,
        transaction: &TransactionRef,
        topic_partition: Option<&TopicPartition>,
        make: impl Fn(i16) -> R,
        read: impl Fn(R::Response) -> Result<(), BrokerError>,
    ) -> Result<(), TransactionError> {
        let route = Route::new(coordinator(&transaction.id));
        let called = self.cluster().call(route, make, read).await;
        called.map_err(|failure| transaction_error(transaction, topic_partition, failure))
    }
}

fn commit_request(
    version: i16,
    transaction: &TransactionRef,
    commit: &OffsetCommit,
    names: &ClusterNames,
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
            .with_name(names.topic(hub))
            .with_partitions(partitions)
    });
    let member = &commit.member;
    let request = TxnOffsetCommitRequest::default()
        .with_transactional_id(names.transaction(&transaction.id))
        .with_group_id(names.group(&member.group))
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
