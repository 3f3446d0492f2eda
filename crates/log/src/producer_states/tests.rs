use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::HubName;
use crate::batch::{Batch, BatchBuilder, BatchOptions, NewRecord};

pub(super) fn producer(id: i64, epoch: i16) -> Producer {
    Producer { id, epoch }
}

pub(super) fn topic_partition() -> TopicPartition {
    TopicPartition {
        hub: HubName::new("h").unwrap(),
        partition: 0,
    }
}

/// A batch of `count` records with sequence numbers from `sequence`.
pub(super) fn batch(producer: Producer, sequence: i32, count: i32, transactional: bool) -> Batch {
    let mut builder = BatchBuilder::new();
    for _ in 0..count {
        builder.push(&NewRecord {
            key: None,
            value: None,
            headers: &[],
        });
    }
    let seal = BatchOptions {
        producer: Some((producer, sequence)),
        transactional,
        ..BatchOptions::default()
    };
    builder.build(&seal).unwrap()
}

/// A partition with producer states and no records.
pub(super) struct Log {
    pub producers: ProducerStates,
    time: i64,
}

impl Log {
    pub(super) fn new() -> Log {
        Log {
            producers: ProducerStates::new(Offset(0)),
            time: 0,
        }
    }

    /// The time of the next batch.
    pub(super) fn now(&self) -> EnqueueTime {
        EnqueueTime(self.time + 1)
    }

    pub(super) fn wait(&mut self, millis: i64) {
        self.time += millis;
    }

    pub(super) fn check(&self, batch: &Batch) -> Result<SequenceCheck, AppendError> {
        self.producers
            .check(batch.header(), self.now(), &topic_partition())
    }

    pub(super) fn put(&mut self, mut batch: Batch) -> Offset {
        let offset = self.producers.end();
        self.time += 1;
        batch.stamp(offset, EnqueueTime(self.time));
        let marker = batch.as_marker().unwrap();
        self.producers
            .apply(batch.header(), batch.enqueue_time(), marker);
        offset
    }

    fn send(&mut self, batch: Batch) -> Result<Offset, AppendError> {
        match self.check(&batch)? {
            SequenceCheck::New => Ok(self.put(batch)),
            SequenceCheck::Duplicate { first, .. } => Ok(first),
        }
    }

    pub(super) fn end(
        &mut self,
        producer: Producer,
        marker: TransactionMarker,
    ) -> Result<Offset, AppendError> {
        self.producers
            .check_marker(producer, self.now(), &topic_partition())?;
        Ok(self.put(Batch::marker(producer, marker)))
    }

    fn stable(&self) -> i64 {
        let end = self.producers.end();
        self.producers.last_stable_offset(end).0
    }

    pub(super) fn aborted(&self, from: i64, to: i64) -> Vec<(i64, i64)> {
        let aborted = self
            .producers
            .aborted_transactions(Offset(from), Offset(to));
        aborted.iter().map(|a| (a.producer_id, a.first.0)).collect()
    }
}

fn gap(producer: Producer, expected: i32, got: i32) -> Result<Offset, AppendError> {
    Err(AppendError::OutOfSequence {
        producer,
        expected,
        got,
    })
}

#[test]
fn a_repeat_gets_the_first_place_and_time() {
    let (mut log, p) = (Log::new(), producer(1, 0));
    for (sequence, offset) in [(0, 0), (3, 3), (6, 6)] {
        assert_eq!(log.send(batch(p, sequence, 3, false)), Ok(Offset(offset)));
    }
    let verdict = log.check(&batch(p, 3, 3, false));
    let (first, last, time) = (Offset(3), Offset(5), EnqueueTime(2));
    assert_eq!(verdict, Ok(SequenceCheck::Duplicate { first, last, time }));
    // The same sequence numbers in another partition into batches are not a repeat.
    assert_eq!(log.send(batch(p, 3, 2, false)), gap(p, 9, 3));
    assert_eq!(log.send(batch(p, 10, 1, false)), gap(p, 9, 10));
}

