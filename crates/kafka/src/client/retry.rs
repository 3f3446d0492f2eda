//! How often and how long something is tried again.

use std::time::Duration;

use tokio::time::Instant;

use super::options::Options;

/// The tries of one call.
#[derive(Debug)]
pub(crate) struct Retry {
    deadline: Option<Instant>,
    pause: Duration,
    pause_max: Duration,
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
            pause: options.backoff_min,
            pause_max: options.backoff_max,
        }
    }

    /// Waits before the next try; false when there is to be none.
    pub async fn pause(&mut self) -> bool {
        let next = Instant::now() + self.pause;
        if self.deadline.is_some_and(|deadline| next >= deadline) {
            return false;
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(self.pause_max);
        true
    }
}

#[cfg(test)]
mod tests {
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
