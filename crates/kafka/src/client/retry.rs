//! Retries of a request to the cluster.

use highwater_retry::Backoff;
use tokio::time::Instant;

use super::options::Options;

/// The attempts of one request.
#[derive(Debug)]
pub(crate) struct Retry {
    deadline: Option<Instant>,
    backoff: Backoff,
    attempts: u32,
}

impl Retry {
    pub(super) fn new(options: &Options) -> Retry {
        Retry {
            deadline: Some(Instant::now() + options.patience),
            ..Retry::endless(options)
        }
    }

    /// Retries without a deadline.
    pub(super) fn endless(options: &Options) -> Retry {
        Retry {
            deadline: None,
            backoff: Backoff::Exponential {
                first: options.backoff_min,
                cap: options.backoff_max,
            },
            attempts: 0,
        }
    }

    /// Waits before the next attempt; false if the deadline is reached.
    pub(super) async fn pause(&mut self) -> bool {
        self.attempts = self.attempts.saturating_add(1);
        let next = Instant::now() + self.backoff.after(self.attempts);
        if self.deadline.is_some_and(|deadline| next >= deadline) {
            return false;
        }
        tokio::time::sleep_until(next).await;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_up_to_a_limit_and_end_with_the_patience() {
        let options = Options {
            patience: Duration::from_millis(1_000),
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_millis(300),
            ..Options::new(["a:1"])
        };
        let (mut retry, began) = (Retry::new(&options), Instant::now());
        let mut tries = Vec::new();
        while retry.pause().await {
            tries.push(began.elapsed().as_millis());
        }
        assert_eq!(tries, [100, 300, 600, 900]);
    }
}
