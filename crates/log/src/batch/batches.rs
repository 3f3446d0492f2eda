//! Iterates over consecutive batches of a segment or a fetch.
//!
//! A batch and the frame with its enqueue time (`time_frame.rs`) are one unit. The iterator reads headers only.
//! [`StoredBatch::check`] reads the records and verifies the checksum.

use super::records::{Decompressor, Records};
use super::time_frame::TimeFrame;
use super::{BatchError, BatchHeader, HEADER_LEN};
use crate::{EnqueueTime, Offset};

/// Iterates over whole batches. Ends after the first error, which names its position.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    bytes: &'a [u8],
    position: usize,
    next: Option<Offset>,
    gapless: bool,
    broken: bool,
}

/// A batch in stored bytes.
#[derive(Clone, Copy, Debug)]
pub struct StoredBatch<'a> {
    /// Position of its first byte, relative to the start of the iteration.
    pub position: usize,
    pub header: BatchHeader,
    time: Option<TimeFrame>,
    bytes: &'a [u8],
}

/// An invalid batch and its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {position}: {error}")]
pub struct CorruptBatch {
    pub position: usize,
    pub error: BatchError,
}

impl<'a> Batches<'a> {
    /// Accepts gaps between offsets, as compaction leaves them, but no decreasing offset.
    pub fn new(bytes: &'a [u8]) -> Batches<'a> {
        Batches {
            bytes,
            position: 0,
            next: None,
            gapless: false,
            broken: false,
        }
    }

    /// Requires the first batch at `next`, each further one at the end of its predecessor, and leader epoch 0, as this
    /// log stamps them. This protects the fields that the checksum does not cover.
    pub fn following(self, next: Offset) -> Batches<'a> {
        Batches {
            next: Some(next),
            gapless: true,
            ..self
        }
    }

    /// The number of bytes passed; after an error, the number of valid bytes.
    pub fn position(&self) -> usize {
        self.position
    }

    fn step(&self) -> Result<StoredBatch<'a>, BatchError> {
        let unit = &self.bytes[self.position..];
        let time = TimeFrame::read(unit)?;
        let frame_len = time.map_or(0, |_| TimeFrame::LEN);
        let rest = &unit[frame_len..];
        let short = |need: usize| BatchError::Short {
            have: unit.len(),
            need: frame_len + need,
        };
        let header = BatchHeader::read(rest).map_err(|_| short(HEADER_LEN))?;
        header.check_shape()?;
        let need = header.size()?;
        let bytes = rest.get(..need).ok_or_else(|| short(need))?;
        self.check_offset(header.base_offset())?;
        if self.gapless && header.leader_epoch() != 0 {
            return Err(BatchError::LeaderEpoch(header.leader_epoch()));
        }
        Ok(StoredBatch {
            position: self.position,
            header,
            time,
            bytes,
        })
    }

    fn check_offset(&self, found: Offset) -> Result<(), BatchError> {
        let expected = self.next.unwrap_or(Offset(0));
        match found == expected || found > expected && !self.gapless {
            true => Ok(()),
            false => Err(BatchError::Offset { expected, found }),
        }
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<StoredBatch<'a>, CorruptBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.broken || self.position == self.bytes.len() {
            return None;
        }
        let step = self.step();
        match &step {
            Ok(stored) => {
                self.position = stored.end();
                self.next = Some(stored.header.next_offset());
            }
            Err(_) => self.broken = true,
        }
        let position = self.position;
        Some(step.map_err(|error| CorruptBatch { position, error }))
    }
}

impl<'a> StoredBatch<'a> {
    /// The whole batch as Kafka clients read it.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The size on the disk.
    pub fn stored_size(&self) -> usize {
        self.time.map_or(0, |_| TimeFrame::LEN) + self.bytes.len()
    }

    /// The frame with the enqueue time, or nothing, and the batch, as they are on the disk.
    pub fn stored_parts(&self) -> [&[u8]; 2] {
        let frame = self.time.as_ref().map(|frame| &frame.as_bytes()[..]);
        [frame.unwrap_or_default(), self.bytes]
    }

    /// When the log appended the batch. Of a log that neither stamps batches nor stores this time, the latest
    /// timestamp.
    pub fn enqueue_time(&self) -> EnqueueTime {
        let frame = self.time.map(|frame| frame.time());
        frame.unwrap_or(EnqueueTime(self.header.max_timestamp()))
    }

    pub(super) fn time_frame(&self) -> Option<TimeFrame> {
        self.time
    }

    /// Its records as stored, compressed or not.
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[HEADER_LEN..]
    }

    /// Position of the next batch.
    pub fn end(&self) -> usize {
        self.position + self.stored_size()
    }

    /// Verifies the checksum.
    pub fn check(&self) -> Result<(), CorruptBatch> {
        self.header
            .check_crc(self.payload())
            .map_err(|error| CorruptBatch {
                position: self.position,
                error,
            })
    }

    pub fn records<'b>(&self, decompressor: &'b mut Decompressor) -> Result<Records<'b>, BatchError>
    where
        'a: 'b,
    {
        let records = decompressor.decompress(&self.header, self.payload())?;
        Ok(records.enqueued_at(self.time.map(|frame| frame.time())))
    }

    /// Asks `grant` for all bytes that the unpacking needs, before they are allocated. A refusal is
    /// [`BatchError::DecompressedTooLarge`].
    pub fn records_within<'b>(
        &self,
        decompressor: &'b mut Decompressor,
        grant: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Records<'b>, BatchError>
    where
        'a: 'b,
    {
        let records = decompressor.decompress_within(&self.header, self.payload(), grant)?;
        Ok(records.enqueued_at(self.time.map(|frame| frame.time())))
    }
}
