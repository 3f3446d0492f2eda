//! The circuit breaker shared by handlers: a delivery acquires a permit first and reports its outcome with it.
//!
//! **Poison or outage?** An event that has exhausted its retries may be bad, or the handler may be down and every event
//! would fail. Counting detects most outages: every failed attempt counts, and too many open the circuit. It does not
//! detect an outage in a slow stream, where one event after another exhausts its retries without reaching the count.
//! So:
//!
//! 1. While the circuit is closed, an event that exhausts its retries becomes a dead letter, but only
//!    [`Breaker::POISON_MAX`] (by default) in a row without a success in between. The next one counts as an outage: it
//!    opens the circuit and is held.
//! 2. While the circuit is not closed, no event becomes a dead letter because it failed. It is held, and its retries
//!    start over when the circuit is closed.
//! 3. Held events are the probes, in turn (see `circuit/probe_queue.rs`), and the first successful ones close the
//!    circuit. An event that failed as a probe [`Breaker::PROBES_MAX`] times becomes a dead letter after all: otherwise
//!    enough bad events would keep the circuit open for ever. Since all held events take turns, an outage creates dead
//!    letters only after every event has probed that often.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use highwater_env::Clock;
use highwater_log::EnqueueTime;
use tokio::sync::{Notify, watch};

use crate::circuit::{
    Circuit, CircuitEvent, CircuitState, OutcomeCounts, ProbeQueue, ProbeTicket, Rule, Transition,
};

/// A shared circuit. Clones refer to the same one.
#[derive(Clone)]
pub struct Breaker(Arc<Shared>);

struct Shared {
    clock: Arc<dyn Clock>,
    poison_max: u32,
    /// Set for a circuit on a log: wakes the task that writes outcomes.
    unwritten: Option<Notify>,
    state: Mutex<State>,
    /// Changes when a waiting delivery may proceed.
    changes: watch::Sender<u64>,
}

struct State {
    circuit: Circuit,
    /// Events that probe or wait to.
    probe_queue: ProbeQueue,
    /// Events that exhausted their retries since the last success.
    in_a_row: u32,
    /// Not written to the log yet.
    unwritten: UnwrittenOutcomes,
    /// Written, but not read back yet.
    unconfirmed: OutcomeCounts,
    /// It will open, but the log has not confirmed it yet.
    opening: bool,
}

/// Outcomes of a circuit on a log that are not written yet.
#[derive(Default)]
pub(crate) struct UnwrittenOutcomes {
    pub tally: OutcomeCounts,
    pub tripped: Option<String>,
}

impl UnwrittenOutcomes {
    pub(crate) fn is_empty(&self) -> bool {
        self.tally == OutcomeCounts::default() && self.tripped.is_none()
    }
}

/// The right to make one delivery. If dropped without an outcome, as at shutdown, nothing is reported.
#[must_use]
pub struct Permit {
    breaker: Breaker,
    probe: bool,
}

/// A waiting probe. Leaves the queue when dropped.
struct QueuedProbe<'a> {
    breaker: &'a Breaker,
    ticket: ProbeTicket,
}

impl Drop for QueuedProbe<'_> {
    fn drop(&mut self) {
        let was_waiting = self.breaker.lock().probe_queue.leave(self.ticket);
        if was_waiting {
            // It may be another one's turn.
            self.breaker.0.changes.send_modify(|changes| *changes += 1);
        }
    }
}

/// The action for an event that exhausted its retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExhausted {
    /// The event is bad: store it as a dead letter.
    DeadLetter,
    /// The handler is down: hold the event and acquire another permit.
    Hold,
}

impl Breaker {
    /// Events that may exhaust their retries in a row before that counts as an outage.
    pub const POISON_MAX: u32 = 3;

    /// Failed probes after which an event becomes a dead letter.
    pub(crate) const PROBES_MAX: u32 = 20;

    /// A circuit of this process alone.
    pub fn alone(rule: Rule, clock: Arc<dyn Clock>) -> Breaker {
        Breaker::new(rule, Breaker::POISON_MAX, clock, None)
    }

    /// Like [`alone`](Breaker::alone), with another `POISON_MAX`.
    pub fn with_poison_max(rule: Rule, poison_max: u32, clock: Arc<dyn Clock>) -> Breaker {
        Breaker::new(rule, poison_max, clock, None)
    }

    /// A circuit that changes only by events read from a log.
    pub(crate) fn on_log(rule: Rule, poison_max: u32, clock: Arc<dyn Clock>) -> Breaker {
        Breaker::new(rule, poison_max, clock, Some(Notify::new()))
    }

    fn new(
        rule: Rule,
        poison_max: u32,
        clock: Arc<dyn Clock>,
        unwritten: Option<Notify>,
    ) -> Breaker {
        Breaker(Arc::new(Shared {
            clock,
            poison_max,
            unwritten,
            state: Mutex::new(State {
                circuit: Circuit::new(rule),
                probe_queue: ProbeQueue::default(),
                in_a_row: 0,
                unwritten: UnwrittenOutcomes::default(),
                unconfirmed: OutcomeCounts::default(),
                opening: false,
            }),
            changes: watch::Sender::new(0),
        }))
    }

    /// Waits until a delivery may be made.
    pub async fn acquire(&self) -> Permit {
        self.acquire_after(0).await
    }

