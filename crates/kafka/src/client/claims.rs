//! The only writer of a partition, fenced by the epoch of a producer.
//!
//! Every claim of a partition uses the same transactional id. It opens a transaction on the partition and aborts it:
//! the marker, which readers skip, tells the leader of the partition the new epoch, and from then on the leader refuses
//! batches with an older one. When the claim is complete the marker is in the log, so a replay from then on sees
//! everything that earlier owners wrote, and nothing of theirs follows.

use std::sync::{Arc, Weak};
use std::time::Duration;

use highwater_log::{
    AppendError, InitProducerRequest, Producer, TopicPartition, TransactionCoordinator,
    TransactionError, TransactionRef,
};

use super::append::Appender;
use super::options::Profile;
use super::partition::RemotePartition;
use super::{Inner, Remote};

/// After this time the coordinator ends the transaction of a claim that was interrupted.
const TIMEOUT: Duration = Duration::from_secs(60);

impl Remote {
    pub(super) async fn claim_partition(
        self,
        hub: String,
        partition: u32,
    ) -> Result<Option<RemotePartition>, AppendError> {
        let Some(shared) = self.remote_partition(&hub, partition) else {
            return Ok(None);
        };
        let topic_partition = shared.target.topic_partition.clone();
        if self.0.cluster.options.profile == Profile::EventHubs {
            let reason = "journals need transactions, which Event Hubs does not have".into();
            return Err(AppendError::Stopped {
                topic_partition,
                reason,
            });
        }
        let id = format!("owner/{topic_partition}");
        let producer = self.fence(&id, &topic_partition).await;
        let producer = producer.map_err(|error| claim_error(topic_partition, error))?;
        let claimed = shared.claimed(producer);
        let (owner, transaction) = (claimed.owner(), TransactionRef { id, producer });
        let (remote, pause) = (Arc::downgrade(&self.0), self.0.cluster.options.renewal);
        tokio::spawn(renew_periodically(remote, owner, transaction, pause));
        Ok(Some(claimed))
    }

    async fn fence(
        &self,
        id: &str,
        topic_partition: &TopicPartition,
    ) -> Result<Producer, TransactionError> {
        let request = || InitProducerRequest {
            transactional_id: Some(id.to_owned()),
            timeout: TIMEOUT,
            current: None,
        };
        let transaction = TransactionRef {
            id: id.to_owned(),
            producer: self.init_producer(request()).await?,
        };
        let partitions = vec![topic_partition.clone()];
        self.add_partitions(transaction.clone(), partitions).await?;
        self.end(transaction, false).await?;
        // The coordinator answers this only when the marker is written.
        self.init_producer(request()).await
    }
}

/// Uses the transactional id from time to time, until the claim has ended. An owner that does not write learns this way
/// that another one has taken over.
async fn renew_periodically(
    remote: Weak<Inner>,
    owner: Weak<Appender>,
    transaction: TransactionRef,
    pause: Duration,
) {
    loop {
        tokio::time::sleep(pause).await;
        let owned = owner.upgrade().and_then(|owner| owner.claimed_partition());
        let (Some(topic_partition), Some(remote)) = (owned, remote.upgrade().map(Remote)) else {
            return;
        };
        let partitions = vec![topic_partition.clone()];
        let renewed = match remote.add_partitions(transaction.clone(), partitions).await {
            Ok(()) => remote.end(transaction.clone(), false).await,
            Err(error) => Err(error),
        };
        match (renewed, owner.upgrade()) {
            (Ok(()), _) => {}
            (
                Err(TransactionError::Fenced(_) | TransactionError::UnknownProducer(_)),
                Some(owner),
            ) => {
                let (producer, current) = (transaction.producer, transaction.producer.epoch);
                let current = current.saturating_add(1);
                return owner.end_claim(AppendError::Fenced { producer, current });
            }
            (Err(error), _) => tracing::warn!(%error, %topic_partition, "a claim is not renewed"),
        }
    }
}

fn claim_error(topic_partition: TopicPartition, error: TransactionError) -> AppendError {
    match error {
        TransactionError::Fenced(producer) => AppendError::Fenced {
            current: producer.epoch.saturating_add(1),
            producer,
        },
        TransactionError::UnknownPartition(topic_partition) => {
            AppendError::Deleted(topic_partition)
        }
        error => AppendError::Busy {
            topic_partition,
            reason: format!("it cannot be claimed: {error}"),
        },
    }
}
