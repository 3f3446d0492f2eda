//! From settings to a checked [`Config`].

mod amqp;
mod cluster;
mod jobs;
mod processors;
mod queues;
mod sharded;
mod table;
mod topics;
mod workflows;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::path::Path;

use highwater_env::disk;
use highwater_log::batch::TimestampType;
use highwater_log::{CleanupPolicy, HubName, HubSettings, HubSpec};
use highwater_settings::Secrets;
use hyper::Uri;

use super::effective_settings::Settings;
use super::error::Problem;
use super::{ClientAuth, Config, Durability, KafkaListener, TlsSettings};
use crate::http;
use crate::processors::parse_url;
use crate::sharded::reserved_name;
use crate::text::is_local;
use crate::tokens::{JwksLocation, TokenSettings};
use highwater_access::{
    Key, KeyScope, KeySecret, NameLists, Quota, Right, Rights, SECRET_LEN_MIN, TokenPolicy,
};
use highwater_time::Instant;
use table::Table;

pub(super) fn config(settings: &Settings, folder: &Path) -> Result<Config, Vec<Problem>> {
    let mut build = Build {
        settings,
        folder,
        problems: Vec::new(),
        certificates: HashMap::new(),
        queue_names: (settings.tables("queues").iter())
            .map(|name| name.to_ascii_lowercase())
            .collect(),
    };
    let root = build.table("");
    let keys = build.each("keys", Build::key);
    let cluster = build.cluster();
    let on_cluster = root.text("log").is_some();
    let egress = build.egress();
    let config = Config {
        data: root.path("data").unwrap_or_default(),
        durability: match root.text("durability") {
            Some("os") => Durability::Os,
            _ => Durability::Fsync,
        },
        auto_create: root
            .flag("auto_create")
            .then(|| root.count("auto_create_partitions")),
        auto_create_hubs_max: root.count("auto_create_hubs_max") as usize,
        auto_create_partitions_max: root.count("auto_create_partitions_max") as usize,
        http: build.http(!keys.is_empty()),
        kafka: match on_cluster {
            true => Vec::new(),
            false => build.kafka(!keys.is_empty()),
        },
        kafka_node_id: root.count("kafka.node_id"),
        session_min: root.duration("kafka.session_min"),
        kafka_timestamps: match root.text("kafka.timestamp_type") {
            Some("LogAppendTime") => TimestampType::LogAppend,
            _ => TimestampType::Create,
        },
        amqp: match on_cluster {
            true => Vec::new(),
            false => build.amqp(!keys.is_empty()),
        },
        hubs: build.each("hubs", Build::hub),
        sharded: build.each("sharded", Build::sharded_hub),
        jobs: build.each("jobs", Build::job),
        job_state: build.job_state(),
        job_state_bytes_max: root.number("jobs.state_bytes_max").unwrap_or(u64::MAX),
        deployed_access: build.deployed_access(&egress),
        egress,
        workflows: build.each("workflows", Build::workflow),
        queues: build.each("queues", Build::queue),
        topics: build.each("topics", Build::topic),
        processors: build.each("processors", Build::processor),
        notify: build.notify(),
        tokens: build.tokens(),
        cluster,
        keys,
    };
    match build.problems.is_empty() {
        true => Ok(config),
        false => Err(build.problems),
    }
}

struct Build<'a> {
    settings: &'a Settings,
    folder: &'a Path,
    problems: Vec<Problem>,
    /// Listed certificates, and their keys.
    certificates: HashMap<String, String>,
    /// In lower case: names of Service Bus have none.
    queue_names: HashSet<String>,
}

/// The address of a listener that is not off, and its certificate.
struct Listener {
    listen: SocketAddr,
    tls: Option<TlsSettings>,
}

