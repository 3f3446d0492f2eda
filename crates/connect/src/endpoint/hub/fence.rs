//! Fences the producer of an earlier start: none of its batches can still be appended.

use std::sync::Arc;
use std::time::Duration;

use highwater_log::{
    AppendError, InitProducerRequest, Offset, Partition, Producer, ReadError,
    TransactionCoordinator, TransactionError, TransactionMarker, TransactionRef,
};

use super::super::EndpointError;
use super::partition_writer;

/// How producers of earlier starts are fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::endpoint) enum Fencing {
    /// In a log of this process: by markers of a transaction that was never begun.
    Markers,
    /// In a cluster: by a transaction without records, whose markers the brokers write.
    Transactions,
    /// No fencing: the cluster has no transactions, so a row may be repeated.
    Off,
}

/// The result of fencing.
pub(super) struct FencedProducer {
    /// `None` without fencing.
    pub producer: Option<Producer>,
    /// The end of each partition: no batch of an earlier start is appended after it.
    pub ends: Vec<Offset>,
}

impl Fencing {
    /// `before` is the producer id of the checkpoint.
    pub(super) async fn fence(
        self,
        transactions: &dyn TransactionCoordinator,
        id: &str,
        partitions: &[Arc<dyn Partition>],
        before: Option<i64>,
    ) -> Result<FencedProducer, EndpointError> {
        let producer = match self {
            Fencing::Markers => {
                let producer = init_producer(transactions, id).await?;
                append_markers(partitions, producer, before).await?;
                Some(producer)
            }
            Fencing::Transactions => Some(abort_nothing(transactions, id, partitions).await?),
            Fencing::Off => None,
        };
        let mut ends = Vec::with_capacity(partitions.len());
        for partition in partitions {
            let bounds = partition.fetch_bounds().await.map_err(read_error)?;
            ends.push(bounds.end);
        }
        Ok(FencedProducer { producer, ends })
    }
}

/// Raises the epoch of the producer.
async fn init_producer(
    transactions: &dyn TransactionCoordinator,
    id: &str,
) -> Result<Producer, EndpointError> {
    let request = InitProducerRequest {
        transactional_id: Some(id.to_owned()),
        timeout: Duration::from_secs(60),
        current: None,
    };
    let producer = transactions.init_producer(request).await;
    producer.map_err(transaction_error)
}

fn transaction_error(error: TransactionError) -> EndpointError {
    match error {
        TransactionError::Concurrent | TransactionError::Loading | TransactionError::Storage(_) => {
            EndpointError::unavailable(error)
        }
        error => EndpointError::unfit(error),
    }
}

fn read_error(error: ReadError) -> EndpointError {
    match error {
        ReadError::Deleted(_) => EndpointError::unfit(error),
        error => EndpointError::unavailable(error),
    }
}

/// Aborts a transaction that was never begun: the marker carries the new epoch and is appended after every batch sent
/// before.
async fn append_markers(
    partitions: &[Arc<dyn Partition>],
    producer: Producer,
    before: Option<i64>,
) -> Result<(), EndpointError> {
    // The coordinator has forgotten our producer. The old id cannot come back, so its last epoch is free.
    let forgotten = before.filter(|id| *id != producer.id).map(|id| Producer {
        id,
        epoch: i16::MAX,
    });
    // There was no earlier producer.
    let known = (producer.epoch > 0).then_some(producer);
    let mut pending = Vec::new();
    for partition in partitions {
        let markers = known.into_iter().chain(forgotten);
        pending.extend(
            markers.map(|producer| partition.append_marker(producer, TransactionMarker::Abort)),
        );
    }
    for marker in pending {
        match marker.await {
            // The forgotten producer was fenced before.
            Ok(_) | Err(AppendError::NoTransaction { .. }) => {}
            Err(error) => return Err(partition_writer::endpoint_error(error)),
        }
    }
    Ok(())
}

/// Aborts a transaction without records. Its markers carry a new epoch to every partition, and the producer gets the
/// next epoch only when all markers are written.
async fn abort_nothing(
    transactions: &dyn TransactionCoordinator,
    id: &str,
    partitions: &[Arc<dyn Partition>],
) -> Result<Producer, EndpointError> {
    let producer = init_producer(transactions, id).await?;
    if producer.epoch == 0 {
        // There was no earlier producer.
        return Ok(producer);
    }
    let transaction = TransactionRef {
        id: id.to_owned(),
        producer,
    };
    let all = partitions.iter();
    let all = all.map(|partition| partition.topic_partition().clone());
    let added = transactions.add_partitions(transaction.clone(), all.collect());
    added.await.map_err(transaction_error)?;
    let ended = transactions.end(transaction, false).await;
    ended.map_err(transaction_error)?;
    init_producer(transactions, id).await
}
