//! The enqueue time of a batch that keeps its producer's timestamps.
//!
//! Such a batch has no field left for the log's time: its header goes to consumers as the producer sent it. So the log
//! stores a frame of 20 bytes directly before it, in the same write. [`super::Batches`] reads both as one unit; Kafka
//! clients get the batches without the frames ([`without_frames`]).

use bytes::{Bytes, BytesMut};

use super::{BatchError, Batches, HEADER_LEN};
use crate::EnqueueTime;

/// Kind and version, where a batch has its base offset, which is never negative.
const KIND: [u8; 8] = *b"\xffhwtime1";
const TIME_END: usize = 16;

/// If batches are smaller than this on average, copying them together costs less than writing them one by one.
const COPIED_BELOW: usize = 4 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeFrame([u8; TimeFrame::LEN]);

impl TimeFrame {
    pub(super) const LEN: usize = 20;

    pub(super) fn new(time: EnqueueTime) -> TimeFrame {
        let mut bytes = [0; TimeFrame::LEN];
        bytes[..8].copy_from_slice(&KIND);
        bytes[8..TIME_END].copy_from_slice(&time.0.to_be_bytes());
        let crc = crc32c::crc32c(&bytes[..TIME_END]);
        bytes[TIME_END..].copy_from_slice(&crc.to_be_bytes());
        TimeFrame(bytes)
    }

    /// The frame at the start of `bytes`; `None` if it is a batch.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<TimeFrame>, BatchError> {
        if !bytes.starts_with(&KIND) {
            return Ok(None);
        }
        let frame = bytes.first_chunk().ok_or(BatchError::Short {
            have: bytes.len(),
            need: TimeFrame::LEN + HEADER_LEN,
        })?;
        let crc = crc32c::crc32c(&frame[..TIME_END]);
        match frame[TIME_END..] == crc.to_be_bytes() {
            true => Ok(Some(TimeFrame(*frame))),
            false => Err(BatchError::Checksum),
        }
    }

    pub(super) fn time(&self) -> EnqueueTime {
        let time = self.0[8..].first_chunk();
        EnqueueTime(i64::from_be_bytes(
            *time.expect("the time lies inside the frame"),
        ))
    }

    pub(super) fn as_bytes(&self) -> &[u8; TimeFrame::LEN] {
        &self.0
    }
}