impl<'a> Build<'a> {
    fn table(&self, path: &str) -> Table<'a> {
        Table {
            settings: self.settings,
            folder: self.folder,
            path: path.to_owned(),
            name: path.to_owned(),
        }
    }

    /// The valid tables below `list`, such as the hubs, each read by `build`.
    fn each<T>(&mut self, list: &str, build: fn(&mut Self, &Table<'a>) -> Option<T>) -> Vec<T> {
        let tables = self.table("").tables(list);
        let read = tables.iter().filter_map(|table| build(self, table));
        read.collect()
    }

    fn problem(&mut self, key: &str, message: impl Into<String>, hint: &str) {
        let problem = Problem::new(self.settings.origin(key), message.into());
        self.problems.push(problem.hint(hint));
    }

    /// Notes a problem that leaves nothing to build.
    fn refuse<T>(&mut self, key: &str, message: impl Into<String>, hint: &str) -> Option<T> {
        self.problem(key, message, hint);
        None
    }

    fn tls(&mut self, table: &Table<'_>) -> Option<TlsSettings> {
        let [cert, key, client_ca] =
            ["cert", "key", "client_ca"].map(|name| table.key(&format!("tls.{name}")));
        let client_auth = table.path("tls.client_ca").map(|ca| ClientAuth {
            ca,
            required: table.text("tls.client_auth") != Some("optional"),
        });
        match (table.path("tls.cert"), table.path("tls.key")) {
            (Some(cert), Some(key)) => Some(TlsSettings {
                cert,
                key,
                client_auth,
            }),
            (None, None) => {
                if client_auth.is_some() {
                    let message = format!("`{client_ca}` needs `{cert}`");
                    self.problem(&client_ca, message, "give the node a certificate");
                }
                None
            }
            (one, _) => {
                let (given, missing) = match one {
                    Some(_) => (&cert, &key),
                    None => (&key, &cert),
                };
                let message = format!("`{given}` needs `{missing}`");
                self.refuse(given, message, "give both PEM files")
            }
        }
    }

    fn http(&mut self, has_keys: bool) -> Option<http::Options> {
        let table = self.table("http");
        let how = "add a [[keys]] table with name, secret and rights";
        let Listener { listen, tls } = self.listener(&table, has_keys, how)?;
        let more = table.tables("listeners");
        let more = more.iter().filter_map(|table| {
            let Listener { listen, tls } =
                self.listener(table, has_keys, "add a [[keys]] table")?;
            Some(http::MoreListener {
                listen,
                tls,
                is_optional: table.flag("optional"),
            })
        });
        Some(http::Options {
            listen,
            tls,
            more: more.collect(),
            allowed_origins: table.list("allowed_origins").unwrap_or_default().to_vec(),
            console: self.settings.flag("console.enabled"),
            event_bytes_max: table.bytes("event_bytes_max"),
            body_bytes_max: table.bytes("body_bytes_max"),
            in_flight_bytes_max: table.bytes("in_flight_bytes_max"),
            unpack_bytes_max: table.bytes("unpack_bytes_max"),
            read_bytes_max: table.bytes("read_bytes_max"),
            connections_max: table.bytes("connections_max"),
            connections_reserved: table.bytes("connections_reserved"),
            headers_max: table.bytes("headers_max"),
            header_timeout: table.duration("header_timeout"),
            body_timeout: table.duration("body_timeout"),
            write_timeout: table.duration("write_timeout"),
            wait_max: table.duration("wait_max"),
        })
    }

    fn kafka(&mut self, has_keys: bool) -> Vec<KafkaListener> {
        let table = self.table("kafka");
        let how = "use a [[kafka.listeners]] table with sasl = true and tls";
        let sasl = has_keys && !table.flag("anonymous");
        let first = self.kafka_listener(&table, sasl, how);
        let more = table.tables("listeners");
        let more = more
            .iter()
            .filter_map(|table| self.another_kafka_listener(table, has_keys));
        first.into_iter().chain(more).collect()
    }

    /// A listener requires a key once there are keys, unless the settings allow anonymous clients.
    fn another_kafka_listener(
        &mut self,
        table: &Table<'_>,
        has_keys: bool,
    ) -> Option<KafkaListener> {
        if table.address("listen").is_none() {
            let hint = "write listen = \"127.0.0.1:9093\"";
            return self.refuse(&table.key(""), "a Kafka listener needs an address", hint);
        }
        let (sasl, anonymous) = (table.flag("sasl"), table.flag("anonymous"));
        if sasl && !has_keys {
            let hint = "add a [[keys]] table with name, secret and rights";
            self.problem(&table.key("sasl"), "sasl = true needs keys", hint);
        }
        if sasl && anonymous {
            let message = "a listener with sasl = true serves no anonymous clients";
            self.problem(&table.key("anonymous"), message, "remove one of the two");
        }
        let sasl = sasl || has_keys && !anonymous;
        self.kafka_listener(table, sasl, "add sasl = true and a [[keys]] table")
    }

    fn kafka_listener(
        &mut self,
        table: &Table<'_>,
        sasl: bool,
        how_to_require_keys: &str,
    ) -> Option<KafkaListener> {
        let Listener { listen, tls } = self.listener(table, sasl, how_to_require_keys)?;
        Some(KafkaListener {
            listen,
            advertised: self.advertised(table),
            tls,
            sasl,
            anonymous: table.flag("anonymous"),
        })
    }

    fn advertised(&mut self, table: &Table<'_>) -> Option<(String, u16)> {
        let text = table.text("advertised")?;
        let pair = text.rsplit_once(':');
        let pair = pair.and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
        if pair.is_none() {
            let message = format!("`{text}` is no address that clients can connect to");
            self.problem(&table.key("advertised"), message, "write host:port");
        }
        pair
    }

    /// A listener beyond this machine needs keys, and keys need encryption.
    fn listener(
        &mut self,
        table: &Table<'_>,
        requires_keys: bool,
        how_to_require_keys: &str,
    ) -> Option<Listener> {
        let listen = table.address("listen")?;
        let tls = self.tls(table);
        let key = table.key("listen");
        if listen.ip().is_loopback() {
            // Other machines cannot reach it.
        } else if !requires_keys {
            let message = format!("{listen} can be reached from other machines without a key");
            let hint = format!("{how_to_require_keys}, or listen on 127.0.0.1");
            self.problem(&key, message, &hint);
        } else if tls.is_none() && !table.flag("insecure") {
            let message = format!("keys would travel unencrypted to {listen} from other machines");
            let hint = match &*table.path {
                "kafka" => "use a [[kafka.listeners]] table with tls",
                "amqp" => "use a [[amqp.listeners]] table with tls",
                _ => {
                    "add tls = { cert = \"..\", key = \"..\" }, or insecure = true if a proxy in front does TLS"
                }
            };
            self.problem(&key, message, hint);
        }
        Some(Listener { listen, tls })
    }

    fn key(&mut self, table: &Table<'_>) -> Option<Key> {
        let at = table.key("");
        let Some(name) = table.text("name") else {
            return self.refuse(&at, "a key needs a name", "write name = \"app\"");
        };
        if name.contains(':') || name == "anonymous" {
            let hint = "a colon separates name and secret, and `anonymous` is the name of clients without a key";
            self.problem(
                &table.key("name"),
                format!("`{name}` cannot name a key"),
                hint,
            );
        }
        let Some(rights) = table.list("rights") else {
            let hint = "write rights = [\"send\"], or also \"listen\", \"manage\" and \"deploy\"";
            return self.refuse(&at, format!("key `{name}` has no rights"), hint);
        };
        let rights = rights
            .iter()
            .filter_map(|word| Right::parse(word))
            .collect::<Rights>();
        let certificates = self.certificates(table, name);
        let has_secret = ["secret", "secret_file", "secondary_secret"]
            .iter()
            .any(|part| table.text(part).is_some());
        let secrets = match has_secret || certificates.is_empty() && !self.accepts_tokens() {
            true => self.secrets(table, name)?,
            // Its clients have certificates or tokens.
            false => Vec::new(),
        };
        let scope = KeyScope::listed(
            name,
            &NameLists {
                hubs: table.list("hubs"),
                groups: table.list("groups"),
                transactional_ids: table.list("transactional_ids"),
                deployments: table.list("deployments"),
            },
        );
        let expires_ms = self.expiry(table)?;
        let key = Key::with_secrets(name, secrets, rights, scope).with_certificates(certificates);
        Some(
            key.expires(expires_ms)
                .limited(self.quota(&table.key("quota"))),
        )
    }

    fn secrets(&mut self, table: &Table<'_>, name: &str) -> Option<Vec<KeySecret>> {
        let secret = self.secret(table, name)?;
        if secret.len() < SECRET_LEN_MIN {
            let message =
                format!("the secret of key `{name}` is shorter than {SECRET_LEN_MIN} characters");
            let hint = "make one with: openssl rand -base64 32";
            return self.refuse(&table.key("secret"), message, hint);
        }
        let mut secrets = vec![KeySecret::plain(&secret)];
        secrets.extend(table.text("secondary_secret").map(KeySecret::plain));
        Some(secrets)
    }

    fn accepts_tokens(&self) -> bool {
        self.settings.text("tokens.issuer").is_some()
    }

    /// The certificates of a key. A certificate acts for one key.
    fn certificates(&mut self, table: &Table<'_>, key: &str) -> Vec<String> {
        let names = table.list("certificates").unwrap_or_default().to_vec();
        for name in &names {
            if let Some(other) = self.certificates.insert(name.clone(), key.to_owned()) {
                let message = format!("`{name}` is a certificate of key `{other}` too");
                let setting = table.key("certificates");
                self.problem(&setting, message, "a certificate acts for one key");
            }
        }
        names
    }

    fn tokens(&mut self) -> Option<TokenSettings> {
        let jwks = self.jwks()?;
        let table = self.table("tokens");
        let (issuer, audience) = (table.owned("issuer"), table.owned("audience"));
        let (Some(issuer), Some(audience)) = (issuer, audience) else {
            let message = "tokens need an issuer and an audience";
            let hint = "write issuer = \"https://..\" and audience = \"..\"";
            let given = match jwks {
                JwksLocation::File(_) => "tokens.jwks",
                JwksLocation::Url { .. } => "tokens.jwks_url",
            };
            return self.refuse(given, message, hint);
        };
        Some(TokenSettings {
            jwks,
            policy: TokenPolicy {
                issuer,
                audience,
                key_claim: table.owned("key_claim").unwrap_or_default(),
            },
        })
    }

    fn jwks(&mut self) -> Option<JwksLocation> {
        let key = "tokens.jwks_url";
        let table = self.table("tokens");
        match (table.path("jwks"), table.text("jwks_url")) {
            (Some(path), None) => Some(JwksLocation::File(path)),
            (None, Some(text)) => match jwks_url(text) {
                Ok(url) => Some(JwksLocation::Url {
                    url,
                    ca: table.path("ca"),
                }),
                Err(message) => {
                    let hint = "write https://.., or http:// for an issuer on this machine";
                    self.refuse(key, message, hint)
                }
            },
            (Some(_), Some(_)) => self.refuse(
                key,
                "tokens have both jwks and jwks_url",
                "keep one of them",
            ),
            (None, None) if self.accepts_tokens() => {
                let message = "tokens need the keys of the issuer";
                let hint = "write jwks_url = \"https://..\", or jwks = \"FILE\"";
                self.refuse("tokens.issuer", message, hint)
            }
            (None, None) => None,
        }
    }

    /// The outer `None`: invalid.
    fn expiry(&mut self, table: &Table<'_>) -> Option<Option<i64>> {
        let Some(text) = table.text("expires") else {
            return Some(None);
        };
        match Instant::parse_iso(text.as_bytes()) {
            Some(instant) => Some(Some(instant.to_unix_millis())),
            None => {
                let hint = "write a time such as 2027-01-31T00:00:00Z";
                self.refuse(&table.key("expires"), format!("`{text}` is no time"), hint)
            }
        }
    }

    fn quota(&self, table: &str) -> Quota {
        let number = |part: &str| self.settings.number(&format!("{table}.{part}"));
        let connections = number("connections_max");
        Quota {
            requests_per_second: number("requests_per_second"),
            bytes_in_per_second: number("bytes_in_per_second"),
            bytes_out_per_second: number("bytes_out_per_second"),
            connections_max: connections.map(|max| u32::try_from(max).unwrap_or(u32::MAX)),
            partitions_per_hour: number("partitions_per_hour"),
        }
    }

    fn secret(&mut self, table: &Table<'_>, name: &str) -> Option<String> {
        let (here, file) = (table.key("secret"), table.key("secret_file"));
        match (table.text("secret"), table.path("secret_file")) {
            (Some(secret), None) => match Secrets::default().resolve(secret) {
                Ok(secret) => Some(secret.into_owned()),
                Err(error) => {
                    let hint = "write secret = \"${env:NAME}\" or \"${file:/path}\"";
                    self.refuse(&here, error.to_string(), hint)
                }
            },
            (None, Some(path)) => match disk::read_to_string(&path) {
                Ok(text) => Some(text.trim_end_matches(['\r', '\n']).to_owned()),
                Err(error) => {
                    let message = format!("cannot read the secret of key `{name}`: {error}");
                    let hint = format!("looked for {}", path.display());
                    self.refuse(&file, message, &hint)
                }
            },
            (None, None) => {
                let variable = super::variable_of(&here);
                let hint = format!("write secret or secret_file, or set {variable}");
                self.refuse(&table.key(""), format!("key `{name}` has no secret"), &hint)
            }
            (Some(_), Some(_)) => {
                let message = format!("key `{name}` has both secret and secret_file");
                self.refuse(&file, message, "keep one of them")
            }
        }
    }

    /// The name of a table as that of a user's hub.
    fn own_name(&mut self, table: &Table<'_>) -> Option<HubName> {
        self.name(&table.key(""), &table.name)
    }

    /// A valid name of a user's hub; `key` is its setting.
    fn name(&mut self, key: &str, name: &str) -> Option<HubName> {
        let plain = name.trim_matches('"');
        let message = match HubName::new(plain) {
            Ok(name) if http::begins_paths(plain) => reserved_name(name.as_str()),
            Ok(name) if !name.is_internal() => return Some(name),
            Ok(_) => format!("`{plain}` begins with `__`, which is reserved for the node"),
            Err(error) => error.to_string(),
        };
        self.refuse(key, message, "choose another name")
    }

    fn hub(&mut self, table: &Table<'_>) -> Option<HubSpec> {
        Some(HubSpec {
            name: self.own_name(table)?,
            partitions: table.count("partitions"),
            settings: HubSettings {
                cleanup: match table.text("cleanup") {
                    Some("compact") => CleanupPolicy::Compact,
                    Some("compact,delete") => CleanupPolicy::CompactDelete,
                    _ => CleanupPolicy::Delete,
                },
                retention: table.time("retention"),
                retention_bytes: table.number("retention_bytes"),
                batch_bytes_max: table.count("batch_bytes_max"),
                ..HubSettings::default()
            },
        })
    }
}

/// Keys that are fetched without encryption could be anyone's, except on this machine.
fn jwks_url(text: &str) -> Result<Uri, String> {
    let url = parse_url(text)?;
    match url.scheme_str() == Some("https") || url.host().is_some_and(is_local) {
        true => Ok(url),
        false => Err("the keys of the issuer would travel unencrypted".into()),
    }
}
