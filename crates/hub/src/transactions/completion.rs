//! Carrying out a decision: a marker in every partition and every group of the transaction.

use std::sync::Arc;

use highwater_log::{
    AppendError, AppendInfo, BoxFuture, GroupError, Producer, TopicPartition, TransactionMarker,
};
use tracing::warn;

use super::coordinator::{Coordinator, Slot, stored};
use super::state::{State, Transaction};
use crate::coordinator::spawn;

/// What is to be told how a transaction ended.
#[derive(Clone, Debug)]
enum Target {
    Partition(TopicPartition),
    Group(String),
}

/// A marker on its way.
enum MarkerAppend {
    Partition(BoxFuture<Result<AppendInfo, AppendError>>),
    Group(BoxFuture<Result<(), GroupError>>),
}

impl Coordinator {
    /// Writes the markers of a decided transaction, again and again where that fails, and returns when
    /// all are there. The next transaction can begin then.
    pub async fn finish(self: &Arc<Self>, slot: &Arc<Slot>) {
        let Some(transaction) = slot.lock().durable.clone() else {
            return;
        };
        let State::Preparing(marker) = transaction.state else {
            return;
        };
        let mut left = targets(&transaction);
        for tries in 1.. {
            left = self.tell(left, transaction.producer, marker).await;
            if left.is_empty() {
                break;
            }
            tokio::time::sleep(self.options.backoff.after(tries)).await;
        }
        self.complete(slot, &transaction, marker);
    }

    /// Tells everybody at once; returns who has to be told again.
    async fn tell(
        &self,
        targets: Vec<Target>,
        producer: Producer,
        marker: TransactionMarker,
    ) -> Vec<Target> {
        let sent: Vec<(Target, MarkerAppend)> = (targets.into_iter())
            .filter_map(|target| Some((target.clone(), self.send(&target, producer, marker)?)))
            .collect();
        let mut left = Vec::new();
        for (target, sent) in sent {
            if let Err(reason) = sent.arrives().await {
                warn!(?target, %reason, "a transaction marker could not be written yet");
                left.push(target);
            }
        }
        left
    }

    /// `None` if the hub of the place is no more.
    fn send(
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

    /// The state counts at once. Should its record be lost, the markers are written again after the
    /// next start, which changes nothing: where there is one already, no other is taken, and the
    /// record of a next transaction would have followed this one.
    fn complete(&self, slot: &Arc<Slot>, transaction: &Transaction, marker: TransactionMarker) {
        let Ok((journal, _)) = self.loaded() else {
            return;
        };
        let mut entry = slot.lock();
        let next = transaction.complete(marker, self.now_ms());
        let append = journal.append(&entry.id, &stored(&entry.id, &next));
        entry.durable = Some(next);
        spawn(async move {
            if let Err(reason) = append.await {
                warn!(%reason, "the end of a transaction could not be noted");
            }
        });
    }
}

impl MarkerAppend {
    async fn arrives(self) -> Result<(), String> {
        match self {
            MarkerAppend::Group(told) => told.await.map_err(|error| error.to_string()),
            MarkerAppend::Partition(told) => match told.await {
                Ok(_) => Ok(()),
                // The hub is gone, or the marker is there from before a crash.
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
    let topic_partitions = transaction
        .topic_partitions
        .iter()
        .cloned()
        .map(Target::Partition);
    let groups = transaction.groups.iter().cloned().map(Target::Group);
    topic_partitions.chain(groups).collect()
}
