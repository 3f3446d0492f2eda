//! Who wants to be told the time, and when. One queue for all of a coordinator's state machines.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use highwater_env::Clock;
use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Deadlines {
    queue: Mutex<BTreeSet<(Duration, String)>>,
    /// Rings when something is due before whatever was first.
    sooner: Notify,
}

impl Deadlines {
    /// `at` is on the clock's [`Clock::elapsed`]. Being woken too early or twice must do no harm:
    /// nothing is ever taken out of the queue before its time.
    pub fn set(&self, at: Duration, name: &str) {
        let mut queue = self.queue.lock();
        let first = queue.first().map(|(first, _)| *first);
        queue.insert((at, name.to_owned()));
        drop(queue);
        if first.is_none_or(|first| at < first) {
            self.sooner.notify_one();
        }
    }

    pub fn take_due(&self, now: Duration) -> Vec<String> {
        let mut queue = self.queue.lock();
        let mut due = Vec::new();
        while queue.first().is_some_and(|(at, _)| *at <= now) {
            due.extend(queue.pop_first().map(|(_, name)| name));
        }
        due
    }

    /// Calls `due` when something is, and `expire` every `interval`, for ever.
    pub async fn drive(
        &self,
        clock: &dyn Clock,
        interval: Duration,
        due: impl Fn(),
        expire: impl Fn(),
    ) -> Infallible {
        let mut expiry_due = clock.elapsed() + interval;
        loop {
            self.wait(clock, expiry_due).await;
            due();
            if clock.elapsed() >= expiry_due {
                expire();
                expiry_due = clock.elapsed() + interval;
            }
        }
    }

    /// Ready when something is due, or at `latest`.
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
