//! Warnings about bad clients, at most one a second: a broken client must not fill the disk.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use highwater_env::Clock;

pub(crate) struct WarningLimiter {
    clock: Arc<dyn Clock>,
    /// The earliest time of the next line, in milliseconds of the clock.
    next_ms: AtomicU64,
    withheld: AtomicU64,
}

const PAUSE: Duration = Duration::from_secs(1);

impl WarningLimiter {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> WarningLimiter {
        WarningLimiter {
            clock,
            next_ms: AtomicU64::new(0),
            withheld: AtomicU64::new(0),
        }
    }

    pub(crate) fn connection_closed(&self, client: IpAddr, reason: &dyn fmt::Display) {
        if let Some(withheld) = self.permit() {
            tracing::warn!(%client, withheld, "connection closed: {reason}");
        }
    }

    /// The number of lines withheld since the last one, if another is due.
    fn permit(&self) -> Option<u64> {
        let now_ms = self.clock.elapsed().as_millis() as u64;
        let next_ms = self.next_ms.load(Ordering::Relaxed);
        let due_ms = now_ms + PAUSE.as_millis() as u64;
        let taken = now_ms >= next_ms
            && self
                .next_ms
                .compare_exchange(next_ms, due_ms, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if taken {
            return Some(self.withheld.swap(0, Ordering::Relaxed));
        }
        self.withheld.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_env::SimClock;

    #[test]
    fn one_line_a_second_says_how_many_were_withheld() {
        let clock = Arc::new(SimClock::at_unix_nanos(0));
        let warnings = WarningLimiter::new(Arc::clone(&clock) as Arc<dyn Clock>);
        assert_eq!(warnings.permit(), Some(0));
        assert_eq!(warnings.permit(), None);
        assert_eq!(warnings.permit(), None);
        clock.advance(PAUSE);
        assert_eq!(warnings.permit(), Some(2));
        assert_eq!(warnings.permit(), None);
    }
}
