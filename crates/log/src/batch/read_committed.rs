//! Filters fetched batches for readers of committed records.

use super::BatchHeader;
use crate::AbortedTransaction;

/// Visits fetched batches in order.
#[derive(Clone, Debug, Default)]
pub struct ReadCommittedFilter {
    /// Transactions that start later, the next one last.
    ahead: Vec<AbortedTransaction>,
    /// Producers whose aborted transaction is open at this point.
    open: Vec<i64>,
}

impl ReadCommittedFilter {
    /// `aborted` are the aborted transactions of the fetch.
    pub fn new(aborted: &[AbortedTransaction]) -> ReadCommittedFilter {
        let mut ahead = aborted.to_vec();
        ahead.sort_by_key(|aborted| std::cmp::Reverse(aborted.first));
        ReadCommittedFilter {
            ahead,
            open: Vec::new(),
        }
    }

    /// True for batches of aborted transactions and for control batches.
    pub fn skips(&mut self, header: &BatchHeader) -> bool {
        while let Some(aborted) = self.ahead.pop_if(|next| next.first <= header.last_offset()) {
            self.open.push(aborted.producer_id);
        }
        let producer = header.producer().map(|producer| producer.id);
        if header.is_control() {
            // A marker ends the transaction of its producer.
            self.open.retain(|open| Some(*open) != producer);
            return true;
        }
        header.is_transactional() && producer.is_some_and(|producer| self.open.contains(&producer))
    }
}
