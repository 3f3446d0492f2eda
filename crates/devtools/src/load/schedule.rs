//! When each request of a load is due.

use std::time::Duration;

/// A steady rate, with a spike in the middle.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Before, in and after the spike.
    phases: [Phase; 3],
}

#[derive(Clone, Copy, Debug)]
struct Phase {
    requests: u64,
    /// A second.
    rate: u64,
    length: Duration,
}

impl Schedule {
    /// A spike longer than the load is cut to it; a rate of 0 means no spike.
    pub fn of_time(rate: u64, spike: u64, whole: Duration, spike_time: Duration) -> Schedule {
        let inner = match spike {
            0 => Duration::ZERO,
            _ => spike_time.min(whole),
        };
        let before = (whole - inner) / 2;
        let phases = [
            (rate, before),
            (spike, inner),
            (rate, whole - inner - before),
        ];
        let phase = |(rate, length): (u64, Duration)| Phase {
            requests: (u128::from(rate) * length.as_nanos() / 1_000_000_000) as u64,
            rate,
            length,
        };
        Schedule {
            phases: phases.map(phase),
        }
    }

    /// A number of requests, the middle third of them at the rate of the spike, if there is one.
    pub fn of_requests(requests: u64, rate: u64, spike: Option<u64>) -> Schedule {
        let rate = rate.max(1);
        let (spike, third) = match spike {
            None | Some(0) => (rate, 0),
            Some(spike) => (spike, requests / 3),
        };
        let phase = |(requests, rate): (u64, u64)| Phase {
            requests,
            rate,
            length: time_of(requests, rate),
        };
        let phases = [(third, rate), (third, spike), (requests - 2 * third, rate)];
        Schedule {
            phases: phases.map(phase),
        }
    }

    pub fn count(&self) -> u64 {
        self.phases.iter().map(|phase| phase.requests).sum()
    }

    /// The numbers of the requests where the spike begins and ends.
    pub fn spike(&self) -> [u64; 2] {
        let [before, spike, _] = self.phases.map(|phase| phase.requests);
        [before, before + spike]
    }

    /// When request `number` is due, and whether that is in the spike; `None` past the end.
    pub fn due(&self, mut number: u64) -> Option<(Duration, bool)> {
        let mut begin = Duration::ZERO;
        for (at, phase) in self.phases.iter().enumerate() {
            if number < phase.requests {
                return Some((begin + time_of(number, phase.rate), at == 1));
            }
            number -= phase.requests;
            begin += phase.length;
        }
        None
    }
}

/// How long so many requests take.
fn time_of(requests: u64, rate: u64) -> Duration {
    let nanos = u128::from(requests) * 1_000_000_000 / u128::from(rate);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(rate: u64, spike: u64, seconds: u64, spike_seconds: u64) -> Schedule {
        let (whole, inner) = (seconds, spike_seconds);
        Schedule::of_time(
            rate,
            spike,
            Duration::from_secs(whole),
            Duration::from_secs(inner),
        )
    }

    #[test]
    fn the_spike_is_in_the_middle() {
        let schedule = timed(10, 100, 6, 2);
        assert_eq!(schedule.count(), 20 + 200 + 20);
        assert_eq!(schedule.spike(), [20, 220]);
        assert_eq!(schedule.due(0), Some((Duration::ZERO, false)));
        assert_eq!(schedule.due(19), Some((Duration::from_millis(1900), false)));
        assert_eq!(schedule.due(20), Some((Duration::from_secs(2), true)));
        assert_eq!(schedule.due(21), Some((Duration::from_millis(2010), true)));
        assert_eq!(schedule.due(220), Some((Duration::from_secs(4), false)));
        assert_eq!(schedule.due(240), None);
    }

    #[test]
    fn without_a_spike_the_rate_is_steady() {
        let schedule = timed(1000, 0, 3, 10);
        assert_eq!(schedule.count(), 3000);
        assert!((0..3000).all(|n| schedule.due(n).is_some_and(|(_, spike)| !spike)));
    }

    #[test]
    fn a_number_of_requests_has_even_gaps() {
        let schedule = Schedule::of_requests(3, 10, Some(0));
        assert_eq!(schedule.due(2), Some((Duration::from_millis(200), false)));
        assert_eq!(schedule.due(3), None);
        let endless = Schedule::of_requests(u64::MAX, 10, None);
        assert_eq!(endless.due(50), Some((Duration::from_secs(5), false)));
    }

    #[test]
    fn the_middle_third_is_faster() {
        let schedule = Schedule::of_requests(30, 10, Some(100));
        assert_eq!(schedule.due(9), Some((Duration::from_millis(900), false)));
        assert_eq!(schedule.due(10), Some((Duration::from_millis(1000), true)));
        assert_eq!(schedule.due(19), Some((Duration::from_millis(1090), true)));
        assert_eq!(schedule.due(20), Some((Duration::from_millis(1100), false)));
        assert_eq!(schedule.due(29), Some((Duration::from_millis(2000), false)));
    }
}
