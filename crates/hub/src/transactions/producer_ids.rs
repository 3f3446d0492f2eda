//! Producer ids: set aside on the log a block at a time, so that none is ever given out twice, whatever
//! happens to the node. Ids of a block that a crash cut short are lost, of which there are enough.

use tokio::sync::Mutex;

use super::record;
use crate::coordinator::journal::{Entries, Journal};

/// How many ids are set aside at a time.
const BLOCK: i64 = 1000;

/// Whose partition the record of the ids is on.
const OWNER: &str = "";

pub(super) struct ProducerIds {
    block: Mutex<IdBlock>,
}

/// Ids that are ours to give out.
struct IdBlock {
    next: i64,
    end: i64,
}

impl ProducerIds {
    /// `next` has not been set aside for anybody.
    pub fn new(next: i64) -> ProducerIds {
        ProducerIds {
            block: Mutex::new(IdBlock { next, end: next }),
        }
    }

    pub async fn next(&self, journal: &Journal) -> Result<i64, String> {
        let mut block = self.block.lock().await;
        if block.next == block.end {
            // Should this be given up half-way, the next one sets the same block aside again.
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
