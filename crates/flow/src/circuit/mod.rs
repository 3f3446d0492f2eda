//! The circuit breaker's state machine: stops deliveries to a failing handler and detects when it works again.
//!
//! A circuit is closed while deliveries pass, open while none may, and half-open while a few probe the handler. Its
//! state is the fold of [`CircuitEvent`]s: applying the same events with the same times gives the same circuit. So the
//! events can be stored on a log that all instances read, each with its enqueue time, and no coordination is needed.
//!
//! Outcomes are counts, so an instance may report many deliveries at once. Memory is bounded: the window has [`SLOTS`]
//! slots, and outcomes expire with their slot.

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

/// When a circuit opens and how it closes. The default opens at more than 100 failures in 30 s and probes after another
/// 30 s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Length of the window.
    pub window: Duration,
    /// More failures than this open the circuit.
    pub failures_max: u32,
    /// If set, failures open the circuit only if their share is also large enough.
    pub share: Option<FailureShare>,
    /// How long it stays open before probing. `None` waits to be closed manually.
    pub open_for: Option<Duration>,
    /// Concurrent probes of each instance while half-open.
    pub probes: u32,
    /// Successful probes that close it.
    pub successes: u32,
}

/// A share of failures that opens the circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureShare {
    /// Minimum failures per hundred outcomes.
    pub percent: u8,
    /// Minimum outcomes in the window.
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

/// The fold of all events so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circuit {
    rule: Rule,
    /// Time of the last event. It never goes back.
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

/// Whether deliveries may be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CircuitState {
    /// Deliveries may be made.
    Closed,
    /// This many probes may be in progress.
    HalfOpen { probes: u32 },
    /// No delivery before `until`, or before it is closed manually.
    Open {
        until: Option<EnqueueTime>,
        why: String,
    },
}

/// A change of state.
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

    /// The state at a time.
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

    /// Applies an event. Outcomes while the circuit is open belong to earlier deliveries and are ignored.
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
            Phase::HalfOpen { .. } if tally.failed > 0 => {
                self.open_until_probe(format!("{} probe deliveries failed", tally.failed))
            }
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
    /// Mentions the total only if the rule uses it: otherwise successes are not reported.
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
