//! The chaos switch of a service: how often it is slow, wrong, late, silent or gone.
//!
//! Every request is given a [`Fate`] before it is looked at. The draws come from a seed, so a service
//! that gets the same requests in the same order misbehaves in the same way. The unpleasant fates are
//! those in which the work is done and the caller does not learn of it.

use std::time::Duration;

use highwater_env::random::Random;
use serde::{Deserialize, Serialize};

/// What can be set, by flags and by `PUT /chaos`. Shares are from 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Milliseconds that every answer takes at least
    #[arg(long, default_value_t = 0)]
    pub latency_ms: u64,
    /// Up to so many milliseconds more, evenly spread
    #[arg(long, default_value_t = 0)]
    pub jitter_ms: u64,
    /// The share of requests answered with 500; half of them after the work was done
    #[arg(long, default_value_t = 0.0)]
    pub errors: f64,
    /// The share of requests whose work is done and whose answer comes after `late_ms`
    #[arg(long, default_value_t = 0.0)]
    pub late: f64,
    #[arg(long, default_value_t = 0)]
    pub late_ms: u64,
    /// The share of requests whose work is done and that are never answered: the connection ends
    #[arg(long, default_value_t = 0.0)]
    pub lost: f64,
}

impl Faults {
    /// What is wrong with these numbers.
    pub fn problem(&self) -> Option<String> {
        let shares = [
            ("errors", self.errors),
            ("late", self.late),
            ("lost", self.lost),
        ];
        if let Some((name, share)) = shares
            .iter()
            .find(|(_, share)| !(0.0..=1.0).contains(share))
        {
            return Some(format!("`{name}` is {share}, and a share is from 0 to 1"));
        }
        let sum = self.errors + self.late + self.lost;
        (sum > 1.0).then(|| format!("the shares add up to {sum}, which is more than 1"))
    }

    /// One request in `percent` of a hundred fails in one way or another: half of them with an error,
    /// the rest late or not at all.
    pub fn failing(percent: f64, late_ms: u64) -> Faults {
        let share = percent / 100.0;
        Faults {
            errors: share / 2.0,
            late: share / 4.0,
            lost: share / 4.0,
            late_ms,
            ..Faults::default()
        }
    }
}

/// What becomes of one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fate {
    pub delay: Duration,
    pub ending: Ending,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending {
    Fine,
    /// 500, and nothing was done.
    Refused,
    /// 500, though it was done.
    DoneButError,
    DoneButLate(Duration),
    DoneButSilent,
}

/// Faults and the dice.
#[derive(Debug)]
pub struct Chaos {
    faults: Faults,
    random: Random,
}

impl Chaos {
    pub fn new(faults: Faults, seed: u64) -> Chaos {
        Chaos {
            faults,
            random: Random::seeded(seed),
        }
    }

    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    pub fn set(&mut self, faults: Faults) {
        self.faults = faults;
    }

    pub fn fate(&mut self) -> Fate {
        let faults = &self.faults;
        let jitter = self.random.below(faults.jitter_ms + 1);
        // 53 bits are what a float holds exactly.
        let mut draw = (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let mut falls = |share: f64| {
            let falls = draw < share;
            draw -= share;
            falls
        };
        let ending = if falls(faults.errors / 2.0) {
            Ending::Refused
        } else if falls(faults.errors / 2.0) {
            Ending::DoneButError
        } else if falls(faults.late) {
            Ending::DoneButLate(Duration::from_millis(faults.late_ms))
        } else if falls(faults.lost) {
            Ending::DoneButSilent
        } else {
            Ending::Fine
        };
        Fate {
            delay: Duration::from_millis(faults.latency_ms + jitter),
            ending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults() -> Faults {
        Faults {
            latency_ms: 5,
            jitter_ms: 10,
            errors: 0.2,
            late: 0.1,
            late_ms: 700,
            lost: 0.1,
        }
    }

    fn fates(seed: u64, count: usize) -> Vec<Fate> {
        let mut chaos = Chaos::new(faults(), seed);
        (0..count).map(|_| chaos.fate()).collect()
    }

    #[test]
    fn a_seed_repeats_a_run() {
        assert_eq!(fates(7, 100), fates(7, 100));
        assert_ne!(fates(7, 100), fates(8, 100));
    }

    #[test]
    fn fates_come_in_the_shares_that_were_asked_for() {
        let fates = fates(1, 10_000);
        let share = |ending: Ending| {
            fates.iter().filter(|fate| fate.ending == ending).count() as f64 / 10_000.0
        };
        let late = Ending::DoneButLate(Duration::from_millis(700));
        for ending in [
            Ending::Refused,
            Ending::DoneButError,
            late,
            Ending::DoneButSilent,
        ] {
            assert!((share(ending) - 0.1).abs() < 0.01, "{ending:?}");
        }
        let delays = fates.iter().map(|fate| fate.delay.as_millis());
        assert_eq!((delays.clone().min(), delays.max()), (Some(5), Some(15)));
    }

    #[test]
    fn a_calm_service_is_always_fine() {
        let mut chaos = Chaos::new(Faults::default(), 1);
        let calm = Fate {
            delay: Duration::ZERO,
            ending: Ending::Fine,
        };
        assert!((0..1000).all(|_| chaos.fate() == calm));
    }

    #[test]
    fn shares_that_cannot_be_are_told() {
        assert_eq!(faults().problem(), None);
        let wrong = Faults {
            errors: 1.5,
            ..faults()
        };
        assert!(wrong.problem().unwrap().contains("`errors` is 1.5"));
        let much = Faults {
            errors: 0.9,
            ..faults()
        };
        assert!(much.problem().unwrap().contains("more than 1"));
        assert!(
            Faults {
                lost: f64::NAN,
                ..faults()
            }
            .problem()
            .is_some()
        );
    }
}
