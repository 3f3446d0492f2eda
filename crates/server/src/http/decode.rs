//! Decodes stored batches into the records that a committed reader sees.

use highwater_env::{BudgetExhausted, MemoryBudget, MemoryShare};
use highwater_log::batch::{Batches, Decompressor, ReadCommittedFilter, Record};
use highwater_log::{FetchData, Offset};

use super::error::{Code, Error};

/// Why there is no record.
#[derive(Debug)]
pub(crate) enum DecodeError {
    /// The first batch cannot be read.
    Damaged {
        error: Error,
        /// The offset after the batch, if it is known.
        next: Option<Offset>,
    },
    /// The budget has no bytes for the first batch.
    Exhausted(BudgetExhausted),
}

/// Calls `take` for each record from `from` until it returns false, a batch is damaged or the budget has no bytes to
/// unpack the next one. Returns the next offset to read.
pub(crate) fn records(
    fetched: &FetchData,
    from: Offset,
    budget: &MemoryBudget,
    mut take: impl FnMut(&Record<'_>) -> bool,
) -> Result<Offset, DecodeError> {
    let mut skip = ReadCommittedFilter::new(&fetched.aborted);
    let mut unpacker = Decompressor::default();
    let mut unpacked = UnpackedShare::new(budget);
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
            let records = batch.records_within(&mut unpacker, &mut |bytes| unpacked.grant(bytes));
            let records = match (records, unpacked.refused) {
                (Ok(records), _) => records,
                (Err(_), Some(_)) if next > from => return Ok(next),
                (Err(_), Some(refused)) => return Err(DecodeError::Exhausted(refused)),
                (Err(error), None) => return damaged(from, next, after, error),
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
) -> Result<Offset, DecodeError> {
    if next > from {
        return Ok(next);
    }
    let message = format!("the batch at offset {next} cannot be read: {error}");
    let hint = match after {
        Some(after) => format!("skip it with from={after}"),
        None => "skip it with a later offset".to_owned(),
    };
    Err(DecodeError::Damaged {
        error: Error::new(Code::Internal, message, hint),
        next: after,
    })
}

impl From<DecodeError> for Error {
    fn from(error: DecodeError) -> Error {
        match error {
            DecodeError::Damaged { error, .. } => error,
            DecodeError::Exhausted(exhausted) => exhausted.into(),
        }
    }
}

/// The part of the budget that an unpacked batch holds.
struct UnpackedShare<'a> {
    budget: &'a MemoryBudget,
    share: MemoryShare,
    refused: Option<BudgetExhausted>,
}

impl UnpackedShare<'_> {
    fn new(budget: &MemoryBudget) -> UnpackedShare<'_> {
        UnpackedShare {
            budget,
            share: MemoryShare::default(),
            refused: None,
        }
    }

    /// Grows the share to this size. The largest batch decides, because its buffer is reused.
    fn grant(&mut self, bytes: usize) -> bool {
        let missing = bytes.saturating_sub(self.share.bytes());
        match self.budget.try_take(missing) {
            Ok(more) => self.share.add(more),
            Err(exhausted) => self.refused = Some(exhausted),
        }
        self.refused.is_none()
    }
}