    /// Like [`acquire`](Breaker::acquire), for an event that has failed this many probes: those with fewer go first.
    pub(crate) async fn acquire_after(&self, probes: u32) -> Permit {
        if self.is_closed() {
            return self.pass(false);
        }
        let queued = QueuedProbe {
            breaker: self,
            ticket: self.lock().probe_queue.join(probes),
        };
        loop {
            let mut changes = self.0.changes.subscribe();
            let wait = match self.try_enter(queued.ticket) {
                Ok(pass) => return pass,
                Err(wait) => wait,
            };
            // The sender is in `self`, so the wait ends with a change or with its timeout.
            let _ = tokio::time::timeout(wait.unwrap_or(Duration::MAX), changes.changed()).await;
        }
    }

    fn is_closed(&self) -> bool {
        let now = self.now();
        let state = self.lock();
        !state.opening && state.circuit.state(now) == CircuitState::Closed
    }

    /// A permit, or the maximum time to wait.
    fn try_enter(&self, ticket: ProbeTicket) -> Result<Permit, Option<Duration>> {
        let now = self.now();
        let mut state = self.lock();
        if state.opening {
            return Err(None);
        }
        match state.circuit.state(now) {
            CircuitState::Closed => {
                state.probe_queue.leave(ticket);
                Ok(self.pass(false))
            }
            CircuitState::HalfOpen { probes } => match state.probe_queue.begin(ticket, probes) {
                true => Ok(self.pass(true)),
                false => Err(None),
            },
            CircuitState::Open { until, .. } => {
                let wait_ms = until.map(|until| until.0.saturating_sub(now.0).max(1));
                Err(wait_ms.map(|ms| Duration::from_millis(ms as u64)))
            }
        }
    }

    fn pass(&self, probe: bool) -> Permit {
        let breaker = self.clone();
        Permit { breaker, probe }
    }

    /// Decides about an event that exhausted its retries.
    pub fn on_exhausted(&self) -> OnExhausted {
        let now = self.now();
        let mut state = self.lock();
        if state.opening || state.circuit.state(now) != CircuitState::Closed {
            return OnExhausted::Hold;
        }
        if state.in_a_row < self.0.poison_max {
            state.in_a_row += 1;
            return OnExhausted::DeadLetter;
        }
        let count = self.0.poison_max.saturating_add(1);
        let why = format!("{count} events in a row used up their tries, and none succeeded");
        match &self.0.unwritten {
            None => {
                let change = state.circuit.apply(now, &CircuitEvent::Tripped { why });
                self.transitioned(state, change);
            }
            Some(notify) => {
                state.unwritten.tripped = Some(why);
                state.opening = true;
                notify.notify_one();
            }
        }
        OnExhausted::Hold
    }

    /// The current state.
    pub fn state(&self) -> CircuitState {
        let now = self.now();
        self.lock().circuit.state(now)
    }

    pub fn rule(&self) -> Rule {
        self.lock().circuit.rule().clone()
    }

    /// Applies an event, as read from a log.
    pub fn apply(&self, at: EnqueueTime, event: &CircuitEvent) -> Option<Transition> {
        let mut state = self.lock();
        let change = state.circuit.apply(at, event);
        state.unconfirmed = OutcomeCounts::default();
        if state.unwritten.is_empty() {
            state.opening = false;
        }
        self.transitioned(state, change.clone());
        change
    }

    fn transitioned(&self, mut state: MutexGuard<'_, State>, change: Option<Transition>) {
        if change == Some(Transition::Closed) {
            state.in_a_row = 0;
        }
        drop(state);
        self.0.changes.send_modify(|changes| *changes += 1);
    }

    fn record_outcome(&self, ok: bool, probe: bool) {
        let now = self.now();
        let mut state = self.lock();
        if ok {
            state.in_a_row = 0;
        }
        let tally = OutcomeCounts {
            ok: u32::from(ok),
            failed: u32::from(!ok),
        };
        let Some(notify) = &self.0.unwritten else {
            let change = state.circuit.apply(now, &CircuitEvent::Outcomes(tally));
            if change.is_some() {
                self.transitioned(state, change);
            }
            return;
        };
        // While all deliveries succeed nothing is written, unless the rule uses shares.
        let healthy = state.circuit.state(now) == CircuitState::Closed && !state.opening;
        if ok && healthy && state.circuit.rule().share.is_none() {
            return;
        }
        state.unwritten.tally.add(tally);
        state.opening |= !ok && (probe || state.will_open(now));
        notify.notify_one();
    }

    /// Takes the unwritten outcomes; the caller writes them.
    pub(crate) fn take_unwritten(&self) -> UnwrittenOutcomes {
        let mut state = self.lock();
        let unwritten = std::mem::take(&mut state.unwritten);
        state.unconfirmed.add(unwritten.tally);
        unwritten
    }

    /// Completes when there may be unwritten outcomes.
    pub(crate) async fn has_unwritten(&self) {
        match &self.0.unwritten {
            Some(unwritten) => unwritten.notified().await,
            None => std::future::pending().await,
        }
    }

    fn now(&self) -> EnqueueTime {
        EnqueueTime(self.0.clock.unix_millis())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether the circuit will open once the log confirms all outcomes.
    fn will_open(&self, now: EnqueueTime) -> bool {
        let mut tally = self.unconfirmed;
        tally.add(self.unwritten.tally);
        let change = self
            .circuit
            .clone()
            .apply(now, &CircuitEvent::Outcomes(tally));
        matches!(change, Some(Transition::Opened { .. }))
    }
}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.state())
    }
}

impl Permit {
    /// Whether the delivery is a probe.
    pub(crate) fn is_probe(&self) -> bool {
        self.probe
    }

    pub fn succeeded(self) {
        self.breaker.record_outcome(true, self.probe);
    }

    pub fn failed(self) {
        self.breaker.record_outcome(false, self.probe);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.probe {
            self.breaker.lock().probe_queue.end();
            self.breaker.0.changes.send_modify(|changes| *changes += 1);
        }
    }
}
