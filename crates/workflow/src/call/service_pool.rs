//! The lane of one service: calls that wait, connections that take them, and the circuit in front.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use highwater_env::Clock;
use highwater_flow::circuit::{Circuit, CircuitEvent, CircuitState, OutcomeCounts, Transition};
use highwater_log::EnqueueTime;
use hyper::header::HeaderValue;
use tokio::sync::Notify;

use super::connection::{Connection, NoAnswer};
use super::judge::judge;
use super::{CallError, CallErrorKind, Done, Outcome, Request};
use crate::definition::{Action, Call, Definition, Service};
use crate::machine::Answer;

/// A connection that nobody needs is closed after this.
const IDLE: Duration = Duration::from_secs(30);

pub struct Lane {
    service: Service,
    host: HeaderValue,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Work came, or the circuit turned.
    turn: Notify,
}

struct State {
    waiting: VecDeque<HttpJob>,
    circuit: Option<Circuit>,
    workers: u32,
    /// Of those, how many have nothing to do.
    idle: u32,
    under_way: u32,
    stopped: bool,
}

pub struct HttpJob {
    pub question: Question,
    pub timeout: Duration,
    pub done: Done,
}

/// What is sent, and who can tell a good answer.
pub struct Question {
    pub definition: Arc<Definition>,
    pub of: Option<(usize, bool)>,
    pub request: Request,
}

impl Question {
    /// What says which answers are good; a notice has nothing to say.
    fn call(&self) -> Option<&Call> {
        let (step, undo) = self.of?;
        let step = &self.definition.steps[step];
        let work = match undo {
            false => &step.work,
            true => step.undo.as_ref()?,
        };
        match &work.action {
            Action::Call(call) => Some(call),
            Action::Function(_) => None,
        }
    }
}

enum Next {
    Job(Box<HttpJob>),
    Nothing,
    /// The circuit is open for so long.
    Wait(Duration),
}

impl Lane {
    pub fn new(service: Service, clock: Arc<dyn Clock>) -> Arc<Lane> {
        let circuit = service
            .circuit
            .as_ref()
            .map(|rule| Circuit::new(rule.rule()));
        let host = HeaderValue::from_str(&service.target.authority());
        Arc::new(Lane {
            host: host.expect("the parts of a target are plain"),
            service,
            clock,
            state: Mutex::new(State {
                waiting: VecDeque::new(),
                circuit,
                workers: 0,
                idle: 0,
                under_way: 0,
                stopped: false,
            }),
            turn: Notify::new(),
        })
    }

    /// Takes a call, to be made when its turn comes.
    pub fn submit(self: &Arc<Lane>, job: HttpJob) {
        let mut state = self.lock();
        if state.stopped {
            return;
        }
        state.waiting.push_back(job);
        self.call_for_help(state);
    }

