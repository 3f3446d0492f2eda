//! Kafka clusters that a job reads or writes: their settings in a job file, and the interface to a client.
//!
//! A cluster is a [`Log`] with a [`TransactionCoordinator`], so inputs and outputs treat its topics as they treat hubs.
//! It is one that the job file names, or the log of the node ([`ClusterRef`]). This crate speaks no protocol: the
//! process that runs jobs has the client ([`Clusters`]).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_env::{EgressPolicy, disk};
use highwater_log::{BoxFuture, GroupCoordinator, Log, TransactionCoordinator};
use highwater_net::tls;
use highwater_settings::{FileReader, Section};

use crate::endpoint::OutsideAccess;

/// The keys of [`ClusterSettings`].
pub const CLUSTER_KEYS: &[&str] = &[
    "servers",
    "tls",
    "ca",
    "client_cert",
    "client_key",
    "mechanism",
    "user",
    "password",
    "token",
];

/// How a job file names a cluster. User, password and token may refer to secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterSettings {
    /// `host:port` of some brokers; the others are discovered.
    pub servers: Vec<String>,
    pub tls: bool,
    /// A file with certificates in PEM form to trust beside those of the system.
    ca: Option<PathBuf>,
    identity: Option<ClientIdentity>,
    login: Option<LoginSettings>,
}

/// The files of a client certificate and its key, in PEM form.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ClientIdentity {
    cert: PathBuf,
    key: PathBuf,
}

/// A SASL login, with references to secrets.
#[derive(Clone, PartialEq, Eq)]
enum LoginSettings {
    Password {
        mechanism: SaslMechanism,
        user: String,
        password: String,
    },
    /// OAUTHBEARER.
    Token(String),
}

/// How a password is proved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SaslMechanism {
    #[default]
    Plain,
    ScramSha256,
    ScramSha512,
}

/// The mechanism of a login in a job file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoginKind {
    Password(SaslMechanism),
    Token,
}

const MECHANISMS: &[(&str, LoginKind)] = &[
    ("PLAIN", LoginKind::Password(SaslMechanism::Plain)),
    (
        "SCRAM-SHA-256",
        LoginKind::Password(SaslMechanism::ScramSha256),
    ),
    (
        "SCRAM-SHA-512",
        LoginKind::Password(SaslMechanism::ScramSha512),
    ),
    ("OAUTHBEARER", LoginKind::Token),
];

/// The cluster of an input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterRef {
    /// The log of the node that runs the job. Its settings have the servers, the login and the names of topics.
    OfNode,
    Named(ClusterSettings),
}

impl ClusterRef {
    /// Refuses files and secrets beyond `access`. Hosts are checked when they are connected to.
    pub fn check(&self, access: &OutsideAccess, folder: &Path) -> Result<(), String> {
        match self {
            ClusterRef::OfNode => Ok(()),
            ClusterRef::Named(settings) => settings.check(access, folder),
        }
    }

