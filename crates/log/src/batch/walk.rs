//! Batches one after another, as a segment or a fetch holds them.
//!
//! Walking looks at headers only. Whoever wants to know whether the records are what was written
//! asks [`StoredBatch::check`], which reads them.

use super::records::{Decompressor, Records};
use super::{BatchError, BatchHeader, HEADER_LEN};
use crate::Offset;

/// Walks over whole batches. After the first error, which says at which byte, there is nothing
/// more.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    bytes: &'a [u8],
    position: usize,
    next: Option<Offset>,
    gapless: bool,
    broken: bool,
}

/// A batch among stored bytes.
#[derive(Clone, Copy, Debug)]
pub struct StoredBatch<'a> {
    /// Of its first byte, counted from where the walk began.
    pub position: usize,
    pub header: BatchHeader,
    bytes: &'a [u8],
}

/// What was found where a batch should have been.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {position}: {error}")]
pub struct CorruptBatch {
    pub position: usize,
    pub error: BatchError,
}

impl<'a> Batches<'a> {
    /// Offsets may leave gaps, as compaction makes them, but never go back.
    pub fn new(bytes: &'a [u8]) -> Batches<'a> {
        Batches {
            bytes,
            position: 0,
            next: None,
            gapless: false,
            broken: false,
        }
    }

    /// As this log stamps them: the first batch must start at `next`, every other one where the one
    /// before it ends, all with leader epoch 0. This protects what the checksum does not cover.
    pub fn following(self, next: Offset) -> Batches<'a> {
        Batches {
            next: Some(next),
            gapless: true,
            ..self
        }
    }

    /// How many bytes have been walked over: after an error, how many are good.
    pub fn position(&self) -> usize {
        self.position
    }

    fn step(&self) -> Result<StoredBatch<'a>, BatchError> {
        let rest = &self.bytes[self.position..];
        let header = BatchHeader::read(rest)?;
        header.check_shape()?;
        let need = header.size()?;
        let bytes = rest.get(..need).ok_or(BatchError::Short {
            have: rest.len(),
            need,
        })?;
        self.check_offset(header.base_offset())?;
        if self.gapless && header.leader_epoch() != 0 {
            return Err(BatchError::LeaderEpoch(header.leader_epoch()));
        }
        Ok(StoredBatch {
            position: self.position,
            header,
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
                self.position += stored.bytes.len();
                self.next = Some(stored.header.next_offset());
            }
            Err(_) => self.broken = true,
        }
        let position = self.position;
        Some(step.map_err(|error| CorruptBatch { position, error }))
    }
}

impl<'a> StoredBatch<'a> {
    /// The whole batch.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Its records as they are stored, packed or not.
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[HEADER_LEN..]
    }

    /// Where the next batch starts.
    pub fn end(&self) -> usize {
        self.position + self.bytes.len()
    }

    /// Reads all of it and compares the checksum.
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
        decompressor.decompress(&self.header, self.payload())
    }
}