#[test]
fn the_sixth_batch_back_is_known_to_be_old() {
    let (mut log, p) = (Log::new(), producer(1, 0));
    for sequence in 0..7 {
        log.send(batch(p, sequence, 1, false)).unwrap();
    }
    assert_eq!(log.send(batch(p, 2, 1, false)), Ok(Offset(2)));
    let late = AppendError::DuplicateTooOld {
        producer: p,
        sequence: 1,
    };
    assert_eq!(log.send(batch(p, 1, 1, false)), Err(late));
    // Half of it is remembered, so it was not sent like that.
    assert_eq!(log.send(batch(p, 1, 2, false)), gap(p, 7, 1));
}

/// Clients treat "duplicate" as success, so it must not be reported for a batch that was never written.
#[test]
fn sequences_before_the_first_batch_are_not_assumed_written() {
    let (mut log, p) = (Log::new(), producer(1, 0));
    for sequence in 50..57 {
        log.send(batch(p, sequence, 1, false)).unwrap();
    }
    let late = log.send(batch(p, 51, 1, false));
    assert!(matches!(late, Err(AppendError::DuplicateTooOld { .. })));
    assert_eq!(log.send(batch(p, 49, 1, false)), gap(p, 57, 49));
}

#[test]
fn numbers_begin_again_after_the_last() {
    let (mut log, p) = (Log::new(), producer(1, 0));
    log.send(batch(p, i32::MAX - 1, 2, false)).unwrap();
    for sequence in 0..6 {
        log.send(batch(p, sequence, 1, false)).unwrap();
    }
    let late = log.send(batch(p, i32::MAX - 1, 2, false));
    assert!(matches!(late, Err(AppendError::DuplicateTooOld { .. })));
    let (mut log, p) = (Log::new(), producer(2, 0));
    log.send(batch(p, i32::MAX, 2, false)).unwrap();
    assert_eq!(log.send(batch(p, 1, 1, false)), Ok(Offset(2)));
    assert_eq!(log.send(batch(p, i32::MAX, 2, false)), Ok(Offset(0)));
}

#[test]
fn a_newer_epoch_starts_at_nought_and_fences_the_older() {
    let mut log = Log::new();
    log.send(batch(producer(1, 3), 0, 5, false)).unwrap();
    let new = producer(1, 4);
    assert_eq!(log.send(batch(new, 5, 1, false)), gap(new, 0, 5));
    assert_eq!(log.send(batch(new, 0, 1, false)), Ok(Offset(5)));
    let old = producer(1, 3);
    let fenced = AppendError::Fenced {
        producer: old,
        current: 4,
    };
    assert_eq!(log.send(batch(old, 5, 1, false)), Err(fenced.clone()));
    // Even a repeat, as with Kafka.
    assert_eq!(log.send(batch(old, 0, 5, false)), Err(fenced.clone()));
    assert_eq!(log.end(old, TransactionMarker::Abort), Err(fenced));
}

#[test]
fn a_producer_that_was_rejected_starts_where_it_was() {
    let (mut log, p) = (Log::new(), producer(1, 0));
    log.producers
        .expect_sequence(batch(p, 0, 2, false).header(), EnqueueTime(1));
    assert_eq!(log.send(batch(p, 2, 2, false)), gap(p, 0, 2));
    assert_eq!(log.send(batch(p, 0, 2, false)), Ok(Offset(0)));
    assert_eq!(log.send(batch(p, 2, 2, false)), Ok(Offset(2)));
    // Not for known producers.
    let header = *batch(p, 9, 1, false).header();
    log.producers.expect_sequence(&header, EnqueueTime(1));
    assert_eq!(log.send(batch(p, 4, 1, false)), Ok(Offset(4)));
}

#[test]
fn readers_of_committed_records_stop_before_the_first_open_transaction() {
    let mut log = Log::new();
    let (a, b) = (producer(1, 0), producer(2, 0));
    log.send(batch(a, 0, 2, true)).unwrap();
    log.send(batch(b, 0, 3, true)).unwrap();
    log.send(batch(a, 2, 1, true)).unwrap();
    assert_eq!(log.stable(), 0);
    assert_eq!(log.end(a, TransactionMarker::Abort), Ok(Offset(6)));
    assert_eq!(log.stable(), 2);
    assert_eq!(log.end(b, TransactionMarker::Commit), Ok(Offset(7)));
    assert_eq!(log.stable(), 8);
    assert_eq!(log.aborted(0, 8), [(1, 0)]);
    assert_eq!(log.aborted(6, 7), [(1, 0)]);
    assert_eq!(log.aborted(7, 8), []);
    log.producers.trim(Offset(7));
    assert_eq!(log.aborted(0, 8), []);
}

