//! Every setting there is: its key, its kind, its default and what it is for.
//!
//! This table is the only list. Reading the file, variables and flags, the neighbours of a misspelt
//! key, `highwater config show` and the check of docs/config.md all go by it.

use super::value::Kind;

/// One setting. A `*` in the key stands for a name (`hubs.*`, `keys.*`) or a number
/// (`kafka.listeners.*`).
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub key: &'static str,
    pub kind: Kind,
    /// As it would be written; empty where the setting is unset.
    pub default: &'static str,
    pub help: &'static str,
}

const fn setting(
    key: &'static str,
    kind: Kind,
    default: &'static str,
    help: &'static str,
) -> Setting {
    Setting {
        key,
        kind,
        default,
        help,
    }
}

pub const SETTINGS: &[Setting] = &[
    setting(
        "data",
        Kind::Path,
        "highwater-data",
        "the folder that holds everything",
    ),
    setting(
        "durability",
        Kind::Choice(&["fsync", "os"]),
        "fsync",
        "when an append is answered: `fsync` once the disk has it, `os` once the system has it",
    ),
    setting(
        "auto_create",
        Kind::Flag,
        "true",
        "make a hub when somebody who may manage hubs writes to one that is not there",
    ),
    setting(
        "auto_create_partitions",
        Kind::Count(1, 1024),
        "4",
        "the partitions of a hub made that way",
    ),
    setting(
        "http.listen",
        Kind::Address,
        "127.0.0.1:8080",
        "where HTTP listens, or `off`",
    ),
    setting(
        "http.tls.cert",
        Kind::Path,
        "",
        "PEM file with the certificate chain; with a key, HTTP becomes HTTPS",
    ),
    setting(
        "http.tls.key",
        Kind::Path,
        "",
        "PEM file with the private key",
    ),
    setting(
        "http.insecure",
        Kind::Flag,
        "false",
        "let keys travel unencrypted beyond this machine, as behind a proxy that does TLS",
    ),
    setting(
        "http.event_bytes_max",
        Kind::Size,
        "1MiB",
        "the largest event taken",
    ),
    setting(
        "http.body_bytes_max",
        Kind::Size,
        "1MiB",
        "the largest request body taken",
    ),
    setting(
        "http.in_flight_bytes_max",
        Kind::Size,
        "64MiB",
        "bodies held at a time, over all connections; beyond it requests get 429",
    ),
    setting(
        "http.connections_max",
        Kind::Count(1, 1_000_000),
        "4096",
        "open connections; beyond it new ones get 503",
    ),
    setting(
        "http.headers_max",
        Kind::Count(8, 1024),
        "100",
        "headers of a request; beyond it 431",
    ),
    setting(
        "http.header_timeout",
        Kind::Time,
        "30s",
        "how long a request's head may take, and how long a connection may be idle",
    ),
    setting(
        "http.body_timeout",
        Kind::Time,
        "30s",
        "how long a request's body may take",
    ),
    setting(
        "http.read_bytes_max",
        Kind::Size,
        "1MiB",
        "what one read takes from a partition, at most",
    ),
    setting("http.wait_max", Kind::Time, "60s", "the longest long poll"),
    setting(
        "kafka.listen",
        Kind::Address,
        "127.0.0.1:9092",
        "where Kafka clients connect, or `off`",
    ),
    setting(
        "kafka.advertised",
        Kind::Text,
        "",
        "host:port that clients are told to come back to; unset: the address they reached",
    ),
    setting(
        "kafka.listeners.*.listen",
        Kind::Address,
        "",
        "one more address for Kafka clients",
    ),
    setting(
        "kafka.listeners.*.advertised",
        Kind::Text,
        "",
        "as kafka.advertised, for this listener",
    ),
    setting(
        "kafka.listeners.*.tls.cert",
        Kind::Path,
        "",
        "PEM file with the certificate chain",
    ),
    setting(
        "kafka.listeners.*.tls.key",
        Kind::Path,
        "",
        "PEM file with the private key",
    ),
    setting(
        "kafka.listeners.*.sasl",
        Kind::Flag,
        "false",
        "ask for a key (SASL PLAIN: its name and secret)",
    ),
    setting(
        "kafka.listeners.*.insecure",
        Kind::Flag,
        "false",
        "let keys travel unencrypted beyond this machine",
    ),
    setting("keys.*.name", Kind::Text, "", "the name of the key"),
    setting(
        "keys.*.secret",
        Kind::Secret,
        "",
        "its secret, at least 6 characters",
    ),
    setting(
        "keys.*.secret_file",
        Kind::Path,
        "",
        "a file that holds the secret, instead of `secret`",
    ),
    setting(
        "keys.*.rights",
        Kind::Words(&["send", "listen", "manage"]),
        "",
        "what the key allows: `send` events, `listen` to them, `manage` hubs",
    ),
    setting(
        "keys.*.hubs",
        Kind::List,
        "",
        "the hubs the key is for; unset: all of them",
    ),
    setting(
        "hubs.*.partitions",
        Kind::Count(1, 1024),
        "4",
        "partitions; may be raised later, never lowered",
    ),
    setting(
        "hubs.*.retention",
        Kind::TimeOrForever,
        "7d",
        "how long events are kept at least, or `forever`",
    ),
    setting(
        "hubs.*.retention_bytes",
        Kind::SizeOrUnlimited,
        "unlimited",
        "how much of a partition is kept at least, or `unlimited`",
    ),
    setting(
        "hubs.*.batch_bytes_max",
        Kind::Size,
        "1048588",
        "the largest batch taken",
    ),
    setting(
        "hubs.*.cleanup",
        Kind::Choice(&["delete", "compact"]),
        "delete",
        "what retention does: `delete` old events, or `compact` to the last one of each key",
    ),
    setting(
        "sharded.*.hubs",
        Kind::List,
        "",
        "the hubs that share what is sent to this name, by key; their order decides where a key goes",
    ),
    setting(
        "workflows.*.file",
        Kind::Path,
        "",
        "the definition of the workflow",
    ),
    setting(
        "workflows.*.hub",
        Kind::Text,
        "",
        "a hub whose events start instances",
    ),
    setting(
        "workflows.*.id",
        Kind::Text,
        "",
        "the id of such an instance, such as `{{input.deliveryId}}`; unset: the event's key",
    ),
    setting(
        "workflows.*.partitions",
        Kind::Count(1, 64),
        "2",
        "how many schedulers share the work; cannot be changed once there is a journal",
    ),
    setting(
        "workflows.*.running_max",
        Kind::Count(1, 10_000_000),
        "100000",
        "instances under way at once; beyond it starts get 429, and the hub waits",
    ),
    setting(
        "workflows.*.keep",
        Kind::Time,
        "7d",
        "how long an instance that has ended can be looked at, and its id is known",
    ),
    setting(
        "queues.*.lock",
        Kind::Time,
        "60s",
        "how long a received message stays with its receiver",
    ),
    setting(
        "queues.*.deliveries_max",
        Kind::Count(1, 4_294_967_295),
        "10",
        "deliveries after which a message that was not settled becomes a dead letter",
    ),
    setting(
        "queues.*.time_to_live",
        Kind::TimeOrForever,
        "forever",
        "how long a message is worth delivering, or `forever`",
    ),
    setting(
        "queues.*.dead_letter_expired",
        Kind::Flag,
        "false",
        "keep messages that outlived their time as dead letters",
    ),
    setting(
        "queues.*.duplicates_within",
        Kind::Time,
        "",
        "drop a message whose id was seen this long ago; unset: none is dropped",
    ),
    setting(
        "queues.*.sessions",
        Kind::Flag,
        "false",
        "messages belong to sessions, each received in order by one receiver at a time",
    ),
    setting(
        "queues.*.bytes_max",
        Kind::Size,
        "1GiB",
        "messages the queue holds, which are in memory too; beyond it senders get 429",
    ),
    setting(
        "queues.*.message_bytes_max",
        Kind::Size,
        "1MiB",
        "the largest message taken",
    ),
    setting(
        "queues.*.feed",
        Kind::Text,
        "",
        "the hub whose events become messages of the queue",
    ),
];

