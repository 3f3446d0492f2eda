//! The producers of a partition: their last batches, and their open and aborted transactions.
//!
//! Storage calls [`ProducerStates::check`] for a batch, assigns its offset, and calls [`ProducerStates::apply`] before
//! it checks the next one, without waiting for the disk. So a repeat of a batch that is not durable yet is recognized;
//! its answer waits until the first one is durable. Nothing is undone: after a failed write the partition accepts no
//! more. The visibility of transactions depends on the disk: [`ProducerStates::advance_durable`] reports its progress.
//!
//! The rules are those of Apache Kafka, with two differences. A repeat of a batch that is no longer remembered, but
//! certainly was written, is reported as a repeat, where Kafka reports a gap. And an unknown producer may start at any
//! sequence number, as with Kafka, unless the partition rejected an earlier batch of it because a queue or the disk was
//! full ([`ProducerStates::expect_sequence`]): the order of its batches in flight would be lost.
//!
//! Any number is a valid producer id, so the number of known producers is bounded (`PRODUCERS_MAX`): a new producer
//! evicts the least recently active one. That one is unknown from then on, and like Kafka the partition accepts its
//! next batch at any sequence number; a repeat would be appended again. So no producer is evicted while its client may
//! still repeat a batch (`RETRY_TIME_MS`) or has a transaction open; if none can be evicted, a new producer gets a
//! retriable error. Which producers are known follows from the log alone, because recovery applies the same batches.

mod entry;
#[cfg(test)]
mod eviction_law;
#[cfg(test)]
mod law;
mod snapshot;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::batch::{BatchError, BatchHeader};
use crate::{
    AbortedTransaction, AppendError, EnqueueTime, Offset, Producer, ProducerInfo, TopicPartition,
    TransactionMarker,
};

use entry::ProducerEntry;
pub use snapshot::SnapshotError;

/// The producers that a partition knows, about 7 MB of them.
const PRODUCERS_MAX: usize = 10_000;

/// How long clients retry a batch without a response: `delivery.timeout.ms` of Java is two minutes by
/// default, `message.timeout.ms` of librdkafka five.
const RETRY_TIME_MS: i64 = 5 * 60 * 1000;

/// The producers of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerStates {
    /// The offset after the last applied batch.
    end: Offset,
    producers_max: usize,
    entries: BTreeMap<i64, ProducerEntry>,
    /// The producers without an open transaction, the least recently active first.
    idle: BTreeSet<(EnqueueTime, i64)>,
    /// First offsets of the open transactions.
    open: BTreeSet<Offset>,
    /// Transactions whose marker may not be durable yet: first offset and offset of the marker, in the order of the
    /// markers.
    ending: Vec<(Offset, Offset)>,
    /// In the order of their markers.
    aborted: Vec<AbortedRange>,
}

/// The result of [`ProducerStates::check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceCheck {
    /// Append it.
    New,
    /// It was appended before: answer with these offsets as soon as `last` is durable.
    Duplicate {
        first: Offset,
        last: Offset,
        time: EnqueueTime,
    },
}

/// An aborted transaction: the records of `producer_id` from `first` to the marker at `last` are void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedRange {
    pub producer_id: i64,
    pub first: Offset,
    pub last: Offset,
    /// No transaction before this offset was open when the marker was appended.
    stable: Offset,
}

impl Default for ProducerStates {
    fn default() -> ProducerStates {
        ProducerStates {
            end: Offset::default(),
            producers_max: PRODUCERS_MAX,
            entries: BTreeMap::new(),
            idle: BTreeSet::new(),
            open: BTreeSet::new(),
            ending: Vec::new(),
            aborted: Vec::new(),
        }
    }
}

impl ProducerStates {
    /// A partition that starts at `start` and knows no producers.
    pub fn new(start: Offset) -> ProducerStates {
        ProducerStates {
            end: start,
            ..ProducerStates::default()
        }
    }

    /// Checks the sequence number of a batch that arrives at `now`. Not for markers.
    pub fn check(
        &self,
        header: &BatchHeader,
        now: EnqueueTime,
        topic_partition: &TopicPartition,
    ) -> Result<SequenceCheck, AppendError> {
        let Some(producer) = header.producer() else {
            return Ok(SequenceCheck::New);
        };
        match self.entries.get(&producer.id) {
            Some(entry) => entry.check(producer, header),
            None if self.has_room(now) => Ok(SequenceCheck::New),
            None => Err(self.full(topic_partition)),
        }
    }

