//! Stops deliveries to a handler that keeps failing, and finds out when it works again.
//!
//! A circuit is closed while deliveries go through, open while none may, and half-open while a few
//! try whether the trouble is over. What happened is told as [`CircuitEvent`]s, and the state is nothing but
//! their sum: whoever applies the same events with the same times has the same circuit. So the
//! events can live on a log that all instances read, with the time at which the log took each of them
//! in, and nobody needs to agree with anybody.
//!
//! Outcomes are tallies, so that an instance may tell of many deliveries at once. Memory does not
//! grow with them: the window is kept in [`SLOTS`] slots, and an outcome is forgotten with its slot.

mod event;
#[cfg(test)]
mod model;
mod probe_queue;
mod window;

use std::time::Duration;

use highwater_log::EnqueueTime;

pub use event::{CircuitEvent, CircuitEventError};
pub(crate) use probe_queue::{ProbeQueue, ProbeTicket};
use window::Window;
pub use window::{OutcomeCounts, SLOTS};

/// When a circuit opens and how it closes. The default opens at more than 100 failures in 30 s and
/// tries again by itself after another 30 s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// How far back outcomes count.
    pub window: Duration,
    /// More failures than this open the circuit.
    pub failures_max: u32,
    /// If given, failures open the circuit only where they are also a large enough share.
    pub share: Option<FailureShare>,
    /// How long it stays open before it tries by itself; `None` waits to be closed by hand.
    pub open_for: Option<Duration>,
    /// How many deliveries each instance may have under way while the circuit is half-open.
    pub probes: u32,
    /// How many deliveries must succeed while it is half-open to close it.
    pub successes: u32,
}

/// A share of all outcomes that is too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureShare {
    /// Failures per hundred outcomes, or more.
    pub percent: u8,
    /// With fewer outcomes than this a share says nothing.
    pub outcomes_min: u32,
}

impl Default for Rule {
    fn default() -> Rule {
        Rule {
            window: Duration::from_secs(30),
            failures_max: 100,
            share: None,
            open_for: Some(Duration::from_secs(30)),
            probes: 3,
            successes: 3,
        }
    }
}

/// The sum of all events so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circuit {
    rule: Rule,
    /// Of the last event. Time does not go back.
    at: EnqueueTime,
    state: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Closed(Window),
    Open {
        until: Option<EnqueueTime>,
        why: String,
    },
    HalfOpen {
        successes: u64,
    },
}

/// What a circuit says to someone who wants to deliver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CircuitState {
    /// Deliver.
    Closed,
    /// Deliver if no more than this many are under way.
    HalfOpen { probes: u32 },
    /// Deliver nothing before `until`, or before somebody closes it.
    Open {
        until: Option<EnqueueTime>,
        why: String,
    },
}

/// A turn that somebody should hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transition {
    Opened { why: String },
    Closed,
}

impl Circuit {
    pub fn new(rule: Rule) -> Circuit {
        let state = Phase::Closed(Window::new(rule.window));
        Circuit {
            rule,
            at: EnqueueTime(i64::MIN),
            state,
        }
    }

    /// Asks at a time, which changes nothing.
    pub fn state(&self, now: EnqueueTime) -> CircuitState {
        let probes = self.rule.probes.max(1);
        match &self.state {
            Phase::Closed(_) => CircuitState::Closed,
            Phase::HalfOpen { .. } => CircuitState::HalfOpen { probes },
            Phase::Open { until, .. } if has_passed(*until, now) => {
                CircuitState::HalfOpen { probes }
            }
            Phase::Open { until, why } => CircuitState::Open {
                until: *until,
                why: why.clone(),
            },
        }
    }

    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Takes in what happened. Outcomes that come while it is open are of deliveries from before,
    /// and say nothing new.
    pub fn apply(&mut self, at: EnqueueTime, event: &CircuitEvent) -> Option<Transition> {
        self.at = self.at.max(at);
        if matches!(&self.state, Phase::Open { until, .. } if has_passed(*until, self.at)) {
            self.state = Phase::HalfOpen { successes: 0 };
        }
        match event {
            CircuitEvent::Outcomes(tally) => self.apply_outcomes(*tally),
            CircuitEvent::Tripped { why } => match self.state {
                Phase::Open { .. } => None,
                _ => self.open_until_probe(why.clone()),
            },
            CircuitEvent::Opened { why } => self.open(None, why.clone()),
            CircuitEvent::Closed => self.close(),
        }
    }

    fn apply_outcomes(&mut self, tally: OutcomeCounts) -> Option<Transition> {
        match &mut self.state {
            Phase::Open { .. } => None,
            Phase::HalfOpen { .. } if tally.failed > 0 => self.open_until_probe(format!(
                "{} of the deliveries that tried it failed",
                tally.failed
            )),
            Phase::HalfOpen { successes } => {
                *successes += u64::from(tally.ok);
                match *successes >= u64::from(self.rule.successes.max(1)) {
                    true => self.close(),
                    false => None,
                }
            }
            Phase::Closed(window) => {
                let (ok, failed) = window.add(self.at, tally);
                match self.rule.is_exceeded(ok, failed) {
                    true => self.open_until_probe(self.rule.reason(ok, failed)),
                    false => None,
                }
            }
        }
    }

    fn open_until_probe(&mut self, why: String) -> Option<Transition> {
        let until = self.rule.open_for.map(|wait| {
            let wait_ms = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
            EnqueueTime(self.at.0.saturating_add(wait_ms))
        });
        self.open(until, why)
    }

