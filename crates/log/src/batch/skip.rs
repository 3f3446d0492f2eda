//! Tells the batches that a reader of committed records must not see from the others.

use super::BatchHeader;
use crate::AbortedTransaction;

/// Goes along with a walk over fetched batches, in order.
#[derive(Clone, Debug, Default)]
pub struct ReadCommittedFilter {
    /// The nearest last.
    ahead: Vec<AbortedTransaction>,
    /// Producers whose aborted transaction is open at this point.
    open: Vec<i64>,
}

impl ReadCommittedFilter {
    /// Of a fetch that came with word of these.
    pub fn new(aborted: &[AbortedTransaction]) -> ReadCommittedFilter {
        let mut ahead = aborted.to_vec();
        ahead.sort_by_key(|aborted| std::cmp::Reverse(aborted.first));
        ReadCommittedFilter {
            ahead,
            open: Vec::new(),
        }
    }

    /// True for a batch of an aborted transaction and for the log's own marks.
    pub fn skips(&mut self, header: &BatchHeader) -> bool {
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
