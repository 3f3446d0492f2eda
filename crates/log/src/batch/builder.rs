//! Builds batches from records, directly in their stored form.

use bytes::{BufMut, BytesMut};
use highwater_codec::varint;

use super::codec::{Codec, compress};
use super::{Batch, BatchError, BatchHeader, HEADER_LEN, LENGTH_END, NewRecord};
use crate::Producer;

/// Collects records. Its buffer is reused once earlier batches are dropped.
#[derive(Debug, Default)]
pub struct BatchBuilder {
    body: BytesMut,
    count: i32,
}

/// Properties of a batch besides its records. The default has no producer, no transaction, no compression, and the time
/// of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchOptions {
    pub codec: Codec,
    /// Timestamp of every record, in milliseconds since 1970.
    pub timestamp: Option<i64>,
    /// The producer and the sequence number of the first record.
    pub producer: Option<(Producer, i32)>,
    pub transactional: bool,
}

impl BatchBuilder {
    /// The maximum of the format.
    pub const COUNT_MAX: usize = i32::MAX as usize;

    pub fn new() -> BatchBuilder {
        BatchBuilder::default()
    }

    /// Appends a record and returns its index in the batch.
    pub fn push(&mut self, record: &NewRecord<'_>) -> i32 {
        let delta = self.count;
        let length = body_len(delta, record);
        self.body.reserve(length + varint::LEN_MAX);
        put_len(&mut self.body, length);
        // Attributes (unused) and a timestamp delta of 0.
        self.body.put_slice(&[0, 0]);
        put_signed(&mut self.body, i64::from(delta));
        put_nullable(&mut self.body, record.key);
        put_nullable(&mut self.body, record.value);
        put_len(&mut self.body, record.headers.len());
        for (name, value) in record.headers {
            put_nullable(&mut self.body, Some(name.as_bytes()));
            put_nullable(&mut self.body, *value);
        }
        self.count += 1;
        delta
    }

    /// The size of the batch if it were built now without compression.
    pub fn size(&self) -> usize {
        HEADER_LEN + self.body.len()
    }

    pub fn count(&self) -> i32 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Builds a batch of the pushed records and starts over. Fails without records.
    pub fn build(&mut self, options: &BatchOptions) -> Result<Batch, BatchError> {
        let count = std::mem::take(&mut self.count);
        let body = self.body.split();
        let records = match options.codec {
            Codec::None => body.freeze(),
            codec => {
                let mut compressed = Vec::with_capacity(body.len() / 2);
                compress(codec, &body, &mut compressed)?;
                compressed.into()
            }
        };
        let mut header = BatchHeader::new([0; HEADER_LEN]);
        header.set_kind(options.codec, options.transactional, false);
        header.set_count(count);
        header.set_last_offset_delta(count - 1);
        header.set_base_timestamp(options.timestamp.unwrap_or(-1));
        header.set_max_timestamp(options.timestamp.unwrap_or(-1));
        set_producer(&mut header, options.producer);
        header.check_sent()?;
        Batch::finish(header, records)
    }
}

/// A control batch. With a producer it is part of that producer's transaction.
pub(super) fn control(key: [u8; 4], value: &[u8], producer: Option<Producer>) -> Batch {
    let mut builder = BatchBuilder::new();
    builder.push(&NewRecord {
        key: Some(&key),
        value: Some(value),
        headers: &[],
    });
    let mut header = BatchHeader::new([0; HEADER_LEN]);
    header.set_kind(Codec::None, producer.is_some(), true);
    header.set_count(1);
    header.set_base_timestamp(-1);
    header.set_max_timestamp(-1);
    set_producer(&mut header, producer.map(|producer| (producer, -1)));
    Batch::finish(header, builder.body.freeze()).expect("a control batch is shorter than 2 GiB")
}

fn set_producer(header: &mut BatchHeader, producer: Option<(Producer, i32)>) {
    let no_producer = Producer { id: -1, epoch: -1 };
    let (producer, sequence) = producer.unwrap_or((no_producer, -1));
    header.set_producer_id(producer.id);
    header.set_producer_epoch(producer.epoch);
    header.set_base_sequence(sequence);
}

impl Batch {
    /// Sets length, version and checksum.
    fn finish(mut header: BatchHeader, records: bytes::Bytes) -> Result<Batch, BatchError> {
        let size = HEADER_LEN + records.len();
        let length = i32::try_from(size - LENGTH_END).map_err(|_| BatchError::TooLong { size })?;
        header.set_length(length);
        header.set_leader_epoch(-1);
        header.set_magic(2);
        header.set_crc(header.crc_with(&records));
        Ok(Batch {
            header,
            records,
            time: None,
        })
    }
}

/// The length of a record without its length prefix.
fn body_len(delta: i32, record: &NewRecord<'_>) -> usize {
    let headers = record
        .headers
        .iter()
        .map(|(name, value)| nullable_len(Some(name.as_bytes())) + nullable_len(*value));
    2 + signed_len(i64::from(delta))
        + nullable_len(record.key)
        + nullable_len(record.value)
        + signed_len(record.headers.len() as i64)
        + headers.sum::<usize>()
}

fn nullable_len(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| signed_len(bytes.len() as i64) + bytes.len())
}

fn signed_len(number: i64) -> usize {
    varint::len(varint::fold(number))
}

#[inline]
fn put_signed(into: &mut BytesMut, number: i64) {
    match varint::fold(number) {
        small @ 0..0x80 => into.put_u8(small as u8),
        folded => into.put_slice(varint::encode(folded, &mut [0; varint::LEN_MAX])),
    }
}

fn put_len(into: &mut BytesMut, length: usize) {
    put_signed(into, length as i64);
}

fn put_nullable(into: &mut BytesMut, bytes: Option<&[u8]>) {
    match bytes {
        None => put_signed(into, -1),
        Some(bytes) => {
            put_len(into, bytes.len());
            into.put_slice(bytes);
        }
    }
}
