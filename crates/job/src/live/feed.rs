//! Reads one partition for a job, and requests punctuation when it is silent.
//!
//! Only records move time. When a partition has been silent for a while, its log appends a punctuation, which every job
//! and every replay reads at the same offset. Punctuation is requested only at the end of the partition. The partitions
//! of a cluster have a journal for it (`time_journal.rs`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::{Clock, shutdown_signal};
use highwater_log::batch::{Batches, CorruptBatch, TimestampType};
use highwater_log::{AppendError, Bounds, FetchData, Isolation, Offset, Partition, ReadError};
use tokio::sync::{Semaphore, mpsc, watch};

use super::growth::{GrowthBarrier, cut};
use super::status::StatusHandle;
use super::time_journal::{JournalError, PassedTime, TimeJournal};
use super::worker::WorkItem;
use highwater_time::Instant;

/// The position of a stream: the next offset, and the latest arrival or passed time that was processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StreamPosition {
    pub next: Offset,
    pub arrived: Instant,
}

/// The end of a feed.
pub(super) struct FeedEnd {
    pub offset: Offset,
    pub time_ends: bool,
}

pub(super) struct Feed {
    pub stream: usize,
    pub partition: Arc<dyn Partition>,
    pub next: Offset,
    pub until: Option<FeedEnd>,
    /// `None` for a feed with an end.
    pub growth: Option<GrowthBarrier>,
    pub fetch_bytes: usize,
    /// How long a partition must be silent before a punctuation is written. `None` disables punctuation.
    pub silence: Option<Duration>,
    /// Where the passing of time is written; `None` if the partition itself takes punctuations, or only events move
    /// time.
    pub journal: Option<TimeJournal>,
    /// The partition is that of a cluster, and arrivals are the times of its brokers.
    pub log_append_only: bool,
    /// The partition has punctuations.
    pub punctuates: bool,
    /// Positions ahead at which fetches end, ascending.
    pub stopovers: VecDeque<StreamPosition>,
    /// It ends when no stopover is left.
    pub ends_at_stopovers: bool,
    pub permits: Arc<Semaphore>,
    pub to: mpsc::UnboundedSender<WorkItem>,
    pub clock: Arc<dyn Clock>,
    pub status: StatusHandle,
    pub stop: watch::Receiver<bool>,
}

/// Pause before a failed read or append is retried.
const PAUSE: Duration = Duration::from_secs(1);

impl Feed {
    /// Runs until the stop signal or its end. An error is fatal.
    pub(super) async fn run(mut self) -> Result<(), String> {
        let stopped = shutdown_signal(self.stop.clone());
        tokio::select! {
            result = self.read_all() => result,
            () = stopped => Ok(()),
        }
    }

