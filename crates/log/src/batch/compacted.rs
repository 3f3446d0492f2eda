//! Batches after compaction, with fewer records than they were written with.
//!
//! Offsets stay: a batch keeps its first and last offset, and a batch without records replaces removed batches. So the
//! offsets of a compacted log have no gaps, and a wrong offset is detected as in any other log.

use bytes::Bytes;

use super::records::Record;
use super::repack::packed;
use super::{
    Batch, BatchError, BatchHeader, Decompressor, HEADER_LEN, LENGTH_END, StoredBatch,
    TimestampType,
};
use crate::{EnqueueTime, Offset};

/// The result of [`StoredBatch::retain`].
#[derive(Debug)]
pub enum RetainResult {
    /// The batch is unchanged.
    All,
    Some(Batch),
    /// No record is left.
    None,
}

impl StoredBatch<'_> {
    /// The batch with the records for which `keep` is true.
    pub fn retain(
        &self,
        decompressor: &mut Decompressor,
        mut keep: impl FnMut(&Record<'_>) -> bool,
    ) -> Result<RetainResult, BatchError> {
        let mut records = self.records(decompressor)?;
        let mut body = Vec::new();
        let mut count = 0;
        let mut latest = i64::MIN;
        loop {
            let before = records.rest();
            let Some(record) = records.next() else {
                break;
            };
            let record = record?;
            if keep(&record) {
                latest = latest.max(record.created);
                let size = before.len() - records.rest().len();
                body.extend_from_slice(&before[..size]);
                count += 1;
            }
        }
        match count {
            0 => Ok(RetainResult::None),
            count if count == self.header.count() => Ok(RetainResult::All),
            count => {
                let mut header = self.header;
                header.set_count(count);
                if header.timestamp_type() == TimestampType::Create {
                    header.set_max_timestamp(latest);
                }
                let mut batch = packed(header, &body)?;
                batch.time = self.time_frame();
                Ok(RetainResult::Some(batch))
            }
        }
    }
}

impl Batch {
    /// A batch without records for the offsets from `first` to `next`, exclusive. `time` is the enqueue time of the
    /// last of them.
    pub fn gap(first: Offset, next: Offset, time: EnqueueTime) -> Batch {
        let delta = i32::try_from(next.0 - first.0 - 1);
        let mut header = BatchHeader::new([0; HEADER_LEN]);
        header.set_last_offset_delta(delta.expect("a gap is no longer than a batch can be"));
        header.set_length((HEADER_LEN - LENGTH_END) as i32);
        header.set_magic(2);
        header.set_base_timestamp(-1);
        header.set_producer_id(-1);
        header.set_producer_epoch(-1);
        header.set_base_sequence(-1);
        header.set_crc(header.crc_with(&[]));
        let mut batch = Batch {
            header,
            records: Bytes::new(),
            time: None,
        };
        batch.stamp(first, time);
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BatchBuilder, BatchOptions, Batches, Codec, NewRecord};
    use super::*;

    fn stamped(values: &[&str], codec: Codec) -> Bytes {
        let mut builder = BatchBuilder::new();
        for value in values {
            builder.push(&NewRecord {
                key: Some(value.as_bytes()),
                value: Some(value.as_bytes()),
                headers: &[("h", Some(b"x"))],
            });
        }
        let mut batch = builder
            .build(&BatchOptions {
                codec,
                ..BatchOptions::default()
            })
            .unwrap();
        batch.stamp(Offset(10), EnqueueTime(77));
        batch.to_bytes()
    }

    #[test]
    fn kept_records_keep_their_offsets_and_a_gap_stands_for_the_others() {
        for codec in [Codec::None, Codec::Zstd] {
            let bytes = stamped(&["a", "b", "c"], codec);
            let stored = Batches::new(&bytes).next().unwrap().unwrap();
            let mut decompressor = Decompressor::new(1 << 20);
            let kept = stored.retain(&mut decompressor, |record| record.key != Some(b"b"));
            let Ok(RetainResult::Some(kept)) = kept else {
                panic!("{kept:?}");
            };
            let gap = Batch::gap(Offset(13), Offset(20), EnqueueTime(80));
            let both = [kept.to_bytes(), gap.to_bytes()].concat();
            let mut found = Vec::new();
            for batch in Batches::new(&both).following(Offset(10)) {
                let batch = batch.unwrap();
                batch.check().unwrap();
                for record in batch.records(&mut decompressor).unwrap() {
                    let record = record.unwrap();
                    found.push((record.offset.0, record.value.unwrap().to_vec()));
                }
                assert!(batch.enqueue_time() >= EnqueueTime(77));
            }
            assert_eq!(found, [(10, b"a".to_vec()), (12, b"c".to_vec())]);
            assert_eq!(gap.header().next_offset(), Offset(20));
        }
    }

    #[test]
    fn keeping_all_or_nothing_makes_no_batch() {
        let bytes = stamped(&["a", "b"], Codec::None);
        let stored = Batches::new(&bytes).next().unwrap().unwrap();
        let mut decompressor = Decompressor::new(1 << 20);
        assert!(matches!(
            stored.retain(&mut decompressor, |_| true),
            Ok(RetainResult::All)
        ));
        assert!(matches!(
            stored.retain(&mut decompressor, |_| false),
            Ok(RetainResult::None)
        ));
    }
}
