//! The counters of the server, without locks.

use std::sync::Arc;

use highwater_net::{ConnectionCounters, Counter};
use kafka_protocol::messages::ApiKey;

use crate::api::APIS;

/// Counters since the start.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: RequestCounters,
    pub errors: Counter,
    pub malformed: Counter,
    pub bytes_in: Counter,
    pub bytes_out: Counter,
    pub connections: Arc<ConnectionCounters>,
    pub logins_refused: Counter,
    pub sessions_expired: Counter,
    pub throttled: Counter,
}

/// A counter for each request of [`APIS`].
#[derive(Debug)]
struct RequestCounters([Counter; APIS.len()]);

impl Default for RequestCounters {
    fn default() -> RequestCounters {
        RequestCounters(std::array::from_fn(|_| Counter::default()))
    }
}

/// The counters at one moment; `connections` is the number open now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsSnapshot {
    /// Requests by the name of their API, in the order of their keys.
    pub requests: Vec<(String, u64)>,
    /// Error codes sent, one for each partition or group of a request.
    pub errors: u64,
    /// Connections closed because of a malformed request.
    pub malformed: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub connections: u64,
    pub connections_total: u64,
    /// Connections above the limit.
    pub connections_refused: u64,
    pub logins_refused: u64,
    /// Connections closed because a login with a token was not renewed.
    pub sessions_expired: u64,
    /// Responses with a throttle time.
    pub throttled: u64,
}

impl Metrics {
    pub(crate) fn request(&self, key: ApiKey) {
        if let Some(at) = APIS.iter().position(|api| api.key == key) {
            self.requests.0[at].add(1);
        }
    }

    pub(crate) fn snapshot(&self) -> MetricsSnapshot {
        let requests = APIS.iter().zip(&self.requests.0);
        MetricsSnapshot {
            requests: requests
                .map(|(api, count)| (format!("{:?}", api.key), count.get()))
                .collect(),
            errors: self.errors.get(),
            malformed: self.malformed.get(),
            bytes_in: self.bytes_in.get(),
            bytes_out: self.bytes_out.get(),
            connections: self.connections.open.get(),
            connections_total: self.connections.accepted.get(),
            connections_refused: self.connections.refused.get(),
            logins_refused: self.logins_refused.get(),
            sessions_expired: self.sessions_expired.get(),
            throttled: self.throttled.get(),
        }
    }
}
