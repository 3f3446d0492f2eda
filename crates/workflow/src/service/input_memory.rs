//! The memory of the inputs of instances in progress, which their clients choose the size of.
//!
//! A new input is refused when the budget is used up. One that is on a journal is not: it was accepted. It counts
//! nevertheless, so that a restart does not double the memory in use.

use bytes::Bytes;
use highwater_env::{BudgetExhausted, MemoryBudget, MemoryShare};

use crate::machine::Instance;

#[derive(Clone, Debug)]
pub(crate) struct InputMemory(MemoryBudget);

/// An input, which is charged as long as an instance holds it.
struct MeteredInput {
    bytes: Bytes,
    _share: MemoryShare,
}

impl AsRef<[u8]> for MeteredInput {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl InputMemory {
    pub(super) fn new(bytes_max: usize) -> InputMemory {
        InputMemory(MemoryBudget::new(bytes_max))
    }

    /// Takes memory for a new input.
    pub(super) fn accept(&self, input: &[u8]) -> Result<Bytes, BudgetExhausted> {
        let share = self.0.try_take(input.len())?;
        Ok(metered(Bytes::copy_from_slice(input), share))
    }

    /// Counts the input of an instance that was read from a journal.
    pub(super) fn count(&self, instance: &mut Instance) {
        let input = std::mem::take(&mut instance.input);
        let share = self.0.take_unchecked(input.len());
        instance.input = metered(input, share);
    }
}

fn metered(bytes: Bytes, share: MemoryShare) -> Bytes {
    Bytes::from_owner(MeteredInput {
        bytes,
        _share: share,
    })
}
