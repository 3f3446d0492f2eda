//! Punctuations for a topic of a cluster.
//!
//! The log of a node writes punctuations into a silent partition; the partitions of a cluster have none. In their place
//! a job keeps a *time journal*: a topic with a partition for each one of the input. A record says that time had passed
//! to `t` before offset `o` of the topic got its event. The job acts on it only after it has read it back, at `o`, so a
//! replay sees the same sequence of events and times.
//!
//! One job writes a journal at a time. A start gets the next epoch of the journal's producer, and its first record
//! carries that epoch into the partition. From then on brokers refuse records of earlier starts, and everything before
//! is known. Without transactions in the cluster there is no such epoch; then `t` still precedes the arrival of every
//! event at `o`, within the margin of the clocks, and so does not change its verdict.
//!
//! Where instances share a job, each partition of the journal has a writer of its own: the owner of the partition of
//! the input, which claims it (`Log::claim`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_connect::Cluster;
use highwater_log::batch::{Batch, BatchBuilder, BatchOptions, Batches, Decompressor, NewRecord};
use highwater_log::{
    AdminError, AppendError, CleanupPolicy, EnqueueTime, HubId, HubInfo, HubName, HubNameError,
    HubSettings, HubSpec, InitProducerRequest, Isolation, Offset, Partition, Producer, ReadError,
    TransactionError,
};
use highwater_time::Instant;

use super::partitions::InputPartition;
use super::status::StatusHandle;
use crate::config::KafkaInput;

const READ_BYTES: usize = 1 << 20;

/// Pause before a failed append is retried.
const PAUSE: Duration = Duration::from_secs(1);

/// A record is written later than its time, by clocks that differ; so far back is searched.
const SEARCH_BACK_MS: i64 = 60_000;

/// Before `before`, time had passed to `time`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PassedTime {
    pub before: Offset,
    pub time: Instant,
}

/// A record of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JournalRecord {
    /// A start of the job writes from here on.
    Begin,
    Passed {
        /// The topic of the input: one that was created again has offsets of its own.
        topic: HubId,
        before: Offset,
        time_ms: i64,
    },
}

const VERSION: u8 = 1;

impl JournalRecord {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(34);
        out.u8(VERSION);
        match self {
            JournalRecord::Begin => out.u8(0),
            JournalRecord::Passed {
                topic,
                before,
                time_ms,
            } => {
                out.u8(1);
                out.raw(&topic.0);
                out.i64(before.0);
                out.i64(*time_ms);
            }
        }
        out
    }

    fn decode(bytes: &[u8]) -> Result<JournalRecord, DecodeError> {
        let mut from = Reader::new(bytes);
        from.version(VERSION)?;
        match from.u8()? {
            0 => Ok(JournalRecord::Begin),
            1 => {
                let mut topic = [0; 16];
                for byte in &mut topic {
                    *byte = from.u8()?;
                }
                Ok(JournalRecord::Passed {
                    topic: HubId(topic),
                    before: Offset(from.i64()?),
                    time_ms: from.i64()?,
                })
            }
            _ => Err(DecodeError::Invalid("its kind is unknown")),
        }
    }
}

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum JournalError {
    #[error("the time journal: {0}")]
    Name(#[from] HubNameError),
    #[error("the time journal `{journal}` cannot be created: {error}")]
    Create { journal: String, error: AdminError },
    #[error("the time journal `{0}` is not there")]
    Missing(String),
    #[error("the topic `{0}` does not exist")]
    NoTopic(String),
    #[error("the time journal cannot be read: {0}")]
    Read(#[from] ReadError),
    #[error("the time journal `{journal}` has an unreadable record at offset {offset}: {reason}")]
    Damaged {
        journal: String,
        offset: Offset,
        reason: String,
    },
    #[error("the time journal cannot be written: {0}")]
    Write(AppendError),
    #[error("the time journal cannot be written: {0}")]
    Producer(TransactionError),
    #[error(
        "the time journal `{0}` was taken over: a job of this name with this input runs elsewhere. \
         Give one of the jobs another name, or the input its own `journal`"
    )]
    Fenced(String),
}

impl JournalError {
    /// Whether a cluster that does not answer may be the reason.
    pub(super) fn is_temporary(&self) -> bool {
        matches!(
            self,
            JournalError::Missing(_)
                | JournalError::Read(ReadError::Storage { .. })
                | JournalError::Create {
                    error: AdminError::Storage(_),
                    ..
                }
        )
    }
}

