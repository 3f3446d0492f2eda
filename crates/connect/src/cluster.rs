//! Kafka clusters that a job reads or writes: their settings in a job file, and the interface to a client.
//!
//! A cluster is a [`Log`] with a [`TransactionCoordinator`], so inputs and outputs treat its topics as they treat hubs.
//! This crate speaks no protocol: the process that runs jobs has the client ([`Clusters`]).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_env::{EgressPolicy, disk};
use highwater_log::{BoxFuture, Log, TransactionCoordinator};
use highwater_settings::{FileReader, Section};

use crate::endpoint::OutsideAccess;
use crate::tls;

/// The keys of [`ClusterSettings`].
pub const CLUSTER_KEYS: &[&str] = &["servers", "tls", "ca", "user", "password"];

/// How a job file names a cluster. User and password may refer to secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterSettings {
    /// `host:port` of some brokers; the others are discovered.
    pub servers: Vec<String>,
    pub tls: bool,
    /// A file with certificates in PEM form to trust beside those of the system.
    ca: Option<PathBuf>,
    /// User and password of a SASL PLAIN login.
    login: Option<(String, String)>,
}

impl fmt::Debug for ClusterSettings {
    /// Without the login, which may have been written out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterSettings")
            .field("servers", &self.servers)
            .field("tls", &self.tls)
            .field("ca", &self.ca)
            .finish_non_exhaustive()
    }
}

impl ClusterSettings {
    /// Without TLS and login.
    pub fn new(servers: Vec<String>) -> ClusterSettings {
        ClusterSettings {
            servers,
            tls: false,
            ca: None,
            login: None,
        }
    }

    /// Reads [`CLUSTER_KEYS`]. `None` if `servers` is absent or a value is wrong, which the reader has reported.
    pub fn read(reader: &mut FileReader<'_>, section: &Section<'_>) -> Option<ClusterSettings> {
        let example = "broker-1:9092";
        if !section.has("servers") {
            reader.missing(section, "servers", &format!("servers = [\"{example}\"]"));
        }
        let servers = reader.texts(section, "servers", example);
        let ca = reader.path(section, "ca", "ca.pem");
        let tls = reader.boolean(section, "tls").unwrap_or(false);
        if !tls {
            reader.useless(section, "ca", "it needs tls = true");
        }
        let user = reader.text(section, "user", "app");
        let password = reader.text(section, "password", "${env:HIGHWATER_SECRET_KAFKA}");
        let login = match (user, password) {
            (Some(user), Some(password)) => Some((user, password)),
            (Some(_), None) if !section.has("password") => {
                let example = "password = \"${env:HIGHWATER_SECRET_KAFKA}\"";
                reader.missing(section, "password", example);
                None
            }
            (None, Some(_)) if !section.has("user") => {
                reader.missing(section, "user", "user = \"app\"");
                None
            }
            _ => None,
        };
        Some(ClusterSettings {
            servers: servers?,
            tls,
            ca,
            login,
        })
    }

    /// Refuses files and secrets beyond `access`. Hosts are checked when they are connected to.
    pub fn check(&self, access: &OutsideAccess, folder: &Path) -> Result<(), String> {
        if let Some(ca) = &self.ca {
            access.check_path(&folder.join(ca))?;
        }
        for text in self.login.iter().flat_map(|(user, key)| [user, key]) {
            let checked = access.secrets.check_text(text);
            checked.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Connects with the secrets as they are now; `ca` is relative to `folder`.
    pub async fn connect(
        &self,
        connector: &ClusterConnector,
        folder: &Path,
    ) -> Result<Cluster, String> {
        let ClusterConnector { clusters, access } = connector;
        let secret = |text: &str| {
            let resolved = access.secrets.resolve(text);
            resolved
                .map(|secret| secret.into_owned())
                .map_err(|error| error.to_string())
        };
        let login = match &self.login {
            Some((user, password)) => Some((secret(user)?, secret(password)?)),
            None => None,
        };
        let tls = match (self.tls, &self.ca) {
            (false, _) => None,
            (true, None) => Some(tls::client(None)?),
            (true, Some(ca)) => {
                let path = folder.join(ca);
                let pem = disk::read_to_string(&path);
                let pem = pem.map_err(|error| format!("{}: {error}", path.display()))?;
                Some(tls::client(Some(&pem))?)
            }
        };
        let address = ClusterAddress {
            servers: self.servers.clone(),
            tls,
            login,
            egress: access.egress.clone(),
        };
        clusters.connect(address).await
    }
}

/// Everything that a client needs to connect.
pub struct ClusterAddress {
    pub servers: Vec<String>,
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// User and password.
    pub login: Option<(String, String)>,
    /// The hosts that may be connected to, those that the cluster names included.
    pub egress: EgressPolicy,
}

/// A cluster that is connected. Its connections close when the last clone is dropped.
#[derive(Clone)]
pub struct Cluster {
    pub log: Arc<dyn Log>,
    pub transactions: Arc<dyn TransactionCoordinator>,
}

/// Connects to clusters.
pub trait Clusters: Send + Sync {
    /// Ready when the catalogue of the cluster has been read. The error says why it cannot be; it may be temporary.
    fn connect(&self, address: ClusterAddress) -> BoxFuture<Result<Cluster, String>>;
}

/// Connects to the clusters that the definition of a job may reach.
#[derive(Clone)]
pub struct ClusterConnector {
    pub clusters: Arc<dyn Clusters>,
    pub access: OutsideAccess,
}
