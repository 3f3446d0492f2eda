//! The batches that are written together and share one sync.

use bytes::{BufMut, Bytes, BytesMut};
use highwater_log::batch::{Batch, BatchHeader};
use highwater_log::{Offset, TransactionMarker};

use super::tail::Piece;

/// Pieces of about this size are kept in memory for readers, so that none has to walk far.
const PIECE: usize = 64 << 10;

/// A batch that has its offsets and its time.
pub struct StampedBatch {
    pub batch: Batch,
    pub marker: Option<TransactionMarker>,
}

/// Batches side by side, as they will lie on the disk. They are copied together once: readers at the
/// end are then served from this very buffer, and the buffers of the network, of which a batch may
/// be a small part, are free again.
pub struct WriteGroup {
    bytes: Bytes,
    batches: Vec<(BatchHeader, Option<TransactionMarker>, usize)>,
}

impl WriteGroup {
    pub fn new<'a>(stamped: impl Iterator<Item = &'a StampedBatch> + Clone) -> WriteGroup {
        let size = stamped.clone().map(|stamped| stamped.batch.size()).sum();
        let mut bytes = BytesMut::with_capacity(size);
        let mut batches = Vec::new();
        for stamped in stamped {
            for part in stamped.batch.parts() {
                bytes.put_slice(part);
            }
            batches.push((
                *stamped.batch.header(),
                stamped.marker,
                stamped.batch.size(),
            ));
        }
        WriteGroup {
            bytes: bytes.freeze(),
            batches,
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Header, kind of marker if it is one, and size.
    pub fn batches(&self) -> impl Iterator<Item = (&BatchHeader, Option<TransactionMarker>, u64)> {
        (self.batches.iter()).map(|(header, marker, size)| (header, *marker, *size as u64))
    }

    /// The same bytes in pieces for the tail.
    pub fn pieces(&self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let (mut start, mut end, mut base) = (0, 0, None);
        for (number, (header, _, size)) in self.batches.iter().enumerate() {
            let base_offset: Offset = *base.get_or_insert(header.base_offset());
            end += size;
            if end - start >= PIECE || number + 1 == self.batches.len() {
                pieces.push(Piece {
                    base: base_offset,
                    next: header.next_offset(),
                    bytes: self.bytes.slice(start..end),
                });
                (start, base) = (end, None);
            }
        }
        pieces
    }
}
