//! Metrics of the HTTP API, and the page with the metrics of the whole node.

mod families;
mod jobs;
mod page;

use std::sync::Arc;
use std::time::Duration;

use highwater_net::{ConnectionCounters, Counter};
use hyper::StatusCode;

pub(super) use page::{bytes_max, page};

/// Upper ends of the latency buckets, in microseconds.
const BUCKETS_MICROS: [u64; 12] = [
    250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
];

#[derive(Debug, Default)]
pub(super) struct Metrics {
    /// Answers by the first digit of their status.
    answers: [Counter; 6],
    full: Counter,
    events: Counter,
    event_bytes: Counter,
    /// Requests per bucket, not cumulative; the last bucket has no upper end.
    latency: [Counter; BUCKETS_MICROS.len() + 1],
    latency_micros: Counter,
    pub(super) connections: Arc<ConnectionCounters>,
    pub(super) logins_refused: Counter,
}

impl Metrics {
    pub(super) fn record_response(&self, status: StatusCode, took: Duration) {
        let class = usize::from(status.as_u16() / 100).min(5);
        self.answers[class].add(1);
        if status == StatusCode::TOO_MANY_REQUESTS {
            self.full.add(1);
        }
        let micros = took.as_micros() as u64;
        let bucket = BUCKETS_MICROS.partition_point(|end| *end < micros);
        self.latency[bucket].add(1);
        self.latency_micros.add(micros);
    }

    pub(super) fn record_append(&self, events: usize, bytes: usize) {
        self.events.add(events as u64);
        self.event_bytes.add(bytes as u64);
    }
}
