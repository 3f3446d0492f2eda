//! Deletes the records of an exchange that no checkpoint of the combiner needs any more.

use std::collections::VecDeque;
use std::sync::Arc;

use highwater_log::{Offset, Partition};

use super::super::checkpoint_store::KEPT;
use super::super::hub_stream::StreamSnapshot;
use super::super::partitions::InputPartitions;

pub(in crate::live) struct ExchangeTrim {
    partitions: Vec<Arc<dyn Partition>>,
    /// The checkpoint that is being stored.
    pending: Option<(u64, Vec<Offset>)>,
    /// Of the checkpoints that are stored, the first record that each needs of every partition.
    stored: VecDeque<Vec<Offset>>,
}

impl ExchangeTrim {
    /// The partitions are those of the exchange.
    pub(in crate::live) fn new(partitions: &InputPartitions) -> ExchangeTrim {
        let partitions = partitions.all.iter();
        ExchangeTrim {
            partitions: partitions.map(|source| source.partition.clone()).collect(),
            pending: None,
            stored: VecDeque::new(),
        }
    }

    pub(in crate::live) fn note(&mut self, checkpoint: u64, streams: &[StreamSnapshot]) {
        let keep = streams.iter().map(|stream| stream.keep_from());
        self.pending = keep.collect::<Option<_>>().map(|keep| (checkpoint, keep));
    }

    /// The checkpoint was stored, or not.
    pub(in crate::live) fn stored(&mut self, checkpoint: u64, is_stored: bool) {
        let pending = self.pending.take();
        let Some((_, keep)) = pending.filter(|(number, _)| is_stored && *number == checkpoint)
        else {
            return;
        };
        self.stored.push_back(keep);
        if self.stored.len() < KEPT {
            return;
        }
        let Some(oldest) = self.stored.pop_front() else {
            return;
        };
        for (partition, offset) in self.partitions.iter().zip(oldest) {
            if offset > partition.bounds().start {
                let trimmed = partition.trim(offset);
                // What is left is deleted after the next checkpoint.
                tokio::spawn(async move { drop(trimmed.await) });
            }
        }
    }
}