/// The role of a job with a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JournalAccess {
    /// Only reads it. It may be absent.
    Read,
    /// Writes all of its partitions.
    Write,
    /// Writes the partitions that it claims.
    Claim,
}

/// The journal of a job's input.
pub(super) struct InputJournal {
    name: HubName,
    cluster: Cluster,
    margin: Duration,
    /// `None` unless it has one writer, or if the cluster has no epochs.
    producer: Option<Producer>,
    access: JournalAccess,
}

impl InputJournal {
    /// Creates the topic if it is absent and not only read, and fences earlier starts.
    pub(super) async fn open(
        name: HubName,
        kafka: &KafkaInput,
        cluster: Cluster,
        topic: &HubInfo,
        access: JournalAccess,
        status: &StatusHandle,
    ) -> Result<InputJournal, JournalError> {
        let mut journal = InputJournal {
            name,
            cluster,
            margin: kafka.clock_margin,
            producer: None,
            access,
        };
        if access != JournalAccess::Read {
            journal.ensure_topic(topic).await?;
        }
        if access == JournalAccess::Write && kafka.transactions {
            journal.producer = Some(journal.init_producer(status).await?);
        }
        Ok(journal)
    }

    async fn ensure_topic(&self, topic: &HubInfo) -> Result<(), JournalError> {
        let failed = |error| JournalError::Create {
            journal: self.name.to_string(),
            error,
        };
        let log = &self.cluster.log;
        let existing = match log.hub(self.name.as_str()) {
            Some(existing) => existing,
            None => {
                let spec = HubSpec {
                    name: self.name.clone(),
                    partitions: topic.partitions,
                    settings: HubSettings {
                        cleanup: CleanupPolicy::Delete,
                        // A replay needs the times as long as the events are kept.
                        retention: topic.settings.retention,
                        ..HubSettings::default()
                    },
                };
                match log.create(spec).await {
                    Ok(created) => created,
                    Err(AdminError::Exists(_)) => log
                        .hub(self.name.as_str())
                        .ok_or_else(|| JournalError::Missing(self.name.to_string()))?,
                    Err(error) => return Err(failed(error)),
                }
            }
        };
        if existing.partitions < topic.partitions {
            let grown = log.grow(&self.name, topic.partitions).await;
            grown.map_err(failed)?;
        }
        Ok(())
    }

    async fn init_producer(&self, status: &StatusHandle) -> Result<Producer, JournalError> {
        loop {
            let request = InitProducerRequest {
                transactional_id: Some(self.name.to_string()),
                timeout: Duration::from_secs(60),
                current: None,
            };
            match self.cluster.transactions.init_producer(request).await {
                Ok(producer) => return Ok(producer),
                Err(TransactionError::Concurrent | TransactionError::Loading) => {
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error @ TransactionError::Storage(_)) => {
                    status.log(format!(
                        "the time journal `{}` cannot be written: {error}; if the cluster has no transactions, set \
                         transactions = false",
                        self.name
                    ));
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(JournalError::Producer(error)),
            }
        }
    }

    /// The journal of one partition, for a stream that has processed everything before `next` and up to `arrived`.
    /// `None` if there is no journal to read.
    pub(super) async fn partition(
        &self,
        source: &InputPartition,
        next: Offset,
        arrived: Instant,
        status: &StatusHandle,
    ) -> Result<Option<TimeJournal>, JournalError> {
        let (log, number) = (&self.cluster.log, source.place.partition);
        let partition = match self.access {
            JournalAccess::Claim => {
                let claimed = log.claim(self.name.as_str(), number).await;
                claimed.map_err(JournalError::Write)?
            }
            JournalAccess::Read | JournalAccess::Write => log.partition(self.name.as_str(), number),
        };
        let partition = match (partition, self.access) {
            (Some(partition), _) => partition,
            (None, JournalAccess::Read) => return Ok(None),
            (None, _) => return Err(JournalError::Missing(self.name.to_string())),
        };
        let mut journal = TimeJournal {
            topic: source.hub,
            partition,
            margin: self.margin,
            writer: match self.access {
                JournalAccess::Read => None,
                JournalAccess::Write => Some(JournalWriter::Sequenced {
                    producer: self.producer,
                    sequence: 0,
                }),
                JournalAccess::Claim => Some(JournalWriter::Claimed),
            },
            next: Offset(0),
            known_end: Offset(0),
            from: next,
            reached: arrived,
            pending: VecDeque::new(),
            unpacker: Decompressor::default(),
            status: status.clone(),
        };
        journal.begin().await?;
        Ok(Some(journal))
    }
}

enum JournalWriter {
    Sequenced {
        /// `None` if the cluster has no epochs.
        producer: Option<Producer>,
        /// The sequence number of the next record.
        sequence: i32,
    },
    /// The partition is claimed, and numbers its batches itself.
    Claimed,
}

/// The journal of one partition of the input.
pub(super) struct TimeJournal {
    /// The topic of the input.
    topic: HubId,
    /// The partition of the journal.
    partition: Arc<dyn Partition>,
    margin: Duration,
    /// `None` if the journal is only read.
    writer: Option<JournalWriter>,
    /// The next offset to read.
    next: Offset,
    /// No record before this offset is missing, and none but our own follows.
    known_end: Offset,
    /// Times before earlier events do not matter.
    from: Offset,
    /// The latest arrival of an event, or time that was acted on.
    reached: Instant,
    /// Records that were read and not acted on.
    pending: VecDeque<PassedTime>,
    unpacker: Decompressor,
    status: StatusHandle,
}

impl TimeJournal {
    /// Writes the first record and finds the position to read from.
    async fn begin(&mut self) -> Result<(), JournalError> {
        if let Some(JournalWriter::Sequenced { .. }) = self.writer {
            self.append(&JournalRecord::Begin).await?;
        }
        let bounds = self.partition.fetch_bounds().await?;
        self.known_end = self.known_end.max(bounds.visible(Isolation::Committed));
        self.next = bounds.start;
        if self.reached > Instant::BEFORE_ALL {
            let time = EnqueueTime(self.reached.to_unix_millis() - SEARCH_BACK_MS);
            let found = self.partition.offset_for_time(time).await?;
            self.next = found.map_or(self.known_end, |(offset, _)| offset);
        }
        Ok(())
    }

