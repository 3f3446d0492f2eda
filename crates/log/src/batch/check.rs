//! Checks that the records of a produced batch can be read, as Kafka does before an append: the compressed bytes can be
//! decompressed, and they are as many records as the header claims, with consecutive offsets.
//!
//! A checksum covers the compressed bytes only, so a producer can send a batch with a valid checksum that no reader can
//! decode. Uncompressed records are walked in place. Compressed records are checked as a stream, so that memory stays
//! constant whatever a batch decompresses to; only snappy, whose blocks have no stream, is decompressed into memory,
//! which its compression ratio bounds.

use std::io::Read;

use highwater_codec::varint;

use super::codec::{self, Codec, UnpackLimit};
use super::{Batch, BatchError, BatchHeader, Records};

/// The most bytes that a batch may decompress to, for producers and readers alike: more than any legitimate one, so
/// only a decompression bomb exceeds it.
pub(super) const DECOMPRESSED_BYTES_MAX: usize = 64 << 20;

const BUFFER_BYTES: usize = 16 << 10;

/// Properties of the records of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordSummary {
    /// The earliest timestamp of a producer's clock; `None` if no record has one (-1).
    pub timestamp_min: Option<i64>,
    /// The latest timestamp.
    pub timestamp_max: i64,
    /// A record has no key, which a compacted hub cannot keep.
    pub null_key: bool,
    /// The size of the records without compression.
    pub bytes: usize,
}

/// Kafka's number for a record without a timestamp.
const NO_TIMESTAMP: i64 = -1;

impl RecordSummary {
    const EMPTY: RecordSummary = RecordSummary {
        timestamp_min: None,
        timestamp_max: i64::MIN,
        null_key: false,
        bytes: 0,
    };

    fn add(&mut self, timestamp: i64, null_key: bool) {
        if timestamp != NO_TIMESTAMP {
            let min = self
                .timestamp_min
                .map_or(timestamp, |min| min.min(timestamp));
            self.timestamp_min = Some(min);
        }
        self.timestamp_max = self.timestamp_max.max(timestamp);
        self.null_key |= null_key;
    }
}

impl Batch {
    /// An upper bound of the memory that [`Batch::check_records`] takes.
    pub fn check_memory(&self) -> usize {
        match self.header.codec() {
            Ok(Codec::Snappy) => codec::snappy_bytes_max(&self.records).min(DECOMPRESSED_BYTES_MAX),
            Ok(codec @ (Codec::Gzip | Codec::Lz4 | Codec::Zstd)) => {
                BUFFER_BYTES + codec::decoder_bytes(codec, &self.records)
            }
            Ok(Codec::None) | Err(_) => 0,
        }
    }

    /// Checks the records that a producer sent. Costs a walk over the records, and their decompression.
    pub fn check_records(&self) -> Result<RecordSummary, BatchError> {
        let (header, bytes_max) = (&self.header, DECOMPRESSED_BYTES_MAX);
        match header.codec()? {
            Codec::None => check_all(Records::new(header, &self.records)),
            Codec::Snappy => {
                let mut buffer = Vec::new();
                let limit = UnpackLimit {
                    bytes_max,
                    grant: &mut |_| true,
                };
                codec::decompress(Codec::Snappy, &self.records, &mut buffer, limit)?;
                check_all(Records::new(header, &buffer))
            }
            codec => {
                let failed = |error: std::io::Error| codec::failure(codec, &error);
                let reader = codec::reader(codec, &self.records).map_err(failed)?;
                RecordStream::new(reader, codec, bytes_max).check(header)
            }
        }
    }
}

fn check_all(mut records: Records<'_>) -> Result<RecordSummary, BatchError> {
    let empty = RecordSummary {
        bytes: records.rest().len(),
        ..RecordSummary::EMPTY
    };
    records.try_fold(empty, |mut summary, record| {
        let record = record?;
        summary.add(record.created, record.key.is_none());
        Ok(summary)
    })
}

/// Decompressed records, one buffer at a time.
struct RecordStream<R> {
    reader: R,
    codec: Codec,
    buffer: Vec<u8>,
    /// The bytes of the buffer that are consumed.
    start: usize,
    /// The bytes before the buffer.
    before: usize,
    bytes_max: usize,
}

