//! Scans a segment from a position, batch by batch, and verifies each.

use std::io;

use highwater_env::disk::DiskFile;
use highwater_log::Offset;
use highwater_log::batch::{BatchError, Batches, StoredBatch};

const CHUNK: u64 = 256 << 10;

/// The result of a scan.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ScanResult {
    /// End of the valid batches.
    pub bytes: u64,
    /// The offset after them.
    pub next: Offset,
    /// Why the next batch is invalid; `None` at the end of the range.
    pub broken: Option<BatchError>,
}

/// Calls `each` with the position of every valid batch between the positions `from` and `to`.
pub(super) fn scan(
    file: &dyn DiskFile,
    from: u64,
    to: u64,
    next: Offset,
    mut each: impl FnMut(u64, &StoredBatch<'_>),
) -> io::Result<ScanResult> {
    let mut at = ScanResult {
        bytes: from,
        next,
        broken: None,
    };
    let mut chunk = Vec::new();
    let mut wanted = CHUNK;
    while at.bytes < to {
        chunk.resize(wanted.min(to - at.bytes) as usize, 0);
        let count = file.read_full_at(&mut chunk, at.bytes)?;
        let all_there = count == chunk.len();
        match walk(&chunk[..count], &mut at, &mut each) {
            None if all_there => wanted = CHUNK,
            None => break,
            // The end of the chunk, not of the range, cuts the batch: read more.
            Some(BatchError::Short { need, .. }) if all_there && need as u64 <= to - at.bytes => {
                wanted = CHUNK.max(need as u64);
            }
            Some(error) => {
                at.broken = Some(error);
                break;
            }
        }
    }
    Ok(at)
}

/// Scans one chunk; moves `at` past the last valid batch.
fn walk(
    chunk: &[u8],
    at: &mut ScanResult,
    each: &mut impl FnMut(u64, &StoredBatch<'_>),
) -> Option<BatchError> {
    let start = at.bytes;
    for batch in Batches::new(chunk).following(at.next) {
        let whole = batch.and_then(|batch| batch.check().map(|()| batch));
        match whole {
            Ok(batch) => {
                each(start + batch.position as u64, &batch);
                at.bytes = start + batch.end() as u64;
                at.next = batch.header.next_offset();
            }
            Err(broken) => return Some(broken.error),
        }
    }
    None
}
