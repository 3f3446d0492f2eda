//! Finds the output's last row in a partition after the checkpoint.
//!
//! Batch headers show which batches are the output's own; the records of the last of them carry the row numbers.
//! Retention and compaction do not matter: the last row of an output outlives those before it. If none is left, the
//! rows after the checkpoint are gone from the hub and are written again.

use highwater_log::batch::{BatchError, Batches, Decompressor, StoredBatch};
use highwater_log::{Isolation, Offset, Partition, ReadError};

use super::super::EndpointError;
use super::records::ROW_HEADER;

const READ_BYTES: usize = 1 << 20;

/// The number of the last row between `from` and `end` written by one of these producers.
pub(super) async fn find(
    partition: &dyn Partition,
    ours: [i64; 2],
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
                let is_ours = ours.contains(&batch.header.producer_id());
                if is_ours && !batch.header.is_control() && batch.header.base_offset() < end {
                    found = Some(batch);
                }
            }
            if let Some(batch) = found {
                let row = last_row(&batch, &mut unpacker).map_err(EndpointError::unfit)?;
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
    unpacker: &mut Decompressor,
) -> Result<Option<u64>, BatchError> {
    let mut last = None;
    for record in batch.records(unpacker)? {
        let mut headers = record?.headers;
        let number = headers.find_map(|(name, value)| value.filter(|_| name == ROW_HEADER));
        let number = number.and_then(|number| std::str::from_utf8(number).ok()?.parse().ok());
        last = number.or(last);
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