    /// The times that the journal has up to `end`, inclusive, in the order of their offsets; of those before `end`
    /// itself, the ones up to `latest`.
    pub(super) async fn passed(
        &mut self,
        end: Offset,
        latest: Instant,
    ) -> Result<Vec<PassedTime>, JournalError> {
        let is_due =
            |front: &PassedTime| front.before < end || front.before == end && front.time <= latest;
        let mut passed = Vec::new();
        loop {
            while let Some(front) = self.pending.front().filter(|front| is_due(front)) {
                if front.before >= self.from && front.time > self.reached {
                    self.reached = front.time;
                    passed.push(*front);
                }
                self.pending.pop_front();
            }
            if !self.pending.is_empty() || self.next >= self.known_end {
                return Ok(passed);
            }
            self.read().await?;
        }
    }

    /// An event arrived at this time.
    pub(super) fn note_arrival(&mut self, arrival: Instant) {
        self.reached = self.reached.max(arrival);
    }

    /// The time to write if a leader says after `now_ms` that there are no more events; `None` if it is no later than
    /// the latest arrival.
    pub(super) fn time_to_write(&self, now_ms: i64) -> Option<i64> {
        let time_ms = now_ms - self.margin.as_millis() as i64;
        let is_later = Instant::from_unix_millis(time_ms) > self.reached;
        (self.writer.is_some() && is_later).then_some(time_ms)
    }

    /// Writes that time had passed to `time_ms` before `before`. [`TimeJournal::passed`] returns it.
    pub(super) async fn write(&mut self, before: Offset, time_ms: i64) -> Result<(), JournalError> {
        let topic = self.topic;
        let record = JournalRecord::Passed {
            topic,
            before,
            time_ms,
        };
        self.append(&record).await
    }

