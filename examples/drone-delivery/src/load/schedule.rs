//! The due times of requests.

use std::time::Duration;

/// A number of requests at a steady rate; with a spike, the middle third is faster.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    requests: u64,
    rate: u64,
    spike: Option<u64>,
}

impl Schedule {
    pub fn new(requests: u64, rate: u64, spike: Option<u64>) -> Schedule {
        Schedule {
            requests,
            rate: rate.max(1),
            spike: spike.filter(|spike| *spike > 0),
        }
    }

    /// The numbers of the requests where the spike begins and ends.
    pub fn slots(&self) -> [u64; 2] {
        [self.requests / 3, self.requests / 3 * 2]
    }

    /// When request `number` is due and whether that is in the spike; `None` past the end.
    pub fn due(&self, number: u64) -> Option<(Duration, bool)> {
        if number >= self.requests {
            return None;
        }
        let Some(spike) = self.spike else {
            return Some((at(number, self.rate), false));
        };
        let [begin, end] = self.slots();
        let before = number.min(begin);
        let within = number.clamp(begin, end) - begin;
        let after = number.saturating_sub(end);
        let due = at(before + after, self.rate) + at(within, spike);
        Some((due, (begin..end).contains(&number)))
    }
}

fn at(number: u64, rate: u64) -> Duration {
    Duration::from_nanos((u128::from(number) * 1_000_000_000 / u128::from(rate)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rate_has_even_gaps() {
        let schedule = Schedule::new(3, 10, None);
        assert_eq!(schedule.due(2), Some((Duration::from_millis(200), false)));
        assert_eq!(schedule.due(3), None);
    }

    #[test]
    fn the_middle_third_is_faster() {
        let schedule = Schedule::new(30, 10, Some(100));
        assert_eq!(schedule.due(9), Some((Duration::from_millis(900), false)));
        assert_eq!(schedule.due(10), Some((Duration::from_millis(1000), true)));
        assert_eq!(schedule.due(19), Some((Duration::from_millis(1090), true)));
        assert_eq!(schedule.due(20), Some((Duration::from_millis(1100), false)));
        assert_eq!(schedule.due(29), Some((Duration::from_millis(2000), false)));
    }
}
