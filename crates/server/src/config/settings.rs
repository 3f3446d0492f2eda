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

/// A line for the key, its kind and its default, and one for what it is for.
macro_rules! settings {
    ($($key:literal: $kind:ident $(($($of:tt)*))? = $default:literal, $help:literal;)*) => {
        pub const SETTINGS: &[Setting] = &[$(Setting {
            key: $key,
            kind: Kind::$kind $(($($of)*))?,
            default: $default,
            help: $help,
        }),*];
    };
}

settings! {
    "data": Path = "highwater-data",
        "the folder that holds everything";
    "durability": Choice(&["fsync", "os"]) = "fsync",
        "when an append is answered: `fsync` once the disk has it, `os` once the system has it";
    "auto_create": Flag = "true",
        "make a hub when somebody who may manage hubs writes to one that is not there";
    "auto_create_partitions": Count(1, 1024) = "4",
        "the partitions of a hub made that way";

    "http.listen": Address = "127.0.0.1:8080",
        "where HTTP listens, or `off`";
    "http.tls.cert": Path = "",
        "PEM file with the certificate chain; with a key, HTTP becomes HTTPS";
    "http.tls.key": Path = "",
        "PEM file with the private key";
    "http.insecure": Flag = "false",
        "let keys travel unencrypted beyond this machine, as behind a proxy that does TLS";
    "http.event_bytes_max": Size = "1MiB",
        "the largest event taken";
    "http.body_bytes_max": Size = "1MiB",
        "the largest request body taken";
    "http.in_flight_bytes_max": Size = "64MiB",
        "bodies held at a time, over all connections; beyond it requests get 429";
    "http.connections_max": Count(1, 1_000_000) = "4096",
        "open connections; beyond it new ones get 503";
    "http.headers_max": Count(8, 1024) = "100",
        "headers of a request; beyond it 431";
    "http.header_timeout": Time = "30s",
        "how long a request's head may take, and how long a connection may be idle";
    "http.body_timeout": Time = "30s",
        "how long a request's body may take";
    "http.read_bytes_max": Size = "1MiB",
        "what one read takes from a partition, at most";
    "http.wait_max": Time = "60s",
        "the longest long poll";

    "kafka.listen": Address = "127.0.0.1:9092",
        "where Kafka clients connect, or `off`";
    "kafka.advertised": Text = "",
        "host:port that clients are told to come back to; unset: the address they reached";
    "kafka.listeners.*.listen": Address = "",
        "one more address for Kafka clients";
    "kafka.listeners.*.advertised": Text = "",
        "as kafka.advertised, for this listener";
    "kafka.listeners.*.tls.cert": Path = "",
        "PEM file with the certificate chain";
    "kafka.listeners.*.tls.key": Path = "",
        "PEM file with the private key";
    "kafka.listeners.*.sasl": Flag = "false",
        "ask for a key (SASL PLAIN: its name and secret)";
    "kafka.listeners.*.insecure": Flag = "false",
        "let keys travel unencrypted beyond this machine";

    "keys.*.name": Text = "",
        "the name of the key";
    "keys.*.secret": Secret = "",
        "its secret, at least 6 characters";
    "keys.*.secret_file": Path = "",
        "a file that holds the secret, instead of `secret`";
    "keys.*.rights": Words(&["send", "listen", "manage"]) = "",
        "what the key allows: `send` events, `listen` to them, `manage` hubs";
    "keys.*.hubs": List = "",
        "the hubs the key is for; unset: all of them";

    "hubs.*.partitions": Count(1, 1024) = "4",
        "partitions; may be raised later, never lowered";
    "hubs.*.retention": TimeOrForever = "7d",
        "how long events are kept at least, or `forever`";
    "hubs.*.retention_bytes": SizeOrUnlimited = "unlimited",
        "how much of a partition is kept at least, or `unlimited`";
    "hubs.*.batch_bytes_max": Size = "1048588",
        "the largest batch taken";
    "hubs.*.cleanup": Choice(&["delete", "compact"]) = "delete",
        "what retention does: `delete` old events, or `compact` to the last one of each key";

    "sharded.*.hubs": List = "",
        "the hubs that share what is sent to this name, by key; their order decides where a key goes";

    "jobs.*.path": Path = "",
        "the folder of a job that runs with the node, or its job file";

    "workflows.*.file": Path = "",
        "the definition of the workflow";
    "workflows.*.hub": Text = "",
        "a hub whose events start instances";
    "workflows.*.id": Text = "",
        "the id of such an instance, such as `{{input.deliveryId}}`; unset: the event's key";
    "workflows.*.partitions": Count(1, 64) = "2",
        "how many schedulers share the work; cannot be changed once there is a journal";
    "workflows.*.running_max": Count(1, 10_000_000) = "100000",
        "instances under way at once; beyond it starts get 429, and the hub waits";
    "workflows.*.keep": Time = "7d",
        "how long an instance that has ended can be looked at, and its id is known";
    "workflows.*.supervisor": Choice(&["here", "elsewhere"]) = "here",
        "who undoes what failed: the node, or processes of their own (`highwater workflow supervise`)";

    "queues.*.lock": Time = "60s",
        "how long a received message stays with its receiver";
    "queues.*.deliveries_max": Count(1, 4_294_967_295) = "10",
        "deliveries after which a message that was not settled becomes a dead letter";
    "queues.*.time_to_live": TimeOrForever = "forever",
        "how long a message is worth delivering, or `forever`";
    "queues.*.dead_letter_expired": Flag = "false",
        "keep messages that outlived their time as dead letters";
    "queues.*.duplicates_within": Time = "",
        "drop a message whose id was seen this long ago; unset: none is dropped";
    "queues.*.sessions": Flag = "false",
        "messages belong to sessions, each received in order by one receiver at a time";
    "queues.*.bytes_max": Size = "1GiB",
        "messages the queue holds, which are in memory too; beyond it senders get 429";
    "queues.*.message_bytes_max": Size = "1MiB",
        "the largest message taken";
    "queues.*.feed": Text = "",
        "the hub whose events become messages of the queue";

    "processors.*.hub": Text = "",
        "the hub that the events come from";
    "processors.*.group": Text = "",
        "the consumer group that keeps the positions; unset: the name of the processor";
    "processors.*.start": Choice(&["earliest", "latest"]) = "earliest",
        "where a group begins that has no position yet";
    "processors.*.handler.url": Text = "",
        "events are posted to this http or https address";
    "processors.*.handler.authorization": Secret = "",
        "the Authorization header of those requests";
    "processors.*.handler.ca": Path = "",
        "PEM file with certificates to trust beside those of the system";
    "processors.*.handler.command": List = "",
        "events are lines to this program, and its answers are lines";
    "processors.*.batch": Count(1, 10_000) = "1",
        "up to so many events in one call; more than one: one call after another";
    "processors.*.format": Choice(&["any", "json"]) = "any",
        "with `json`, an event that is no JSON is a dead letter";
    "processors.*.order": Choice(&["none", "key", "partition"]) = "key",
        "what is handled one after another: nothing, events of a key, or a whole partition";
    "processors.*.concurrency": Count(1, 10_000) = "16",
        "events of a partition under way at once";
    "processors.*.timeout": Time = "30s",
        "a call that takes longer has failed";
    "processors.*.transient": Words(&["timeout", "connection", "5xx", "429", "408", "4xx"]) = "timeout,connection,5xx,429,408",
        "failures that may go better later; any other is the event's own, and is not tried again";
    "processors.*.retry.delay": Choice(&["exponential", "fixed"]) = "exponential",
        "the time between two tries doubles, or stays the same";
    "processors.*.retry.first": Time = "200ms",
        "the time before the second try";
    "processors.*.retry.longest": Time = "30s",
        "what an exponential delay grows to";
    "processors.*.retry.jitter_percent": Count(0, 100) = "20",
        "the share of a delay that is left to chance";
    "processors.*.retry.tries": CountOrForever(1, 1_000_000) = "8",
        "tries altogether, or `forever`";
    "processors.*.retry.deadline": TimeOrForever = "forever",
        "nothing is tried again later than this after the first try";
    "processors.*.checkpoint.events": Count(1, 10_000_000) = "1000",
        "positions are stored after so many events ...";
    "processors.*.checkpoint.period": Time = "5s",
        "... or after so long, whichever comes first";
    "processors.*.circuit.failures": Count(0, 1_000_000) = "100",
        "more failures than this within the window stop deliveries";
    "processors.*.circuit.window": Time = "30s",
        "how far back failures count";
    "processors.*.circuit.share_percent": Count(0, 100) = "0",
        "and they are at least this share of all deliveries, of which there were 20 or more";
    "processors.*.circuit.open_for": TimeOrForever = "30s",
        "how long until a few events try it again; `forever`: until somebody resumes";
    "processors.*.circuit.probes": Count(1, 1000) = "3",
        "events that try it at once, on each instance";
    "processors.*.circuit.successes": Count(1, 1000) = "3",
        "deliveries that must succeed then to go on as before";
    "processors.*.circuit.poison": Count(0, 1000) = "3",
        "events in a row that are set aside before that is taken for an outage";
    "processors.*.instance": Text = "",
        "a name such as `reader-3`, whose number says which partitions are this instance's; unset: the group does";
    "processors.*.instances": Count(1, 1024) = "",
        "with `instance`: how many there are, each of which reads every so many-th partition; unset: one partition each";
    "processors.*.share": Text = "",
        "such as `0/4`: only this share of every partition, by the hash of the key";
    "processors.*.dead": Text = "",
        "the hub of the dead letters; unset: the name of the processor and `.dead`";
    "processors.*.replays": Count(1, 1000) = "3",
        "how often a dead letter is replayed unless somebody insists";

    "notify.url": Text = "",
        "posted to when a circuit opens or an instance of a workflow is parked";
    "notify.authorization": Secret = "",
        "the Authorization header of that request";
    "notify.ca": Path = "",
        "PEM file with certificates to trust beside those of the system, for both";
    "notify.public_url": Text = "",
        "how people reach this node, for links that resume; unset: where HTTP listens";
    "notify.link_lifetime": Time = "24h",
        "how long such a link is good";
    "notify.email.server": Text = "",
        "host:port of a mail server, which is written to at the same occasions";
    "notify.email.tls": Choice(&["starttls", "tls", "off"]) = "starttls",
        "encryption from the second command on, from the first on, or none";
    "notify.email.user": Text = "",
        "the user at the mail server";
    "notify.email.password": Secret = "",
        "the user's password; never sent without encryption";
    "notify.email.from": Text = "",
        "the sender of mails";
    "notify.email.to": List = "",
        "the receivers of mails";
}

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