/// The setting that a full key such as `hubs.telemetry.partitions` belongs to.
pub fn setting_of(key: &str) -> Option<&'static Setting> {
    let names = parts(key);
    let fits = |setting: &&Setting| matches(&parts(setting.key), &names);
    SETTINGS.iter().find(fits)
}

/// The names that may follow `prefix`, which may itself hold names where patterns have a `*`.
pub fn children(prefix: &str) -> Vec<&'static str> {
    let above = parts(prefix);
    let mut names = Vec::new();
    for setting in SETTINGS {
        let pattern = parts(setting.key);
        let Some((head, [name, ..])) = pattern.split_at_checked(above.len()) else {
            continue;
        };
        if matches(head, &above) && !names.contains(name) {
            names.push(*name);
        }
    }
    names
}

/// The parts of a key. A part in quotes may hold dots: `hubs."toll.raw".partitions`.
pub fn parts(key: &str) -> Vec<&str> {
    let mut quoted = false;
    let divides = |c: char| {
        quoted ^= c == '"';
        c == '.' && !quoted
    };
    match key {
        "" => Vec::new(),
        _ => key.split(divides).collect(),
    }
}

fn matches(pattern: &[&str], names: &[&str]) -> bool {
    pattern.len() == names.len()
        && pattern
            .iter()
            .zip(names)
            .all(|(part, name)| *part == "*" || part == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_quotes_may_hold_dots() {
        assert_eq!(
            parts("hubs.\"a.b\".retention"),
            ["hubs", "\"a.b\"", "retention"]
        );
        let key = setting_of("hubs.\"a.b\".retention").map(|setting| setting.key);
        assert_eq!(key, Some("hubs.*.retention"));
        assert!(setting_of("hubs.a.b.retention").is_none());
    }

    #[test]
    fn children_are_found_at_every_level() {
        assert!(children("").starts_with(&["data", "durability"]));
        assert_eq!(children("http.tls"), ["cert", "key"]);
        assert_eq!(children("keys"), ["*"]);
        assert!(children("hubs.any").contains(&"retention"));
        assert!(children("http.listen").is_empty() && children("nothing").is_empty());
    }

    #[test]
    fn every_default_can_be_read() {
        for setting in SETTINGS
            .iter()
            .filter(|setting| !setting.default.is_empty())
        {
            let raw = crate::config::value::Raw::Untyped(setting.default.into());
            assert!(setting.kind.read(&raw).is_ok(), "{}", setting.key);
        }
    }
}
