//! From settings to a checked [`Config`].

mod amqp;
mod cluster;
mod jobs;
mod processors;
mod queues;
mod sharded;
mod topics;
mod workflows;

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

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
use crate::tokens::{JwksLocation, TokenSettings};
use highwater_access::{
    Key, KeyScope, KeySecret, NameLists, Quota, Right, Rights, SECRET_LEN_MIN, TokenPolicy,
};
use highwater_time::Instant;

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
    let keys = build.each("keys", Build::key);
    let cluster = build.cluster();
    let on_cluster = settings.text("log").is_some();
    let egress = build.egress();
    let config = Config {
        data: build.path("data").unwrap_or_default(),
        durability: match settings.text("durability") {
            Some("os") => Durability::Os,
            _ => Durability::Fsync,
        },
        auto_create: settings
            .flag("auto_create")
            .then(|| build.count("auto_create_partitions")),
        auto_create_hubs_max: build.count("auto_create_hubs_max") as usize,
        auto_create_partitions_max: build.count("auto_create_partitions_max") as usize,
        http: build.http(!keys.is_empty()),
        kafka: match on_cluster {
            true => Vec::new(),
            false => build.kafka(!keys.is_empty()),
        },
        kafka_node_id: build.count("kafka.node_id"),
        session_min: build.time("kafka.session_min"),
        kafka_timestamps: match settings.text("kafka.timestamp_type") {
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
        job_state_bytes_max: settings.number("jobs.state_bytes_max").unwrap_or(u64::MAX),
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

impl Build<'_> {
    /// The valid tables below `table`, such as the hubs, each made by `build` from its name.
    fn each<T>(&mut self, table: &str, build: fn(&mut Self, &str) -> Option<T>) -> Vec<T> {
        let names = self.settings.tables(table);
        names.iter().filter_map(|name| build(self, name)).collect()
    }

    fn problem(&mut self, key: &str, message: String, hint: &str) {
        let problem = Problem::new(self.settings.origin(key), message);
        self.problems.push(problem.hint(hint));
    }

    /// Relative paths in the file start at its folder, others at the working directory.
    fn path(&self, key: &str) -> Option<PathBuf> {
        let path = Path::new(self.settings.text(key)?);
        Some(match self.settings.origin(key) {
            super::Origin::File { .. } => self.folder.join(path),
            _ => path.to_owned(),
        })
    }

    fn count(&self, key: &str) -> u32 {
        self.settings
            .number(key)
            .map_or(u32::MAX, |count| u32::try_from(count).unwrap_or(u32::MAX))
    }

    fn bytes(&self, key: &str) -> usize {
        self.settings.number(key).map_or(usize::MAX, |bytes| {
            usize::try_from(bytes).unwrap_or(usize::MAX)
        })
    }

    fn time(&self, key: &str) -> std::time::Duration {
        self.settings.time(key).unwrap_or(std::time::Duration::MAX)
    }

    fn tls(&mut self, table: &str) -> Option<TlsSettings> {
        let (cert, key) = (format!("{table}.tls.cert"), format!("{table}.tls.key"));
        let client_ca = format!("{table}.tls.client_ca");
        let client_auth = self.path(&client_ca).map(|ca| {
            let choice = self.settings.text(&format!("{table}.tls.client_auth"));
            let required = choice != Some("optional");
            ClientAuth { ca, required }
        });
        match (self.path(&cert), self.path(&key)) {
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
                self.problem(given, message, "give both PEM files");
                None
            }
        }
    }

    fn http(&mut self, has_keys: bool) -> Option<http::Options> {
        let listen = self.settings.address("http.listen")?;
        let tls = self.tls("http");
        let listener = ListenerCheck {
            table: "http",
            listen,
            requires_keys: has_keys,
            tls: tls.is_some(),
        };
        self.check(
            listener,
            "add a [[keys]] table with name, secret and rights",
        );
        let more = self.settings.tables("http.listeners");
        let more: Vec<_> = more
            .iter()
            .filter_map(|name| self.http_listener(name, has_keys))
            .collect();
        let size = |key: &str| self.bytes(&format!("http.{key}"));
        Some(http::Options {
            listen,
            tls,
            more,
            allowed_origins: self
                .settings
                .list("http.allowed_origins")
                .unwrap_or_default()
                .to_vec(),
            console: self.settings.flag("console.enabled"),
            event_bytes_max: size("event_bytes_max"),
            body_bytes_max: size("body_bytes_max"),
            in_flight_bytes_max: size("in_flight_bytes_max"),
            unpack_bytes_max: size("unpack_bytes_max"),
            read_bytes_max: size("read_bytes_max"),
            connections_max: size("connections_max"),
            connections_reserved: size("connections_reserved"),
            headers_max: size("headers_max"),
            header_timeout: self.time("http.header_timeout"),
            body_timeout: self.time("http.body_timeout"),
            write_timeout: self.time("http.write_timeout"),
            wait_max: self.time("http.wait_max"),
        })
    }

    fn http_listener(&mut self, name: &str, has_keys: bool) -> Option<http::MoreListener> {
        let table = format!("http.listeners.{name}");
        let listen = self.settings.address(&format!("{table}.listen"))?;
        let tls = self.tls(&table);
        let listener = ListenerCheck {
            table: &table,
            listen,
            requires_keys: has_keys,
            tls: tls.is_some(),
        };
        self.check(listener, "add a [[keys]] table");
        Some(http::MoreListener {
            listen,
            tls,
            is_optional: self.settings.flag(&format!("{table}.optional")),
        })
    }

    fn kafka(&mut self, has_keys: bool) -> Vec<KafkaListener> {
        let first = self.settings.address("kafka.listen").map(|listen| {
            let anonymous = self.settings.flag("kafka.anonymous");
            let sasl = has_keys && !anonymous;
            let listener = ListenerCheck {
                table: "kafka",
                listen,
                requires_keys: sasl,
                tls: false,
            };
            let hint = "use a [[kafka.listeners]] table with sasl = true and tls";
            self.check(listener, hint);
            KafkaListener {
                listen,
                advertised: self.advertised("kafka"),
                tls: None,
                sasl,
                anonymous,
            }
        });
        let names = self.settings.tables("kafka.listeners");
        let more: Vec<_> = names
            .iter()
            .filter_map(|name| self.listener(name, has_keys))
            .collect();
        first.into_iter().chain(more).collect()
    }

    /// A listener requires a key once there are keys, unless the settings say that it serves anonymous clients.
    fn listener(&mut self, name: &str, has_keys: bool) -> Option<KafkaListener> {
        let table = format!("kafka.listeners.{name}");
        let Some(listen) = self.settings.address(&format!("{table}.listen")) else {
            let hint = "write listen = \"127.0.0.1:9093\"";
            self.problem(
                &format!("{table}."),
                "a Kafka listener needs an address".into(),
                hint,
            );
            return None;
        };
        let (sasl, anonymous) = (format!("{table}.sasl"), format!("{table}.anonymous"));
        if self.settings.flag(&sasl) && !has_keys {
            let hint = "add a [[keys]] table with name, secret and rights";
            self.problem(&sasl, "sasl = true needs keys".into(), hint);
        }
        if self.settings.flag(&sasl) && self.settings.flag(&anonymous) {
            let message = "a listener with sasl = true serves no anonymous clients".into();
            self.problem(&anonymous, message, "remove one of the two");
        }
        let tls = self.tls(&table);
        let anonymous = self.settings.flag(&anonymous);
        let sasl = self.settings.flag(&sasl) || has_keys && !anonymous;
        let listener = ListenerCheck {
            table: &table,
            listen,
            requires_keys: sasl,
            tls: tls.is_some(),
        };
        self.check(listener, "add sasl = true and a [[keys]] table");
        Some(KafkaListener {
            listen,
            advertised: self.advertised(&table),
            tls,
            sasl,
            anonymous,
        })
    }

    fn advertised(&mut self, table: &str) -> Option<(String, u16)> {
        let key = format!("{table}.advertised");
        let text = self.settings.text(&key)?.to_owned();
        let pair = text.rsplit_once(':');
        let pair = pair.and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
        if pair.is_none() {
            let message = format!("`{text}` is no address that clients can connect to");
            self.problem(&key, message, "write host:port");
        }
        pair
    }

    /// A listener beyond this machine needs keys, and keys need encryption.
    fn check(&mut self, listener: ListenerCheck<'_>, how_to_require_keys: &str) {
        if listener.listen.ip().is_loopback() {
            return;
        }
        let key = format!("{}.listen", listener.table);
        let address = listener.listen;
        if !listener.requires_keys {
            let message = format!("{address} can be reached from other machines without a key");
            self.problem(
                &key,
                message,
                &format!("{how_to_require_keys}, or listen on 127.0.0.1"),
            );
        } else if !listener.tls && !self.settings.flag(&format!("{}.insecure", listener.table)) {
            let message = format!("keys would travel unencrypted to {address} from other machines");
            let hint = match listener.table {
                "kafka" => "use a [[kafka.listeners]] table with tls",
                "amqp" => "use a [[amqp.listeners]] table with tls",
                _ => {
                    "add tls = { cert = \"..\", key = \"..\" }, or insecure = true if a proxy in front does TLS"
                }
            };
            self.problem(&key, message, hint);
        }
    }

    fn key(&mut self, table: &str) -> Option<Key> {
        let at = |part: &str| format!("keys.{table}.{part}");
        let Some(name) = self.settings.text(&at("name")).map(str::to_owned) else {
            self.problem(&at(""), "a key needs a name".into(), "write name = \"app\"");
            return None;
        };
        if name.contains(':') || name == "anonymous" {
            let hint = "a colon separates name and secret, and `anonymous` is the name of clients without a key";
            self.problem(&at("name"), format!("`{name}` cannot name a key"), hint);
        }
        let Some(rights) = self.settings.list(&at("rights")) else {
            let hint = "write rights = [\"send\"], or also \"listen\", \"manage\" and \"deploy\"";
            self.problem(&at(""), format!("key `{name}` has no rights"), hint);
            return None;
        };
        let rights = rights
            .iter()
            .filter_map(|word| Right::parse(word))
            .collect::<Rights>();
        let certificates = self.certificates(&at("certificates"), &name);
        let has_secret = ["secret", "secret_file", "secondary_secret"]
            .iter()
            .any(|part| self.settings.text(&at(part)).is_some());
        let secrets = match has_secret || certificates.is_empty() && !self.accepts_tokens() {
            true => self.secrets(table, &name)?,
            // Its clients have certificates or tokens.
            false => Vec::new(),
        };
        let scope = self.key_scope(table, &name);
        let expires_ms = self.expiry(&at("expires"))?;
        let key = Key::with_secrets(&name, secrets, rights, scope).with_certificates(certificates);
        Some(key.expires(expires_ms).limited(self.quota(&at("quota"))))
    }

    fn secrets(&mut self, table: &str, name: &str) -> Option<Vec<KeySecret>> {
        let secret = self.secret(table, name)?;
        if secret.len() < SECRET_LEN_MIN {
            let message =
                format!("the secret of key `{name}` is shorter than {SECRET_LEN_MIN} characters");
            let hint = "make one with: openssl rand -base64 32";
            self.problem(&format!("keys.{table}.secret"), message, hint);
            return None;
        }
        let mut secrets = vec![KeySecret::plain(&secret)];
        let second = format!("keys.{table}.secondary_secret");
        secrets.extend(self.settings.text(&second).map(KeySecret::plain));
        Some(secrets)
    }

    fn accepts_tokens(&self) -> bool {
        self.settings.text("tokens.issuer").is_some()
    }

    /// The certificates of a key. A certificate acts for one key.
    fn certificates(&mut self, setting: &str, key: &str) -> Vec<String> {
        let names = self.settings.list(setting).unwrap_or_default().to_vec();
        for name in &names {
            if let Some(other) = self.certificates.insert(name.clone(), key.to_owned()) {
                let message = format!("`{name}` is a certificate of key `{other}` too");
                self.problem(setting, message, "a certificate acts for one key");
            }
        }
        names
    }

    fn tokens(&mut self) -> Option<TokenSettings> {
        let jwks = self.jwks()?;
        let text = |key: &str| self.settings.text(key).map(str::to_owned);
        let (issuer, audience) = (text("tokens.issuer"), text("tokens.audience"));
        let (Some(issuer), Some(audience)) = (issuer, audience) else {
            let message = "tokens need an issuer and an audience".to_owned();
            let hint = "write issuer = \"https://..\" and audience = \"..\"";
            let given = match jwks {
                JwksLocation::File(_) => "tokens.jwks",
                JwksLocation::Url { .. } => "tokens.jwks_url",
            };
            self.problem(given, message, hint);
            return None;
        };
        let key_claim = text("tokens.key_claim").unwrap_or_default();
        Some(TokenSettings {
            jwks,
            policy: TokenPolicy {
                issuer,
                audience,
                key_claim,
            },
        })
    }

    fn jwks(&mut self) -> Option<JwksLocation> {
        let key = "tokens.jwks_url";
        match (self.path("tokens.jwks"), self.settings.text(key)) {
            (Some(path), None) => Some(JwksLocation::File(path)),
            (None, Some(text)) => match jwks_url(text) {
                Ok(url) => Some(JwksLocation::Url {
                    url,
                    ca: self.path("tokens.ca"),
                }),
                Err(message) => {
                    let hint = "write https://.., or http:// for an issuer on this machine";
                    self.problem(key, message, hint);
                    None
                }
            },
            (Some(_), Some(_)) => {
                let message = "tokens have both jwks and jwks_url".to_owned();
                self.problem(key, message, "keep one of them");
                None
            }
            (None, None) => {
                if self.accepts_tokens() {
                    let message = "tokens need the keys of the issuer".to_owned();
                    let hint = "write jwks_url = \"https://..\", or jwks = \"FILE\"";
                    self.problem("tokens.issuer", message, hint);
                }
                None
            }
        }
    }

    /// The outer `None`: invalid.
    fn expiry(&mut self, key: &str) -> Option<Option<i64>> {
        let Some(text) = self.settings.text(key).map(str::to_owned) else {
            return Some(None);
        };
        let instant = Instant::parse_iso(text.as_bytes());
        if instant.is_none() {
            let hint = "write a time such as 2027-01-31T00:00:00Z";
            self.problem(key, format!("`{text}` is no time"), hint);
        }
        Some(Some(instant?.to_unix_millis()))
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

    fn key_scope(&self, table: &str, key: &str) -> KeyScope {
        let listed = |part: &str| self.settings.list(&format!("keys.{table}.{part}"));
        let lists = NameLists {
            hubs: listed("hubs"),
            groups: listed("groups"),
            transactional_ids: listed("transactional_ids"),
            deployments: listed("deployments"),
        };
        KeyScope::listed(key, &lists)
    }

    fn secret(&mut self, table: &str, name: &str) -> Option<String> {
        let (here, file) = (
            format!("keys.{table}.secret"),
            format!("keys.{table}.secret_file"),
        );
        match (self.settings.text(&here), self.path(&file)) {
            (Some(secret), None) => match Secrets::default().resolve(secret) {
                Ok(secret) => Some(secret.into_owned()),
                Err(error) => {
                    let hint = "write secret = \"${env:NAME}\" or \"${file:/path}\"";
                    self.problem(&here, error.to_string(), hint);
                    None
                }
            },
            (None, Some(path)) => match disk::read_to_string(&path) {
                Ok(text) => Some(text.trim_end_matches(['\r', '\n']).to_owned()),
                Err(error) => {
                    let message = format!("cannot read the secret of key `{name}`: {error}");
                    self.problem(&file, message, &format!("looked for {}", path.display()));
                    None
                }
            },
            (None, None) => {
                let hint = format!(
                    "write secret or secret_file, or set {}",
                    super::variable_of(&here)
                );
                self.problem(
                    &format!("keys.{table}."),
                    format!("key `{name}` has no secret"),
                    &hint,
                );
                None
            }
            (Some(_), Some(_)) => {
                let message = format!("key `{name}` has both secret and secret_file");
                self.problem(&file, message, "keep one of them");
                None
            }
        }
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
        self.problem(key, message, "choose another name");
        None
    }

    fn hub(&mut self, name: &str) -> Option<HubSpec> {
        let at = |part: &str| format!("hubs.{name}.{part}");
        let hub = self.name(&at(""), name)?;
        Some(HubSpec {
            name: hub,
            partitions: self.count(&at("partitions")),
            settings: HubSettings {
                cleanup: match self.settings.text(&at("cleanup")) {
                    Some("compact") => CleanupPolicy::Compact,
                    Some("compact,delete") => CleanupPolicy::CompactDelete,
                    _ => CleanupPolicy::Delete,
                },
                retention: self.settings.time(&at("retention")),
                retention_bytes: self.settings.number(&at("retention_bytes")),
                batch_bytes_max: self.count(&at("batch_bytes_max")),
                ..HubSettings::default()
            },
        })
    }
}

/// Keys that are fetched without encryption could be anyone's, except on this machine.
fn jwks_url(text: &str) -> Result<Uri, String> {
    let url = parse_url(text)?;
    let host = url.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse();
    let is_local =
        host == "localhost" || address.is_ok_and(|address: IpAddr| address.is_loopback());
    match url.scheme_str() == Some("https") || is_local {
        true => Ok(url),
        false => Err("the keys of the issuer would travel unencrypted".into()),
    }
}

/// The security of a listener.
struct ListenerCheck<'a> {
    table: &'a str,
    listen: SocketAddr,
    requires_keys: bool,
    tls: bool,
}
