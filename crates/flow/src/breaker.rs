//! A circuit that handlers share: whoever wants to deliver asks first, and tells afterwards how it
//! went.
//!
//! **Poison or outage?** An event that has used up its tries may be bad, or the handler may be down and
//! every event would fare the same. Counting tells most outages: every failed attempt counts, and
//! too many open the circuit. It does not tell those of a slow stream, where one event after another
//! uses up its tries without ever reaching the count. So the rule is:
//!
//! 1. While the circuit is closed, an event that has used up its tries is a dead letter, but only so
//!    many in a row ([`Breaker::POISON_MAX`] by default) without a success in between. The next one is
//!    taken for an outage: it opens the circuit and is held.
//! 2. While the circuit is not closed, no event is set aside because it failed. It is held, and its
//!    tries begin anew when the circuit is closed.
//! 3. Held events are the probes, each in its turn (see `circuit/probe_queue.rs`), and the first ones that succeed
//!    close the circuit. An event that has failed as a probe [`Breaker::PROBES_MAX`] times is a dead letter
//!    after all: otherwise bad events, as many as may be under way, would keep the circuit open for
//!    ever. Since all of them take turns, no outage sets anything aside before it has lasted for that
//!    many rounds of everybody.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use highwater_env::Clock;
use highwater_log::EnqueueTime;
use tokio::sync::{Notify, watch};

use crate::circuit::{
    Circuit, CircuitEvent, CircuitState, OutcomeCounts, ProbeQueue, ProbeTicket, Rule, Transition,
};

/// A circuit in use. Clones are the same one.
#[derive(Clone)]
pub struct Breaker(Arc<Shared>);

struct Shared {
    clock: Arc<dyn Clock>,
    poison_max: u32,
    /// Set where the circuit is kept on a log: wakes whoever writes there.
    unwritten: Option<Notify>,
    state: Mutex<State>,
    /// Changes whenever somebody who waits may go on.
    changes: watch::Sender<u64>,
}

struct State {
    circuit: Circuit,
    /// Those who try whether the trouble is over, or wait to.
    probe_queue: ProbeQueue,
    /// Events that have used up their tries since the last success.
    in_a_row: u32,
    /// What the log is still to be told.
    unwritten: UnwrittenOutcomes,
    /// What it was told and has not said yet.
    unconfirmed: OutcomeCounts,
    /// It is to open, and the log has not said so yet.
    opening: bool,
}

/// What a circuit on a log has not been told.
#[derive(Default)]
pub(crate) struct UnwrittenOutcomes {
    pub tally: OutcomeCounts,
    pub tripped: Option<String>,
}

impl UnwrittenOutcomes {
    pub fn is_empty(&self) -> bool {
        self.tally == OutcomeCounts::default() && self.tripped.is_none()
    }
}

/// The right to make one delivery. Dropped without a word, as when the process is stopped, it says
/// nothing about the handler.
#[must_use]
pub struct Permit {
    breaker: Breaker,
    probe: bool,
}

/// A place in the line, until its holder has entered or does not want to any more.
struct QueuedProbe<'a> {
    breaker: &'a Breaker,
    ticket: ProbeTicket,
}

impl Drop for QueuedProbe<'_> {
    fn drop(&mut self) {
        let was_waiting = self.breaker.lock().probe_queue.leave(self.ticket);
        if was_waiting {
            // It may be the turn of another.
            self.breaker.0.changes.send_modify(|changes| *changes += 1);
        }
    }
}

/// What becomes of an event that has used up its tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExhausted {
    /// It is bad: set it aside.
    DeadLetter,
    /// Nothing works: keep it, and ask to deliver it again.
    Hold,
}

impl Breaker {
    /// Events that may use up their tries one after another before that is taken for an outage.
    pub const POISON_MAX: u32 = 3;

    /// Probes that an event may fail.
    pub const PROBES_MAX: u32 = 20;

    /// A circuit that this process has for itself.
    pub fn alone(rule: Rule, clock: Arc<dyn Clock>) -> Breaker {
        Breaker::new(rule, Breaker::POISON_MAX, clock, None)
    }

    /// As [`alone`](Breaker::alone), with another number of events in a row.
    pub fn with_poison_max(rule: Rule, poison_max: u32, clock: Arc<dyn Clock>) -> Breaker {
        Breaker::new(rule, poison_max, clock, None)
    }

    /// One that changes only by what is read from a log.
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

    /// Ready when a delivery may be made.
    pub async fn acquire(&self) -> Permit {
        self.acquire_after(0).await
    }

    /// The same for an event that has failed so many probes: it is the turn of those who have failed fewer.
    pub async fn acquire_after(&self, probes: u32) -> Permit {
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
            // The sender is in `self`, so the wait ends with a turn or with its time.
            let _ = tokio::time::timeout(wait.unwrap_or(Duration::MAX), changes.changed()).await;
        }
    }

    fn is_closed(&self) -> bool {
        let now = self.now();
        let state = self.lock();
        !state.opening && state.circuit.state(now) == CircuitState::Closed
    }

    /// A pass, or how long to wait at most.
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

    /// What becomes of an event that has used up its tries.
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

    /// Where the circuit stands.
    pub fn state(&self) -> CircuitState {
        let now = self.now();
        self.lock().circuit.state(now)
    }

    pub fn rule(&self) -> Rule {
        self.lock().circuit.rule().clone()
    }

    /// Takes in what happened, as from a log.
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
        // While all goes well there is nothing to tell, unless the rule looks at shares.
        let healthy = state.circuit.state(now) == CircuitState::Closed && !state.opening;
        if ok && healthy && state.circuit.rule().share.is_none() {
            return;
        }
        state.unwritten.tally.add(tally);
        state.opening |= !ok && (probe || state.will_open(now));
        notify.notify_one();
    }

    /// What the log is to be told, which is then up to the caller.
    pub(crate) fn take_unwritten(&self) -> UnwrittenOutcomes {
        let mut state = self.lock();
        let unwritten = std::mem::take(&mut state.unwritten);
        state.unconfirmed.add(unwritten.tally);
        unwritten
    }

    /// Ready when there may be something to tell.
    pub(crate) async fn has_unwritten(&self) {
        match &self.0.unwritten {
            Some(unwritten) => unwritten.notified().await,
            None => std::future::pending().await,
        }
    }

    fn now(&self) -> EnqueueTime {
        EnqueueTime((self.0.clock.unix_nanos() / 1_000_000) as i64)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether the circuit opens once the log says what it was told, or is to be told.
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
    /// True for one of the few that try whether the trouble is over.
    pub fn is_probe(&self) -> bool {
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
