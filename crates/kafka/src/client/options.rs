//! Options of the client: addresses, security, timeouts and limits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use highwater_access::ScramHash;
use highwater_env::EgressPolicy;
use kafka_protocol::messages::ApiKey;

use super::names::ClusterNames;

#[derive(Clone, Debug)]
pub struct Options {
    /// `host:port` of some brokers; the others are discovered.
    pub servers: Vec<String>,
    /// Shown in the logs and metrics of brokers.
    pub client_id: String,
    /// Connect by TLS; `highwater_net::tls::trust_only` builds the configuration.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// Log in with a user and a password.
    pub login: Option<Login>,
    /// How the login proves the password.
    pub mechanism: Mechanism,
    /// Log in with a token (SASL OAUTHBEARER), instead of `login`.
    pub token: Option<TokenSource>,
    /// The capabilities of the cluster.
    pub profile: Profile,
    /// The names of hubs, groups and transactional ids on the cluster.
    pub names: ClusterNames,
    /// Producers' timestamps, in topics with `message.timestamp.type=CreateTime`, count as enqueue times.
    pub create_time_counts: bool,
    /// The hosts that may be connected to, those that the cluster names included.
    pub egress: EgressPolicy,
    /// The time limit for setting up a connection and for a response.
    pub request_timeout: Duration,
    /// How long a request is retried before it fails.
    pub patience: Duration,
    /// The pause before a retry: doubles from the first to the second.
    pub backoff_min: Duration,
    pub backoff_max: Duration,
    /// How often the catalogue is read, and so the longest time until changes by others are seen.
    pub refresh: Duration,
    /// How often a claim is renewed. A cluster forgets a transactional id that was not used for a week, by default, and
    /// with it the epoch that a later claim has to exceed.
    pub renewal: Duration,
    /// How long a Fetch waits for records.
    pub poll: Duration,
    /// A longer response closes its connection.
    pub response_bytes_max: usize,
    /// Bytes in the append queue of a partition; more is refused with
    /// [`QueueFull`](highwater_log::AppendError::QueueFull).
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
            mechanism: Mechanism::Plain,
            token: None,
            profile: Profile::Kafka,
            names: ClusterNames::default(),
            create_time_counts: false,
            egress: EgressPolicy::default(),
            request_timeout: Duration::from_secs(30),
            patience: Duration::from_secs(60),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(1),
            refresh: Duration::from_secs(10),
            renewal: Duration::from_secs(24 * 3600),
            poll: Duration::from_millis(500),
            response_bytes_max: 100 << 20,
            waiting_bytes_max: 32 << 20,
            replication: -1,
        }
    }
}

/// The capabilities of a cluster beyond its request versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Apache Kafka, or a node.
    #[default]
    Kafka,
    /// Azure Event Hubs below Premium, and its emulator: no producer numbers, no transactions and no settings of
    /// topics. A retried append may be in the log twice.
    EventHubs,
}

impl Profile {
    /// The last version of a request that the cluster is sent.
    pub(crate) fn version_max(self, key: ApiKey) -> i16 {
        match (self, key) {
            (Profile::Kafka, _) => i16::MAX,
            (Profile::EventHubs, ApiKey::Produce) => 7,
            (Profile::EventHubs, ApiKey::Fetch) => 6,
            (Profile::EventHubs, ApiKey::Metadata) => 5,
            (Profile::EventHubs, _) => i16::MAX,
        }
    }
}

/// A user and a password. For Azure Event Hubs: `$ConnectionString`, and the connection string.
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

/// The SASL mechanisms of a login with a password.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mechanism {
    /// The password is sent as it is. For connections by TLS, and for Azure Event Hubs.
    #[default]
    Plain,
    /// SCRAM-SHA-256 or SCRAM-SHA-512: the password is proved, and so is that the broker knows it.
    Scram(ScramHash),
}

impl Mechanism {
    /// The mechanism of a name of Kafka's settings.
    pub fn parse(name: &str) -> Option<Mechanism> {
        match name {
            "PLAIN" => Some(Mechanism::Plain),
            "SCRAM-SHA-256" => Some(Mechanism::Scram(ScramHash::Sha256)),
            "SCRAM-SHA-512" => Some(Mechanism::Scram(ScramHash::Sha512)),
            _ => None,
        }
    }
}

type ReadToken = dyn Fn() -> Result<String, String> + Send + Sync;

/// Returns the token of a login. Called for every connection, so a token that is renewed in a file is used from then
/// on.
#[derive(Clone)]
pub struct TokenSource(Arc<ReadToken>);

impl TokenSource {
    pub fn new(read: impl Fn() -> Result<String, String> + Send + Sync + 'static) -> TokenSource {
        TokenSource(Arc::new(read))
    }

    pub(super) fn read(&self) -> Result<String, String> {
        (self.0)()
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSource")
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
