//! Metrics of the HTTP API, and the page with the metrics of the whole node.

mod families;
mod jobs;
mod page;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::StatusCode;

pub(super) use page::{bytes_max, page};

/// Upper ends of the latency buckets, in microseconds.
const BUCKETS_MICROS: [u64; 12] = [
    250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
];

#[derive(Debug, Default)]
pub(super) struct Metrics {
    /// Answers by the first digit of their status.
    answers: [AtomicU64; 6],
    full: AtomicU64,
    events: AtomicU64,
    event_bytes: AtomicU64,
    /// Requests per bucket, not cumulative; the last bucket has no upper end.
    latency: [AtomicU64; BUCKETS_MICROS.len() + 1],
    latency_micros: AtomicU64,
    pub(super) connections: AtomicU64,
    pub(super) connections_refused: AtomicU64,
    pub(super) logins_refused: AtomicU64,
}

impl Metrics {
    pub(super) fn record_response(&self, status: StatusCode, took: Duration) {
        let class = usize::from(status.as_u16() / 100).min(5);
        add(&self.answers[class], 1);
        if status == StatusCode::TOO_MANY_REQUESTS {
            add(&self.full, 1);
        }
        let micros = took.as_micros() as u64;
        let bucket = BUCKETS_MICROS.partition_point(|end| *end < micros);
        add(&self.latency[bucket], 1);
        add(&self.latency_micros, micros);
    }

    pub(super) fn record_append(&self, events: usize, bytes: usize) {
        add(&self.events, events as u64);
        add(&self.event_bytes, bytes as u64);
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
