//! Batches that are written together and share one sync.

use bytes::{BufMut, Bytes, BytesMut};
use highwater_log::batch::{Batch, BatchHeader};
use highwater_log::{EnqueueTime, Offset, TransactionMarker};

use super::tail::Piece;

/// Approximate size of the pieces in the tail, which bounds the search of readers.
const PIECE: usize = 64 << 10;

/// A batch with its offsets and enqueue time.
pub(crate) struct StampedBatch {
    pub batch: Batch,
    pub marker: Option<TransactionMarker>,
}

/// Consecutive batches as they are written. They are copied once: the tail serves readers from this buffer, and the
/// network buffers, of which a batch may be a small part, are released.
pub(crate) struct WriteGroup {
    bytes: Bytes,
    batches: Vec<GroupBatch>,
}

/// A batch of a group.
pub(crate) struct GroupBatch {
    pub header: BatchHeader,
    pub time: EnqueueTime,
    pub marker: Option<TransactionMarker>,
    /// The size on the disk.
    pub size: usize,
}

impl WriteGroup {
    pub(crate) fn new<'a>(stamped: impl Iterator<Item = &'a StampedBatch> + Clone) -> WriteGroup {
        let size = stamped
            .clone()
            .map(|stamped| stamped.batch.stored_size())
            .sum();
        let mut bytes = BytesMut::with_capacity(size);
        let mut batches = Vec::new();
        for stamped in stamped {
            for part in stamped.batch.stored_parts() {
                bytes.put_slice(part);
            }
            batches.push(GroupBatch {
                header: *stamped.batch.header(),
                time: stamped.batch.enqueue_time(),
                marker: stamped.marker,
                size: stamped.batch.stored_size(),
            });
        }
        WriteGroup {
            bytes: bytes.freeze(),
            batches,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    pub(crate) fn batches(&self) -> &[GroupBatch] {
        &self.batches
    }

    /// The same bytes in pieces for the tail.
    pub(crate) fn pieces(&self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let (mut start, mut end, mut base) = (0, 0, None);
        for (number, GroupBatch { header, size, .. }) in self.batches.iter().enumerate() {
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
