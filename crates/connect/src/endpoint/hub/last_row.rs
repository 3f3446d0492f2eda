//! Finds the output's last row in a partition after the checkpoint.
//!
//! Batch headers show which batches are the output's own; the records of the last of them carry the row numbers. Where
//! the output has no producer of its own, every record carries its name.
//! Retention and compaction do not matter: the last row of an output outlives those before it. If none is left,
//! retention has deleted the rows after the checkpoint, and they are written again.

use std::sync::Arc;

use highwater_log::batch::{BatchError, Batches, Decompressor, StoredBatch};
use highwater_log::{Isolation, Offset, Partition, ReadError};

use super::super::EndpointError;
use super::records::{ORIGIN_HEADER, ROW_HEADER};

const READ_BYTES: usize = 1 << 20;

/// Distinguishes the rows of the output from other records.
pub(super) enum OwnRows {
    /// By the ids of its producers.
    Producers([i64; 2]),
    /// By the header with this value.
    Header(Arc<str>),
}

impl OwnRows {
    fn may_be_in(&self, batch: &StoredBatch<'_>) -> bool {
        match self {
            OwnRows::Producers(ours) => ours.contains(&batch.header.producer_id()),
            OwnRows::Header(_) => true,
        }
    }
}

/// The number of the output's last row between `from` and `end`.
pub(super) async fn find(
    partition: &dyn Partition,
    own: &OwnRows,
    from: Offset,
    end: Offset,
) -> Result<Option<u64>, EndpointError> {
    let mut unpacker = Decompressor::default();
    let mut from = from.max(partition.bounds().start);
    let mut last = None;
    while from < end {
        let read = partition.read(from, READ_BYTES, Isolation::Uncommitted);
        let fetched = read.await.map_err(endpoint_error)?;
        let before = from;
        for piece in &fetched.pieces {
            let mut found = None;
            for batch in Batches::new(piece) {
                let batch = batch.map_err(EndpointError::unfit)?;
                from = batch.header.next_offset();
                if batch.header.is_control()
                    || batch.header.base_offset() >= end
                    || !own.may_be_in(&batch)
                {
                    continue;
                }
                match own {
                    OwnRows::Producers(_) => found = Some(batch),
                    OwnRows::Header(_) => {
                        let row = last_row(&batch, own, &mut unpacker);
                        last = row.map_err(EndpointError::unfit)?.or(last);
                    }
                }
            }
            if let Some(batch) = found {
                let row = last_row(&batch, own, &mut unpacker).map_err(EndpointError::unfit)?;
                last = row.or(last);
            }
        }
        if from == before {
            break;
        }
    }
    Ok(last)
}

fn last_row(
    batch: &StoredBatch<'_>,
    own: &OwnRows,
    unpacker: &mut Decompressor,
) -> Result<Option<u64>, BatchError> {
    let mut last = None;
    for record in batch.records(unpacker)? {
        let (mut number, mut is_own) = (None, matches!(own, OwnRows::Producers(_)));
        for (name, value) in record?.headers {
            match (&*name, value, own) {
                (ROW_HEADER, Some(value), _) => {
                    number = std::str::from_utf8(value)
                        .ok()
                        .and_then(|value| value.parse().ok());
                }
                (ORIGIN_HEADER, Some(value), OwnRows::Header(id)) => {
                    is_own = value == id.as_bytes();
                }
                _ => {}
            }
        }
        last = number.filter(|_| is_own).or(last);
    }
    Ok(last)
}

fn endpoint_error(error: ReadError) -> EndpointError {
    match error {
        ReadError::Storage { .. } => EndpointError::unavailable(error),
        ReadError::OutOfRange { .. } | ReadError::Damaged { .. } | ReadError::Deleted(_) => {
            EndpointError::unfit(error)
        }
    }
}
