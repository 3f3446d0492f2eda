//! Fault injection: how often a service is slow, fails, is late, silent or down.
//!
//! Every request gets a [`RequestFault`] before it is handled. Faults are drawn from a seed, so a service that gets the
//! same requests in the same order fails in the same way. The interesting faults are those where the work is done and
//! the caller does not learn of it.

use std::time::Duration;

use highwater_env::random::Random;
use serde::{Deserialize, Serialize};

/// The faults, set by flags and by `PUT /chaos`. Shares are from 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Minimum latency in milliseconds
    #[arg(long, default_value_t = 0)]
    pub latency_ms: u64,
    /// Maximum additional latency in milliseconds, uniformly distributed
    #[arg(long, default_value_t = 0)]
    pub jitter_ms: u64,
    /// The share of requests answered with 500; half of them after the work was done
    #[arg(long, default_value_t = 0.0)]
    pub errors: f64,
    /// The share of requests whose work is done and whose response comes after `late_ms`
    #[arg(long, default_value_t = 0.0)]
    pub late: f64,
    #[arg(long, default_value_t = 0)]
    pub late_ms: u64,
    /// The share of requests whose work is done and whose connection is closed without a response
    #[arg(long, default_value_t = 0.0)]
    pub lost: f64,
}

impl Faults {
    /// Why these numbers are invalid, if they are.
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

    /// `percent` of all requests fail: half of them with an error, the rest late or without a response.
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

/// The fault of one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestFault {
    pub delay: Duration,
    pub kind: FaultKind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    None,
    /// 500 without doing the work.
    Refused,
    /// 500 after doing the work.
    DoneButError,
    DoneButLate(Duration),
    DoneButSilent,
}

/// Draws the fault of each request.
#[derive(Debug)]
pub struct FaultInjector {
    faults: Faults,
    random: Random,
}

impl FaultInjector {
    pub fn new(faults: Faults, seed: u64) -> FaultInjector {
        FaultInjector {
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

    pub fn draw(&mut self) -> RequestFault {
        let faults = &self.faults;
        let jitter = self.random.below(faults.jitter_ms + 1);
        // A float holds 53 bits exactly.
        let mut draw = (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let mut falls = |share: f64| {
            let falls = draw < share;
            draw -= share;
            falls
        };
        let kind = if falls(faults.errors / 2.0) {
            FaultKind::Refused
        } else if falls(faults.errors / 2.0) {
            FaultKind::DoneButError
        } else if falls(faults.late) {
            FaultKind::DoneButLate(Duration::from_millis(faults.late_ms))
        } else if falls(faults.lost) {
            FaultKind::DoneButSilent
        } else {
            FaultKind::None
        };
        RequestFault {
            delay: Duration::from_millis(faults.latency_ms + jitter),
            kind,
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

    fn faults_drawn(seed: u64, count: usize) -> Vec<RequestFault> {
        let mut chaos = FaultInjector::new(faults(), seed);
        (0..count).map(|_| chaos.draw()).collect()
    }

    #[test]
    fn a_seed_repeats_a_run() {
        assert_eq!(faults_drawn(7, 100), faults_drawn(7, 100));
        assert_ne!(faults_drawn(7, 100), faults_drawn(8, 100));
    }

    #[test]
    fn fates_come_in_the_shares_that_were_asked_for() {
        let faults_drawn = faults_drawn(1, 10_000);
        let share = |kind: FaultKind| {
            faults_drawn
                .iter()
                .filter(|fault| fault.kind == kind)
                .count() as f64
                / 10_000.0
        };
        let late = FaultKind::DoneButLate(Duration::from_millis(700));
        for kind in [
            FaultKind::Refused,
            FaultKind::DoneButError,
            late,
            FaultKind::DoneButSilent,
        ] {
            assert!((share(kind) - 0.1).abs() < 0.01, "{kind:?}");
        }
        let delays = faults_drawn.iter().map(|fault| fault.delay.as_millis());
        assert_eq!((delays.clone().min(), delays.max()), (Some(5), Some(15)));
    }

    #[test]
    fn a_calm_service_is_always_fine() {
        let mut chaos = FaultInjector::new(Faults::default(), 1);
        let calm = RequestFault {
            delay: Duration::ZERO,
            kind: FaultKind::None,
        };
        assert!((0..1000).all(|_| chaos.draw() == calm));
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
