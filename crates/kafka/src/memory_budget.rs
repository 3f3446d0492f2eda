//! A limit on the memory that all connections use together.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The unit of allocation.
const UNIT_BYTES: usize = 1 << 10;

#[derive(Debug)]
pub(crate) struct MemoryBudget {
    units: Arc<Semaphore>,
    all: u32,
}

/// A part of the memory, released on drop.
#[derive(Debug, Default)]
pub(crate) struct Share(Option<OwnedSemaphorePermit>);

impl MemoryBudget {
    pub(crate) fn new(bytes: usize) -> MemoryBudget {
        let all = units(bytes).max(1);
        let units = Semaphore::new((all as usize).min(Semaphore::MAX_PERMITS));
        MemoryBudget {
            units: Arc::new(units),
            all,
        }
    }

    /// Takes this many bytes, at most the whole budget. `None` if they are not free.
    pub(crate) fn try_take(&self, bytes: usize) -> Option<Share> {
        let units = Arc::clone(&self.units);
        let taken = units.try_acquire_many_owned(self.needed(bytes));
        taken.ok().map(|permit| Share(Some(permit)))
    }

    /// Takes this many bytes, at most the whole budget, and waits until they are free.
    pub(crate) fn take(&self, bytes: usize) -> impl Future<Output = Share> + Send + use<> {
        let (units, needed) = (Arc::clone(&self.units), self.needed(bytes));
        async move { Share(units.acquire_many_owned(needed).await.ok()) }
    }

    /// Takes the free part of this many bytes, which may be nothing.
    pub(crate) fn take_up_to(&self, bytes: usize) -> Share {
        let free = u32::try_from(self.units.available_permits()).unwrap_or(u32::MAX);
        let taken = Arc::clone(&self.units).try_acquire_many_owned(units(bytes).min(free));
        Share(taken.ok())
    }

    fn needed(&self, bytes: usize) -> u32 {
        units(bytes).min(self.all)
    }
}

impl Share {
    pub(crate) fn bytes(&self) -> usize {
        let permits = self.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        permits * UNIT_BYTES
    }

    /// Releases all but this many bytes.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        if let Some(permit) = &mut self.0 {
            let remaining = (units(bytes) as usize).min(permit.num_permits());
            drop(permit.split(permit.num_permits() - remaining));
        }
    }

    pub(crate) fn add(&mut self, other: Share) {
        match (&mut self.0, other.0) {
            (Some(permit), Some(other)) => permit.merge(other),
            (own @ None, other) => *own = other,
            (Some(_), None) => {}
        }
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_and_released_bytes_add_up() {
        let memory = MemoryBudget::new(10 * UNIT_BYTES);
        let free = || memory.units.available_permits();
        let mut share = memory.try_take(3 * UNIT_BYTES + 1).unwrap();
        assert_eq!((share.bytes(), free()), (4 * UNIT_BYTES, 6));
        assert!(memory.try_take(7 * UNIT_BYTES).is_none());
        share.add(memory.take_up_to(100 * UNIT_BYTES));
        assert_eq!((share.bytes(), free()), (10 * UNIT_BYTES, 0));
        assert_eq!(memory.take_up_to(1).bytes(), 0);
        share.shrink_to(1);
        assert_eq!((share.bytes(), free()), (UNIT_BYTES, 9));
        share.shrink_to(5 * UNIT_BYTES);
        assert_eq!(share.bytes(), UNIT_BYTES);
        drop(share);
        assert_eq!(free(), 10);
    }

    #[test]
    fn a_request_larger_than_the_budget_takes_all_of_it() {
        let memory = MemoryBudget::new(2 * UNIT_BYTES);
        assert_eq!(
            memory.try_take(100 * UNIT_BYTES).unwrap().bytes(),
            2 * UNIT_BYTES
        );
    }
}
