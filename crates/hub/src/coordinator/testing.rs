//! Shared by the tests of both coordinators.

use std::sync::Arc;
use std::time::Duration;

use highwater_env::Clock;
use highwater_log::{HubName, TopicPartition};

/// Number of seeds to try: `HIGHWATER_SEEDS`, or else `usual`.
pub(crate) fn seeds(usual: u64) -> u64 {
    let requested = std::env::var("HIGHWATER_SEEDS").ok();
    requested
        .and_then(|text| text.parse().ok())
        .unwrap_or(usual)
}

/// Tokio's clock, which a paused runtime advances when it is idle.
pub(crate) struct TokioClock {
    start: tokio::time::Instant,
    start_unix: Duration,
}

impl TokioClock {
    pub(crate) fn new(start_unix: Duration) -> Arc<TokioClock> {
        Arc::new(TokioClock {
            start: tokio::time::Instant::now(),
            start_unix,
        })
    }
}

impl Clock for TokioClock {
    fn unix_nanos(&self) -> i128 {
        (self.start_unix + self.elapsed()).as_nanos() as i128
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

pub(crate) fn topic_partition(hub: &str, partition: u32) -> TopicPartition {
    let hub = HubName::new(hub).unwrap();
    TopicPartition { hub, partition }
}
