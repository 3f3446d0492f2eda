//! How often and how long a request to the cluster is tried again.

use highwater_retry::Backoff;
use tokio::time::Instant;

use super::options::Options;

/// The tries of one call.
#[derive(Debug)]
pub(crate) struct Retry {
    deadline: Option<Instant>,
    backoff: Backoff,
    tries: u32,
}

impl Retry {
    pub fn new(options: &Options) -> Retry {
        Retry {
            deadline: Some(Instant::now() + options.patience),
            ..Retry::endless(options)
        }
    }

    /// For what has no end by itself.
    pub fn endless(options: &Options) -> Retry {
        Retry {
            deadline: None,
            backoff: Backoff::Exponential {
                first: options.backoff_min,
                cap: options.backoff_max,
            },
            tries: 0,
        }
    }

    /// Waits before the next try; false when there is to be none.
    pub async fn pause(&mut self) -> bool {
        self.tries = self.tries.saturating_add(1);
        let next = Instant::now() + self.backoff.after(self.tries);
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
