//! Retries one handler call until it succeeds or the retry policy gives up.

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use highwater_env::Clock;
use highwater_env::random::Random;
use highwater_retry::{RetryDecision, RetryPolicy};
use tokio::sync::watch;

use crate::breaker::{Breaker, OnExhausted, Permit};
use crate::dead_letter::FailedAttempt;
use crate::handle_stage::Options;
use crate::stage::PipelineContext;

/// Why an attempt failed, and whether a retry may succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    reason: String,
    transient: bool,
    retry_after: Option<Duration>,
}

impl Failure {
    /// A retry may succeed: a time-out, a refused connection, a busy server.
    pub fn transient(reason: impl fmt::Display) -> Failure {
        Failure {
            reason: reason.to_string(),
            transient: true,
            retry_after: None,
        }
    }

    /// A retry would fail the same way: the event itself is at fault.
    pub fn permanent(reason: impl fmt::Display) -> Failure {
        Failure {
            transient: false,
            ..Failure::transient(reason)
        }
    }

    pub fn reason(&self) -> &str {
        &self.reason
    }

    pub fn is_transient(&self) -> bool {
        self.transient
    }

    /// Delays the retry by at least `delay`, as the other side requested.
    pub fn retry_after(self, delay: Duration) -> Failure {
        Failure {
            retry_after: Some(delay),
            ..self
        }
    }
}

/// Retries the calls of one stage.
#[derive(Clone)]
pub(crate) struct RetryContext {
    pub options: Arc<Options>,
    pub clock: Arc<dyn Clock>,
    pub stopping: watch::Receiver<bool>,
}

impl RetryContext {
    pub(crate) fn new(options: &Arc<Options>, context: &PipelineContext) -> RetryContext {
        RetryContext {
            options: Arc::clone(options),
            clock: Arc::clone(&context.clock),
            stopping: context.stopping.subscribe(),
        }
    }

    /// Makes attempts, numbered from 1, until one succeeds or retries are exhausted. `salt` varies the jitter between
    /// events. Returns `None` if the pipeline is stopped meanwhile; an attempt in progress is awaited.
    pub(crate) async fn run<U, W>(
        &mut self,
        salt: u64,
        mut attempt: impl FnMut(u32) -> W,
    ) -> Option<Result<U, Vec<FailedAttempt>>>
    where
        W: Future<Output = Result<U, Failure>>,
    {
        let options = Arc::clone(&self.options);
        let clock = Arc::clone(&self.clock);
        let mut delays = RetryDelays::new(&options.retry, &*clock, options.seed ^ salt);
        let (mut attempts, mut number, mut probes) = (Vec::new(), 0u32, 0u32);
        loop {
            let pass = match &options.circuit {
                Some(circuit) => Some(self.unless_stopped(circuit.acquire_after(probes)).await?),
                None => None,
            };
            number = number.saturating_add(1);
            let at_ms = clock.unix_millis();
            // The call is inside the future, because it may panic too.
            let failure = match self.with_timeout(async { attempt(number).await }).await {
                Ok(value) => {
                    pass.into_iter().for_each(Permit::succeeded);
                    return Some(Ok(value));
                }
                Err(failure) => failure,
            };
            FailedAttempt::new(number, at_ms, &failure.reason).note(&mut attempts);
            let probe = pass.as_ref().is_some_and(Permit::is_probe);
            pass.into_iter().for_each(Permit::failed);
            if probe {
                probes += 1;
                if probes == Breaker::PROBES_MAX {
                    return Some(Err(attempts));
                }
                delays.restart();
                continue;
            }
            let delay = match failure.transient {
                true => delays.next(failure.retry_after),
                false => None,
            };
            match (delay, &options.circuit) {
                (Some(delay), _) => self.unless_stopped(tokio::time::sleep(delay)).await?,
                (None, Some(circuit)) if circuit.on_exhausted() == OnExhausted::Hold => {
                    delays.restart()
                }
                (None, _) => return Some(Err(attempts)),
            }
        }
    }

    async fn unless_stopped<T>(&mut self, wait: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            _ = self.stopping.wait_for(|stopping| *stopping) => None,
            done = wait => Some(done),
        }
    }

    async fn with_timeout<U>(
        &self,
        attempt: impl Future<Output = Result<U, Failure>>,
    ) -> Result<U, Failure> {
        let attempt = catch_panic(attempt);
        let Some(timeout) = self.options.timeout else {
            return attempt.await;
        };
        match tokio::time::timeout(timeout, attempt).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Failure::transient(format!("no answer within {timeout:?}"))),
        }
    }
}

/// The delays between attempts by a retry policy.
pub(crate) struct RetryDelays<'a> {
    policy: &'a RetryPolicy,
    clock: &'a dyn Clock,
    random: Random,
    started: Duration,
    tries: u32,
}

impl<'a> RetryDelays<'a> {
    /// Must be created just before the first attempt.
    pub(crate) fn new(policy: &'a RetryPolicy, clock: &'a dyn Clock, seed: u64) -> RetryDelays<'a> {
        RetryDelays {
            policy,
            clock,
            random: Random::seeded(seed),
            started: clock.elapsed(),
            tries: 0,
        }
    }

    /// The delay before the next attempt, or `None` to give up.
    pub(crate) fn next(&mut self, hint: Option<Duration>) -> Option<Duration> {
        self.tries = self.tries.saturating_add(1);
        let passed = self.clock.elapsed().saturating_sub(self.started);
        let random = self.random.next_u64();
        match self.policy.next(self.tries, passed, hint, random) {
            RetryDecision::After(delay) => Some(delay),
            RetryDecision::GiveUp(_) => None,
        }
    }

    /// Starts over, as if no attempt had been made.
    pub(crate) fn restart(&mut self) {
        (self.tries, self.started) = (0, self.clock.elapsed());
    }
}

/// Turns a panic of a handler into a failure of its event only.
async fn catch_panic<U>(attempt: impl Future<Output = Result<U, Failure>>) -> Result<U, Failure> {
    let mut attempt = pin!(attempt);
    poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| attempt.as_mut().poll(cx)));
        polled.unwrap_or_else(|panic| Poll::Ready(Err(Failure::permanent(panic_text(&*panic)))))
    })
    .await
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or(panic.downcast_ref::<String>().map(String::as_str));
    format!(
        "the handler panicked: {}",
        text.unwrap_or("it did not say why")
    )
}
