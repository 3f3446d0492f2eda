//! The cluster that is the log of a node.

use std::ops::RangeInclusive;
use std::time::Duration;

use highwater_kafka::client::{Mechanism, Profile};
use highwater_settings::Secrets;

use super::super::Origin;
use super::Build;
use crate::cluster::{ClusterIdentity, ClusterLogin, ClusterSettings, ClusterTls};
use crate::owners::PeerSettings;
use crate::processors::Secret;
use crate::text::is_local;

/// The start of a `log` that is a cluster.
const SCHEME: &str = "kafka://";

/// The longest prefix, so that enough of the 249 characters of a topic is left.
const PREFIX_LENGTH_MAX: usize = 100;

const NODE_NAME_LEN_MAX: usize = 200;

/// Of a session of the group of nodes.
const SESSION_RANGE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(300);

impl Build<'_> {
    pub(super) fn cluster(&mut self) -> Option<ClusterSettings> {
        let Some(log) = self.settings.text("log") else {
            self.refuse_cluster_table();
            return None;
        };
        let table = self.table("cluster");
        let servers = self.servers(log)?;
        self.refuse_listeners();
        let tls = self.cluster_tls();
        let login = self.cluster_login();
        self.check_cluster_secrets(&servers, tls.is_some(), login.as_ref());
        let settings = ClusterSettings {
            servers,
            prefix: table.owned("prefix").unwrap_or_default(),
            client_id: table.owned("client_id").unwrap_or_default(),
            replication: table.number("replication").map(|n| n as i16),
            profile: match table.text("profile") {
                Some("event-hubs") => Profile::EventHubs,
                _ => Profile::Kafka,
            },
            create_time_counts: table.text("arrival") == Some("create-time"),
            tls,
            login,
            peers: self.peers(),
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if settings.profile == Profile::EventHubs {
            self.refuse_journals();
        }
        self.refuse_topics();
        self.refuse_queue_settings();
        let prefix = &settings.prefix;
        if prefix.len() > PREFIX_LENGTH_MAX || !prefix.bytes().all(plain) {
            let message = format!("`{prefix}` cannot begin the names of topics");
            let hint = "use up to 100 letters, digits, dots, dashes and underscores";
            self.problem("cluster.prefix", message, hint);
        }
        Some(settings)
    }

    fn peers(&mut self) -> PeerSettings {
        let table = self.table("cluster");
        let peers = PeerSettings {
            name: table.owned("node"),
            advertise: table.owned("advertise"),
            ca: table.path("peer_ca"),
            session: table.duration("session"),
            insecure: table.flag("insecure"),
        };
        if let Some(url) = &peers.advertise
            && !is_base_url(url)
        {
            // What stands before `@` may be a password.
            let shown = url.rsplit('@').next().unwrap_or_default();
            let message = format!("`{shown}` is no address of a node");
            let hint = "write advertise = \"http://host:port\" or https, without a path";
            self.problem("cluster.advertise", message, hint);
        }
        let name_len = peers.name.as_ref().map_or(0, String::len);
        if name_len > NODE_NAME_LEN_MAX {
            let message = "the name of the node is too long";
            self.problem("cluster.node", message, "use up to 200 bytes");
        }
        if !SESSION_RANGE.contains(&peers.session) {
            let message = "the session is not between one second and five minutes";
            self.problem("cluster.session", message, "write session = \"10s\"");
        }
        peers
    }

    fn servers(&mut self, log: &str) -> Option<Vec<String>> {
        let hint = "write log = \"kafka://broker-1:9092,broker-2:9092\"";
        let Some(list) = log.strip_prefix(SCHEME) else {
            return self.refuse("log", "the log is no Kafka cluster", hint);
        };
        let servers: Vec<String> = list
            .trim_end_matches('/')
            .split(',')
            .map(|server| server.trim().to_owned())
            .collect();
        let is_address = |server: &str| {
            let parts = server.rsplit_once(':');
            parts.is_some_and(|(host, port)| {
                let host_is_plain = !host.is_empty() && !host.contains(['/', '@', '?']);
                host_is_plain && port.parse::<u16>().is_ok_and(|port| port > 0)
            })
        };
        if let Some(wrong) = servers.iter().find(|server| !is_address(server)) {
            // What stands before `@` may be a password.
            let shown = wrong.rsplit('@').next().unwrap_or_default();
            return self.refuse("log", format!("`{shown}` is not host:port"), hint);
        }
        Some(servers)
    }

    /// Services whose journals Event Hubs cannot have.
    fn refuse_journals(&mut self) {
        for table in ["queues", "workflows"] {
            if let Some(name) = self.settings.tables(table).first() {
                let message = format!("{table} need transactions and compaction of the cluster");
                let hint = "use profile = \"kafka\" with a cluster that has them";
                self.problem(&format!("{table}.{name}."), message, hint);
            }
        }
    }

    /// Topics of Service Bus are reached over AMQP only.
    fn refuse_topics(&mut self) {
        if let Some(name) = self.settings.tables("topics").first() {
            let message = "a node over a cluster has no topics: only AMQP clients use them";
            let hint = "remove the topic, or use the log of the node";
            self.problem(&format!("topics.{name}."), message, hint);
        }
    }

    /// The target of forwarding, or the users of an idle queue, may be with another node.
    fn refuse_queue_settings(&mut self) {
        let hint = "remove it, or use the log of the node";
        for queue in self.table("").tables("queues") {
            for setting in ["forward_to", "forward_dead_letters_to"] {
                if queue.text(setting).is_some() {
                    let message = "nodes over a cluster do not forward messages";
                    self.problem(&queue.key(setting), message, hint);
                }
            }
            if queue.time("auto_delete_on_idle").is_some() {
                let message = "nodes over a cluster do not delete idle queues";
                self.problem(&queue.key("auto_delete_on_idle"), message, hint);
            }
        }
    }

    /// Settings of a cluster without one.
    fn refuse_cluster_table(&mut self) {
        let keys = [
            "prefix",
            "replication",
            "tls.ca",
            "tls.cert",
            "sasl.mechanism",
            "sasl.password",
            "sasl.token",
            "node",
            "advertise",
            "peer_ca",
        ];
        for key in keys.map(|key| format!("cluster.{key}")) {
            if self.settings.origin(&key) != Origin::Default {
                let message = format!("`{key}` is for a node whose log is a cluster");
                self.problem(&key, message, "write log = \"kafka://host:port\"");
                return;
            }
        }
    }

    /// Listeners of the embedded log, which the defaults have and a cluster does not need.
    fn refuse_listeners(&mut self) {
        for (name, clients) in [("kafka", "Kafka"), ("amqp", "AMQP")] {
            let table = self.table(name);
            let listen = table.key("listen");
            let is_default = self.settings.origin(&listen) == Origin::Default;
            let at = match table.tables("listeners").first() {
                Some(listener) => listener.key(""),
                None if is_default || table.address("listen").is_none() => continue,
                None => listen,
            };
            let message = format!("a node over a cluster does not serve {clients} clients");
            let hint = match name {
                "kafka" => "they connect to the brokers: remove the listener",
                _ => "remove the listener",
            };
            self.problem(&at, message, hint);
        }
    }

    fn cluster_tls(&mut self) -> Option<ClusterTls> {
        let table = self.table("cluster.tls");
        let identity = match (table.path("cert"), table.path("key")) {
            (Some(cert), Some(key)) => Some(ClusterIdentity { cert, key }),
            (None, None) => None,
            (given, _) => {
                let at = if given.is_some() { "cert" } else { "key" };
                let message = "a client certificate needs a certificate and a key";
                self.refuse(&table.key(at), message, "write both cert and key")
            }
        };
        match (table.path("ca"), identity) {
            (Some(ca), identity) => Some(ClusterTls { ca, identity }),
            (None, Some(_)) => {
                let message = "TLS needs the authorities of the brokers";
                let hint = "write ca = \"ca.pem\", or the system's file of certificates";
                self.refuse(&table.key("cert"), message, hint)
            }
            (None, None) => None,
        }
    }

    fn cluster_login(&mut self) -> Option<ClusterLogin> {
        let table = self.table("cluster.sasl");
        let [user, password, token] = ["user", "password", "token"].map(|name| table.owned(name));
        let Some(mechanism) = table.text("mechanism") else {
            for (name, given) in [("password", &password), ("token", &token)] {
                if given.is_some() {
                    let hint = "write mechanism = \"SCRAM-SHA-512\", or what the cluster has";
                    self.problem(&table.key(name), "a login needs a mechanism", hint);
                }
            }
            return None;
        };
        let at = table.key("mechanism");
        match (Mechanism::parse(mechanism), user, password, token) {
            (Some(mechanism), Some(user), Some(password), None) => Some(ClusterLogin::Password {
                mechanism,
                user,
                password: Secret(password),
            }),
            (Some(_), ..) => {
                let message = format!("{mechanism} needs a user and a password, and no token");
                self.refuse(&at, message, "write user and password = \"${env:NAME}\"")
            }
            (None, None, None, Some(token)) => Some(ClusterLogin::Token(Secret(token))),
            (None, ..) => {
                let message = format!("{mechanism} needs a token, and neither user nor password");
                self.refuse(&at, message, "write token = \"${file:/path}\"")
            }
        }
    }

    /// References must resolve, and secrets that are sent as they are need encryption.
    fn check_cluster_secrets(
        &mut self,
        servers: &[String],
        encrypted: bool,
        login: Option<&ClusterLogin>,
    ) {
        let (key, secret, is_sent) = match login {
            None => return,
            Some(ClusterLogin::Token(token)) => ("cluster.sasl.token", token, true),
            Some(ClusterLogin::Password {
                mechanism,
                password,
                ..
            }) => {
                let is_sent = *mechanism == Mechanism::Plain;
                ("cluster.sasl.password", password, is_sent)
            }
        };
        if let Err(error) = Secrets::default().resolve(&secret.0) {
            let hint = "write \"${env:NAME}\" or \"${file:/path}\"";
            self.problem(key, error.to_string(), hint);
        }
        let remote = servers.iter().find(|server| !is_local(server));
        let is_exposed = is_sent && !encrypted && !self.settings.flag("cluster.insecure");
        if let (true, Some(server)) = (is_exposed, remote) {
            let message = format!("the login would travel unencrypted to {server}");
            let hint = "add cluster.tls.ca, use SCRAM, or cluster.insecure = true";
            self.problem(key, message, hint);
        }
    }
}

/// Whether a URL has a scheme, a host and nothing else.
fn is_base_url(url: &str) -> bool {
    let Ok(uri) = url.parse::<hyper::Uri>() else {
        return false;
    };
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    let has_host = uri
        .authority()
        .is_some_and(|authority| !authority.as_str().contains('@'));
    is_http && has_host && uri.query().is_none() && matches!(uri.path(), "" | "/")
}
