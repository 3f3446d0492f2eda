//! How to reach a cluster, and how much patience to have with it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Options {
    /// `host:port` of some of the brokers; the others are learnt from them.
    pub servers: Vec<String>,
    /// For people who look at the brokers.
    pub client_id: String,
    /// Speak TLS, with whom this says; [`trust`](super::trust) makes one.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// Log in with SASL PLAIN.
    pub login: Option<Login>,
    /// How long a connection may take until it can be used, and an answer until the connection is given
    /// up.
    pub request_timeout: Duration,
    /// How long a call goes on trying before it fails.
    pub patience: Duration,
    /// Between two tries; twice as long after each, up to the other.
    pub backoff_min: Duration,
    pub backoff_max: Duration,
    /// How often the catalogue is read again. What was made, removed or grown by others is seen after
    /// this long at the latest.
    pub refresh: Duration,
    /// How long a broker is asked to wait for records before it says that there are none.
    pub poll: Duration,
    /// A longer answer ends its connection.
    pub answer_bytes_max: usize,
    /// Bytes that may wait for their append in one partition; more is refused with
    /// [`QueueFull`](highwater_log::AppendError::QueueFull).
    pub waiting_bytes_max: usize,
    /// Copies of every partition of a hub that is made; -1 leaves it to the cluster.
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
            answer_bytes_max: 100 << 20,
            waiting_bytes_max: 32 << 20,
            replication: -1,
        }
    }
}

/// For Azure Event Hubs: `$ConnectionString`, and the connection string itself.
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
