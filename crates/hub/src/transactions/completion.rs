//! Completes a decided transaction: a marker in every partition and every group.

use std::sync::Arc;

use highwater_log::{
    AppendError, AppendInfo, BoxFuture, GroupError, Producer, TopicPartition, TransactionMarker,
};
use tracing::warn;

use super::coordinator::{Coordinator, TransactionEntry, stored};
use super::state::{State, Transaction};
use crate::coordinator::slots::Slot;
use crate::coordinator::spawn;

/// A receiver of the marker.
#[derive(Clone, Debug)]
enum Target {
    Partition(TopicPartition),
    Group(String),
}

/// A marker that is being written.
enum MarkerAppend {
    Partition(BoxFuture<Result<AppendInfo, AppendError>>),
    Group(BoxFuture<Result<(), GroupError>>),
}

impl Coordinator {
    /// Writes the markers of a decided transaction, with retries, and returns when all are written. Then the next
    /// transaction can begin.
    pub(super) async fn finish(self: &Arc<Self>, slot: &Slot<TransactionEntry>) {
        let Some(transaction) = slot.lock().durable.clone() else {
            return;
        };
        let State::Preparing(marker) = transaction.state else {
            return;
        };
        let mut left = targets(&transaction);
        for tries in 1.. {
            left = self.write_markers(left, transaction.producer, marker).await;
            if left.is_empty() {
                break;
            }
            tokio::time::sleep(self.options.backoff.after(tries)).await;
        }
        let new_id = match transaction.needs_id() {
            true => self.new_id_with_retries().await,
            false => None,
        };
        let next = transaction.complete(marker, new_id, self.now_ms());
        match new_id {
            Some(_) => self.complete_with_id(slot, next).await,
            None => self.complete(slot, next),
        }
    }

    /// A producer id; `None` if the coordinator is not loaded.
    async fn new_id_with_retries(&self) -> Option<i64> {
        let (journal, ids) = self.loaded().ok()?;
        for tries in 1.. {
            match ids.next(journal).await {
                Ok(id) => return Some(id),
                Err(reason) => warn!(%reason, "a producer id could not be reserved yet"),
            }
            tokio::time::sleep(self.options.backoff.after(tries)).await;
        }
        None
    }

    /// Writes all markers concurrently; returns the targets that failed.
    async fn write_markers(
        &self,
        targets: Vec<Target>,
        producer: Producer,
        marker: TransactionMarker,
    ) -> Vec<Target> {
        let appends: Vec<(Target, MarkerAppend)> = (targets.into_iter())
            .filter_map(|target| {
                Some((
                    target.clone(),
                    self.append_marker(&target, producer, marker)?,
                ))
            })
            .collect();
        let mut left = Vec::new();
        for (target, append) in appends {
            if let Err(reason) = append.outcome().await {
                warn!(?target, %reason, "a transaction marker could not be written yet");
                left.push(target);
            }
        }
        left
    }

    /// `None` if the hub has been deleted.
    fn append_marker(
        &self,
        target: &Target,
        producer: Producer,
        marker: TransactionMarker,
    ) -> Option<MarkerAppend> {
        Some(match target {
            Target::Partition(topic_partition) => {
                let partition = self
                    .log
                    .partition(topic_partition.hub.as_str(), topic_partition.partition)?;
                MarkerAppend::Partition(partition.append_marker(producer, marker))
            }
            Target::Group(group) => {
                MarkerAppend::Group(self.groups.resolve(group, producer.id, marker))
            }
        })
    }

    /// The state takes effect at once. If a crash loses its record, the next start writes the markers again, without
    /// effect: a partition that has its marker rejects another one, and no later transaction is on record.
    fn complete(&self, slot: &Slot<TransactionEntry>, next: Transaction) {
        let Ok((journal, _)) = self.loaded() else {
            return;
        };
        let mut entry = slot.lock();
        let append = journal.append(&entry.id, &stored(&entry.id, &next));
        entry.durable = Some(next);
        spawn(async move {
            if let Err(reason) = append.await {
                warn!(%reason, "the end of a transaction could not be stored");
            }
        });
    }

    /// Like [`complete`](Self::complete), for a state with a new producer id. It takes effect when it is durable: a
    /// crash that lost it would leave the client with an unknown id.
    async fn complete_with_id(&self, slot: &Slot<TransactionEntry>, next: Transaction) {
        let Ok((journal, _)) = self.loaded() else {
            return;
        };
        let append = {
            let entry = slot.lock();
            journal.append(&entry.id, &stored(&entry.id, &next))
        };
        if let Err(reason) = append.await {
            warn!(%reason, "the end of a transaction could not be stored");
        }
        slot.lock().durable = Some(next);
    }
}

impl MarkerAppend {
    async fn outcome(self) -> Result<(), String> {
        match self {
            MarkerAppend::Group(append) => append.await.map_err(|error| error.to_string()),
            MarkerAppend::Partition(append) => match append.await {
                Ok(_) => Ok(()),
                // The hub is deleted, or the marker was written before a crash.
                Err(
                    AppendError::Deleted(_)
                    | AppendError::NoTransaction { .. }
                    | AppendError::Fenced { .. },
                ) => Ok(()),
                Err(error) => Err(error.to_string()),
            },
        }
    }
}

fn targets(transaction: &Transaction) -> Vec<Target> {
    let partitions = transaction.topic_partitions.iter().cloned();
    let groups = transaction.groups.iter().cloned();
    (partitions.map(Target::Partition))
        .chain(groups.map(Target::Group))
        .collect()
}