    /// Tries until the outcome is known: no event may be processed while the record may still be appended.
    async fn append(&mut self, record: &JournalRecord) -> Result<(), JournalError> {
        if let Some(JournalWriter::Claimed) = self.writer {
            return self.append_claimed(record).await;
        }
        let batch = self.batch(record)?;
        loop {
            let appended = match self.partition.append(batch.clone()).await {
                Ok(appended) => appended,
                Err(AppendError::Fenced { .. }) => {
                    let journal = &self.partition.topic_partition().hub;
                    return Err(JournalError::Fenced(journal.to_string()));
                }
                Err(
                    error @ (AppendError::OutcomeUnknown { .. }
                    | AppendError::QueueFull { .. }
                    | AppendError::Busy { .. }
                    | AppendError::DiskFull { .. }
                    | AppendError::Stopped { .. }),
                ) => {
                    self.status.log(format!("time does not advance: {error}"));
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                Err(error) => return Err(JournalError::Write(error)),
            };
            if let Some(JournalWriter::Sequenced { sequence, .. }) = &mut self.writer {
                *sequence = sequence.checked_add(1).unwrap_or(0);
            }
            self.known_end = self.known_end.max(Offset(appended.offset.0 + 1));
            return Ok(());
        }
    }

    /// A claim ends with the first append that fails.
    async fn append_claimed(&mut self, record: &JournalRecord) -> Result<(), JournalError> {
        let value = record.encode();
        let record = NewRecord {
            key: None,
            value: Some(&value),
            headers: &[],
        };
        let appended = match self.partition.append_records(&[record]).await {
            Ok(appended) => appended,
            Err(AppendError::Fenced { .. }) => {
                let journal = &self.partition.topic_partition().hub;
                return Err(JournalError::Fenced(journal.to_string()));
            }
            Err(error) => return Err(JournalError::Write(error)),
        };
        self.known_end = self.known_end.max(Offset(appended.offset.0 + 1));
        Ok(())
    }

    fn batch(&self, record: &JournalRecord) -> Result<Batch, JournalError> {
        let value = record.encode();
        let mut builder = BatchBuilder::new();
        builder.push(&NewRecord {
            key: None,
            value: Some(&value),
            headers: &[],
        });
        let producer = match &self.writer {
            Some(JournalWriter::Sequenced { producer, sequence }) => {
                producer.map(|producer| (producer, *sequence))
            }
            Some(JournalWriter::Claimed) | None => None,
        };
        let options = BatchOptions {
            producer,
            ..BatchOptions::default()
        };
        let built = builder.build(&options);
        built.map_err(|error| JournalError::Write(error.into()))
    }

    /// Reads some records into `pending`.
    async fn read(&mut self) -> Result<(), JournalError> {
        let read = self
            .partition
            .read(self.next, READ_BYTES, Isolation::Committed);
        let fetched = match read.await {
            Ok(fetched) => fetched,
            Err(ReadError::OutOfRange {
                requested, start, ..
            }) if requested < start => {
                self.next = start;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        if fetched.pieces.is_empty() {
            // The leader does not show the end that it acknowledged yet.
            self.partition
                .wait_past(self.next, Isolation::Committed)
                .await;
        }
        for piece in &fetched.pieces {
            for batch in Batches::new(piece) {
                let batch = batch.map_err(|error| damaged(&*self.partition, self.next, &error))?;
                let from = self.next;
                self.next = batch.header.next_offset().max(from);
                if batch.header.is_control() {
                    continue;
                }
                let at = batch.header.base_offset();
                let records = batch.records(&mut self.unpacker);
                let records = records.map_err(|error| damaged(&*self.partition, at, &error))?;
                for record in records {
                    let record = record.map_err(|error| damaged(&*self.partition, at, &error))?;
                    let Some(value) = record.value.filter(|_| record.offset >= from) else {
                        continue;
                    };
                    let decoded = JournalRecord::decode(value);
                    match decoded.map_err(|error| damaged(&*self.partition, at, &error))? {
                        JournalRecord::Passed {
                            topic,
                            before,
                            time_ms,
                        } if topic == self.topic => self.pending.push_back(PassedTime {
                            before,
                            time: Instant::from_unix_millis(time_ms),
                        }),
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }
}

fn damaged(
    partition: &dyn Partition,
    offset: Offset,
    reason: &dyn std::fmt::Display,
) -> JournalError {
    JournalError::Damaged {
        journal: partition.topic_partition().hub.to_string(),
        offset,
        reason: reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_the_bytes_of_its_description() {
        let record = JournalRecord::Passed {
            topic: HubId([7; 16]),
            before: Offset(0x0102),
            time_ms: 0x0304,
        };
        let mut bytes = vec![1, 1];
        bytes.extend([7; 16]);
        bytes.extend(0x0102i64.to_le_bytes());
        bytes.extend(0x0304i64.to_le_bytes());
        assert_eq!(record.encode(), bytes);
        assert_eq!(JournalRecord::decode(&bytes), Ok(record));
        assert_eq!(JournalRecord::Begin.encode(), [1, 0]);
        for wrong in [&[][..], &[2, 0], &[1, 9], &bytes[..20]] {
            assert!(JournalRecord::decode(wrong).is_err(), "{wrong:?}");
        }
    }
}
