//! When to try again, and when to give up.
//!
//! A policy is a pure function of what has happened so far: the number of tries, the time since the
//! first, what the other side asked for (`Retry-After`) and a random number. It neither sleeps nor
//! looks at a clock, so whoever waits can be tested without waiting.

use std::time::Duration;

/// How often and how soon a failed delivery is tried again. The default is exponential from 200 ms
/// up to 30 s, a fifth of it random, eight tries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub delay: Delay,
    /// The share of a delay, in percent, that is left to chance: with 20 a delay of 10 s lasts 8 to
    /// 10 s. It only shortens, so no limit is passed. More than 100 counts as 100.
    pub jitter_percent: u8,
    /// Tries altogether, the first one included; `None` goes on for ever.
    pub tries_max: Option<u32>,
    /// Nothing is tried again later than this after the first try.
    pub deadline: Option<Duration>,
    /// The longest wait that the other side can ask for.
    pub hint_max: Duration,
}

/// The time between one try and the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    Fixed(Duration),
    /// Doubles from `first` until it is `cap`.
    Exponential {
        first: Duration,
        cap: Duration,
    },
}

/// What to do after a try that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    After(Duration),
    GiveUp(GiveUp),
}

/// Why there is no further try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GiveUp {
    #[error("it failed {0} times")]
    Tries(u32),
    #[error("the next try would be later than {0:?} after the first")]
    Deadline(Duration),
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            delay: Delay::Exponential {
                first: Duration::from_millis(200),
                cap: Duration::from_secs(30),
            },
            jitter_percent: 20,
            tries_max: Some(8),
            deadline: None,
            hint_max: Duration::from_secs(300),
        }
    }
}

impl Policy {
    /// Decides after `tries` failures, the last of them just now, `since_first` after the first try.
    /// A `hint` of the other side makes the wait longer, never shorter. Every `random` is as good as
    /// any other.
    pub fn next(
        &self,
        tries: u32,
        since_first: Duration,
        hint: Option<Duration>,
        random: u64,
    ) -> Retry {
        if self.tries_max.is_some_and(|max| tries >= max) {
            return Retry::GiveUp(GiveUp::Tries(tries));
        }
        let own = self.jittered(self.delay.after(tries), random);
        let delay = own.max(hint.unwrap_or_default().min(self.hint_max));
        match self.deadline {
            Some(deadline) if since_first.saturating_add(delay) > deadline => {
                Retry::GiveUp(GiveUp::Deadline(deadline))
            }
            _ => Retry::After(delay),
        }
    }

    fn jittered(&self, delay: Duration, random: u64) -> Duration {
        const NANOS: u128 = 1_000_000_000;
        let percent = u128::from(self.jitter_percent.min(100));
        // The longest delay has 94 bits, so there is room for seven of the share and for 24 random
        // ones.
        let less = (delay.as_nanos() * percent / 100 * u128::from(random >> 40)) >> 24;
        let (secs, nanos) = ((less / NANOS) as u64, (less % NANOS) as u32);
        delay.saturating_sub(Duration::new(secs, nanos))
    }
}