/// The batches of a piece of a fetch as Kafka clients read them: without the enqueue times between them. Consecutive
/// batches are slices of the piece; only small ones are copied together. A piece without frames is returned as it is.
pub fn without_frames(piece: &Bytes) -> Vec<Bytes> {
    let mut runs = Vec::new();
    let mut start = 0;
    let mut end = 0;
    for batch in Batches::new(piece).flatten() {
        let bytes = batch.end() - batch.bytes().len();
        if bytes > batch.position {
            runs.extend((start < end).then_some(start..end));
            start = bytes;
        }
        end = batch.end();
    }
    runs.extend((start < end).then_some(start..end));
    let total: usize = runs.iter().map(|run| run.len()).sum();
    match runs.len() > 1 && total / runs.len() < COPIED_BELOW {
        true => {
            let mut copied = BytesMut::with_capacity(total);
            for run in runs {
                copied.extend_from_slice(&piece[run]);
            }
            vec![copied.freeze()]
        }
        false => runs.into_iter().map(|run| piece.slice(run)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{
        Batch, BatchBuilder, BatchOptions, Decompressor, NewRecord, StoredBatch, TimestampType,
    };
    use super::*;
    use crate::Offset;

    fn batch(timestamp: Option<i64>, value: &[u8]) -> Batch {
        let mut builder = BatchBuilder::new();
        builder.push(&NewRecord {
            key: Some(b"key"),
            value: Some(value),
            headers: &[],
        });
        let options = BatchOptions {
            timestamp,
            ..BatchOptions::default()
        };
        builder.build(&options).unwrap()
    }

    fn framed(timestamp: Option<i64>) -> Vec<u8> {
        let mut batch = batch(timestamp, b"value");
        batch.stamp_as(TimestampType::Create, Offset(7), EnqueueTime(5_000));
        batch.stored_parts().concat()
    }

    fn one(bytes: &[u8]) -> StoredBatch<'_> {
        let mut batches = Batches::new(bytes).following(Offset(7));
        let batch = batches.next().unwrap().unwrap();
        assert_eq!(batch.end(), bytes.len());
        batch.check().unwrap();
        batch
    }

    #[test]
    fn the_layout_is_that_of_the_documentation() {
        let frame = TimeFrame::new(EnqueueTime(1_700_000_000_000));
        let expected = [
            0xff, 0x68, 0x77, 0x74, 0x69, 0x6d, 0x65, 0x31, 0x00, 0x00, 0x01, 0x8b, 0xcf, 0xe5,
            0x68, 0x00, 0x04, 0xcc, 0x5c, 0xfd,
        ];
        assert_eq!(frame.as_bytes(), &expected);
    }

    // proves K4
    #[test]
    fn both_times_are_read_back() {
        let bytes = framed(Some(1_000));
        let stored = one(&bytes);
        assert_eq!(stored.enqueue_time(), EnqueueTime(5_000));
        assert_eq!(stored.header.max_timestamp(), 1_000);
        assert_eq!(stored.header.timestamp_type(), TimestampType::Create);
        let mut decompressor = Decompressor::new(1 << 10);
        let record = stored.records(&mut decompressor).unwrap().next();
        let record = record.unwrap().unwrap();
        assert_eq!((record.timestamp, record.created), (5_000, 1_000));
    }

    #[test]
    fn a_batch_without_timestamps_gets_the_enqueue_time() {
        let bytes = framed(None);
        let stored = one(&bytes);
        assert_eq!(stored.header.max_timestamp(), 5_000);
        let mut decompressor = Decompressor::new(1 << 10);
        let record = stored.records(&mut decompressor).unwrap().next();
        assert_eq!(record.unwrap().unwrap().created, 5_000);
    }

    #[test]
    fn every_changed_bit_and_every_cut_is_detected() {
        let good = framed(Some(1_000));
        for at in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[at / 8] ^= 1 << (at % 8);
            let mut batches = Batches::new(&bytes).following(Offset(7));
            let whole = batches.next().unwrap();
            assert!(
                whole.and_then(|batch| batch.check()).is_err(),
                "bit {at} of {}",
                good.len() * 8
            );
        }
        for cut in 1..good.len() {
            let mut batches = Batches::new(&good[..cut]);
            let broken = batches.next().unwrap().unwrap_err();
            assert_eq!(broken.position, 0);
            assert!(
                matches!(broken.error, BatchError::Short { need, .. } if need > cut),
                "{cut}: {broken}"
            );
        }
    }

    #[test]
    fn a_producer_cannot_send_a_frame() {
        assert!(Batch::parse(framed(Some(1_000)).into()).is_err());
    }

    proptest! {
        // proves K4
        #[test]
        fn without_frames_batches_are_byte_for_byte_what_was_stamped(
            batches in prop::collection::vec((any::<bool>(), 0..9_000usize), 0..20),
        ) {
            let (mut stored, mut wire) = (Vec::new(), Vec::new());
            for (offset, (created, size)) in batches.iter().enumerate() {
                let mut batch = batch(Some(9), &vec![7; *size]);
                let kind = match created {
                    true => TimestampType::Create,
                    false => TimestampType::LogAppend,
                };
                batch.stamp_as(kind, Offset(offset as i64), EnqueueTime(100));
                prop_assert_eq!(batch.stored_size(), batch.stored_parts().concat().len());
                stored.extend(batch.stored_parts().concat());
                wire.extend(batch.to_bytes());
            }
            let stored = Bytes::from(stored);
            prop_assert_eq!(without_frames(&stored).concat(), wire);
            if batches.iter().all(|(created, _)| !created) {
                prop_assert!(without_frames(&stored).len() <= 1);
            }
        }
    }
}
