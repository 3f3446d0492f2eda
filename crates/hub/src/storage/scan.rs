//! Reads a segment from a position on, batch by batch, believing nothing.

use std::io;

use highwater_env::disk::DiskFile;
use highwater_log::Offset;
use highwater_log::batch::{BatchError, Batches, StoredBatch};

const CHUNK: u64 = 256 << 10;

/// Where a scan came to.
#[derive(Debug, PartialEq, Eq)]
pub struct ScanResult {
    /// Up to here there are whole batches, each following the one before.
    pub bytes: u64,
    /// The offset that follows them.
    pub next: Offset,
    /// What stands there instead of a batch, unless the range ends there.
    pub broken: Option<BatchError>,
}

/// Hands every whole batch between the positions `from` and `to` to `each`, with its position.
pub fn scan(
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
            // Cut off by the chunk and not by the end of the range: come again with more.
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

/// Walks over one chunk; moves `at` behind the last whole batch.
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
