//! Decodes stored batches into the records that a committed reader sees.

use highwater_log::batch::{Batches, Decompressor, ReadCommittedFilter, Record};
use highwater_log::{FetchData, Offset};

use super::error::{Code, Error};

/// A batch that cannot be read, with no readable record before it.
#[derive(Debug)]
pub(super) struct DamagedBatch {
    pub(super) error: Error,
    /// The offset after the batch, if it is known.
    pub(super) next: Option<Offset>,
}

/// Calls `take` for each record from `from` until it returns false or a batch is damaged. Returns the next offset to read.
pub(super) fn records(
    fetched: &FetchData,
    from: Offset,
    mut take: impl FnMut(&Record<'_>) -> bool,
) -> Result<Offset, DamagedBatch> {
    let mut skip = ReadCommittedFilter::new(&fetched.aborted);
    // Batches are unpacked and dropped without waiting, so each thread holds one at most.
    let mut unpacker = Decompressor::default();
    let mut next = from;
    for piece in &fetched.pieces {
        for batch in Batches::new(piece) {
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) => return damaged(from, next, None, error),
            };
            let header = batch.header;
            if skip.skips(&header) {
                next = next.max(header.next_offset());
                continue;
            }
            let after = Some(header.next_offset());
            let records = match batch.records(&mut unpacker) {
                Ok(records) => records,
                Err(error) => return damaged(from, next, after, error),
            };
            for record in records {
                let record = match record {
                    Ok(record) => record,
                    Err(error) => return damaged(from, next, after, error),
                };
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

/// The records before the damage count; the next read, which starts there, has the error.
#[cold]
fn damaged(
    from: Offset,
    next: Offset,
    after: Option<Offset>,
    error: impl std::fmt::Display,
) -> Result<Offset, DamagedBatch> {
    if next > from {
        return Ok(next);
    }
    let message = format!("the batch at offset {next} cannot be read: {error}");
    let hint = match after {
        Some(after) => format!("skip it with from={after}"),
        None => "skip it with a later offset".to_owned(),
    };
    Err(DamagedBatch {
        error: Error::new(Code::Internal, message, hint),
        next: after,
    })
}

impl From<DamagedBatch> for Error {
    fn from(damaged: DamagedBatch) -> Error {
        damaged.error
    }
}