/// Why a record is invalid: a reason of its own, or an error of the whole batch.
enum RecordError {
    Record(&'static str),
    Batch(BatchError),
}

impl From<&'static str> for RecordError {
    fn from(reason: &'static str) -> RecordError {
        RecordError::Record(reason)
    }
}

impl<R: Read> RecordStream<R> {
    fn new(reader: R, codec: Codec, bytes_max: usize) -> RecordStream<R> {
        RecordStream {
            reader,
            codec,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            start: 0,
            before: 0,
            bytes_max,
        }
    }

    fn check(&mut self, header: &BatchHeader) -> Result<RecordSummary, BatchError> {
        let (count, base) = (header.count(), header.base_timestamp());
        let mut summary = RecordSummary::EMPTY;
        let error = |index, invalid| match invalid {
            RecordError::Record(reason) => BatchError::Record { index, reason },
            RecordError::Batch(error) => error,
        };
        for index in 0..count {
            let (delta, null_key) = self
                .check_record(index)
                .map_err(|invalid| error(index, invalid))?;
            summary.add(base.wrapping_add(delta), null_key);
        }
        match self.is_at_end() {
            Ok(true) => Ok(RecordSummary {
                bytes: self.position(),
                ..summary
            }),
            Ok(false) => Err(error(
                count,
                "the batch has more records than its header claims".into(),
            )),
            Err(batch) => Err(batch),
        }
    }

    /// Returns the timestamp relative to the batch's, and whether the key is null.
    fn check_record(&mut self, index: i32) -> Result<(i64, bool), RecordError> {
        let length = self.length()?.ok_or("its length is negative")?;
        let start = self.position();
        self.skip(1)?;
        let delta = self.number()?;
        if self.number()? != i64::from(index) {
            return Err("its offset does not follow the one before".into());
        }
        let null_key = self.skip_nullable()?;
        self.skip_nullable()?;
        let headers = self.length()?.ok_or("its number of headers is negative")?;
        for _ in 0..headers {
            let name = self.length()?.ok_or("a header has no name")?;
            self.skip(name)?;
            self.skip_nullable()?;
        }
        match self.position() - start == length {
            true => Ok((delta, null_key)),
            false => Err("its length is wrong".into()),
        }
    }

    fn position(&self) -> usize {
        self.before + self.start
    }

    /// Replaces a consumed buffer. Returns true at the end.
    fn is_at_end(&mut self) -> Result<bool, BatchError> {
        if self.start < self.buffer.len() {
            return Ok(false);
        }
        self.before += self.start;
        self.start = 0;
        self.buffer.clear();
        let mut chunk = (&mut self.reader).take(BUFFER_BYTES as u64);
        chunk
            .read_to_end(&mut self.buffer)
            .map_err(|error| codec::failure(self.codec, &error))?;
        if self.before + self.buffer.len() > self.bytes_max {
            let max = self.bytes_max;
            return Err(BatchError::DecompressedTooLarge { max });
        }
        Ok(self.buffer.is_empty())
    }

