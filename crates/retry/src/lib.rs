//! When a failed operation is retried, and when it is final.
//!
//! ```
//! use std::time::Duration;
//! use highwater_retry::{RetryDecision, RetryPolicy};
//!
//! let policy = RetryPolicy { jitter_percent: 0, ..RetryPolicy::default() };
//! let after_two_failures = policy.next(2, Duration::from_secs(1), None, 0);
//! assert_eq!(after_two_failures, RetryDecision::After(Duration::from_millis(400)));
//! ```
//!
//! A policy is a pure function of the failures so far: their number, the time since the first try, the wait that the
//! other side asked for (`Retry-After`) and a random number. It neither sleeps nor reads a clock, so callers can be
//! tested without waiting. Callers that never give up and have no jitter need a [`Backoff`] only.

use std::time::Duration;

/// How often and how soon a failed operation is tried again. The default is exponential from 200 ms
/// up to 30 s, a fifth of it random, eight tries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    pub backoff: Backoff,
    /// The share of a delay, in percent, that is left to chance: with 20 a delay of 10 s lasts 8 to
    /// 10 s. It only shortens, so no limit is passed. More than 100 counts as 100.
    pub jitter_percent: u8,
    /// Tries altogether, the first one included; `None` has no limit.
    pub tries_max: Option<u32>,
    /// Nothing is tried again later than this after the first try.
    pub deadline: Option<Duration>,
    /// The longest wait that the other side can ask for.
    pub hint_max: Duration,
}

/// The delay between one try and the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backoff {
    Fixed(Duration),
    /// Doubles from `first` up to `cap`.
    Exponential {
        first: Duration,
        cap: Duration,
    },
}