    /// Checks whether the marker of a transaction can be appended. A marker with a newer epoch always can, because it
    /// fences batches in flight; one with the current epoch only if a transaction is open, so that a restarted
    /// coordinator writes no marker twice.
    pub fn check_marker(
        &self,
        producer: Producer,
        now: EnqueueTime,
        topic_partition: &TopicPartition,
    ) -> Result<(), AppendError> {
        match self.entries.get(&producer.id) {
            None if !self.has_room(now) => Err(self.full(topic_partition)),
            Some(entry) if producer.epoch < entry.epoch => Err(entry.fences(producer)),
            Some(entry) if producer.epoch == entry.epoch && entry.open.is_none() => {
                Err(AppendError::NoTransaction {
                    producer,
                    topic_partition: topic_partition.clone(),
                })
            }
            _ => Ok(()),
        }
    }

    /// Applies a stamped batch, either checked or found by recovery, with its enqueue time. `marker` is the result of
    /// [`crate::batch::Batch::as_marker`].
    pub fn apply(
        &mut self,
        header: &BatchHeader,
        time: EnqueueTime,
        marker: Option<TransactionMarker>,
    ) {
        self.end = header.next_offset();
        let Some(producer) = header.producer() else {
            return;
        };
        self.unlist(producer.id);
        let entry = self.entries.entry(producer.id);
        let entry = entry.or_insert_with(|| ProducerEntry::new(producer.epoch));
        entry.note(producer.epoch, time);
        match marker {
            Some(marker) => {
                if let Some(first) = entry.open.take() {
                    self.close(producer.id, first, header.last_offset(), marker);
                }
            }
            None => {
                entry.remember(header, time);
                if header.is_transactional() && entry.open.is_none() {
                    entry.open = Some(header.base_offset());
                    self.open.insert(header.base_offset());
                }
            }
        }
        self.list(producer.id);
        self.evict(producer.id);
    }

    /// Whether a further producer fits without evicting one that may still repeat a batch.
    fn has_room(&self, now: EnqueueTime) -> bool {
        let may_be_forgotten =
            |(last, _): &(EnqueueTime, i64)| last.0.saturating_add(RETRY_TIME_MS) <= now.0;
        self.entries.len() < self.producers_max || self.idle.first().is_some_and(may_be_forgotten)
    }

    fn full(&self, topic_partition: &TopicPartition) -> AppendError {
        let reason = format!(
            "it knows {} producers that wrote recently, and takes no further one for now",
            self.entries.len()
        );
        AppendError::Busy {
            topic_partition: topic_partition.clone(),
            reason,
        }
    }

    /// Adds a known producer to the idle ones, unless it has a transaction open.
    fn list(&mut self, id: i64) {
        let entry = self.entries.get(&id);
        if let Some(entry) = entry.filter(|entry| entry.open.is_none()) {
            self.idle.insert((entry.last_time, id));
        }
    }

    /// Takes a producer from the idle ones before it changes.
    fn unlist(&mut self, id: i64) {
        if let Some(entry) = self.entries.get(&id) {
            self.idle.remove(&(entry.last_time, id));
        }
    }

    /// Evicts the least recently active producers beyond the limit, but not the newest.
    fn evict(&mut self, newest: i64) {
        while self.entries.len() > self.producers_max {
            let mut others = self.idle.iter().filter(|(_, id)| *id != newest);
            let Some(oldest) = others.next().copied() else {
                return;
            };
            self.idle.remove(&oldest);
            self.entries.remove(&oldest.1);
        }
    }

    fn close(&mut self, producer_id: i64, first: Offset, last: Offset, marker: TransactionMarker) {
        self.open.remove(&first);
        self.ending.push((first, last));
        if marker == TransactionMarker::Abort {
            let stable = self.open.first().copied().unwrap_or(self.end);
            self.aborted.push(AbortedRange {
                producer_id,
                first,
                last,
                stable,
            });
        }
    }

