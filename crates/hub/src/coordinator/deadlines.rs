//! The timer queue of a coordinator, shared by all its state machines.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use highwater_env::Clock;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::JournalError;

#[derive(Default)]
pub(crate) struct Deadlines {
    queue: Mutex<BTreeSet<(Duration, String)>>,
    /// Notified when a deadline is set that precedes all others.
    sooner: Notify,
}

impl Deadlines {
    /// Wakes `name` at `at`, on the clock's [`Clock::elapsed`], unless `wakeup_at` says that it is woken before. An
    /// early or repeated wake-up must be harmless: a deadline is never removed before its time.
    pub(crate) fn set(&self, wakeup_at: &mut Option<Duration>, at: Duration, name: &str) {
        if wakeup_at.is_some_and(|wakeup_at| wakeup_at <= at) {
            return;
        }
        *wakeup_at = Some(at);
        let mut queue = self.queue.lock();
        let first = queue.first().map(|(first, _)| *first);
        queue.insert((at, name.to_owned()));
        drop(queue);
        if first.is_none_or(|first| at < first) {
            self.sooner.notify_one();
        }
    }

    pub(crate) fn take_due(&self, now: Duration) -> Vec<String> {
        let mut queue = self.queue.lock();
        let mut due = Vec::new();
        while queue.first().is_some_and(|(at, _)| *at <= now) {
            due.extend(queue.pop_first().map(|(_, name)| name));
        }
        due
    }

    /// Runs a coordinator: awaits `load`, then calls `wake_due` at deadlines and `expire` every `interval`, until
    /// `shutdown` completes.
    pub(crate) async fn run(
        &self,
        clock: &dyn Clock,
        interval: Duration,
        load: impl Future<Output = Result<(), JournalError>>,
        wake_due: impl Fn(),
        expire: impl Fn(),
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), JournalError> {
        let work = async {
            load.await?;
            Ok(self.drive(clock, interval, wake_due, expire).await)
        };
        tokio::select! {
            biased;
            stopped = work => stopped.map(|never| match never {}),
            () = shutdown => Ok(()),
        }
    }

    async fn drive(
        &self,
        clock: &dyn Clock,
        interval: Duration,
        wake_due: impl Fn(),
        expire: impl Fn(),
    ) -> Infallible {
        let mut expiry_due = clock.elapsed() + interval;
        loop {
            self.wait(clock, expiry_due).await;
            wake_due();
            if clock.elapsed() >= expiry_due {
                expire();
                expiry_due = clock.elapsed() + interval;
            }
        }
    }

    /// Completes at the next deadline, at the latest at `latest`.
    async fn wait(&self, clock: &dyn Clock, latest: Duration) {
        loop {
            let first = self.queue.lock().first().map(|(first, _)| *first);
            let at = first.map_or(latest, |first| first.min(latest));
            let left = at.saturating_sub(clock.elapsed());
            if left.is_zero() {
                return;
            }
            tokio::select! {
                biased;
                () = tokio::time::sleep(left) => {}
                () = self.sooner.notified() => {}
            }
        }
    }
}