/// If a crash lost the marker, the transaction would be open again and might be aborted.
#[test]
fn a_transaction_counts_as_ended_when_its_marker_is_durable() {
    let (mut log, a) = (Log::new(), producer(1, 0));
    log.send(batch(a, 0, 2, true)).unwrap();
    log.end(a, TransactionMarker::Commit).unwrap();
    assert_eq!(log.producers.last_stable_offset(Offset(1)), Offset(0));
    assert_eq!(log.producers.last_stable_offset(Offset(2)), Offset(0));
    assert_eq!(log.producers.last_stable_offset(Offset(3)), Offset(3));
}

#[test]
fn a_marker_is_written_once_unless_it_fences() {
    let (mut log, a) = (Log::new(), producer(1, 0));
    log.send(batch(a, 0, 1, true)).unwrap();
    let outside = log.send(batch(a, 1, 1, false));
    assert_eq!(outside, Err(BatchError::OutsideTransaction.into()));
    log.end(a, TransactionMarker::Commit).unwrap();
    let again = log.end(a, TransactionMarker::Commit);
    assert!(matches!(again, Err(AppendError::NoTransaction { .. })));
    log.end(producer(1, 1), TransactionMarker::Abort).unwrap();
    assert_eq!(log.aborted(0, 9), []);
    let late = log.send(batch(a, 1, 1, true));
    assert!(matches!(late, Err(AppendError::Fenced { .. })));
    // The numbers continue within an epoch.
    let b = producer(2, 0);
    log.send(batch(b, 0, 1, true)).unwrap();
    log.end(b, TransactionMarker::Commit).unwrap();
    assert!(log.send(batch(b, 1, 1, true)).is_ok());
}

#[test]
fn idle_producers_are_forgotten_but_not_in_a_transaction() {
    let mut log = Log::new();
    log.send(batch(producer(1, 0), 0, 1, false)).unwrap();
    log.send(batch(producer(2, 0), 0, 1, true)).unwrap();
    log.send(batch(producer(3, 0), 0, 1, false)).unwrap();
    assert_eq!(log.producers.expire(EnqueueTime(3)), 1);
    assert_eq!(log.producers.len(), 2);
    assert_eq!(log.producers.entries[&2].open, Some(Offset(1)));
    // As with Kafka, an unknown producer may continue at its number.
    assert_eq!(log.send(batch(producer(1, 0), 1, 1, false)), Ok(Offset(3)));
}

#[test]
fn a_snapshot_of_another_version_says_so() {
    let mut bytes = ProducerStates::default().snapshot();
    bytes[4] = 9;
    let content = bytes.len() - 4;
    let checksum = crc32c::crc32c(&bytes[..content]);
    bytes[content..].copy_from_slice(&checksum.to_be_bytes());
    assert_eq!(
        ProducerStates::restore(&bytes),
        Err(SnapshotError::Version(9))
    );
}

proptest! {
    #[test]
    fn a_snapshot_that_was_changed_or_cut_is_refused(
        producers in 0..4i64,
        topic_partition in any::<proptest::sample::Index>(),
        bit in 0..8u8,
    ) {
        let mut log = Log::new();
        for id in 0..producers {
            log.send(batch(producer(id, 0), 0, 1, true)).unwrap();
            log.end(producer(id, 0), TransactionMarker::Abort).unwrap();
        }
        let bytes = log.producers.snapshot();
        prop_assert!(ProducerStates::restore(&bytes).is_ok());
        let at = topic_partition.index(bytes.len());
        prop_assert!(ProducerStates::restore(&bytes[..at]).is_err());
        let mut changed = bytes.clone();
        changed[at] ^= 1 << bit;
        prop_assert!(ProducerStates::restore(&changed).is_err());
    }

    /// A valid checksum does not make the contents valid.
    #[test]
    fn no_bytes_make_restoring_panic(body in vec(any::<u8>(), 0..200), counts in any::<bool>()) {
        let mut bytes = b"HWPR\x01".to_vec();
        if counts {
            bytes.extend([0; 8]);
            bytes.extend(1u32.to_be_bytes());
        }
        bytes.extend(body);
        bytes.extend(crc32c::crc32c(&bytes).to_be_bytes());
        let _ = ProducerStates::restore(&bytes);
    }
}
