//! One thing tried until it works or there is no point in trying it again.

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

use crate::dead::Attempt;
use crate::handle::Options;
use crate::retry::{GiveUp, Policy, Retry};

/// Why an attempt failed, and whether another may go better.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    reason: String,
    transient: bool,
    retry_after: Option<Duration>,
}

impl Failure {
    /// May go better later: a time-out, a refused connection, a server that is busy.
    pub fn transient(reason: impl fmt::Display) -> Failure {
        Failure {
            reason: reason.to_string(),
            transient: true,
            retry_after: None,
        }
    }

    /// Will fail the same way again: the event itself is at fault.
    pub fn permanent(reason: impl fmt::Display) -> Failure {
        Failure {
            transient: false,
            ..Failure::transient(reason)
        }
    }

    /// Not before `delay` from now, as the other side asked.
    pub fn retry_after(self, delay: Duration) -> Failure {
        Failure {
            retry_after: Some(delay),
            ..self
        }
    }
}

/// What trying needs to know.
#[derive(Clone)]
pub(crate) struct Trying {
    pub options: Arc<Options>,
    pub clock: Arc<dyn Clock>,
}

impl Trying {
    /// Makes an attempt after another, each with its number from 1, until one succeeds or the policy
    /// gives up. `salt` makes the random part of delays differ between events.
    pub async fn persist<U, W>(
        &self,
        salt: u64,
        mut attempt: impl FnMut(u32) -> W,
    ) -> Result<U, Vec<Attempt>>
    where
        W: Future<Output = Result<U, Failure>>,
    {
        let options = &*self.options;
        let mut pacing = Pacing::new(&options.retry, &*self.clock, options.seed ^ salt);
        let mut attempts = Vec::new();
        loop {
            let number = pacing.tries.saturating_add(1);
            let at_ms = (self.clock.unix_nanos() / 1_000_000) as i64;
            // The call itself is inside, because it may panic as well as what it returns.
            let failure = match self.bounded(async { attempt(number).await }).await {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            Attempt::new(number, at_ms, &failure.reason).note(&mut attempts);
            if !failure.transient || pacing.pause(failure.retry_after).await.is_err() {
                return Err(attempts);
            }
        }
    }

    async fn bounded<U>(
        &self,
        attempt: impl Future<Output = Result<U, Failure>>,
    ) -> Result<U, Failure> {
        let attempt = caught(attempt);
        let Some(timeout) = self.options.timeout else {
            return attempt.await;
        };
        match tokio::time::timeout(timeout, attempt).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Failure::transient(format!("no answer within {timeout:?}"))),
        }
    }
}

/// Waits between attempts as a policy says.
pub(crate) struct Pacing<'a> {
    policy: &'a Policy,
    clock: &'a dyn Clock,
    random: Random,
    started: Duration,
    tries: u32,
}

impl<'a> Pacing<'a> {
    /// To be made just before the first attempt.
    pub fn new(policy: &'a Policy, clock: &'a dyn Clock, seed: u64) -> Pacing<'a> {
        Pacing {
            policy,
            clock,
            random: Random::seeded(seed),
            started: clock.elapsed(),
            tries: 0,
        }
    }

    /// Waits after an attempt that failed, unless there is to be no other.
    pub async fn pause(&mut self, hint: Option<Duration>) -> Result<(), GiveUp> {
        self.tries = self.tries.saturating_add(1);
        let passed = self.clock.elapsed().saturating_sub(self.started);
        let random = self.random.next_u64();
        match self.policy.next(self.tries, passed, hint, random) {
            Retry::After(delay) => tokio::time::sleep(delay).await,
            Retry::GiveUp(reason) => return Err(reason),
        }
        Ok(())
    }
}

/// A panic of a handler is a failure of its event and of no other.
async fn caught<U>(attempt: impl Future<Output = Result<U, Failure>>) -> Result<U, Failure> {
    let mut attempt = pin!(attempt);
    poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| attempt.as_mut().poll(cx)));
        polled.unwrap_or_else(|panic| Poll::Ready(Err(Failure::permanent(said(&*panic)))))
    })
    .await
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or(panic.downcast_ref::<String>().map(String::as_str));
    format!(
        "the handler panicked: {}",
        text.unwrap_or("it did not say why")
    )
}
