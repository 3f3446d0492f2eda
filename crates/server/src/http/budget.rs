//! A bound on the bytes of requests and answers in memory, over all connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::error::{Code, Error};

#[derive(Debug)]
pub(super) struct Budget {
    taken: AtomicUsize,
    max: usize,
}

/// Bytes taken from a budget, released on drop.
#[derive(Debug)]
pub(super) struct Permit {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    pub(super) fn new(max: usize) -> Arc<Budget> {
        Arc::new(Budget {
            taken: AtomicUsize::new(0),
            max,
        })
    }

    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Refuses at once instead of waiting, so that the sender gets back-pressure.
    pub(super) fn take(self: &Arc<Budget>, bytes: usize) -> Result<Permit, Error> {
        self.add(bytes)?;
        Ok(Permit {
            budget: self.clone(),
            bytes,
        })
    }

    fn add(&self, bytes: usize) -> Result<(), Error> {
        let before = self.taken.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) <= self.max {
            return Ok(());
        }
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
        Err(Error::new(
            Code::Full,
            format!(
                "{before} bytes of requests are in flight, of at most {}",
                self.max
            ),
            "send again after the time in Retry-After",
        ))
    }
}

impl Permit {
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), Error> {
        self.budget.add(bytes)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_permit_is_released() {
        let budget = Budget::new(10);
        let mut first = budget.take(6).unwrap();
        assert_eq!(budget.take(5).unwrap_err().code, Code::Full);
        first.grow(4).unwrap();
        assert!(first.grow(1).is_err());
        assert_eq!(budget.taken(), 10);
        drop(first);
        assert_eq!(budget.taken(), 0);
    }
}
