//! Control batches: transaction markers and punctuations.

use super::records::Records;
use super::{Batch, BatchError, BatchHeader, StoredBatch, builder};
use crate::{Producer, TransactionMarker};

/// Types of control records; a key is a version and a type. Kafka assigns small numbers; clients know the first two.
/// Ours is "HW", which Kafka is unlikely to assign.
const ABORT: u16 = 0;
const COMMIT: u16 = 1;
const PUNCTUATION: u16 = u16::from_be_bytes(*b"HW");

impl Batch {
    /// The marker that ends a transaction in one partition.
    pub fn marker(producer: Producer, marker: TransactionMarker) -> Batch {
        let kind = match marker {
            TransactionMarker::Abort => ABORT,
            TransactionMarker::Commit => COMMIT,
        };
        // Version, and epoch of the coordinator.
        builder::control(key(kind), &[0; 6], Some(producer))
    }

    /// States that no event arrived before its enqueue time. It belongs to no producer and to no transaction.
    pub fn punctuation() -> Batch {
        builder::control(key(PUNCTUATION), &[0; 2], None)
    }

    /// The outcome of the transaction, if this is a marker.
    pub fn as_marker(&self) -> Result<Option<TransactionMarker>, BatchError> {
        marker(&self.header, &self.records)
    }

    /// Whether it is a [`Batch::punctuation`].
    pub fn is_punctuation(&self) -> bool {
        is_punctuation(&self.header, &self.records)
    }
}

impl StoredBatch<'_> {
    /// The outcome of the transaction, if this is a marker.
    pub fn as_marker(&self) -> Result<Option<TransactionMarker>, BatchError> {
        marker(&self.header, self.payload())
    }

    /// Whether it is a [`Batch::punctuation`], which carries nothing but its enqueue time.
    pub fn is_punctuation(&self) -> bool {
        is_punctuation(&self.header, self.payload())
    }
}

fn key(kind: u16) -> [u8; 4] {
    let [high, low] = kind.to_be_bytes();
    [0, 0, high, low]
}

fn marker(header: &BatchHeader, payload: &[u8]) -> Result<Option<TransactionMarker>, BatchError> {
    match kind(header, payload)? {
        None | Some(PUNCTUATION) => Ok(None),
        Some(ABORT) => Ok(Some(TransactionMarker::Abort)),
        Some(COMMIT) => Ok(Some(TransactionMarker::Commit)),
        Some(_) => Err(BatchError::Marker),
    }
}

fn is_punctuation(header: &BatchHeader, payload: &[u8]) -> bool {
    kind(header, payload) == Ok(Some(PUNCTUATION))
}

/// The type of the control batch; `None` if it is a data batch.
fn kind(header: &BatchHeader, payload: &[u8]) -> Result<Option<u16>, BatchError> {
    if !header.is_control() {
        return Ok(None);
    }
    let record = Records::new(header, payload).next().transpose()?;
    // Later versions may append to the key.
    match record.and_then(|record| record.key) {
        Some([_, _, high, low, ..]) => Ok(Some(u16::from_be_bytes([*high, *low]))),
        _ => Err(BatchError::Marker),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        BatchBuilder, BatchOptions, Batches, Decompressor, NewRecord, ReadCommittedFilter,
    };
    use super::*;
    use crate::{AbortedTransaction, EnqueueTime, Offset};

    #[test]
    fn a_punctuation_is_known_by_its_kind_and_takes_one_offset() {
        let mut batch = Batch::punctuation();
        batch.stamp(Offset(7), EnqueueTime(1_234));
        let header = batch.header();
        assert!(header.is_control() && !header.is_transactional());
        assert_eq!(header.producer(), None);
        assert_eq!(header.base_sequence(), -1);
        assert_eq!(header.next_offset(), Offset(8));
        let bytes = batch.to_bytes();
        let stored = Batches::new(&bytes).next().unwrap().unwrap();
        stored.check().unwrap();
        assert!(stored.is_punctuation() && batch.is_punctuation());
        assert_eq!(stored.as_marker(), Ok(None));
        assert_eq!(stored.enqueue_time(), EnqueueTime(1_234));
        let mut decompressor = Decompressor::new(64);
        let records: Vec<_> = stored
            .records(&mut decompressor)
            .unwrap()
            .flatten()
            .collect();
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].key, Some(&b"\0\0HW"[..]));
        assert_eq!(records[0].timestamp, 1_234);
    }

    #[test]
    fn neither_a_marker_nor_a_record_with_such_a_key_is_a_punctuation() {
        let marker = Batch::marker(Producer { id: 3, epoch: 1 }, TransactionMarker::Commit);
        assert!(!marker.is_punctuation());
        let mut builder = BatchBuilder::new();
        builder.push(&NewRecord {
            key: Some(b"\0\0HW"),
            value: Some(b"\0\0"),
            headers: &[],
        });
        assert!(
            !builder
                .build(&BatchOptions::default())
                .unwrap()
                .is_punctuation()
        );
    }

    #[test]
    fn another_kind_is_neither_and_no_error_for_a_reader_that_skips_it() {
        let batch = builder::control(key(2), &[0; 2], None);
        assert_eq!(batch.as_marker(), Err(BatchError::Marker));
        assert!(!batch.is_punctuation());
        assert!(ReadCommittedFilter::default().skips(batch.header()));
    }

    #[test]
    fn a_punctuation_does_not_end_an_aborted_transaction() {
        let producer = Producer { id: 3, epoch: 0 };
        let mut builder = BatchBuilder::new();
        let mut data = |sequence| {
            builder.push(&NewRecord {
                key: None,
                value: Some(b"x"),
                headers: &[],
            });
            let seal = BatchOptions {
                producer: Some((producer, sequence)),
                transactional: true,
                ..BatchOptions::default()
            };
            builder.build(&seal).unwrap()
        };
        let batches = [data(0), Batch::punctuation(), data(1)];
        let mut skip = ReadCommittedFilter::new(&[AbortedTransaction {
            producer_id: 3,
            first: Offset(0),
        }]);
        for (offset, mut batch) in batches.into_iter().enumerate() {
            batch.stamp(Offset(offset as i64), EnqueueTime(5));
            assert!(skip.skips(batch.header()), "{offset}");
        }
    }
}
