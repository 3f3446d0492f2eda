//! Hubs that get more partitions while a job reads them.
//!
//! A new partition is taken up together with a checkpoint (`start.rs`), and begins at the time that the others of its input
//! have passed by then. That must not be later than when the partition appeared, so no later event is processed: every
//! reader checks after every read whether there are more partitions, and if so holds back what it has read; what it read
//! before came before any event of a new partition. After a crash the time of the first event of a new partition finds the
//! same offset again.

use std::convert::Infallible;
use std::sync::Arc;

use highwater_log::batch::{Batches, CorruptBatch};
use highwater_log::{
    EnqueueTime, FetchData, HubName, Isolation, Log, Offset, Partition, ReadError,
};
use highwater_time::Instant;
use tokio::sync::Notify;

use super::JobContext;
use super::partitions::{InputPartition, PartitionSet};
use super::status::StatusHandle;
use crate::load::Job;

/// Whether the query lets partitions of that input be taken up while it runs.
pub(super) fn can_grow(job: &Job, input: usize) -> bool {
    job.physical.can_grow(input) && job.physical.check_partitions(input, true).is_ok()
}

#[derive(Clone)]
pub(super) struct Growth {
    log: Arc<dyn Log>,
    /// With an input that reads it, and how many of its partitions are read.
    hubs: Vec<(HubName, usize, u32)>,
    noticed: Arc<Notify>,
}

impl Growth {
    pub fn new(job: &Job, context: &JobContext, partitions: &PartitionSet) -> Growth {
        // A hub that files are brought to has one partition.
        let own = |input: usize| {
            let declared = job.file.input(&job.plan.inputs[input].name);
            declared.is_none_or(|declared| !declared.is_followed())
        };
        let hubs = partitions.hubs().into_iter();
        Growth {
            log: context.log.clone(),
            hubs: hubs.filter(|(_, input, _)| own(*input)).collect(),
            noticed: Arc::default(),
        }
    }

    /// The hubs that have more partitions than are read: input, how many are read, how many there are.
    pub fn look(&self) -> impl Iterator<Item = (&HubName, usize, u32, u32)> {
        self.hubs.iter().filter_map(|(name, input, read)| {
            let there = self.log.hub(name.as_str())?.partitions;
            (there > *read).then_some((name, *input, *read, there))
        })
    }

    /// For the reader of a partition, which is a stream of the job; its latest arrival is `arrived`.
    pub fn barrier(
        &self,
        source: &InputPartition,
        stream: usize,
        arrived: Instant,
        status: &StatusHandle,
    ) -> GrowthBarrier {
        let hubs = self.hubs.iter().filter(|(_, of, _)| *of == source.input);
        GrowthBarrier {
            growth: Growth {
                hubs: hubs.cloned().collect(),
                ..self.clone()
            },
            partition: source.partition.clone(),
            stream,
            arrived,
            end: source.partition.bounds().visible(Isolation::Committed),
            hold: None,
            status: status.clone(),
        }
    }

    /// When the first event of a partition that is not read came, if one has.
    async fn first_of_new(&self) -> Result<Option<EnqueueTime>, ReadError> {
        let mut first: Option<EnqueueTime> = None;
        for (hub, _, read, there) in self.look() {
            for number in read..there {
                let Some(partition) = self.log.partition(hub.as_str(), number) else {
                    continue;
                };
                let found = partition.offset_for_time(EnqueueTime(i64::MIN)).await?;
                first = first.into_iter().chain(found.map(|(_, time)| time)).min();
            }
        }
        Ok(first)
    }

    /// Ready when somebody waits for new partitions to be taken up.
    pub async fn noticed(&self) {
        self.noticed.notified().await;
    }
}

/// Holds back a reader where a hub has grown.
pub(super) struct GrowthBarrier {
    growth: Growth,
    partition: Arc<dyn Partition>,
    stream: usize,
    arrived: Instant,
    /// What lies before this may have been worked off by an earlier run.
    end: Offset,
    /// Nothing from here on is worked off before new partitions are taken up.
    hold: Option<Offset>,
    status: StatusHandle,
}

impl GrowthBarrier {
    /// What may be worked off of what was read from `from` on; `None` if nothing may be before the new partitions are
    /// taken up.
    pub async fn let_through(
        &mut self,
        from: Offset,
        fetched: FetchData,
    ) -> Result<Option<FetchData>, String> {
        if self.hold.is_none() && self.growth.look().next().is_some() {
            let hold = self.hold_point().await.map_err(|error| error.to_string())?;
            let hold = hold.max(from);
            self.status.replay_only_to(self.stream, hold);
            self.hold = Some(hold);
        }
        match self.hold {
            None => Ok(Some(fetched)),
            Some(hold) if from < hold => {
                let before = cut(fetched, hold).map_err(|error| error.to_string())?;
                Ok(Some(before))
            }
            Some(_) => Ok(None),
        }
    }

    /// Waits for the job to be started again with the new partitions.
    pub async fn wait(&self) -> Infallible {
        self.growth.noticed.notify_one();
        std::future::pending().await
    }

    /// Where what has never been worked off begins.
    ///
    /// What came after the first event of a new partition has not been, because every reader looks. Where clocks were set
    /// back meanwhile that cannot be told, and everything that there was at the start may have been.
    async fn hold_point(&self) -> Result<Offset, ReadError> {
        let first = self.growth.first_of_new().await?;
        let Some(first) = first.filter(|first| self.arrived.to_unix_millis() <= first.0) else {
            return Ok(self.end);
        };
        let later = self
            .partition
            .offset_for_time(EnqueueTime(first.0 + 1))
            .await?;
        Ok(later.map_or(self.end, |(offset, _)| offset.min(self.end)))
    }
}

/// Only the batches before `end`.
fn cut(mut fetched: FetchData, end: Offset) -> Result<FetchData, CorruptBatch> {
    for piece in &mut fetched.pieces {
        let mut kept = piece.len();
        for batch in Batches::new(piece) {
            let batch = batch?;
            if batch.header.base_offset() >= end {
                kept = batch.position;
                break;
            }
        }
        piece.truncate(kept);
    }
    fetched.pieces.retain(|piece| !piece.is_empty());
    Ok(fetched)
}