    /// Connects with the secrets as they are now; paths are relative to `folder`.
    pub async fn connect(
        &self,
        connector: &ClusterConnector,
        folder: &Path,
    ) -> Result<Cluster, String> {
        match self {
            ClusterRef::OfNode => connector.clusters.connect_node().await,
            ClusterRef::Named(settings) => settings.connect(connector, folder).await,
        }
    }
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
            identity: None,
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
        let identity = read_identity(reader, section);
        if !tls {
            for key in ["ca", "client_cert", "client_key"] {
                reader.useless(section, key, "it needs tls = true");
            }
        }
        let login = read_login(reader, section);
        Some(ClusterSettings {
            servers: servers?,
            tls,
            ca,
            identity,
            login,
        })
    }

    fn check(&self, access: &OutsideAccess, folder: &Path) -> Result<(), String> {
        let identity = self.identity.iter();
        let identity = identity.flat_map(|identity| [&identity.cert, &identity.key]);
        for file in self.ca.iter().chain(identity) {
            access.check_path(&folder.join(file))?;
        }
        let texts = match &self.login {
            None => Vec::new(),
            Some(LoginSettings::Password { user, password, .. }) => vec![user, password],
            Some(LoginSettings::Token(token)) => vec![token],
        };
        for text in texts {
            let checked = access.secrets.check_text(text);
            checked.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    async fn connect(
        &self,
        connector: &ClusterConnector,
        folder: &Path,
    ) -> Result<Cluster, String> {
        let ClusterConnector { clusters, access } = connector;
        let secrets = access.secrets.clone();
        let secret = move |text: &str| {
            let resolved = secrets.resolve(text);
            resolved
                .map(|secret| secret.into_owned())
                .map_err(|error| error.to_string())
        };
        let login = match self.login.clone() {
            None => None,
            Some(LoginSettings::Password {
                mechanism,
                user,
                password,
            }) => Some(ClusterLogin::Password {
                mechanism,
                user: secret(&user)?,
                password: secret(&password)?,
            }),
            Some(LoginSettings::Token(token)) => {
                // A token expires, so its file is read for every connection.
                Some(ClusterLogin::Token(Arc::new(move || secret(&token))))
            }
        };
        let tls = match self.tls {
            false => None,
            true => Some(self.tls_config(folder)?),
        };
        let address = ClusterAddress {
            servers: self.servers.clone(),
            tls,
            login,
            egress: access.egress.clone(),
        };
        clusters.connect(address).await
    }

    fn tls_config(&self, folder: &Path) -> Result<Arc<rustls::ClientConfig>, String> {
        let read = |file: &PathBuf| {
            let path = folder.join(file);
            let pem = disk::read_to_string(&path);
            pem.map_err(|error| format!("{}: {error}", path.display()))
        };
        let ca = self.ca.as_ref().map(read).transpose()?;
        let identity = match &self.identity {
            None => None,
            Some(identity) => Some(tls::Identity {
                certificate: read(&identity.cert)?,
                key: read(&identity.key)?,
            }),
        };
        tls::trust_system_and(ca.as_deref().unwrap_or_default(), identity.as_ref())
    }
}

/// A client certificate, if there is one.
fn read_identity(reader: &mut FileReader<'_>, section: &Section<'_>) -> Option<ClientIdentity> {
    let cert = reader.path(section, "client_cert", "job.pem");
    let key = reader.path(section, "client_key", "job.key");
    match (cert, key) {
        (Some(cert), Some(key)) => Some(ClientIdentity { cert, key }),
        (Some(_), None) if !section.has("client_key") => {
            reader.missing(section, "client_key", "client_key = \"job.key\"");
            None
        }
        (None, Some(_)) if !section.has("client_cert") => {
            reader.missing(section, "client_cert", "client_cert = \"job.pem\"");
            None
        }
        _ => None,
    }
}

/// A login, if there is one.
fn read_login(reader: &mut FileReader<'_>, section: &Section<'_>) -> Option<LoginSettings> {
    let kind = reader.choice(section, "mechanism", MECHANISMS, &[]);
    let user = reader.text(section, "user", "app");
    let password = reader.text(section, "password", "${env:HIGHWATER_SECRET_KAFKA}");
    let token = reader.text(section, "token", "${file:/run/secrets/token}");
    if kind == Some(LoginKind::Token) {
        for key in ["user", "password"] {
            reader.useless(section, key, "OAUTHBEARER has a token");
        }
        if !section.has("token") {
            reader.missing(section, "token", "token = \"${file:/run/secrets/token}\"");
        }
        return token.map(LoginSettings::Token);
    }
    reader.useless(section, "token", "it needs mechanism = \"OAUTHBEARER\"");
    let mechanism = match kind {
        Some(LoginKind::Password(mechanism)) => mechanism,
        _ => SaslMechanism::default(),
    };
    let has_login = kind.is_some() || section.has("user") || section.has("password");
    if has_login && !section.has("user") {
        reader.missing(section, "user", "user = \"app\"");
    }
    if has_login && !section.has("password") {
        let example = "password = \"${env:HIGHWATER_SECRET_KAFKA}\"";
        reader.missing(section, "password", example);
    }
    Some(LoginSettings::Password {
        mechanism,
        user: user?,
        password: password?,
    })
}

/// Everything that a client needs to connect.
pub struct ClusterAddress {
    pub servers: Vec<String>,
    pub tls: Option<Arc<rustls::ClientConfig>>,
    pub login: Option<ClusterLogin>,
    /// The hosts that may be connected to, those that the cluster names included.
    pub egress: EgressPolicy,
}

/// A SASL login.
pub enum ClusterLogin {
    Password {
        mechanism: SaslMechanism,
        user: String,
        password: String,
    },
    /// OAUTHBEARER: called for every connection.
    Token(TokenFn),
}

/// Returns a token, or why there is none.
pub type TokenFn = Arc<dyn Fn() -> Result<String, String> + Send + Sync>;

/// A cluster that is connected. Its connections close when the last clone is dropped.
#[derive(Clone)]
pub struct Cluster {
    pub log: Arc<dyn Log>,
    pub transactions: Arc<dyn TransactionCoordinator>,
    /// `None` if there are no groups through which instances share a job.
    pub groups: Option<Arc<dyn GroupCoordinator>>,
}

/// Connects to clusters.
pub trait Clusters: Send + Sync {
    /// Completes when the catalogue of the cluster has been read. The error says why it cannot be; it may be temporary.
    fn connect(&self, address: ClusterAddress) -> BoxFuture<Result<Cluster, String>>;

    /// The same for the cluster that is the log of the node, whose names of topics are hidden behind those of hubs.
    fn connect_node(&self) -> BoxFuture<Result<Cluster, String>> {
        let reason = "the log of the node is no cluster".to_owned();
        Box::pin(std::future::ready(Err(reason)))
    }
}

/// Connects to the clusters that the definition of a job may reach.
#[derive(Clone)]
pub struct ClusterConnector {
    pub clusters: Arc<dyn Clusters>,
    pub access: OutsideAccess,
}
