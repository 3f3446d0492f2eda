//! A bound on the bytes of requests and answers in memory, over all connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

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

    /// Takes bytes beyond the limit, too: for answers that must not be lost.
    pub(super) fn take_unchecked(self: &Arc<Budget>, bytes: usize) -> Permit {
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        Permit {
            budget: self.clone(),
            bytes,
        }
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
                "{before} bytes of requests and answers are in flight, of at most {}",
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

    /// Grows or shrinks to `bytes`.
    pub(super) fn resize(&mut self, bytes: usize) -> Result<(), Error> {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.grow(more),
            None => {
                let less = self.bytes - bytes;
                self.budget.taken.fetch_sub(less, Ordering::Relaxed);
                self.bytes = bytes;
                Ok(())
            }
        }
    }

    /// Bytes that hold the permit until they are dropped, which is after they are written to the socket.
    pub(super) fn attach(self, bytes: impl Into<Bytes>) -> Bytes {
        let bytes = bytes.into();
        Bytes::from_owner(MeteredBytes {
            bytes,
            _permit: self,
        })
    }
}

struct MeteredBytes {
    bytes: Bytes,
    _permit: Permit,
}

impl AsRef<[u8]> for MeteredBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
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
        first.resize(3).unwrap();
        assert_eq!(budget.taken(), 3);
        drop(first);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn bytes_hold_their_permit() {
        let budget = Budget::new(10);
        let bytes = budget.take(3).unwrap().attach("abc");
        let rest = bytes.slice(1..);
        drop(bytes);
        assert_eq!((budget.taken(), &rest[..]), (3, &b"bc"[..]));
        drop(rest);
        assert_eq!(budget.taken(), 0);
    }
}
