//! A limit on the memory that all clients of a listener use together: requests, responses and unpacked values.
//!
//! Bytes are taken before the memory is allocated and released when it is dropped. A protocol with retriable errors
//! refuses requests that do not fit ([`MemoryBudget::try_take`]); one that cannot waits for its turn
//! ([`MemoryBudget::take`]).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Mutex, Notify};

/// A cheap handle; clones share the budget.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    max: usize,
    taken: AtomicUsize,
    /// How many wait. While a task waits, no other takes bytes, or a large share would wait forever.
    waiting: AtomicUsize,
    /// Held by the first waiting task; the others queue for it in order.
    turn: Mutex<()>,
    released: Notify,
}

/// Bytes taken from a budget, released on drop. The default is no bytes of no budget.
#[derive(Debug, Default)]
pub struct MemoryShare {
    /// `None` if it has no bytes.
    budget: Option<MemoryBudget>,
    bytes: usize,
}

/// The budget has too few free bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetExhausted {
    pub taken: usize,
    pub max: usize,
}

impl fmt::Display for BudgetExhausted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} of {} bytes are in use", self.taken, self.max)
    }
}

impl std::error::Error for BudgetExhausted {}

impl MemoryBudget {
    pub fn new(max: usize) -> MemoryBudget {
        let shared = Shared {
            max,
            taken: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            turn: Mutex::new(()),
            released: Notify::new(),
        };
        MemoryBudget {
            shared: Arc::new(shared),
        }
    }

    pub fn taken(&self) -> usize {
        self.shared.taken.load(Ordering::Relaxed)
    }

    /// Takes bytes that are free now.
    pub fn try_take(&self, bytes: usize) -> Result<MemoryShare, BudgetExhausted> {
        if self.has_waiting() {
            return Err(self.exhausted(self.taken()));
        }
        self.add(bytes)?;
        Ok(self.share(bytes))
    }

    /// Waits until the bytes are free. More than the whole budget counts as the whole.
    pub fn take(&self, bytes: usize) -> impl Future<Output = MemoryShare> + Send + use<> {
        let (budget, bytes) = (self.clone(), bytes.min(self.shared.max));
        async move {
            match budget.try_take(bytes) {
                Ok(share) => share,
                Err(_) => budget.wait(bytes).await,
            }
        }
    }

    async fn wait(&self, bytes: usize) -> MemoryShare {
        let _waiting = Waiting::new(&self.shared);
        let _turn = self.shared.turn.lock().await;
        loop {
            if self.add(bytes).is_ok() {
                return self.share(bytes);
            }
            self.shared.released.notified().await;
        }
    }

    /// Takes the free part of these bytes, which may be nothing.
    pub fn take_up_to(&self, bytes: usize) -> MemoryShare {
        if self.has_waiting() {
            return MemoryShare::default();
        }
        let mut part = 0;
        let add = |taken: usize| {
            part = bytes.min(self.shared.max.saturating_sub(taken));
            Some(taken + part)
        };
        let order = Ordering::SeqCst;
        // The update always gives a value, so it cannot fail.
        let _ = self.shared.taken.fetch_update(order, order, add);
        self.share(part)
    }

    /// Takes bytes beyond the limit, too: for answers that must not be lost.
    pub fn take_unchecked(&self, bytes: usize) -> MemoryShare {
        self.shared.taken.fetch_add(bytes, Ordering::SeqCst);
        self.share(bytes)
    }

    fn share(&self, bytes: usize) -> MemoryShare {
        MemoryShare {
            budget: Some(self.clone()),
            bytes,
        }
    }

    fn has_waiting(&self) -> bool {
        self.shared.waiting.load(Ordering::SeqCst) > 0
    }

    fn exhausted(&self, taken: usize) -> BudgetExhausted {
        let max = self.shared.max;
        BudgetExhausted { taken, max }
    }

    fn add(&self, bytes: usize) -> Result<(), BudgetExhausted> {
        let add = |taken: usize| {
            let sum = taken.checked_add(bytes)?;
            (sum <= self.shared.max).then_some(sum)
        };
        let order = Ordering::SeqCst;
        let added = self.shared.taken.fetch_update(order, order, add);
        added.map(drop).map_err(|taken| self.exhausted(taken))
    }