    /// Calls that wait are dropped; what is under way is waited for by nobody.
    pub fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        state.waiting.clear();
        drop(state);
        self.turn.notify_waiters();
    }

    /// Somebody should look at what waits: one who is idle, or one more.
    fn call_for_help(self: &Arc<Lane>, mut state: MutexGuard<'_, State>) {
        if state.idle > 0 {
            drop(state);
            // The one that came last: the others may rest.
            self.turn.notify_last();
        } else if state.workers < self.service.concurrency {
            state.workers += 1;
            drop(state);
            tokio::spawn(Arc::clone(self).work());
        }
    }

    async fn work(self: Arc<Lane>) {
        let mut connection = None;
        loop {
            let mut turn = pin!(self.turn.notified());
            turn.as_mut().enable();
            match self.next() {
                Next::Job(job) => self.perform(&mut connection, *job).await,
                Next::Wait(delay) => {
                    let _ = tokio::time::timeout(delay, turn).await;
                    self.lock().idle -= 1;
                }
                Next::Nothing => {
                    let woken = tokio::time::timeout(IDLE, turn).await;
                    let mut state = self.lock();
                    state.idle -= 1;
                    if state.stopped || woken.is_err() && state.waiting.is_empty() {
                        state.workers -= 1;
                        return;
                    }
                }
            }
        }
    }

    /// The next call, unless there is none or the circuit is in the way; whoever gets none counts as
    /// idle.
    fn next(self: &Arc<Lane>) -> Next {
        let now = self.now();
        let mut state = self.lock();
        let gate = state
            .circuit
            .as_ref()
            .map_or(CircuitState::Closed, |circuit| circuit.state(now));
        let may = match gate {
            CircuitState::Closed => true,
            CircuitState::HalfOpen { probes } => state.under_way < probes,
            CircuitState::Open { until, .. } => {
                state.idle += 1;
                let wait = until.map_or(i64::MAX, |until| until.0 - now.0);
                return Next::Wait(Duration::from_millis(wait.clamp(1, 60_000) as u64));
            }
        };
        match may.then(|| state.waiting.pop_front()).flatten() {
            Some(job) => {
                state.under_way += 1;
                // Whoever was called for two calls at once is one only.
                if !state.waiting.is_empty() && gate == CircuitState::Closed {
                    self.call_for_help(state);
                }
                Next::Job(Box::new(job))
            }
            None => {
                state.idle += 1;
                Next::Nothing
            }
        }
    }

    async fn perform(&self, connection: &mut Option<Connection>, job: HttpJob) {
        let begun_ms = self.now().0;
        let result = self.attempt(connection, job.question, job.timeout).await;
        if result.is_err() {
            // Nothing, or half an answer, may still be on its way.
            *connection = None;
        }
        let ended_ms = self.now().0;
        self.count(&result);
        (job.done)(Outcome {
            begun_ms,
            ended_ms,
            result,
        });
    }

    async fn attempt(
        &self,
        kept: &mut Option<Connection>,
        question: Question,
        timeout: Duration,
    ) -> Result<Answer, CallError> {
        let until = tokio::time::Instant::now() + timeout;
        // Taken out, so that one that is given up midway is not used again.
        let usable = match kept.take() {
            Some(connection) => connection.if_open().await,
            None => None,
        };
        let mut connection = match usable {
            Some(connection) => connection,
            None => self.connect(until).await?,
        };
        let asking = connection.call(&self.host, &question.request);
        let came = match answered(until, timeout, asking).await? {
            // The key makes it safe to send again what may have been seen.
            Err(NoAnswer::Stale(_)) => {
                connection = self.connect(until).await.map_err(CallError::in_doubt)?;
                let asking = connection.call(&self.host, &question.request);
                answered(until, timeout, asking).await?
            }
            came => came,
        };
        let (status, retry_after, body) = match came {
            Ok(came) => came,
            Err(NoAnswer::Stale(error)) => return Err(*error),
            Err(NoAnswer::Failed(error)) => return Err(error),
        };
        *kept = Some(connection);
        judge(question.call(), status, retry_after, body)
    }

    /// Nothing has been sent when this fails.
    async fn connect(&self, until: tokio::time::Instant) -> Result<Connection, CallError> {
        let opening = Connection::open(&self.service.target);
        let opened = tokio::time::timeout_at(until, opening).await;
        opened.unwrap_or_else(|_| {
            let target = self.service.target.authority();
            Err(CallError::transient(format!(
                "{target} cannot be reached in time"
            )))
        })
    }

    /// Tells the circuit, which only minds what a healthy service does not do.
    fn count(&self, result: &Result<Answer, CallError>) {
        let failed =
            matches!(result, Err(error) if matches!(error.kind, CallErrorKind::Transient { .. }));
        let tally = OutcomeCounts {
            ok: u32::from(!failed),
            failed: u32::from(failed),
        };
        let now = self.now();
        let mut state = self.lock();
        state.under_way -= 1;
        let was_closed = match &mut state.circuit {
            None => return,
            Some(circuit) => {
                let was_closed = circuit.state(now) == CircuitState::Closed;
                let change = circuit.apply(now, &CircuitEvent::Outcomes(tally));
                let service = &self.service.name;
                match change {
                    Some(Transition::Opened { why }) => {
                        tracing::warn!(service, why, "calls to a service wait: its circuit opened");
                    }
                    Some(Transition::Closed) => {
                        tracing::info!(service, "calls to a service go on: its circuit closed");
                    }
                    None => {}
                }
                was_closed
            }
        };
        drop(state);
        if !was_closed {
            self.turn.notify_waiters();
        }
    }

    fn now(&self) -> EnqueueTime {
        EnqueueTime((self.clock.unix_nanos() / 1_000_000) as i64)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that was sent and not answered may have been carried out.
async fn answered<T>(
    until: tokio::time::Instant,
    timeout: Duration,
    asking: impl Future<Output = T>,
) -> Result<T, CallError> {
    let answer = tokio::time::timeout_at(until, asking).await;
    answer.map_err(|_| CallError::transient(format!("no answer within {timeout:?}")).in_doubt())
}
