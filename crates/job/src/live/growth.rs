//! Hubs that get more partitions while a job reads them.
//!
//! A new partition is adopted together with a checkpoint (`start.rs`) and starts at the minimum watermark of its input.
//! The watermark must not be later than the creation of the partition, so no later event is processed: every reader
//! checks for new partitions after every read, and holds back the read if there are any; earlier reads precede all
//! events of a new partition. After a crash the first event of a new partition determines the same offset again.

use std::convert::Infallible;
use std::sync::Arc;

use highwater_log::batch::{Batches, CorruptBatch};
use highwater_log::{EnqueueTime, FetchData, HubName, Isolation, Offset, Partition, ReadError};
use highwater_time::Instant;
use tokio::sync::Notify;

use super::input_logs::InputLogs;
use super::partitions::{InputPartition, InputPartitions};
use super::status::StatusHandle;
use crate::load::Job;

/// Whether the query allows new partitions of the input while it runs.
pub(super) fn can_grow(job: &Job, input: usize) -> bool {
    job.physical.can_grow(input) && job.physical.check_partitions(input, true).is_ok()
}

#[derive(Clone)]
pub(super) struct Growth {
    job: Arc<Job>,
    logs: InputLogs,
    /// Each with an input that reads it and the number of its partitions that are read.
    hubs: Vec<(HubName, usize, u32)>,
    noticed: Arc<Notify>,
}

impl Growth {
    pub(super) fn new(job: &Arc<Job>, logs: &InputLogs, partitions: &InputPartitions) -> Growth {
        // The hub of followed files always has one partition.
        let own = |input: usize| {
            let declared = job.file.input(&job.plan.inputs[input].name);
            declared.is_none_or(|declared| !declared.is_followed())
        };
        let hubs = partitions.hubs().into_iter();
        Growth {
            job: job.clone(),
            logs: logs.clone(),
            hubs: hubs.filter(|(_, input, _)| own(*input)).collect(),
            noticed: Arc::default(),
        }
    }

    /// For a job that adopts no partitions.
    pub(super) fn off(job: &Arc<Job>, logs: &InputLogs) -> Growth {
        Growth {
            job: job.clone(),
            logs: logs.clone(),
            hubs: Vec::new(),
            noticed: Arc::default(),
        }
    }

    /// The hubs with unread partitions: input, number of read partitions, number of partitions.
    pub(super) fn grown_hubs(&self) -> impl Iterator<Item = (&HubName, usize, u32, u32)> {
        self.hubs.iter().filter_map(|(name, input, read)| {
            let log = self.logs.log(&self.job, *input)?;
            let there = log.hub(name.as_str())?.partitions;
            (there > *read).then_some((name, *input, *read, there))
        })
    }

    /// The barrier for the reader of a stream whose latest arrival is `arrived`.
    pub(super) fn barrier(
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

    /// The time of the first event in an unread partition.
    async fn first_of_new(&self) -> Result<Option<EnqueueTime>, ReadError> {
        let mut first: Option<EnqueueTime> = None;
        for (hub, input, read, there) in self.grown_hubs() {
            let log = self.logs.log(&self.job, input);
            for number in read..there {
                let partition = log.as_ref();
                let Some(partition) = partition.and_then(|log| log.partition(hub.as_str(), number))
                else {
                    continue;
                };
                let found = partition.offset_for_time(EnqueueTime(i64::MIN)).await?;
                first = first.into_iter().chain(found.map(|(_, time)| time)).min();
            }
        }
        Ok(first)
    }

    /// Completes when a reader waits for the adoption of new partitions.
    pub(super) async fn noticed(&self) {
        self.noticed.notified().await;
    }
}

/// Holds back a reader where a hub has grown.
pub(super) struct GrowthBarrier {
    growth: Growth,
    partition: Arc<dyn Partition>,
    stream: usize,
    arrived: Instant,
    /// An earlier run may have processed events before this offset.
    end: Offset,
    /// Events from here on are held back until new partitions are adopted.
    hold: Option<Offset>,
    status: StatusHandle,
}

impl GrowthBarrier {
    /// The part of a read at `from` that may be processed; `None` if all of it waits for the adoption of new
    /// partitions.
    pub(super) async fn admit(
        &mut self,
        from: Offset,
        fetched: FetchData,
    ) -> Result<Option<FetchData>, String> {
        if self.hold.is_none() && self.growth.grown_hubs().next().is_some() {
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

    /// Waits for the restart of the job with the new partitions.
    pub(super) async fn wait(&self) -> Infallible {
        self.growth.noticed.notify_one();
        std::future::pending().await
    }

    /// The first offset that was never processed.
    ///
    /// Events after the first event of a new partition were not processed, because every reader checks. If clocks were
    /// set back, that cannot be known, and all events up to the start may have been processed.
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
pub(super) fn cut(mut fetched: FetchData, end: Offset) -> Result<FetchData, CorruptBatch> {
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
