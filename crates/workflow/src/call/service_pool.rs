//! The pool of one service: waiting calls, workers that own a connection each, and the circuit breaker.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use highwater_env::{Clock, EgressPolicy};
use highwater_flow::circuit::{Circuit, CircuitEvent, CircuitState, OutcomeCounts, Transition};
use highwater_log::EnqueueTime;
use hyper::header::HeaderValue;
use tokio::sync::Notify;

use super::classify::classify;
use super::connection::{Connection, SendError};
use super::{CallError, CallErrorKind, CallOutcome, OutcomeCallback, Request};
use crate::definition::{Action, Call, Definition, Service};
use crate::machine::Answer;

/// Idle connections are closed after this time.
const IDLE: Duration = Duration::from_secs(30);

pub(crate) struct ServicePool {
    service: Service,
    host: HeaderValue,
    clock: Arc<dyn Clock>,
    egress: EgressPolicy,
    state: Mutex<State>,
    /// Wakes workers for a new call or a transition of the circuit.
    wake: Notify,
}

struct State {
    waiting: VecDeque<HttpCallRequest>,
    circuit: Option<Circuit>,
    workers: u32,
    /// Workers without a call.
    idle: u32,
    under_way: u32,
    stopped: bool,
}

pub(crate) struct HttpCallRequest {
    pub call: HttpCall,
    pub timeout: Duration,
    pub done: OutcomeCallback,
}

/// A request and the definition that classifies its response.
pub(crate) struct HttpCall {
    pub definition: Arc<Definition>,
    pub of: Option<(usize, bool)>,
    pub request: Request,
}

impl HttpCall {
    /// The call of the definition, which says which responses are expected. `None` for a notice.
    fn definition(&self) -> Option<&Call> {
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
    Call(Box<HttpCallRequest>),
    Nothing,
    /// The circuit is open for this long.
    Wait(Duration),
}

impl ServicePool {
    pub(crate) fn new(
        service: Service,
        clock: Arc<dyn Clock>,
        egress: EgressPolicy,
    ) -> Arc<ServicePool> {
        let circuit = service
            .circuit
            .as_ref()
            .map(|rule| Circuit::new(rule.rule()));
        let host = HeaderValue::from_str(&service.target.authority());
        Arc::new(ServicePool {
            host: host.expect("the parts of a target are plain"),
            service,
            clock,
            egress,
            state: Mutex::new(State {
                waiting: VecDeque::new(),
                circuit,
                workers: 0,
                idle: 0,
                under_way: 0,
                stopped: false,
            }),
            wake: Notify::new(),
        })
    }

    /// Enqueues a call.
    pub(crate) fn submit(self: &Arc<ServicePool>, request: HttpCallRequest) {
        let mut state = self.lock();
        if state.stopped {
            return;
        }
        state.waiting.push_back(request);
        self.wake_worker(state);
    }

    /// Drops waiting calls. Calls in progress are not awaited.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        state.waiting.clear();
        drop(state);
        self.wake.notify_waiters();
    }

    /// Wakes an idle worker, or starts another one within the concurrency limit.
    fn wake_worker(self: &Arc<ServicePool>, mut state: MutexGuard<'_, State>) {
        if state.idle > 0 {
            drop(state);
            // The most recently idle worker, so that the others can time out.
            self.wake.notify_last();
        } else if state.workers < self.service.concurrency {
            state.workers += 1;
            drop(state);
            tokio::spawn(Arc::clone(self).work());
        }
    }

    async fn work(self: Arc<ServicePool>) {
        let mut connection = None;
        loop {
            let mut woken = pin!(self.wake.notified());
            woken.as_mut().enable();
            match self.next() {
                Next::Call(request) => self.perform(&mut connection, *request).await,
                Next::Wait(delay) => {
                    let _ = tokio::time::timeout(delay, woken).await;
                    self.lock().idle -= 1;
                }
                Next::Nothing => {
                    let woken = tokio::time::timeout(IDLE, woken).await.is_ok();
                    let mut state = self.lock();
                    state.idle -= 1;
                    if state.stopped || !woken && state.waiting.is_empty() {
                        state.workers -= 1;
                        return;
                    }
                }
            }
        }
    }

