//! Options of the client: addresses, security, timeouts and limits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Options {
    /// `host:port` of some brokers; the others are discovered.
    pub servers: Vec<String>,
    /// Shown in the logs and metrics of brokers.
    pub client_id: String,
    /// Connect by TLS; [`trust`](super::trust) builds the configuration.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// Log in with SASL PLAIN.
    pub login: Option<Login>,
    /// The time limit for setting up a connection and for a response.
    pub request_timeout: Duration,
    /// How long a request is retried before it fails.
    pub patience: Duration,
    /// The pause before a retry: doubles from the first to the second.
    pub backoff_min: Duration,
    pub backoff_max: Duration,
    /// How often the catalogue is read, and so the longest time until changes by others are seen.
    pub refresh: Duration,
    /// How long a Fetch waits for records.
    pub poll: Duration,
    /// A longer response closes its connection.
    pub response_bytes_max: usize,
    /// Bytes in the append queue of a partition; more is refused with [`QueueFull`](highwater_log::AppendError::QueueFull).
    pub waiting_bytes_max: usize,
    /// The replication factor of created hubs; -1 is the default of the cluster.
    pub replication: i16,
}

impl Options {
    pub fn new(servers: impl IntoIterator<Item = impl Into<String>>) -> Options {
        Options {
            servers: servers.into_iter().map(Into::into).collect(),
            client_id: "highwater".into(),
            tls: None,
            login: None,
            request_timeout: Duration::from_secs(30),
            patience: Duration::from_secs(60),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(1),
            refresh: Duration::from_secs(10),
            poll: Duration::from_millis(500),
            response_bytes_max: 100 << 20,
            waiting_bytes_max: 32 << 20,
            replication: -1,
        }
    }
}

/// A SASL PLAIN login. For Azure Event Hubs: `$ConnectionString`, and the connection string.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    pub user: String,
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves U3
    #[test]
    fn a_password_is_not_printed() {
        let (user, password) = ("app".into(), "s3cret".into());
        let options = Options {
            login: Some(Login { user, password }),
            ..Options::new(["localhost:9092"])
        };
        let shown = format!("{options:?}");
        assert!(
            shown.contains("app") && !shown.contains("s3cret"),
            "{shown}"
        );
    }
}