    fn skip(&mut self, mut length: usize) -> Result<(), RecordError> {
        while length > 0 {
            if self.is_at_end().map_err(RecordError::Batch)? {
                return Err("it is longer than the batch".into());
            }
            let skipped = length.min(self.buffer.len() - self.start);
            self.start += skipped;
            length -= skipped;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<i64, RecordError> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            if self.is_at_end().map_err(RecordError::Batch)? {
                return Err("it is longer than the batch".into());
            }
            let byte = self.buffer[self.start];
            self.start += 1;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok(varint::unfold(value));
            }
        }
        Err("a number is longer than 64 bits".into())
    }

    /// `None` if it is negative.
    fn length(&mut self) -> Result<Option<usize>, RecordError> {
        let length = i32::try_from(self.number()?).map_err(|_| "a length exceeds 32 bits")?;
        Ok(usize::try_from(length).ok())
    }

    /// Skips bytes with their length before them; -1 is null. Returns true for null.
    fn skip_nullable(&mut self) -> Result<bool, RecordError> {
        match self.number()? {
            -1 => Ok(true),
            length => match usize::try_from(length) {
                Ok(length) => self.skip(length).map(|()| false),
                Err(_) => Err("a length is negative".into()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, BatchOptions, HEADER_LEN, NewRecord};
    use bytes::Bytes;

    fn batch(codec: Codec, values: usize, value: &[u8]) -> Batch {
        let mut builder = BatchBuilder::new();
        for _ in 0..values {
            builder.push(&NewRecord {
                key: Some(b"key"),
                value: Some(value),
                headers: &[("name", Some(b"value")), ("empty", None)],
            });
        }
        let options = BatchOptions {
            codec,
            ..BatchOptions::default()
        };
        builder.build(&options).unwrap()
    }

    /// A batch as a producer sends it, with its checksum, from a changed header and payload.
    fn changed(
        batch: &Batch,
        header: impl FnOnce(&mut [u8; HEADER_LEN]),
        payload: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Batch, BatchError> {
        let (mut head, mut records) = (*batch.header.as_bytes(), batch.records.to_vec());
        header(&mut head);
        payload(&mut records);
        let length = (HEADER_LEN - 12 + records.len()) as i32;
        head[8..12].copy_from_slice(&length.to_be_bytes());
        let crc = BatchHeader::new(head).crc_with(&records);
        head[17..21].copy_from_slice(&crc.to_be_bytes());
        let bytes = [&head[..], &records].concat();
        Batch::parse(Bytes::from(bytes)).map(|(batch, _)| batch)
    }

    fn claim_count(header: &mut [u8; HEADER_LEN], count: i32) {
        header[23..27].copy_from_slice(&(count - 1).to_be_bytes());
        header[57..61].copy_from_slice(&count.to_be_bytes());
    }

    #[test]
    fn built_batches_are_valid_in_every_codec() {
        for codec in Codec::ALL {
            for (values, value) in [(1, 0), (1, 100), (1_000, 37), (3, 100_000)] {
                let batch = batch(codec, values, &vec![b'x'; value]);
                let summary = batch.check_records().unwrap();
                assert_eq!((summary.timestamp_min, summary.timestamp_max), (None, -1));
                assert!(!summary.null_key, "{codec:?} {values} {value}");
                assert!(summary.bytes >= values * value);
            }
        }
    }

    // proves L6
    #[test]
    fn a_wrong_count_of_records_is_invalid_in_every_codec() {
        for codec in Codec::ALL {
            let good = batch(codec, 3, b"value");
            for count in [1, 2, 4, 1_000, i32::MAX] {
                let bad = changed(&good, |header| claim_count(header, count), |_| {}).unwrap();
                let error = bad.check_records().unwrap_err();
                assert!(
                    matches!(error, BatchError::Record { .. }),
                    "{codec:?}: {error}"
                );
            }
        }
    }

    // proves L6
    #[test]
    fn broken_compression_is_invalid() {
        for codec in &Codec::ALL[1..] {
            let good = batch(*codec, 100, b"value");
            // Without the end mark of LZ4, which has four bytes, all records can be read.
            for at in 0..good.records.len() - 4 {
                let bad = changed(&good, |_| {}, |payload| payload.truncate(at)).unwrap();
                assert!(bad.check_records().is_err(), "{codec:?} cut at {at}");
            }
            let garbage = changed(&good, |_| {}, |payload| payload.fill(0xA5)).unwrap();
            let error = garbage.check_records().unwrap_err();
            assert!(matches!(error, BatchError::Compression { .. }), "{error}");
        }
    }

    /// Both walks accept the same batches for a change of any byte of the uncompressed records.
    #[test]
    fn the_stream_and_the_records_in_memory_agree() {
        let good = batch(Codec::None, 3, b"value");
        for at in 0..good.records.len() {
            for bit in 0..8 {
                let mut records = good.records.to_vec();
                records[at] ^= 1 << bit;
                let in_memory = check_all(Records::new(&good.header, &records)).ok();
                let mut stream = RecordStream::new(&records[..], Codec::None, 1 << 20);
                let streamed = stream.check(&good.header).ok();
                assert_eq!(in_memory, streamed, "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn what_decompresses_to_more_than_the_limit_is_too_large() {
        for codec in [Codec::Gzip, Codec::Lz4, Codec::Zstd] {
            let large = batch(codec, 1, &vec![0; DECOMPRESSED_BYTES_MAX]);
            let error = large.check_records().unwrap_err();
            assert!(matches!(error, BatchError::DecompressedTooLarge { .. }));
        }
    }
}
