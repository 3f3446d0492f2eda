//! The clock of the machine, and a clock that a test moves by hand.
//!
//! Wall time is comparable with other machines but may jump. Elapsed time never goes back; rates and timeouts use it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

pub trait Clock: Send + Sync {
    /// Wall time in nanoseconds since 1970-01-01T00:00:00Z; negative before that.
    fn unix_nanos(&self) -> i128;

    /// Wall time in milliseconds since 1970-01-01T00:00:00Z; negative before that.
    fn unix_millis(&self) -> i64 {
        self.unix_nanos().div_euclid(1_000_000) as i64
    }

    /// Time since this clock was created; never decreases.
    fn elapsed(&self) -> Duration;
}

/// The clock of the machine.
#[derive(Clone, Debug)]
pub struct RealClock {
    started: Instant,
}

impl RealClock {
    #[allow(
        clippy::disallowed_methods,
        reason = "reads the machine's clock for all others"
    )]
    pub fn new() -> RealClock {
        RealClock {
            started: Instant::now(),
        }
    }
}

impl Default for RealClock {
    fn default() -> RealClock {
        RealClock::new()
    }
}

impl Clock for RealClock {
    #[allow(
        clippy::disallowed_methods,
        reason = "reads the machine's clock for all others"
    )]
    fn unix_nanos(&self) -> i128 {
        unix_nanos_of(SystemTime::now())
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

/// A clock that moves only on request. Share it behind an `Arc`.
#[derive(Debug)]
pub struct SimClock {
    reading: Mutex<Reading>,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    unix_nanos: i128,
    elapsed: Duration,
}

impl SimClock {
    pub fn at_unix_nanos(unix_nanos: i128) -> SimClock {
        SimClock {
            reading: Mutex::new(Reading {
                unix_nanos,
                elapsed: Duration::ZERO,
            }),
        }
    }

    /// Advances wall time and elapsed time.
    pub fn advance(&self, by: Duration) {
        self.update(|reading| {
            reading.unix_nanos += by.as_nanos() as i128;
            reading.elapsed += by;
        });
    }

    /// Sets the wall time, forward or back, as an administrator would; elapsed time stays.
    pub fn set_unix_nanos(&self, unix_nanos: i128) {
        self.update(|reading| reading.unix_nanos = unix_nanos);
    }

    fn update(&self, update: impl FnOnce(&mut Reading)) {
        update(&mut self.reading.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn read(&self) -> Reading {
        *self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for SimClock {
    fn unix_nanos(&self) -> i128 {
        self.read().unix_nanos
    }

    fn elapsed(&self) -> Duration {
        self.read().elapsed
    }
}

pub(crate) fn unix_nanos_of(time: SystemTime) -> i128 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => after.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_time_passes_only_when_moved() {
        let clock = SimClock::at_unix_nanos(-5);
        assert_eq!((clock.unix_nanos(), clock.elapsed()), (-5, Duration::ZERO));
        clock.advance(Duration::from_nanos(7));
        assert_eq!(
            (clock.unix_nanos(), clock.elapsed()),
            (2, Duration::from_nanos(7))
        );
    }

    #[test]
    fn setting_the_wall_clock_back_does_not_turn_back_elapsed_time() {
        let clock = SimClock::at_unix_nanos(100);
        clock.advance(Duration::from_nanos(10));
        clock.set_unix_nanos(0);
        assert_eq!(
            (clock.unix_nanos(), clock.elapsed()),
            (0, Duration::from_nanos(10))
        );
    }

    #[test]
    fn the_real_clock_is_past_the_year_2020_and_does_not_run_backwards() {
        let clock = RealClock::new();
        let first = clock.elapsed();
        assert!(clock.unix_nanos() > 1_577_836_800_000_000_000);
        assert!(clock.elapsed() >= first);
    }

    #[test]
    fn times_before_1970_are_negative() {
        let before = SystemTime::UNIX_EPOCH - Duration::from_nanos(3);
        assert_eq!(unix_nanos_of(before), -3);
        assert_eq!(SimClock::at_unix_nanos(-3).unix_millis(), -1);
    }
}
