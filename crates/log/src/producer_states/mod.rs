//! What a partition remembers of its producers: which batches it has of them, and which transactions
//! are open or were aborted.
//!
//! Storage asks [`ProducerStates::check`] when a batch comes, gives it a place, and tells
//! [`ProducerStates::apply`] before it looks at the next one, without waiting for the disk. So a repeat of
//! a batch that is still on its way to the disk is known, and has only to wait until that one is
//! durable. Nothing has to be undone: when a write fails the partition takes no more. What readers may
//! see does depend on the disk, hence [`ProducerStates::advance_durable`] is told how far that is.
//!
//! The rules are those of Apache Kafka, with two differences. A repeat of a batch that is no longer
//! remembered, but certainly was written, is said to be one, where Kafka speaks of a gap. And a
//! producer that nobody knows may start at any number, as with Kafka, unless an earlier batch of it
//! was turned away here for want of room ([`ProducerStates::expect_sequence`]): the order of its batches in flight
//! would be lost.

mod entry;
#[cfg(test)]
mod law;
mod snapshot;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::batch::{BatchError, BatchHeader};
use crate::{
    AbortedTransaction, AppendError, EnqueueTime, Offset, Producer, TopicPartition,
    TransactionMarker,
};

use entry::ProducerEntry;
pub use snapshot::SnapshotError;

/// The producers of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProducerStates {
    /// What has been applied ends here.
    end: Offset,
    entries: BTreeMap<i64, ProducerEntry>,
    /// First offsets of the open transactions.
    open: BTreeSet<Offset>,
    /// Transactions whose marker may not be durable yet: first offset and that of the marker, in the
    /// order of the markers.
    ending: Vec<(Offset, Offset)>,
    /// In the order of their markers.
    aborted: Vec<AbortedRange>,
}

/// What to do with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceCheck {
    /// Append it.
    New,
    /// It is there already, or on its way: answer with this place as soon as `last` is durable.
    Duplicate {
        first: Offset,
        last: Offset,
        time: EnqueueTime,
    },
}

/// A transaction that was aborted: the records of `producer_id` from `first` up to the marker at
/// `last` do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedRange {
    pub producer_id: i64,
    pub first: Offset,
    pub last: Offset,
    /// Up to here no transaction was open when the marker came; later ones start at or after it.
    stable: Offset,
}

impl ProducerStates {
    /// A partition that starts at `start` with nobody known.
    pub fn new(start: Offset) -> ProducerStates {
        ProducerStates {
            end: start,
            ..ProducerStates::default()
        }
    }

    /// Whether a batch is the next of its producer. Says nothing of markers.
    pub fn check(&self, header: &BatchHeader) -> Result<SequenceCheck, AppendError> {
        let known = header
            .producer()
            .and_then(|producer| Some((producer, self.entries.get(&producer.id)?)));
        match known {
            None => Ok(SequenceCheck::New),
            Some((producer, entry)) => entry.check(producer, header),
        }
    }

    /// Whether a producer's transaction can be ended here. The marker of a newer epoch can always be
    /// written, because it fences what is still on its way; one of the epoch that is known only if a
    /// transaction is open, so that a coordinator that starts over writes none twice.
    pub fn check_marker(
        &self,
        producer: Producer,
        topic_partition: &TopicPartition,
    ) -> Result<(), AppendError> {
        match self.entries.get(&producer.id) {
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

    /// Takes note of a batch that has its place and its time: one that was judged, or one found on
    /// the disk. `marker` is what [`crate::batch::Batch::as_marker`] says of it.
    pub fn apply(&mut self, header: &BatchHeader, marker: Option<TransactionMarker>) {
        self.end = header.next_offset();
        let Some(producer) = header.producer() else {
            return;
        };
        let entry = self.entries.entry(producer.id);
        let entry = entry.or_insert_with(|| ProducerEntry::new(producer.epoch));
        entry.note(producer.epoch, header.enqueue_time());
        match marker {
            Some(marker) => {
                if let Some(first) = entry.open.take() {
                    self.close(producer.id, first, header.last_offset(), marker);
                }
            }
            None => {
                entry.remember(header);
                if header.is_transactional() && entry.open.is_none() {
                    entry.open = Some(header.base_offset());
                    self.open.insert(header.base_offset());
                }
            }
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

    /// Says that a batch that would have been the next was turned away. If nobody knows its
    /// producer, that one is now to start with it.
    pub fn expect_sequence(&mut self, header: &BatchHeader, now: EnqueueTime) {
        if let Some(producer) = header.producer() {
            let entry = self.entries.entry(producer.id);
            entry.or_insert_with(|| {
                ProducerEntry::expecting(producer.epoch, header.base_sequence(), now)
            });
        }
    }

    /// What has been applied ends here.
    pub fn end(&self) -> Offset {
        self.end
    }

    /// How far readers of committed records may go while `durable` is the end of what the disk has:
    /// not past the first record of a transaction that has no durable marker.
    pub fn last_stable_offset(&self, durable: Offset) -> Offset {
        let ended = self.ended_before(durable);
        let ending = self.ending[ended..].iter().map(|(first, _)| *first).min();
        let unstable = ending.into_iter().chain(self.open.first().copied()).min();
        unstable.map_or(durable, |first| first.min(durable))
    }

    /// Says that all before `durable` is on the disk and will be asked for no more.
    pub fn advance_durable(&mut self, durable: Offset) {
        self.ending.drain(..self.ended_before(durable));
    }

    /// How many of those that are ending have a durable marker.
    fn ended_before(&self, durable: Offset) -> usize {
        let markers = &self.ending;
        markers.partition_point(|(_, marker)| *marker < durable)
    }

    /// The aborted transactions with records from `from` to before `to`.
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

    /// Every aborted transaction that is remembered, in the order of their markers.
    pub fn aborted_ranges(&self) -> &[AbortedRange] {
        &self.aborted
    }

    /// The first offset of the transaction that a producer has open here.
    pub fn open_transaction(&self, producer_id: i64) -> Option<Offset> {
        self.entries.get(&producer_id)?.open
    }

    /// Forgets aborted transactions that end before the new start of the partition.
    pub fn trim(&mut self, start: Offset) {
        let gone = self.aborted.partition_point(|range| range.last < start);
        self.aborted.drain(..gone);
    }

    /// Forgets producers that have written nothing since `before` and have no transaction open.
    /// Answers how many.
    pub fn expire(&mut self, before: EnqueueTime) -> usize {
        let known = self.entries.len();
        self.entries
            .retain(|_, entry| entry.open.is_some() || entry.last_time >= before);
        known - self.entries.len()
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