    /// Notes that the next batch of a producer was rejected. An unknown producer must then start with it, if there is
    /// room to remember that.
    pub fn expect_sequence(&mut self, header: &BatchHeader, now: EnqueueTime) {
        let Some(producer) = header.producer() else {
            return;
        };
        if !self.entries.contains_key(&producer.id) && self.has_room(now) {
            let entry = ProducerEntry::expecting(producer.epoch, header.base_sequence(), now);
            self.entries.insert(producer.id, entry);
            self.list(producer.id);
            self.evict(producer.id);
        }
    }

    /// The offset after the last applied batch.
    pub fn end(&self) -> Offset {
        self.end
    }

    /// The last stable offset if `durable` is the end of the durable log: the first offset of the oldest transaction
    /// without a durable marker.
    pub fn last_stable_offset(&self, durable: Offset) -> Offset {
        let ended = self.ended_before(durable);
        let ending = self.ending[ended..].iter().map(|(first, _)| *first).min();
        let unstable = ending.into_iter().chain(self.open.first().copied()).min();
        unstable.map_or(durable, |first| first.min(durable))
    }

    /// Drops the state that was needed for offsets before `durable`.
    pub fn advance_durable(&mut self, durable: Offset) {
        self.ending.drain(..self.ended_before(durable));
    }

    /// Number of ending transactions whose marker is durable.
    fn ended_before(&self, durable: Offset) -> usize {
        let markers = &self.ending;
        markers.partition_point(|(_, marker)| *marker < durable)
    }

    /// The aborted transactions with records from `from` to `to`, exclusive.
    pub fn aborted_transactions(&self, from: Offset, to: Offset) -> Vec<AbortedTransaction> {
        let skipped = self.aborted.partition_point(|range| range.last < from);
        let mut found = Vec::new();
        for range in &self.aborted[skipped..] {
            if range.first < to {
                found.push(AbortedTransaction {
                    producer_id: range.producer_id,
                    first: range.first,
                });
            }
            if range.stable >= to {
                break;
            }
        }
        found
    }

    /// All remembered aborted transactions, in the order of their markers.
    pub fn aborted_ranges(&self) -> &[AbortedRange] {
        &self.aborted
    }

    /// Forgets aborted transactions that end before the new start of the partition.
    pub fn trim(&mut self, start: Offset) {
        let gone = self.aborted.partition_point(|range| range.last < start);
        self.aborted.drain(..gone);
    }

    /// Forgets producers without an open transaction that have written nothing since `before`; returns how many.
    pub fn expire(&mut self, before: EnqueueTime) -> usize {
        let kept = self.idle.split_off(&(before, i64::MIN));
        let expired = std::mem::replace(&mut self.idle, kept);
        for (_, id) in &expired {
            self.entries.remove(id);
        }
        expired.len()
    }

    /// All producers, by id.
    pub fn infos(&self) -> Vec<ProducerInfo> {
        let infos = self.entries.iter().map(|(id, entry)| entry.info(*id));
        infos.collect()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl ProducerEntry {
    fn fences(&self, producer: Producer) -> AppendError {
        AppendError::Fenced {
            producer,
            current: self.epoch,
        }
    }

    fn check(
        &self,
        producer: Producer,
        header: &BatchHeader,
    ) -> Result<SequenceCheck, AppendError> {
        if producer.epoch < self.epoch {
            return Err(self.fences(producer));
        }
        if self.open.is_some() && !header.is_transactional() {
            return Err(BatchError::OutsideTransaction.into());
        }
        let got = header.base_sequence();
        if producer.epoch > self.epoch {
            return in_sequence(producer, 0, got);
        }
        if let Some(sent) = self.find(header) {
            return Ok(SequenceCheck::Duplicate {
                first: sent.offset,
                last: sent.last_offset(),
                time: sent.time,
            });
        }
        match self.next {
            None => Ok(SequenceCheck::New),
            Some(_) if self.is_older_duplicate(header) => Err(AppendError::DuplicateTooOld {
                producer,
                sequence: got,
            }),
            Some(next) => in_sequence(producer, next, got),
        }
    }
}

fn in_sequence(producer: Producer, expected: i32, got: i32) -> Result<SequenceCheck, AppendError> {
    match got == expected {
        true => Ok(SequenceCheck::New),
        false => Err(AppendError::OutOfSequence {
            producer,
            expected,
            got,
        }),
    }
}
