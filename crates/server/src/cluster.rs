//! The cluster that is the log of a node: from the settings to the options of the client.

use std::path::{Path, PathBuf};

use highwater_env::disk;
use highwater_kafka::client::{ClusterNames, Login, Mechanism, Options, Profile, TokenSource};
use highwater_net::tls;
use highwater_settings::Secrets;

use crate::owners::PeerSettings;
use crate::processors::Secret;

/// A cluster of the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// `host:port` of some brokers.
    pub servers: Vec<String>,
    /// Stands before the names of the node's topics, groups and transactional ids.
    pub prefix: String,
    pub client_id: String,
    /// Of topics that the node creates; `None`: the default of the cluster.
    pub replication: Option<i16>,
    pub profile: Profile,
    /// Producers' timestamps count as arrival times.
    pub create_time_counts: bool,
    /// `None`: connections are not encrypted.
    pub tls: Option<ClusterTls>,
    pub login: Option<ClusterLogin>,
    /// The nodes that share the prefix.
    pub peers: PeerSettings,
}

/// Files in PEM form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterTls {
    /// The authorities of the brokers.
    pub ca: PathBuf,
    pub identity: Option<ClusterIdentity>,
}

/// The client certificate of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterIdentity {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// Secrets are texts with references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterLogin {
    Password {
        mechanism: Mechanism,
        user: String,
        password: Secret,
    },
    Token(Secret),
}

impl ClusterSettings {
    /// Whether it has transactions.
    pub(crate) fn has_transactions(&self) -> bool {
        self.profile == Profile::Kafka
    }

    /// Reads the certificates and the password.
    pub(crate) fn client_options(&self) -> Result<Options, String> {
        let mut options = Options {
            client_id: self.client_id.clone(),
            names: ClusterNames::of_node(&self.prefix),
            profile: self.profile,
            create_time_counts: self.create_time_counts,
            tls: self.tls.as_ref().map(ClusterTls::config).transpose()?,
            ..Options::new(self.servers.iter().cloned())
        };
        options.replication = self.replication.unwrap_or(options.replication);
        match self.login.clone() {
            None => {}
            Some(ClusterLogin::Password {
                mechanism,
                user,
                password,
            }) => {
                options.mechanism = mechanism;
                let password = resolve(&password)?;
                options.login = Some(Login { user, password });
            }
            Some(ClusterLogin::Token(token)) => {
                options.token = Some(TokenSource::new(move || resolve(&token)));
            }
        }
        Ok(options)
    }
}

impl ClusterTls {
    fn config(&self) -> Result<std::sync::Arc<rustls::ClientConfig>, String> {
        let identity = match &self.identity {
            None => None,
            Some(identity) => Some(tls::Identity {
                certificate: read(&identity.cert)?,
                key: read(&identity.key)?,
            }),
        };
        tls::trust_only(&read(&self.ca)?, identity.as_ref())
    }
}

fn read(path: &Path) -> Result<String, String> {
    let text = disk::read_to_string(path);
    text.map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn resolve(secret: &Secret) -> Result<String, String> {
    let resolved = Secrets::default().resolve(&secret.0);
    Ok(resolved.map_err(|error| error.to_string())?.into_owned())
}