    /// A waiting task counts itself before it looks for free bytes, and the bytes are released before the count is
    /// read: one of the two sees the other.
    fn release(&self, bytes: usize) {
        self.shared.taken.fetch_sub(bytes, Ordering::SeqCst);
        if self.has_waiting() {
            self.shared.released.notify_one();
        }
    }
}

/// Counts a task that waits.
struct Waiting<'a>(&'a Shared);

impl Waiting<'_> {
    fn new(shared: &Shared) -> Waiting<'_> {
        shared.waiting.fetch_add(1, Ordering::SeqCst);
        Waiting(shared)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl MemoryShare {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes more bytes of the same budget.
    pub fn grow(&mut self, bytes: usize) -> Result<(), BudgetExhausted> {
        if let Some(budget) = &self.budget {
            budget.add(bytes)?;
            self.bytes += bytes;
        }
        Ok(())
    }

    /// Grows or shrinks to `bytes`.
    pub fn resize(&mut self, bytes: usize) -> Result<(), BudgetExhausted> {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.grow(more),
            None => {
                self.shrink_to(bytes);
                Ok(())
            }
        }
    }

    /// Releases all but this many bytes.
    pub fn shrink_to(&mut self, bytes: usize) {
        if let (Some(budget), Some(less)) = (&self.budget, self.bytes.checked_sub(bytes)) {
            budget.release(less);
            self.bytes = bytes;
        }
    }

    /// Adds the bytes of another share of the same budget.
    pub fn add(&mut self, mut other: MemoryShare) {
        let of = |share: &MemoryShare| share.budget.as_ref().map(|own| Arc::as_ptr(&own.shared));
        debug_assert!(of(self).is_none() || of(&other).is_none() || of(self) == of(&other));
        self.budget = self.budget.take().or_else(|| other.budget.clone());
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget
            && self.bytes > 0
        {
            budget.release(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn taken_and_released_bytes_add_up() {
        let budget = MemoryBudget::new(10);
        let mut share = budget.try_take(4).unwrap();
        assert_eq!(
            budget.try_take(7).unwrap_err(),
            BudgetExhausted { taken: 4, max: 10 }
        );
        share.add(budget.take_up_to(100));
        assert_eq!((share.bytes(), budget.taken()), (10, 10));
        assert_eq!(budget.take_up_to(1).bytes(), 0);
        assert!(share.grow(1).is_err());
        share.shrink_to(1);
        share.shrink_to(5);
        assert_eq!((share.bytes(), budget.taken()), (1, 1));
        share.resize(3).unwrap();
        share.resize(2).unwrap();
        assert_eq!((share.bytes(), budget.taken()), (2, 2));
        drop(share);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn an_unchecked_share_may_exceed_the_limit() {
        let budget = MemoryBudget::new(10);
        let share = budget.take_unchecked(25);
        assert_eq!(budget.taken(), 25);
        assert_eq!(budget.take_up_to(1).bytes(), 0);
        drop(share);
        assert!(budget.try_take(10).is_ok());
    }

    #[test]
    fn those_that_wait_are_served_in_order_and_before_others() {
        let budget = MemoryBudget::new(10);
        let mut context = Context::from_waker(Waker::noop());
        let held = budget.try_take(4).unwrap();
        // More than the whole budget counts as the whole.
        let mut large = Box::pin(budget.take(100));
        let mut small = Box::pin(budget.take(1));
        assert!(large.as_mut().poll(&mut context).is_pending());
        assert!(small.as_mut().poll(&mut context).is_pending());
        assert!(budget.try_take(1).is_err());
        assert_eq!(budget.take_up_to(1).bytes(), 0);
        drop(held);
        let Poll::Ready(share) = large.as_mut().poll(&mut context) else {
            panic!("the bytes are free")
        };
        assert_eq!(share.bytes(), 10);
        assert!(small.as_mut().poll(&mut context).is_pending());
        drop(share);
        assert!(small.as_mut().poll(&mut context).is_ready());
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn one_that_stops_waiting_lets_the_next_pass() {
        let budget = MemoryBudget::new(10);
        let mut context = Context::from_waker(Waker::noop());
        let held = budget.try_take(4).unwrap();
        let mut first = Box::pin(budget.take(10));
        let mut second = Box::pin(budget.take(5));
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending());
        drop(first);
        assert!(second.as_mut().poll(&mut context).is_ready());
        drop((held, second));
        assert!(budget.try_take(10).is_ok());
    }
}