    fn open(&mut self, until: Option<EnqueueTime>, why: String) -> Option<Transition> {
        let transition = Transition::Opened { why: why.clone() };
        let was_open = matches!(self.state, Phase::Open { .. });
        self.state = Phase::Open { until, why };
        (!was_open).then_some(transition)
    }

    fn close(&mut self) -> Option<Transition> {
        let was_closed = matches!(self.state, Phase::Closed(_));
        self.state = Phase::Closed(Window::new(self.rule.window));
        (!was_closed).then_some(Transition::Closed)
    }
}

impl Rule {
    /// Successes are only told of where the rule looks at them.
    fn reason(&self, ok: u64, failed: u64) -> String {
        let of = match self.share {
            Some(_) => format!(" of {}", ok + failed),
            None => String::new(),
        };
        format!("{failed}{of} deliveries failed within {:?}", self.window)
    }

    fn is_exceeded(&self, ok: u64, failed: u64) -> bool {
        let share_reached = self.share.is_none_or(|share| {
            let all = ok + failed;
            all >= u64::from(share.outcomes_min)
                && u128::from(failed) * 100 >= u128::from(all) * u128::from(share.percent)
        });
        failed > u64::from(self.failures_max) && share_reached
    }
}

fn has_passed(until: Option<EnqueueTime>, now: EnqueueTime) -> bool {
    until.is_some_and(|until| until <= now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(ok: u32, failed: u32) -> CircuitEvent {
        CircuitEvent::Outcomes(OutcomeCounts { ok, failed })
    }

    fn at(seconds: i64) -> EnqueueTime {
        EnqueueTime(seconds * 1000)
    }

    fn opened(seconds: i64) -> Circuit {
        let mut circuit = Circuit::new(Rule::default());
        circuit.apply(at(seconds), &outcomes(0, 101));
        circuit
    }

    // proves P4
    #[test]
    fn more_than_100_failures_in_30_s_open_it_and_100_do_not() {
        let mut circuit = Circuit::new(Rule::default());
        assert_eq!(circuit.apply(at(0), &outcomes(5, 60)), None);
        assert_eq!(circuit.apply(at(20), &outcomes(5, 40)), None);
        assert_eq!(circuit.state(at(20)), CircuitState::Closed);
        let why = "101 deliveries failed within 30s".to_string();
        let change = circuit.apply(at(21), &outcomes(0, 1));
        assert_eq!(change, Some(Transition::Opened { why: why.clone() }));
        let until = Some(at(51));
        assert_eq!(circuit.state(at(50)), CircuitState::Open { until, why });
    }

    #[test]
    fn failures_that_are_long_ago_do_not_count() {
        let mut circuit = Circuit::new(Rule::default());
        circuit.apply(at(0), &outcomes(0, 100));
        assert_eq!(circuit.apply(at(31), &outcomes(0, 100)), None);
        assert_eq!(circuit.state(at(31)), CircuitState::Closed);
    }

    #[test]
    fn probes_that_succeed_close_it() {
        let mut circuit = opened(0);
        assert_eq!(circuit.state(at(30)), CircuitState::HalfOpen { probes: 3 });
        assert_eq!(circuit.apply(at(30), &outcomes(2, 0)), None);
        assert_eq!(circuit.state(at(31)), CircuitState::HalfOpen { probes: 3 });
        assert_eq!(
            circuit.apply(at(31), &outcomes(1, 0)),
            Some(Transition::Closed)
        );
        assert_eq!(
            circuit.apply(at(32), &outcomes(0, 100)),
            None,
            "it starts afresh"
        );
    }

    #[test]
    fn a_probe_that_fails_opens_it_again() {
        let mut circuit = opened(0);
        circuit.apply(at(30), &outcomes(2, 0));
        assert!(circuit.apply(at(31), &outcomes(5, 1)).is_some());
        assert!(
            matches!(circuit.state(at(60)), CircuitState::Open { until, .. } if until == Some(at(61)))
        );
    }

    #[test]
    fn what_comes_in_while_it_is_open_is_old_news() {
        let mut circuit = opened(0);
        let before = circuit.state(at(1));
        assert_eq!(circuit.apply(at(1), &outcomes(1000, 1000)), None);
        assert_eq!(circuit.state(at(1)), before);
    }

    #[test]
    fn opened_by_hand_it_stays_open_until_it_is_closed_by_hand() {
        let mut circuit = Circuit::new(Rule::default());
        let why = "maintenance".to_string();
        let opened = circuit.apply(at(0), &CircuitEvent::Opened { why: why.clone() });
        assert_eq!(opened, Some(Transition::Opened { why: why.clone() }));
        assert_eq!(
            circuit.state(at(1_000_000)),
            CircuitState::Open { until: None, why }
        );
        let closed = circuit.apply(at(1_000_000), &CircuitEvent::Closed);
        assert_eq!(closed, Some(Transition::Closed));
    }

    #[test]
    fn many_failures_among_many_more_successes_are_no_outage_to_a_rule_with_a_share() {
        let share = FailureShare {
            percent: 50,
            outcomes_min: 20,
        };
        let rule = Rule {
            failures_max: 0,
            share: Some(share),
            ..Rule::default()
        };
        let mut circuit = Circuit::new(rule);
        assert_eq!(circuit.apply(at(0), &outcomes(0, 19)), None, "too few");
        assert_eq!(circuit.apply(at(1), &outcomes(100, 80)), None, "99 of 199");
        assert!(
            circuit.apply(at(2), &outcomes(0, 1)).is_some(),
            "100 of 200"
        );
    }
}