impl Delay {
    /// The delay after this many tries, of which there has been one at least.
    fn after(self, tries: u32) -> Duration {
        match self {
            Delay::Fixed(delay) => delay,
            Delay::Exponential { first, cap } => {
                let doublings = tries.saturating_sub(1).min(31);
                first.saturating_mul(1 << doublings).min(cap)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn plain(delay: Delay) -> Policy {
        Policy {
            delay,
            jitter_percent: 0,
            tries_max: None,
            ..Policy::default()
        }
    }

    fn exponential() -> Delay {
        Delay::Exponential {
            first: ms(100),
            cap: ms(1000),
        }
    }

    // proves P2
    #[test]
    fn an_exponential_delay_doubles_up_to_its_cap() {
        let policy = plain(exponential());
        let delays: Vec<_> = (1..=6).map(|n| policy.next(n, ms(0), None, 7)).collect();
        let expected = [100, 200, 400, 800, 1000, 1000].map(|delay| Retry::After(ms(delay)));
        assert_eq!(delays, expected);
    }

    #[test]
    fn a_fixed_delay_for_ever_never_gives_up() {
        let policy = plain(Delay::Fixed(ms(50)));
        let next = policy.next(u32::MAX, Duration::MAX, None, 0);
        assert_eq!(next, Retry::After(ms(50)));
    }

    #[test]
    fn the_last_try_is_the_one_that_the_policy_names() {
        let policy = Policy {
            tries_max: Some(3),
            ..plain(Delay::Fixed(ms(50)))
        };
        assert_eq!(policy.next(2, ms(0), None, 0), Retry::After(ms(50)));
        let given_up = Retry::GiveUp(GiveUp::Tries(3));
        assert_eq!(policy.next(3, ms(0), None, 0), given_up);
    }

    #[test]
    fn a_hint_lengthens_the_wait_up_to_its_limit() {
        let policy = Policy {
            hint_max: ms(500),
            ..plain(Delay::Fixed(ms(50)))
        };
        let with_hint = |hint| policy.next(1, ms(0), Some(ms(hint)), 0);
        assert_eq!(with_hint(10), Retry::After(ms(50)));
        assert_eq!(with_hint(300), Retry::After(ms(300)));
        assert_eq!(with_hint(9000), Retry::After(ms(500)));
    }

    #[test]
    fn a_wait_past_the_deadline_is_not_begun() {
        let policy = Policy {
            deadline: Some(ms(1000)),
            ..plain(Delay::Fixed(ms(100)))
        };
        assert_eq!(policy.next(1, ms(900), None, 0), Retry::After(ms(100)));
        let given_up = Retry::GiveUp(GiveUp::Deadline(ms(1000)));
        assert_eq!(policy.next(1, ms(901), None, 0), given_up);
    }

    fn delays() -> impl Strategy<Value = Delay> {
        let any_ms = || (0..10_000_000u64).prop_map(ms);
        prop_oneof![
            any_ms().prop_map(Delay::Fixed),
            (any_ms(), any_ms()).prop_map(|(first, cap)| Delay::Exponential { first, cap }),
        ]
    }

    proptest! {
        #[test]
        fn without_jitter_delays_never_shrink_and_jitter_takes_no_more_than_its_share(
            delay in delays(), tries in 1..200u32, percent in 0..=120u8, random: u64,
        ) {
            let full = plain(delay);
            let Retry::After(longest) = full.next(tries, ms(0), None, random) else { panic!() };
            let Retry::After(later) = full.next(tries + 1, ms(0), None, random) else { panic!() };
            prop_assert!(longest <= later);
            let jittered = Policy { jitter_percent: percent, ..full };
            let Retry::After(got) = jittered.next(tries, ms(0), None, random) else { panic!() };
            let kept = u32::from(100 - percent.min(100));
            prop_assert!(longest * kept / 100 <= got + Duration::from_nanos(1) && got <= longest);
        }

        #[test]
        fn tries_and_time_are_bounded(
            delay in delays(), tries_max in 1..20u32, deadline in 0..5_000_000u64,
            hints in prop::collection::vec(prop::option::of(0..2_000_000u64), 1..30),
            randoms in prop::collection::vec(any::<u64>(), 30),
        ) {
            let policy = Policy {
                delay,
                tries_max: Some(tries_max),
                deadline: Some(ms(deadline)),
                ..Policy::default()
            };
            let (mut tries, mut waited) = (1, ms(0));
            while let Retry::After(delay) = policy.next(
                tries,
                waited,
                hints[tries as usize % hints.len()].map(ms),
                randoms[tries as usize % randoms.len()],
            ) {
                (tries, waited) = (tries + 1, waited + delay);
            }
            prop_assert!(tries <= tries_max && waited <= ms(deadline));
        }
    }
}
