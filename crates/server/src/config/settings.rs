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
        "jobs.*.path",
        Kind::Path,
        "",
        "the folder of a job that runs with the node, or its job file",
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
        "workflows.*.supervisor",
        Kind::Choice(&["here", "elsewhere"]),
        "here",
        "who undoes what failed: the node, or processes of their own (`highwater workflow supervise`)",
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
    setting(
        "processors.*.hub",
        Kind::Text,
        "",
        "the hub that the events come from",
    ),
    setting(
        "processors.*.group",
        Kind::Text,
        "",
        "the consumer group that keeps the positions; unset: the name of the processor",
    ),
    setting(
        "processors.*.start",
        Kind::Choice(&["earliest", "latest"]),
        "earliest",
        "where a group begins that has no position yet",
    ),
    setting(
        "processors.*.handler.url",
        Kind::Text,
        "",
        "events are posted to this http or https address",
    ),
    setting(
        "processors.*.handler.authorization",
        Kind::Secret,
        "",
        "the Authorization header of those requests",
    ),
    setting(
        "processors.*.handler.ca",
        Kind::Path,
        "",
        "PEM file with certificates to trust beside those of the system",
    ),
    setting(
        "processors.*.handler.command",
        Kind::List,
        "",
        "events are lines to this program, and its answers are lines",
    ),
    setting(
        "processors.*.batch",
        Kind::Count(1, 10_000),
        "1",
        "up to so many events in one call; more than one: one call after another",
    ),
    setting(
        "processors.*.format",
        Kind::Choice(&["any", "json"]),
        "any",
        "with `json`, an event that is no JSON is a dead letter",
    ),
    setting(
        "processors.*.order",
        Kind::Choice(&["none", "key", "partition"]),
        "key",
        "what is handled one after another: nothing, events of a key, or a whole partition",
    ),
    setting(
        "processors.*.concurrency",
        Kind::Count(1, 10_000),
        "16",
        "events of a partition under way at once",
    ),
    setting(
        "processors.*.timeout",
        Kind::Time,
        "30s",
        "a call that takes longer has failed",
    ),
    setting(
        "processors.*.transient",
        Kind::Words(&["timeout", "connection", "5xx", "429", "408", "4xx"]),
        "timeout,connection,5xx,429,408",
        "failures that may go better later; any other is the event's own, and is not tried again",
    ),
    setting(
        "processors.*.retry.delay",
        Kind::Choice(&["exponential", "fixed"]),
        "exponential",
        "the time between two tries doubles, or stays the same",
    ),
    setting(
        "processors.*.retry.first",
        Kind::Time,
        "200ms",
        "the time before the second try",
    ),
    setting(
        "processors.*.retry.longest",
        Kind::Time,
        "30s",
        "what an exponential delay grows to",
    ),
    setting(
        "processors.*.retry.jitter_percent",
        Kind::Count(0, 100),
        "20",
        "the share of a delay that is left to chance",
    ),
    setting(
        "processors.*.retry.tries",
        Kind::CountOrForever(1, 1_000_000),
        "8",
        "tries altogether, or `forever`",
    ),
    setting(
        "processors.*.retry.deadline",
        Kind::TimeOrForever,
        "forever",
        "nothing is tried again later than this after the first try",
    ),
    setting(
        "processors.*.checkpoint.events",
        Kind::Count(1, 10_000_000),
        "1000",
        "positions are stored after so many events ...",
    ),
    setting(
        "processors.*.checkpoint.period",
        Kind::Time,
        "5s",
        "... or after so long, whichever comes first",
    ),
    setting(
        "processors.*.circuit.failures",
        Kind::Count(0, 1_000_000),
        "100",
        "more failures than this within the window stop deliveries",
    ),
    setting(
        "processors.*.circuit.window",
        Kind::Time,
        "30s",
        "how far back failures count",
    ),
    setting(
        "processors.*.circuit.share_percent",
        Kind::Count(0, 100),
        "0",
        "and they are at least this share of all deliveries, of which there were 20 or more",
    ),
    setting(
        "processors.*.circuit.open_for",
        Kind::TimeOrForever,
        "30s",
        "how long until a few events try it again; `forever`: until somebody resumes",
    ),
    setting(
        "processors.*.circuit.probes",
        Kind::Count(1, 1000),
        "3",
        "events that try it at once, on each instance",
    ),
    setting(
        "processors.*.circuit.successes",
        Kind::Count(1, 1000),
        "3",
        "deliveries that must succeed then to go on as before",
    ),
    setting(
        "processors.*.circuit.poison",
        Kind::Count(0, 1000),
        "3",
        "events in a row that are set aside before that is taken for an outage",
    ),
    setting(
        "processors.*.instance",
        Kind::Text,
        "",
        "a name such as `reader-3`, whose number says which partitions are this instance's; unset: the group does",
    ),
    setting(
        "processors.*.instances",
        Kind::Count(1, 1024),
        "",
        "with `instance`: how many there are, each of which reads every so many-th partition; unset: one partition each",
    ),
    setting(
        "processors.*.share",
        Kind::Text,
        "",
        "such as `0/4`: only this share of every partition, by the hash of the key",
    ),
    setting(
        "processors.*.dead",
        Kind::Text,
        "",
        "the hub of the dead letters; unset: the name of the processor and `.dead`",
    ),
    setting(
        "processors.*.replays",
        Kind::Count(1, 1000),
        "3",
        "how often a dead letter is replayed unless somebody insists",
    ),
    setting(
        "notify.url",
        Kind::Text,
        "",
        "posted to when a circuit opens or an instance of a workflow is parked",
    ),
    setting(
        "notify.authorization",
        Kind::Secret,
        "",
        "the Authorization header of that request",
    ),
    setting(
        "notify.ca",
        Kind::Path,
        "",
        "PEM file with certificates to trust beside those of the system, for both",
    ),
    setting(
        "notify.public_url",
        Kind::Text,
        "",
        "how people reach this node, for links that resume; unset: where HTTP listens",
    ),
    setting(
        "notify.link_lifetime",
        Kind::Time,
        "24h",
        "how long such a link is good",
    ),
    setting(
        "notify.email.server",
        Kind::Text,
        "",
        "host:port of a mail server, which is written to at the same occasions",
    ),
    setting(
        "notify.email.tls",
        Kind::Choice(&["starttls", "tls", "off"]),
        "starttls",
        "encryption from the second command on, from the first on, or none",
    ),
    setting(
        "notify.email.user",
        Kind::Text,
        "",
        "the user at the mail server",
    ),
    setting(
        "notify.email.password",
        Kind::Secret,
        "",
        "the user's password; never sent without encryption",
    ),
    setting("notify.email.from", Kind::Text, "", "the sender of mails"),
    setting("notify.email.to", Kind::List, "", "the receivers of mails"),
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
