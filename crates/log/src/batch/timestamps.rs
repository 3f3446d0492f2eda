//! The timestamps of a stored batch as consumers see them: one for all records if the log stamped them, otherwise those
//! of the producer, in any order.

use super::{BatchError, BatchHeader, Decompressor, Record, StoredBatch, TimestampType};
use crate::Offset;

impl BatchHeader {
    /// The latest timestamp that consumers see; `None` for batches without records for them: markers, punctuations, and
    /// batches emptied by compaction.
    pub fn consumer_timestamp(&self) -> Option<i64> {
        (self.count() > 0 && !self.is_control()).then(|| self.max_timestamp())
    }
}

impl StoredBatch<'_> {
    /// The first record from `start` on with this timestamp or a later one.
    pub fn find_timestamp(
        &self,
        timestamp: i64,
        start: Offset,
        decompressor: &mut Decompressor,
    ) -> Result<Option<(Offset, i64)>, BatchError> {
        let Some(max) = self.header.consumer_timestamp() else {
            return Ok(None);
        };
        if max < timestamp || self.header.last_offset() < start {
            return Ok(None);
        }
        if self.header.timestamp_type() == TimestampType::LogAppend {
            return Ok(Some((self.header.base_offset().max(start), max)));
        }
        let wanted = |record: &Record<'_>| record.offset >= start && record.created >= timestamp;
        for record in self.records(decompressor)? {
            let record = record?;
            if wanted(&record) {
                return Ok(Some((record.offset, record.created)));
            }
        }
        Ok(None)
    }

    /// The latest timestamp of the records from `start` on.
    pub fn max_timestamp_from(
        &self,
        start: Offset,
        decompressor: &mut Decompressor,
    ) -> Result<Option<i64>, BatchError> {
        let is_whole = self.header.base_offset() >= start
            || self.header.timestamp_type() == TimestampType::LogAppend;
        let max = self.header.consumer_timestamp();
        if is_whole || max.is_none() {
            return Ok(max.filter(|_| self.header.last_offset() >= start));
        }
        let mut max = None;
        for record in self.records(decompressor)? {
            let record = record?;
            if record.offset >= start {
                max = max.max(Some(record.created));
            }
        }
        Ok(max)
    }
}