    async fn read_all(&mut self) -> Result<(), String> {
        let mut drained = false;
        loop {
            if self
                .until
                .as_ref()
                .is_some_and(|end| self.next >= end.offset)
            {
                return self.end().await;
            }
            if self.ends_at_stopovers && !self.has_stopovers() {
                return Ok(());
            }
            // The combiner returns the permit when it has processed the fetch.
            let permits = self.permits.clone();
            let permit = permits.acquire().await.map_err(|_| "the job has ended")?;
            let (fetched, passed) = loop {
                let mut fetched = self.fetch_to_stopover().await?;
                if !fetched.pieces.is_empty() {
                    fetched = self.admit(fetched).await?;
                }
                let passed = self.passed(&fetched).await?;
                if !fetched.pieces.is_empty() || !passed.is_empty() {
                    break (fetched, passed);
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
            self.next = self.end_of(&fetched)?;
            self.note_backlog(fetched.bounds);
            let stream = self.stream;
            self.send(WorkItem::Fetched {
                stream,
                fetched,
                passed,
            })?;
        }
    }

    /// Whether there are stopovers that are not reached.
    fn has_stopovers(&self) -> bool {
        let (next, has_journal) = (self.next, self.journal.is_some());
        let mut stopovers = self.stopovers.iter();
        stopovers.any(|stopover| next < stopover.next || (next == stopover.next && has_journal))
    }

    /// Fetches, but not beyond the next stopover.
    async fn fetch_to_stopover(&mut self) -> Result<FetchData, String> {
        while let Some(stopover) = self.stopovers.front().copied() {
            if self.next < stopover.next {
                let fetched = self.fetch().await?;
                return cut(fetched, stopover.next).map_err(|error| self.named(&error));
            }
            if self.next == stopover.next && self.journal.is_some() {
                // Only time has passed to the stopover.
                return Ok(FetchData {
                    pieces: Vec::new(),
                    bounds: self.partition.bounds(),
                    aborted: Vec::new(),
                });
            }
            self.stopovers.pop_front();
        }
        self.fetch().await
    }

    /// Everything has been read.
    async fn end(&mut self) -> Result<(), String> {
        let stream = self.stream;
        let fetched = FetchData {
            pieces: Vec::new(),
            bounds: self.partition.bounds(),
            aborted: Vec::new(),
        };
        let passed = self.passed(&fetched).await?;
        if !passed.is_empty() {
            let permit = self.permits.acquire().await;
            permit.map_err(|_| "the job has ended")?.forget();
            self.send(WorkItem::Fetched {
                stream,
                fetched,
                passed,
            })?;
        }
        let time_ends = self.until.as_ref().is_some_and(|end| end.time_ends);
        self.send(WorkItem::End { stream, time_ends })
    }

    /// The times that the journal has up to the end of a fetch.
    async fn passed(&mut self, fetched: &FetchData) -> Result<Vec<PassedTime>, String> {
        if self.journal.is_none() {
            return Ok(Vec::new());
        }
        let end = self.end_of(fetched)?;
        let last = latest_arrival(fetched).map_err(|error| self.named(&error))?;
        let latest = match self.stopovers.front().copied() {
            Some(stopover) if stopover.next == end => {
                self.stopovers.pop_front();
                stopover.arrived
            }
            _ => Instant::AFTER_ALL,
        };
        let Some(journal) = &mut self.journal else {
            return Ok(Vec::new());
        };
        loop {
            match journal.passed(end, latest).await {
                Ok(passed) => {
                    if let Some(last) = last {
                        journal.note_arrival(last);
                    }
                    return Ok(passed);
                }
                Err(JournalError::Read(error @ ReadError::Storage { .. })) => {
                    self.status.log(format!("time does not advance: {error}"));
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// The batches that may be processed now. If there are none, waits until the job is restarted.
    async fn admit(&mut self, fetched: FetchData) -> Result<FetchData, String> {
        let Some(mut growth) = self.growth.take() else {
            return Ok(fetched);
        };
        let through = growth.admit(self.next, fetched).await;
        let Some(fetched) = through.map_err(|reason| self.named(&reason))? else {
            // Other streams do not wait for this one.
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
        self.status
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
                    self.status.log(format!(
                        "`{}`: events {requested} to {start} are no longer kept and were not read",
                        self.partition.topic_partition()
                    ));
                    self.next = start;
                }
                Err(error @ (ReadError::OutOfRange { .. } | ReadError::Deleted(_))) => {
                    return Err(self.named(&error));
                }
                Err(error @ (ReadError::Damaged { .. } | ReadError::Storage { .. })) => {
                    self.status.log(self.named(&error));
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Waits for new events, or requests punctuation.
    async fn wait(&mut self, bounds: Bounds) -> Result<(), String> {
        self.note_backlog(bounds);
        let more = self.partition.wait_past(self.next, Isolation::Committed);
        let Some(silence) = self.silence.filter(|_| self.punctuates) else {
            more.await;
            return Ok(());
        };
        if self.journal.is_some() {
            tokio::select! {
                () = more => return Ok(()),
                () = tokio::time::sleep(silence) => {}
            }
            return self.write_silence().await;
        }
        // After an open transaction there may be events that are not visible yet.
        let is_end = bounds.end == self.next;
        let due = match bounds.last_time {
            Some(last) => silence.saturating_sub(self.since_ms(last.0)),
            None => Duration::ZERO,
        };
        if is_end && due.is_zero() {
            return self.punctuate().await;
        }
        // Bounded, because the wall clock may be set.
        let due = if is_end { due.min(silence) } else { silence };
        tokio::select! {
            () = more => {}
            () = tokio::time::sleep(due) => {}
        }
        Ok(())
    }

    fn since_ms(&self, time_ms: i64) -> Duration {
        let now_ms = self.clock.unix_millis();
        Duration::from_millis((now_ms - time_ms).max(0) as u64)
    }

    async fn punctuate(&mut self) -> Result<(), String> {
        match self.partition.punctuate(self.next).await {
            // Also if another reader was faster or an event arrived.
            Ok(_) => Ok(()),
            Err(error @ AppendError::Deleted(_)) => Err(self.named(&error)),
            Err(error) => {
                self.status.log(format!("time does not advance: {error}"));
                tokio::time::sleep(PAUSE).await;
                Ok(())
            }
        }
    }

    /// Writes to the journal that there are no more events.
    async fn write_silence(&mut self) -> Result<(), String> {
        let now_ms = self.clock.unix_millis();
        let journal = self.journal.as_ref();
        let Some(time_ms) = journal.and_then(|journal| journal.time_to_write(now_ms)) else {
            return Ok(());
        };
        // The answer of the leader is later than the time. After an open transaction there may be events that are not
        // visible yet.
        let fetched = self.fetch().await?;
        if !fetched.pieces.is_empty() || fetched.bounds.end != self.next {
            return Ok(());
        }
        let next = self.next;
        match &mut self.journal {
            Some(journal) => {
                let written = journal.write(next, time_ms).await;
                written.map_err(|error| error.to_string())
            }
            None => Ok(()),
        }
    }

    /// The offset after the last batch. Fails if arrival times do not match the `arrival` setting.
    fn end_of(&self, fetched: &FetchData) -> Result<Offset, String> {
        let mut end = self.next;
        for batch in fetched.pieces.iter().flat_map(|piece| Batches::new(piece)) {
            let batch = batch.map_err(|error| self.named(&error))?;
            let header = &batch.header;
            let is_created = header.timestamp_type() == TimestampType::Create;
            if self.log_append_only && is_created && !header.is_control() {
                let (offset, place) = (header.base_offset(), self.partition.topic_partition());
                return Err(format!(
                    "event {offset} of `{place}` has the time of its producer: it was written while the topic had \
                     CreateTime. Start the job after it, or set arrival = \"create-time\" for the input, or in [cluster] if \
                     the topic is a hub of the node"
                ));
            }
            end = header.next_offset().max(end);
        }
        Ok(end)
    }
}

/// The latest arrival in a fetch.
fn latest_arrival(fetched: &FetchData) -> Result<Option<Instant>, CorruptBatch> {
    let mut latest = None;
    for batch in fetched.pieces.iter().flat_map(|piece| Batches::new(piece)) {
        latest = latest.max(Some(batch?.enqueue_time()));
    }
    Ok(latest.map(|time| Instant::from_unix_millis(time.0)))
}
