//! Producer ids, reserved on the log in blocks, so that none is assigned twice. A crash loses the rest of a block.

use tokio::sync::Mutex;

use super::record;
use crate::coordinator::journal::{Entries, Journal};

/// Number of ids in a block.
const BLOCK: i64 = 1000;

/// Determines the partition of the record.
const OWNER: &str = "";

pub(super) struct ProducerIds {
    block: Mutex<IdBlock>,
}

/// Reserved ids that are not assigned yet.
struct IdBlock {
    next: i64,
    end: i64,
}

impl ProducerIds {
    /// `next` is the first id that is not reserved.
    pub(super) fn new(next: i64) -> ProducerIds {
        ProducerIds {
            block: Mutex::new(IdBlock { next, end: next }),
        }
    }

    pub(super) async fn next(&self, journal: &Journal) -> Result<i64, String> {
        let mut block = self.block.lock().await;
        if block.next == block.end {
            // If this is cancelled, the next call reserves the same block again.
            let end = block.end + BLOCK;
            let mut entries = Entries::default();
            entries.put(record::ids_key, |out| record::put_ids(out, end));
            journal.append(OWNER, &entries).await?;
            block.end = end;
        }
        block.next += 1;
        Ok(block.next - 1)
    }
}
