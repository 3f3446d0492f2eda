//! What the server counts. Reading is cheap and never stops anybody.

use std::sync::atomic::{AtomicU64, Ordering};

use kafka_protocol::messages::ApiKey;

use crate::api::APIS;

/// Counters since the start; `connections` is the number open now.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: [AtomicU64; APIS.len()],
    pub errors: Counter,
    pub malformed: Counter,
    pub bytes_in: Counter,
    pub bytes_out: Counter,
    pub connections: Counter,
    pub connections_total: Counter,
    pub connections_refused: Counter,
    pub logins_refused: Counter,
    pub throttled: Counter,
}

/// The counters at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsSnapshot {
    /// Requests by the name of their API, in the order of their keys.
    pub requests: Vec<(String, u64)>,
    /// Error codes sent, one for each partition or group that a request named.
    pub errors: u64,
    /// Connections ended because what came was not a request.
    pub malformed: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub connections: u64,
    pub connections_total: u64,
    /// Connections closed because there were too many.
    pub connections_refused: u64,
    pub logins_refused: u64,
    /// Requests answered with the wish to wait.
    pub throttled: u64,
}

impl Metrics {
    pub fn request(&self, key: ApiKey) {
        if let Some(at) = APIS.iter().position(|api| api.key == key) {
            self.requests[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn snapshot(&self) -> MetricsSnapshot {
        let requests = APIS.iter().zip(&self.requests);
        MetricsSnapshot {
            requests: requests
                .map(|(api, count)| (format!("{:?}", api.key), count.load(Ordering::Relaxed)))
                .collect(),
            errors: self.errors.get(),
            malformed: self.malformed.get(),
            bytes_in: self.bytes_in.get(),
            bytes_out: self.bytes_out.get(),
            connections: self.connections.get(),
            connections_total: self.connections_total.get(),
            connections_refused: self.connections_refused.get(),
            logins_refused: self.logins_refused.get(),
            throttled: self.throttled.get(),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub fn subtract(&self, count: u64) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
