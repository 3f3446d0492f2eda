//! From stored batches to the records that a reader of committed ones may see.

use highwater_log::batch::{Batches, Record, Unpacker};
use highwater_log::{Aborted, Fetched, Offset};

use super::error::{Code, Error};

/// What a batch may unpack to. More than any batch of ours, so only a bomb meets it.
const UNPACKED_BYTES_MAX: usize = 64 << 20;

/// Calls `take` for every record from `from` on until it answers false; answers with the offset to
/// read from next.
pub fn records(
    fetched: &Fetched,
    from: Offset,
    mut take: impl FnMut(&Record<'_>) -> bool,
) -> Result<Offset, Error> {
    let mut skip = Skip::new(&fetched.aborted);
    let mut unpacker = Unpacker::new(UNPACKED_BYTES_MAX);
    let mut next = from;
    for piece in &fetched.pieces {
        for batch in Batches::new(piece) {
            let batch = batch.map_err(damaged)?;
            let header = batch.header;
            if skip.passes_over(&header) {
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
    let hint = "the producer sent it so, or the disk changed it: skip it with from=OFFSET";
    Error::new(
        Code::Internal,
        format!("a stored batch cannot be read: {error}"),
        hint,
    )
}

/// Tells the batches of aborted transactions and the log's own marks from records.
struct Skip<'a> {
    /// By first offset.
    ahead: Vec<&'a Aborted>,
    /// Producers whose aborted transaction is open at this point.
    open: Vec<i64>,
}

impl<'a> Skip<'a> {
    fn new(aborted: &'a [Aborted]) -> Skip<'a> {
        let mut ahead: Vec<&Aborted> = aborted.iter().collect();
        ahead.sort_by_key(|aborted| std::cmp::Reverse(aborted.first));
        Skip {
            ahead,
            open: Vec::new(),
        }
    }

    fn passes_over(&mut self, header: &highwater_log::batch::Header) -> bool {
        while let Some(aborted) = self.ahead.pop_if(|next| next.first <= header.last_offset()) {
            self.open.push(aborted.producer_id);
        }
        let producer = header.producer().map(|producer| producer.id);
        if header.is_control() {
            // An aborted transaction reaches up to the next marker of its producer.
            self.open.retain(|open| Some(*open) != producer);
            return true;
        }
        header.is_transactional() && producer.is_some_and(|producer| self.open.contains(&producer))
    }
}
