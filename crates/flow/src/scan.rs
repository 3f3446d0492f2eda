//! Reads a partition to its current end.

use std::ops::ControlFlow;

use highwater_log::batch::{Batches, Decompressor, ReadCommittedFilter, Record};
use highwater_log::{Isolation, Offset, Partition};

use crate::source::SourceError;

const FETCH_BYTES: usize = 256 * 1024;

/// Visits every record from `from`, or from the start if that is later, to the end. Returns the next offset.
/// Undecodable batches are skipped.
pub async fn scan(
    partition: &dyn Partition,
    from: Offset,
    mut visit: impl FnMut(&Record<'_>),
) -> Result<Offset, SourceError> {
    let visit = |record: &Record<'_>| {
        visit(record);
        ControlFlow::Continue(())
    };
    scan_while(partition, from, visit).await
}

/// Like [`scan`], until `visit` breaks off.
pub(crate) async fn scan_while(
    partition: &dyn Partition,
    from: Offset,
    mut visit: impl FnMut(&Record<'_>) -> ControlFlow<()>,
) -> Result<Offset, SourceError> {
    let mut unpacker = Decompressor::default();
    let mut next = from.max(partition.fetch_bounds().await?.start);
    loop {
        let read = partition.read(next, FETCH_BYTES, Isolation::Committed);
        let fetched = read.await?;
        if fetched.pieces.is_empty() {
            return Ok(next);
        }
        let mut skip = ReadCommittedFilter::new(&fetched.aborted);
        for piece in &fetched.pieces {
            for batch in Batches::new(piece) {
                let batch = batch.map_err(|broken| SourceError::Broken {
                    topic_partition: partition.topic_partition().clone(),
                    from: next,
                    broken,
                })?;
                if !skip.skips(&batch.header) {
                    let records = batch.records(&mut unpacker).into_iter().flatten();
                    let records = records.map_while(Result::ok);
                    for record in records.filter(|record| record.offset >= next) {
                        if visit(&record).is_break() {
                            return Ok(record.offset);
                        }
                    }
                }
                next = next.max(batch.header.next_offset());
            }
        }
    }
}
