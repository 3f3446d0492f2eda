//! Decodes stored batches into the records that a committed reader sees.

use highwater_log::batch::{Batches, Decompressor, ReadCommittedFilter, Record};
use highwater_log::{FetchData, Offset};

use super::error::{Code, Error};

/// The most bytes a batch may unpack to: more than any legitimate one, so only a decompression bomb exceeds it.
const UNPACKED_BYTES_MAX: usize = 64 << 20;

/// Calls `take` for each record from `from` until it returns false. Returns the next offset to read.
pub(super) fn records(
    fetched: &FetchData,
    from: Offset,
    mut take: impl FnMut(&Record<'_>) -> bool,
) -> Result<Offset, Error> {
    let mut skip = ReadCommittedFilter::new(&fetched.aborted);
    let mut unpacker = Decompressor::new(UNPACKED_BYTES_MAX);
    let mut next = from;
    for piece in &fetched.pieces {
        for batch in Batches::new(piece) {
            let batch = batch.map_err(damaged)?;
            let header = batch.header;
            if skip.skips(&header) {
                next = next.max(header.next_offset());
                continue;
            }
            for record in batch.records(&mut unpacker).map_err(damaged)? {
                let record = record.map_err(damaged)?;
                if record.offset < from {
                    continue;
                }
                if !take(&record) {
                    return Ok(next);
                }
                next = Offset(record.offset.0 + 1);
            }
            next = next.max(header.next_offset());
        }
    }
    Ok(next)
}

fn damaged(error: impl std::fmt::Display) -> Error {
    let hint = "the producer sent it so, or the disk damaged it: skip it with from=OFFSET";
    Error::new(
        Code::Internal,
        format!("a stored batch cannot be read: {error}"),
        hint,
    )
}