    /// The next call, unless there is none or the circuit forbids it. A worker without a call is idle.
    fn next(self: &Arc<ServicePool>) -> Next {
        let now = self.now();
        let mut state = self.lock();
        let circuit = state
            .circuit
            .as_ref()
            .map_or(CircuitState::Closed, |circuit| circuit.state(now));
        let may = match circuit {
            CircuitState::Closed => true,
            CircuitState::HalfOpen { probes } => state.under_way < probes,
            CircuitState::Open { until, .. } => {
                state.idle += 1;
                let wait = until.map_or(i64::MAX, |until| until.0 - now.0);
                return Next::Wait(Duration::from_millis(wait.clamp(1, 60_000) as u64));
            }
        };
        match may.then(|| state.waiting.pop_front()).flatten() {
            Some(request) => {
                state.under_way += 1;
                // One wake-up may cover several calls.
                if !state.waiting.is_empty() && circuit == CircuitState::Closed {
                    self.wake_worker(state);
                }
                Next::Call(Box::new(request))
            }
            None => {
                state.idle += 1;
                Next::Nothing
            }
        }
    }

    async fn perform(&self, connection: &mut Option<Connection>, request: HttpCallRequest) {
        let begun_ms = self.now().0;
        let result = self
            .attempt(connection, request.call, request.timeout)
            .await;
        if result.is_err() {
            // A response may still arrive on it.
            *connection = None;
        }
        let ended_ms = self.now().0;
        self.count(&result);
        (request.done)(CallOutcome {
            begun_ms,
            ended_ms,
            result,
        });
    }

    async fn attempt(
        &self,
        kept: &mut Option<Connection>,
        call: HttpCall,
        timeout: Duration,
    ) -> Result<Answer, CallError> {
        let until = tokio::time::Instant::now() + timeout;
        // Taken out, so that a connection dropped midway is not reused.
        let usable = match kept.take() {
            Some(connection) => connection.if_open().await,
            None => None,
        };
        let mut connection = match usable {
            Some(connection) => connection,
            None => self.connect(until).await?,
        };
        let asking = connection.call(&self.host, &call.request);
        let sent = match with_deadline(until, timeout, asking).await? {
            // The idempotency key makes a repetition safe.
            Err(SendError::Stale(_)) => {
                connection = self.connect(until).await.map_err(CallError::in_doubt)?;
                let asking = connection.call(&self.host, &call.request);
                with_deadline(until, timeout, asking).await?
            }
            sent => sent,
        };
        let response = match sent {
            Ok(response) => response,
            Err(SendError::Stale(error)) => return Err(*error),
            Err(SendError::Failed(error)) => return Err(error),
        };
        *kept = Some(connection);
        classify(
            call.definition(),
            response.status,
            response.retry_after,
            response.body,
        )
    }

    /// Opens a connection. If this fails, nothing was sent.
    async fn connect(&self, until: tokio::time::Instant) -> Result<Connection, CallError> {
        let opening = Connection::open(&self.service.target, &self.egress);
        let opened = tokio::time::timeout_at(until, opening).await;
        opened.unwrap_or_else(|_| {
            let target = self.service.target.authority();
            Err(CallError::transient(format!(
                "{target} cannot be reached in time"
            )))
        })
    }

    /// Reports the outcome to the circuit. Only transient failures count as failures.
    fn count(&self, result: &Result<Answer, CallError>) {
        let failed =
            matches!(result, Err(error) if matches!(error.kind, CallErrorKind::Transient { .. }));
        let counts = OutcomeCounts {
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
                let change = circuit.apply(now, &CircuitEvent::Outcomes(counts));
                let service = &self.service.name;
                match change {
                    Some(Transition::Opened { why }) => {
                        tracing::warn!(service, why, "calls to a service wait: its circuit opened");
                    }
                    Some(Transition::Closed) => {
                        tracing::info!(service, "calls to a service resume: its circuit closed");
                    }
                    None => {}
                }
                was_closed
            }
        };
        drop(state);
        if !was_closed {
            self.wake.notify_waiters();
        }
    }

    fn now(&self) -> EnqueueTime {
        EnqueueTime(self.clock.unix_millis())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call without an answer in time may have been carried out.
async fn with_deadline<T>(
    until: tokio::time::Instant,
    timeout: Duration,
    asking: impl Future<Output = T>,
) -> Result<T, CallError> {
    let answer = tokio::time::timeout_at(until, asking).await;
    answer.map_err(|_| CallError::transient(format!("no answer within {timeout:?}")).in_doubt())
}