/// The action after a failed try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryDecision {
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

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy {
            backoff: Backoff::Exponential {
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

impl RetryPolicy {
    /// Decides after `tries` failures, the last of them just now, `since_first` after the first try.
    /// A `hint` of the other side makes the wait longer, never shorter. `random` may be any number.
    pub fn next(
        &self,
        tries: u32,
        since_first: Duration,
        hint: Option<Duration>,
        random: u64,
    ) -> RetryDecision {
        if self.tries_max.is_some_and(|max| tries >= max) {
            return RetryDecision::GiveUp(GiveUp::Tries(tries));
        }
        let own = self.jittered(self.backoff.after(tries), random);
        let delay = own.max(hint.unwrap_or_default().min(self.hint_max));
        match self.deadline {
            Some(deadline) if since_first.saturating_add(delay) > deadline => {
                RetryDecision::GiveUp(GiveUp::Deadline(deadline))
            }
            _ => RetryDecision::After(delay),
        }
    }

    fn jittered(&self, delay: Duration, random: u64) -> Duration {
        const NANOS: u128 = 1_000_000_000;
        let percent = u128::from(self.jitter_percent.min(100));
        // The longest delay has 94 bits; the percentage adds 7 and the random number 24, so 128 bits suffice.
        let less = (delay.as_nanos() * percent / 100 * u128::from(random >> 40)) >> 24;
        let (secs, nanos) = ((less / NANOS) as u64, (less % NANOS) as u32);
        delay.saturating_sub(Duration::new(secs, nanos))
    }
}

impl Backoff {
    /// The delay after this many failed tries, at least one.
    pub fn after(self, tries: u32) -> Duration {
        match self {
            Backoff::Fixed(delay) => delay,
            Backoff::Exponential { first, cap } => {
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

    fn plain(backoff: Backoff) -> RetryPolicy {
        RetryPolicy {
            backoff,
            jitter_percent: 0,
            tries_max: None,
            ..RetryPolicy::default()
        }
    }

    fn exponential() -> Backoff {
        Backoff::Exponential {
            first: ms(100),
            cap: ms(1000),
        }
    }

    // proves P2
    #[test]
    fn an_exponential_delay_doubles_up_to_its_cap() {
        let policy = plain(exponential());
        let delays: Vec<_> = (1..=6).map(|n| policy.next(n, ms(0), None, 7)).collect();
        let expected =
            [100, 200, 400, 800, 1000, 1000].map(|delay| RetryDecision::After(ms(delay)));
        assert_eq!(delays, expected);
    }

    #[test]
    fn a_fixed_delay_for_ever_never_gives_up() {
        let policy = plain(Backoff::Fixed(ms(50)));
        let next = policy.next(u32::MAX, Duration::MAX, None, 0);
        assert_eq!(next, RetryDecision::After(ms(50)));
    }

    #[test]
    fn the_last_try_is_the_one_that_the_policy_names() {
        let policy = RetryPolicy {
            tries_max: Some(3),
            ..plain(Backoff::Fixed(ms(50)))
        };
        assert_eq!(policy.next(2, ms(0), None, 0), RetryDecision::After(ms(50)));
        let given_up = RetryDecision::GiveUp(GiveUp::Tries(3));
        assert_eq!(policy.next(3, ms(0), None, 0), given_up);
    }

    #[test]
    fn a_hint_lengthens_the_wait_up_to_its_limit() {
        let policy = RetryPolicy {
            hint_max: ms(500),
            ..plain(Backoff::Fixed(ms(50)))
        };
        let with_hint = |hint| policy.next(1, ms(0), Some(ms(hint)), 0);
        assert_eq!(with_hint(10), RetryDecision::After(ms(50)));
        assert_eq!(with_hint(300), RetryDecision::After(ms(300)));
        assert_eq!(with_hint(9000), RetryDecision::After(ms(500)));
    }

    #[test]
    fn a_wait_past_the_deadline_is_not_begun() {
        let policy = RetryPolicy {
            deadline: Some(ms(1000)),
            ..plain(Backoff::Fixed(ms(100)))
        };
        assert_eq!(
            policy.next(1, ms(900), None, 0),
            RetryDecision::After(ms(100))
        );
        let given_up = RetryDecision::GiveUp(GiveUp::Deadline(ms(1000)));
        assert_eq!(policy.next(1, ms(901), None, 0), given_up);
    }

    fn backoffs() -> impl Strategy<Value = Backoff> {
        let any_ms = || (0..10_000_000u64).prop_map(ms);
        prop_oneof![
            any_ms().prop_map(Backoff::Fixed),
            (any_ms(), any_ms()).prop_map(|(first, cap)| Backoff::Exponential { first, cap }),
        ]
    }

    proptest! {
        #[test]
        fn without_jitter_delays_never_shrink_and_jitter_takes_no_more_than_its_share(
            backoff in backoffs(), tries in 1..200u32, percent in 0..=120u8, random: u64,
        ) {
            let full = plain(backoff);
            let RetryDecision::After(longest) = full.next(tries, ms(0), None, random) else { panic!() };
            let RetryDecision::After(later) = full.next(tries + 1, ms(0), None, random) else { panic!() };
            prop_assert!(longest <= later);
            let jittered = RetryPolicy { jitter_percent: percent, ..full };
            let RetryDecision::After(got) = jittered.next(tries, ms(0), None, random) else { panic!() };
            let kept = u32::from(100 - percent.min(100));
            prop_assert!(longest * kept / 100 <= got + Duration::from_nanos(1) && got <= longest);
        }

        #[test]
        fn tries_and_time_are_bounded(
            backoff in backoffs(), tries_max in 1..20u32, deadline in 0..5_000_000u64,
            hints in prop::collection::vec(prop::option::of(0..2_000_000u64), 1..30),
            randoms in prop::collection::vec(any::<u64>(), 30),
        ) {
            let policy = RetryPolicy {
                backoff,
                tries_max: Some(tries_max),
                deadline: Some(ms(deadline)),
                ..RetryPolicy::default()
            };
            let (mut tries, mut waited) = (1, ms(0));
            while let RetryDecision::After(delay) = policy.next(
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
