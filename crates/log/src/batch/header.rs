//! The 61 bytes before the records of a batch.

use super::codec::Codec;
use super::{BatchError, HEADER_LEN, LENGTH_END, crc};
use crate::{EnqueueTime, Offset, Producer};

/// The checksum covers the bytes from here on. Offset and leader epoch, which the log assigns, are before it.
pub(super) const COVERED: usize = 21;

mod bit {
    pub(super) const CODEC: i16 = 0b111;
    pub(super) const LOG_APPEND_TIME: i16 = 1 << 3;
    pub(super) const TRANSACTIONAL: i16 = 1 << 4;
    pub(super) const CONTROL: i16 = 1 << 5;
}

/// The header of a batch: a copy of its bytes, as cheap as a view, and mutable.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader([u8; HEADER_LEN]);

/// The clock of a record's timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    /// The producer's clock: every record has its own timestamp.
    Create,
    /// The log's clock: [`BatchHeader::max_timestamp`] is the timestamp of every record.
    LogAppend,
}

macro_rules! fields {
    ($($(#[$doc:meta])* $get:ident, $set:ident: $type:ty = $at:literal;)*) => {$(
        $(#[$doc])*
        pub fn $get(&self) -> $type {
            <$type>::from_be_bytes(self.bytes_at($at))
        }

        pub(super) fn $set(&mut self, value: $type) {
            self.0[$at..$at + size_of::<$type>()].copy_from_slice(&value.to_be_bytes());
        }
    )*};
}

impl BatchHeader {
    fields! {
        base_offset_raw, set_base_offset: i64 = 0;
        /// The number of bytes after this field; [`BatchHeader::size`] is the size of the batch.
        length, set_length: i32 = 8;
        leader_epoch, set_leader_epoch: i32 = 12;
        /// The version of the format: 2.
        magic, set_magic: i8 = 16;
        /// CRC-32C of the bytes from the attributes on.
        crc, set_crc: u32 = 17;
        attributes, set_attributes: i16 = 21;
        last_offset_delta, set_last_offset_delta: i32 = 23;
        /// The timestamp deltas of the records are relative to it.
        base_timestamp, set_base_timestamp: i64 = 27;
        max_timestamp, set_max_timestamp: i64 = 35;
        /// -1 for none; [`BatchHeader::producer`] is the typed form.
        producer_id, set_producer_id: i64 = 43;
        producer_epoch, set_producer_epoch: i16 = 51;
        /// The sequence number of the first record; -1 without a producer.
        base_sequence, set_base_sequence: i32 = 53;
        /// The number of records: fewer than offsets after compaction.
        count, set_count: i32 = 57;
    }

    pub fn new(bytes: [u8; HEADER_LEN]) -> BatchHeader {
        BatchHeader(bytes)
    }

    /// The header at the start of `bytes`.
    pub fn read(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        let header = bytes.first_chunk().ok_or(BatchError::Short {
            have: bytes.len(),
            need: HEADER_LEN,
        })?;
        Ok(BatchHeader(*header))
    }

    pub fn as_bytes(&self) -> &[u8; HEADER_LEN] {
        &self.0
    }

    fn bytes_at<const N: usize>(&self, at: usize) -> [u8; N] {
        let bytes = self.0[at..].first_chunk();
        *bytes.expect("the fields lie inside the header")
    }

    /// The size of the whole batch, header included; an error if the length is invalid.
    pub fn size(&self) -> Result<usize, BatchError> {
        let length = self.length();
        let size = usize::try_from(length).map(|length| length + LENGTH_END);
        match size {
            Ok(size) if size >= HEADER_LEN => Ok(size),
            _ => Err(BatchError::Length(length)),
        }
    }

    pub fn base_offset(&self) -> Offset {
        Offset(self.base_offset_raw())
    }

    /// The offset of the last record, counting records that compaction removed.
    pub fn last_offset(&self) -> Offset {
        let delta = i64::from(self.last_offset_delta());
        Offset(self.base_offset_raw().saturating_add(delta))
    }

    /// The first offset after the batch.
    pub fn next_offset(&self) -> Offset {
        Offset(self.last_offset().0.saturating_add(1))
    }

    pub fn contains(&self, offset: Offset) -> bool {
        (self.base_offset()..=self.last_offset()).contains(&offset)
    }

    pub fn codec(&self) -> Result<Codec, BatchError> {
        Codec::try_from((self.attributes() & bit::CODEC) as u8)
    }

    pub fn timestamp_type(&self) -> TimestampType {
        match self.has(bit::LOG_APPEND_TIME) {
            true => TimestampType::LogAppend,
            false => TimestampType::Create,
        }
    }

    /// Part of a transaction, or the marker that ends one.
    pub fn is_transactional(&self) -> bool {
        self.has(bit::TRANSACTIONAL)
    }

    /// Written by the log itself, such as the marker that ends a transaction.
    pub fn is_control(&self) -> bool {
        self.has(bit::CONTROL)
    }

    fn has(&self, bit: i16) -> bool {
        self.attributes() & bit != 0
    }

    pub fn producer(&self) -> Option<Producer> {
        let (id, epoch) = (self.producer_id(), self.producer_epoch());
        (id >= 0).then_some(Producer { id, epoch })
    }

    /// The sequence number of the last record, modulo 2^31.
    pub fn last_sequence(&self) -> i32 {
        sequence_after(self.base_sequence(), self.last_offset_delta())
    }

    /// Checks magic, codec and counts.
    pub(super) fn check_shape(&self) -> Result<(), BatchError> {
        if self.magic() != 2 {
            return Err(BatchError::Magic(self.magic()));
        }
        self.codec()?;
        let (count, delta) = (self.count(), self.last_offset_delta());
        match delta >= 0 && count >= 0 && i64::from(count) <= i64::from(delta) + 1 {
            true => Ok(()),
            false => Err(BatchError::Count {
                count,
                last_offset_delta: delta,
            }),
        }
    }

    /// Checks the rules for producers, beyond [`BatchHeader::check_shape`].
    pub(super) fn check_sent(&self) -> Result<(), BatchError> {
        let (count, delta) = (self.count(), self.last_offset_delta());
        if count == 0 || i64::from(count) != i64::from(delta) + 1 {
            return Err(BatchError::Count {
                count,
                last_offset_delta: delta,
            });
        }
        if self.is_control() {
            return Err(BatchError::Control);
        }
        let numbered = self.producer_epoch() >= 0 && self.base_sequence() >= 0;
        match self.producer() {
            Some(_) if !numbered => Err(BatchError::Unnumbered),
            None if self.is_transactional() => Err(BatchError::Unnumbered),
            _ => Ok(()),
        }
    }

    pub(super) fn check_crc(&self, records: &[u8]) -> Result<(), BatchError> {
        match self.crc_with(records) == self.crc() {
            true => Ok(()),
            false => Err(BatchError::Checksum),
        }
    }

    pub(super) fn crc_with(&self, records: &[u8]) -> u32 {
        crc32c::crc32c_append(self.crc_of_fields(), records)
    }

    fn crc_of_fields(&self) -> u32 {
        crc32c::crc32c(&self.0[COVERED..])
    }

    pub(super) fn set_kind(&mut self, codec: Codec, transactional: bool, control: bool) {
        let flag = |set: bool, bit: i16| if set { bit } else { 0 };
        self.set_attributes(
            codec as i16 | flag(transactional, bit::TRANSACTIONAL) | flag(control, bit::CONTROL),
        );
    }

    pub(super) fn set_codec(&mut self, codec: Codec) {
        self.set_attributes(self.attributes() & !bit::CODEC | codec as i16);
    }

    /// Sets offset and enqueue time. The new checksum is computed from the old one, which must be correct, and the
    /// change alone.
    pub(super) fn stamp(&mut self, base_offset: Offset, time: EnqueueTime, records_len: usize) {
        self.change(records_len, |header| {
            let kept = bit::CODEC | bit::TRANSACTIONAL | bit::CONTROL;
            header.set_base_offset(base_offset.0);
            header.set_leader_epoch(0);
            header.set_attributes(header.attributes() & kept | bit::LOG_APPEND_TIME);
            header.set_max_timestamp(time.0);
            if header.base_timestamp() < 0 {
                header.set_base_timestamp(time.0);
            }
        });
    }

    /// Sets the offset and keeps the producer's timestamps. A producer that set none gets the enqueue time.
    pub(super) fn stamp_created(
        &mut self,
        base_offset: Offset,
        time: EnqueueTime,
        records_len: usize,
    ) {
        self.change(records_len, |header| {
            let kept = bit::CODEC | bit::TRANSACTIONAL | bit::CONTROL;
            header.set_base_offset(base_offset.0);
            header.set_leader_epoch(0);
            header.set_attributes(header.attributes() & kept);
            let max = header.max_timestamp();
            if max < 0 {
                let base = header.base_timestamp();
                header.set_base_timestamp(base.wrapping_add(time.0.wrapping_sub(max)));
                header.set_max_timestamp(time.0);
            }
        });
    }

    pub(super) fn change_max_timestamp(&mut self, timestamp: i64, records_len: usize) {
        self.change(records_len, |header| header.set_max_timestamp(timestamp));
    }

    pub(super) fn assign_sequence(
        &mut self,
        producer: Producer,
        sequence: i32,
        records_len: usize,
    ) {
        self.change(records_len, |header| {
            header.set_producer_id(producer.id);
            header.set_producer_epoch(producer.epoch);
            header.set_base_sequence(sequence);
        });
    }

    pub(super) fn set_timestamps(&mut self, timestamp: i64, records_len: usize) {
        self.change(records_len, |header| {
            header.set_base_timestamp(timestamp);
            header.set_max_timestamp(timestamp);
        });
    }

    fn change(&mut self, records_len: usize, change: impl FnOnce(&mut BatchHeader)) {
        let before = self.crc_of_fields();
        change(self);
        let difference = crc::shift(before ^ self.crc_of_fields(), records_len);
        self.set_crc(self.crc() ^ difference);
    }
}

/// The sequence number `by` after `sequence`, modulo 2^31.
pub fn sequence_after(sequence: i32, by: i32) -> i32 {
    (i64::from(sequence) + i64::from(by)).rem_euclid(1 << 31) as i32
}

impl std::fmt::Debug for BatchHeader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Header")
            .field("base_offset", &self.base_offset_raw())
            .field("length", &self.length())
            .field("leader_epoch", &self.leader_epoch())
            .field("magic", &self.magic())
            .field("crc", &format_args!("{:08x}", self.crc()))
            .field("attributes", &format_args!("{:#b}", self.attributes()))
            .field("last_offset_delta", &self.last_offset_delta())
            .field("base_timestamp", &self.base_timestamp())
            .field("max_timestamp", &self.max_timestamp())
            .field("producer_id", &self.producer_id())
            .field("producer_epoch", &self.producer_epoch())
            .field("base_sequence", &self.base_sequence())
            .field("count", &self.count())
            .finish()
    }
}
