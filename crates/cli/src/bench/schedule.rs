//! When each request of a load is due.

use std::time::Duration;

/// A steady rate with one spike in the middle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    /// Rate and duration before, in and after the spike.
    phases: [(u64, Duration); 3],
}

impl Schedule {
    /// A spike longer than the load is cut to it; a rate of 0 means no spike.
    pub(super) fn new(rate: u64, spike: u64, seconds: u64, spike_seconds: u64) -> Schedule {
        let whole = Duration::from_secs(seconds);
        let inner = match spike {
            0 => Duration::ZERO,
            _ => Duration::from_secs(spike_seconds).min(whole),
        };
        let before = (whole - inner) / 2;
        Schedule {
            phases: [
                (rate, before),
                (spike, inner),
                (rate, whole - inner - before),
            ],
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.phases
            .iter()
            .map(|(rate, length)| events(*rate, *length))
            .sum()
    }

    /// When request `number` is due, and whether that is in the spike; `None` past the end.
    pub(super) fn due(&self, mut number: u64) -> Option<(Duration, bool)> {
        let mut begin = Duration::ZERO;
        for (phase, (rate, length)) in self.phases.into_iter().enumerate() {
            let count = events(rate, length);
            if number < count {
                let into = Duration::from_nanos(
                    (u128::from(number) * 1_000_000_000 / u128::from(rate)) as u64,
                );
                return Some((begin + into, phase == 1));
            }
            number -= count;
            begin += length;
        }
        None
    }
}

fn events(rate: u64, length: Duration) -> u64 {
    (u128::from(rate) * length.as_nanos() / 1_000_000_000) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spike_is_in_the_middle() {
        let schedule = Schedule::new(10, 100, 6, 2);
        assert_eq!(schedule.count(), 20 + 200 + 20);
        assert_eq!(schedule.due(0), Some((Duration::ZERO, false)));
        assert_eq!(schedule.due(19), Some((Duration::from_millis(1900), false)));
        assert_eq!(schedule.due(20), Some((Duration::from_secs(2), true)));
        assert_eq!(schedule.due(21), Some((Duration::from_millis(2010), true)));
        assert_eq!(schedule.due(220), Some((Duration::from_secs(4), false)));
        assert_eq!(schedule.due(240), None);
    }

    #[test]
    fn without_a_spike_the_rate_is_steady() {
        let schedule = Schedule::new(1000, 0, 3, 10);
        assert_eq!(schedule.count(), 3000);
        assert!((0..3000).all(|n| schedule.due(n).is_some_and(|(_, spike)| !spike)));
    }
}
