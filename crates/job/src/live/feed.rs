//! Reads one partition for a job, and asks for punctuation when there is nothing to read.
//!
//! Time moves by what is read and by nothing else. When a partition has been silent for a while, its log is asked to say so
//! in the partition itself; the word of it is then read like everything else, at the same place by every job and every
//! replay. A partition that has not been read to its end is never said to be silent.

use std::sync::Arc;
use std::time::Duration;

use highwater_env::Clock;
use highwater_log::batch::Batches;
use highwater_log::{AppendError, Bounds, FetchData, Isolation, Offset, Partition, ReadError};
use tokio::sync::{Semaphore, mpsc, watch};

use super::growth::Watch;
use super::status::StatusHandle;
use super::worker::WorkItem;

pub(super) struct Feed {
    pub stream: usize,
    pub partition: Arc<dyn Partition>,
    pub next: Offset,
    /// Where to end, and whether time ends there.
    pub until: Option<(Offset, bool)>,
    /// `None` where it ends.
    pub growth: Option<Watch>,
    pub fetch_bytes: usize,
    /// How long a partition must have been silent before it is said to be; never, if not at all.
    pub silence: Option<Duration>,
    pub permits: Arc<Semaphore>,
    pub to: mpsc::UnboundedSender<WorkItem>,
    pub clock: Arc<dyn Clock>,
    pub board: StatusHandle,
    pub stop: watch::Receiver<bool>,
}

/// Between two looks at a partition that cannot be read or written.
const PAUSE: Duration = Duration::from_secs(1);

impl Feed {
    /// Runs until it is told to stop or comes to its end; an error is one that no waiting mends.
    pub async fn run(mut self) -> Result<(), String> {
        let mut stop = self.stop.clone();
        tokio::select! {
            result = self.read_all() => result,
            _ = stop.wait_for(|stop| *stop) => Ok(()),
        }
    }

    async fn read_all(&mut self) -> Result<(), String> {
        let mut drained = false;
        loop {
            if let Some((until, time_ends)) = self.until
                && self.next >= until
            {
                let stream = self.stream;
                return self.send(WorkItem::End { stream, time_ends });
            }
            // A permit is given back by whoever has worked off what was read with it.
            let permits = self.permits.clone();
            let permit = permits.acquire().await.map_err(|_| "the job has ended")?;
            let fetched = loop {
                let fetched = self.fetch().await?;
                if !fetched.pieces.is_empty() {
                    break self.let_through(fetched).await?;
                }
                if !drained {
                    drained = true;
                    let stream = self.stream;
                    self.send(WorkItem::Drained { stream })?;
                }
                self.wait(fetched.bounds).await?;
            };
            permit.forget();
            drained = false;
            self.next = end_of(&fetched).map_err(|error| self.named(&error))?;
            self.note_backlog(fetched.bounds);
            let stream = self.stream;
            self.send(WorkItem::Fetched { stream, fetched })?;
        }
    }

    /// What may be worked off now. Waits for the end of the job if nothing may be.
    async fn let_through(&mut self, fetched: FetchData) -> Result<FetchData, String> {
        let Some(mut growth) = self.growth.take() else {
            return Ok(fetched);
        };
        let through = growth.let_through(self.next, fetched).await;
        let Some(fetched) = through.map_err(|reason| self.named(&reason))? else {
            // Others need not wait for it.
            let stream = self.stream;
            self.send(WorkItem::Drained { stream })?;
            match growth.wait().await {}
        };
        self.growth = Some(growth);
        Ok(fetched)
    }

    fn send(&self, work: WorkItem) -> Result<(), String> {
        self.to.send(work).map_err(|_| "the job has ended".into())
    }

    fn named(&self, error: &dyn std::fmt::Display) -> String {
        format!(
            "`{}` cannot be read: {error}",
            self.partition.topic_partition()
        )
    }

    fn note_backlog(&self, bounds: Bounds) {
        let backlog = (bounds.end.0 - self.next.0).max(0) as u64;
        self.board
            .update_partition(self.stream, |status| status.backlog = backlog);
    }

    async fn fetch(&mut self) -> Result<FetchData, String> {
        loop {
            let read = self
                .partition
                .read(self.next, self.fetch_bytes, Isolation::Committed);
            match read.await {
                Ok(fetched) => return Ok(fetched),
                Err(ReadError::OutOfRange {
                    requested, start, ..
                }) if requested < start => {
                    self.board.log(format!(
                        "`{}`: events {requested} to {start} are no longer kept and were not read",
                        self.partition.topic_partition()
                    ));
                    self.next = start;
                }
                Err(error @ (ReadError::OutOfRange { .. } | ReadError::Deleted(_))) => {
                    return Err(self.named(&error));
                }
                Err(error @ (ReadError::Damaged { .. } | ReadError::Storage { .. })) => {
                    self.board.log(self.named(&error));
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Until there is something new to read, or word of silence has been asked for.
    async fn wait(&mut self, bounds: Bounds) -> Result<(), String> {
        self.note_backlog(bounds);
        let more = self.partition.wait_past(self.next, Isolation::Committed);
        let Some(silence) = self.silence else {
            more.await;
            return Ok(());
        };
        // Behind an open transaction there may be events that are not shown yet.
        let is_end = bounds.end == self.next;
        let due = match bounds.last_time {
            Some(last) => silence.saturating_sub(self.since_ms(last.0)),
            None => Duration::ZERO,
        };
        if is_end && due.is_zero() {
            return self.punctuate().await;
        }
        // Looks again after a while at most, in case the wall clock was set.
        let due = if is_end { due.min(silence) } else { silence };
        tokio::select! {
            () = more => {}
            () = tokio::time::sleep(due) => {}
        }
        Ok(())
    }

    fn since_ms(&self, time_ms: i64) -> Duration {
        let now_ms = self.clock.unix_nanos().div_euclid(1_000_000) as i64;
        Duration::from_millis((now_ms - time_ms).max(0) as u64)
    }

    async fn punctuate(&mut self) -> Result<(), String> {
        match self.partition.punctuate(self.next).await {
            // Somebody else was quicker, or an event came after all.
            Ok(_) => Ok(()),
            Err(error @ AppendError::Deleted(_)) => Err(self.named(&error)),
            Err(error) => {
                self.board.log(format!("time stands still: {error}"));
                tokio::time::sleep(PAUSE).await;
                Ok(())
            }
        }
    }
}

/// The offset after the last batch.
fn end_of(fetched: &FetchData) -> Result<Offset, highwater_log::batch::CorruptBatch> {
    let mut end = Offset(0);
    for batch in fetched.pieces.iter().flat_map(|piece| Batches::new(piece)) {
        end = batch?.header.next_offset();
    }
    Ok(end)
}
