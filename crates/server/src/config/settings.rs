//! The table of settings: key, kind, default and help.
//!
//! It is the only list. Reading the file, variables and flags, suggestions for misspelt keys, `highwater config show`
//! and the test of docs/config.md use it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::value::Kind;

/// One setting. A `*` in the key is any name (`hubs.*`, `keys.*`) or number (`kafka.listeners.*`).
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub key: &'static str,
    pub kind: Kind,
    /// As written in the file; empty if unset.
    pub default: &'static str,
    pub help: &'static str,
}

/// Key, kind and default on one line, the help on the next.
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
        "the data folder";
    "durability": Choice(&["fsync", "os"]) = "fsync",
        "when an append is acknowledged: `fsync` when it is on the disk, `os` when the operating system has it";
    "auto_create": Flag = "true",
        "create a missing hub on the first write of a client that may manage hubs";
    "auto_create_partitions": Count(1, 1024) = "4",
        "the partitions of a hub created that way";
    "auto_create_hubs_max": Count(1, 1_000_000) = "1000",
        "hubs of the node at which no more are created that way";
    "auto_create_partitions_max": Count(1, 1_000_000) = "4000",
        "partitions of the node at which no more hubs are created that way";

    "log": Text = "",
        "the log, `kafka://host:port,host:port`: a Kafka cluster in place of the data folder; unset: the node's own";
    "cluster.prefix": Text = "",
        "precedes the topics, groups and transactional ids of the node on the cluster; other topics are not its hubs";
    "cluster.client_id": Text = "highwater",
        "shown in the logs and metrics of brokers";
    "cluster.replication": Count(1, 100) = "",
        "the replication factor of topics that the node creates; unset: the default of the cluster";
    "cluster.profile": Choice(&["kafka", "event-hubs"]) = "kafka",
        "`event-hubs`: the cluster has no numbers of producers, no transactions and no settings of topics";
    "cluster.arrival": Choice(&["append-time", "create-time"]) = "append-time",
        "`create-time`: in topics with CreateTime the producer's timestamp counts as arrival; otherwise they are not read by time";
    "cluster.tls.ca": Path = "",
        "PEM file with the authorities of the brokers; the node then connects by TLS";
    "cluster.tls.cert": Path = "",
        "PEM file with the client certificate of the node, for brokers that require one";
    "cluster.tls.key": Path = "",
        "PEM file with its private key";
    "cluster.sasl.mechanism": Choice(&["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]) = "",
        "how the node logs in; unset: without a login";
    "cluster.sasl.user": Text = "",
        "the user of PLAIN and SCRAM";
    "cluster.sasl.password": Secret = "",
        "its password";
    "cluster.sasl.token": Secret = "",
        "the token of OAUTHBEARER; a reference to a file is read again for every connection";
    "cluster.insecure": Flag = "false",
        "allow a password or token without TLS to brokers on other machines, and callers' secrets to other nodes";
    "cluster.node": Text = "",
        "the name of this node among the nodes of the prefix; unset: host and port of `cluster.advertise`";
    "cluster.advertise": Text = "",
        "the URL where other nodes of the prefix reach this one; unset: the address of `http.listen`, if it is one";
    "cluster.peer_ca": Path = "",
        "PEM file with the authorities of the other nodes' certificates, beside those of the system";
    "cluster.session": Time = "10s",
        "a node that is silent for this long loses its queues and workflows to the others; brokers may want at least 6s";

    "state.path": Text = "",
        "where jobs without a `[state]` of their own have their state: a folder, or a URL such as `s3://bucket/jobs`; unset: the data folder";
    "state.shared": Flag = "false",
        "the nodes with this log, prefix and `state.path` know the same jobs, and share each of them; needs `log` and `state.path`";
    "state.session_timeout": Time = "10s",
        "with `shared`: a node that is silent for this long loses its share of a job to the others";

    "http.listen": Address = "127.0.0.1:8080",
        "the address of the HTTP API, or `off`";
    "http.tls.cert": Path = "",
        "PEM file with the certificate chain; with a key, HTTP becomes HTTPS";
    "http.tls.key": Path = "",
        "PEM file with the private key";
    "http.tls.client_ca": Path = "",
        "PEM file with the authorities of client certificates, which then count as keys (`keys.*.certificates`)";
    "http.tls.client_auth": Choice(&["required", "optional"]) = "required",
        "with `client_ca`: whether a client without a certificate is refused";
    "http.insecure": Flag = "false",
        "allow unencrypted keys beyond this machine, such as behind a proxy that does TLS";
    "http.listeners.*.listen": Address = "",
        "another address of the HTTP API, or `off`";
    "http.listeners.*.tls.cert": Path = "",
        "PEM file with the certificate chain";
    "http.listeners.*.tls.key": Path = "",
        "PEM file with the private key";
    "http.listeners.*.tls.client_ca": Path = "",
        "as http.tls.client_ca, for this listener";
    "http.listeners.*.tls.client_auth": Choice(&["required", "optional"]) = "required",
        "as http.tls.client_auth, for this listener";
    "http.listeners.*.insecure": Flag = "false",
        "allow unencrypted keys beyond this machine";
    "http.listeners.*.optional": Flag = "false",
        "start without this listener if something else listens there";
    "http.allowed_origins": List = "",
        "origins of other sites' pages that may call the API, such as `https://console.example.org`";
    "http.event_bytes_max": Size = "1MiB",
        "the largest event accepted";
    "http.body_bytes_max": Size = "1MiB",
        "the largest request body accepted";
    "http.in_flight_bytes_max": Size = "64MiB",
        "bytes of bodies and answers in memory over all connections; beyond it requests get 429";
    "http.unpack_bytes_max": Size = "256MiB",
        "memory to unpack compressed batches in for readers; beyond it reads get 429";
    "http.connections_max": Count(1, 1_000_000) = "4096",
        "open connections; beyond it new ones get 503";
    "http.connections_reserved": Count(0, 100_000) = "16",
        "of these, connections that are kept for clients with a key; none on a node without keys";
    "http.headers_max": Count(8, 1024) = "100",
        "headers of a request; beyond it 431";
    "http.header_timeout": Time = "30s",
        "timeout of a request's head, and of an idle connection";
    "http.body_timeout": Time = "30s",
        "timeout of a request's body";
    "http.write_timeout": Time = "30s",
        "timeout of an answer that the client does not read";
    "http.read_bytes_max": Size = "1MiB",
        "the most bytes of one read from a partition";
    "http.wait_max": Time = "60s",
        "the longest long poll";

    "console.enabled": Flag = "true",
        "serve the console, for browsers, at `/` of the HTTP API";

    "kafka.listen": Address = "127.0.0.1:9092",
        "the address for Kafka clients, or `off`";
    "kafka.anonymous": Flag = "false",
        "serve clients without a key, with all rights, although there are keys";
    "kafka.timestamp_type": Choice(&["CreateTime", "LogAppendTime"]) = "CreateTime",
        "the `message.timestamp.type` of topics that Kafka clients create, automatically or explicitly without it";
    "kafka.node_id": Count(0, 2_147_483_647) = "1",
        "the id of the node for Kafka clients (`node.id`)";
    "kafka.session_min": Time = "6s",
        "the shortest session timeout of a member of a classic consumer group (`group.min.session.timeout.ms`)";
    "kafka.advertised": Text = "",
        "host:port that clients connect to; unset: the address they reached";
    "kafka.listeners.*.listen": Address = "",
        "another address for Kafka clients";
    "kafka.listeners.*.advertised": Text = "",
        "as kafka.advertised, for this listener";
    "kafka.listeners.*.tls.cert": Path = "",
        "PEM file with the certificate chain";
    "kafka.listeners.*.tls.key": Path = "",
        "PEM file with the private key";
    "kafka.listeners.*.tls.client_ca": Path = "",
        "as http.tls.client_ca, for this listener";
    "kafka.listeners.*.tls.client_auth": Choice(&["required", "optional"]) = "required",
        "as http.tls.client_auth, for this listener";
    "kafka.listeners.*.sasl": Flag = "false",
        "require a key (SASL or a client certificate); always on once there are keys";
    "kafka.listeners.*.anonymous": Flag = "false",
        "as kafka.anonymous, for this listener";
    "kafka.listeners.*.insecure": Flag = "false",
        "allow unencrypted keys beyond this machine";

    "amqp.listen": Address = "127.0.0.1:5672",
        "the address for AMQP clients (Event Hubs and Service Bus SDKs), or `off`; the default is skipped if something else listens there";
    "amqp.anonymous": Flag = "false",
        "serve clients without a key, with all rights, although there are keys";
    "amqp.listeners.*.listen": Address = "",
        "another address for AMQP clients";
    "amqp.listeners.*.tls.cert": Path = "",
        "PEM file with the certificate chain";
    "amqp.listeners.*.tls.key": Path = "",
        "PEM file with the private key";
    "amqp.listeners.*.tls.client_ca": Path = "",
        "as http.tls.client_ca, for this listener";
    "amqp.listeners.*.tls.client_auth": Choice(&["required", "optional"]) = "required",
        "as http.tls.client_auth, for this listener";
    "amqp.listeners.*.anonymous": Flag = "false",
        "as amqp.anonymous, for this listener";
    "amqp.listeners.*.insecure": Flag = "false",
        "allow unencrypted keys beyond this machine";

    "keys.*.name": Text = "",
        "the name of the key";
    "keys.*.secret": Secret = "",
        "its secret, at least 6 characters";
    "keys.*.secret_file": Path = "",
        "a file with the secret, instead of `secret`";
    "keys.*.rights": Words(&["send", "listen", "manage", "deploy"]) = "",
        "`send` events, `listen` to them, `manage` hubs, queues and groups, `deploy` jobs";
    "keys.*.hubs": List = "",
        "the hubs and queues that the key is limited to, by name or prefix (`app-*`); unset: no limit";
    "keys.*.groups": List = "",
        "its consumer groups, by name or prefix; unset: all, with `hubs` those that begin with the key's name";
    "keys.*.transactional_ids": List = "",
        "its transactional ids, by name or prefix; unset: as for `groups`";
    "keys.*.deployments": List = "",
        "its jobs and processors, by name or prefix; unset: as for `groups`";
    "keys.*.secondary_secret": Secret = "",
        "a second secret, valid too, while clients change from one to the other";
    "keys.*.certificates": List = "",
        "client certificates that act for the key, by a name that they have: subject CN, DNS name, URI or e-mail address";
    "keys.*.expires": Text = "",
        "the time at which the key expires, such as `2027-01-31T00:00:00Z`; unset: never";
    "keys.*.quota.requests_per_second": Count(1, 1_000_000_000) = "",
        "requests a second, over HTTP and Kafka; beyond it clients are delayed (HTTP: 429 with Retry-After)";
    "keys.*.quota.bytes_in_per_second": Size = "",
        "bytes a second that clients send";
    "keys.*.quota.bytes_out_per_second": Size = "",
        "bytes a second that clients receive";
    "keys.*.quota.connections_max": Count(1, 1_000_000) = "",
        "open connections of the key";
    "keys.*.quota.partitions_per_hour": Count(1, 1_000_000) = "",
        "partitions that clients create in an hour";

    "tokens.jwks": Path = "",
        "a JWKS file with the public keys of an identity provider, whose bearer tokens (RS256, ES256) then count as keys";
    "tokens.jwks_url": Text = "",
        "the https address of such a JWKS, instead of `jwks`; fetched every 10 minutes, and when a token is of an unknown key";
    "tokens.ca": Path = "",
        "PEM file with certificates to trust in addition to those of the system, for `jwks_url`";
    "tokens.issuer": Text = "",
        "the claim `iss` of its tokens";
    "tokens.audience": Text = "",
        "a value of the claim `aud` of its tokens";
    "tokens.key_claim": Text = "sub",
        "the claim with the name of the key whose rights the token has";

    "hubs.*.partitions": Count(1, 1024) = "4",
        "partitions; can be increased later, never decreased";
    "hubs.*.retention": TimeOrForever = "7d",
        "the minimum time events are kept, or `forever`";
    "hubs.*.retention_bytes": SizeOrUnlimited = "unlimited",
        "the minimum size of a partition that is kept, or `unlimited`";
    "hubs.*.batch_bytes_max": Size = "1048588",
        "the largest batch accepted";
    "hubs.*.cleanup": Choice(&["delete", "compact", "compact,delete"]) = "delete",
        "the cleanup policy: `delete` old events, `compact` to the last one of each key, or both: `compact,delete`";

    "sharded.*.hubs": List = "",
        "the member hubs, which share the events sent to this name by key; their order decides the hub of a key";

    "jobs.folders": List = "",
        "folders below which jobs deployed over HTTP may read and write files; unset: none";
    "jobs.state_bytes_max": SizeOrUnlimited = "1GiB",
        "the largest state of a job, by the size of its checkpoint; beyond it the job fails";
    "jobs.*.path": Path = "",
        "the folder of a job that runs with the node, or its job file";

    "workflows.*.file": Path = "",
        "the definition of the workflow";
    "workflows.*.hub": Text = "",
        "a hub whose events start instances";
    "workflows.*.id": Text = "",
        "the id of such an instance, such as `{{input.deliveryId}}`; unset: the event's key";
    "workflows.*.partitions": Count(1, 64) = "2",
        "partitions of the journal, each with a scheduler; fixed once there is a journal";
    "workflows.*.running_max": Count(1, 10_000_000) = "100000",
        "the most running instances; beyond it starts get 429, and the hub waits";
    "workflows.*.input_bytes_max": Size = "1GiB",
        "the inputs of running instances together, which are in memory; beyond it starts get 429, and the hub waits";
    "workflows.*.keep": Time = "7d",
        "how long an ended instance and its id are kept";
    "workflows.*.supervisor": Choice(&["here", "elsewhere"]) = "here",
        "where failed instances are undone: on the node, or by processes of their own (`highwater workflow supervise`)";

    "queues.*.lock": Time = "60s",
        "how long a received message is locked";
    "queues.*.deliveries_max": Count(1, 4_294_967_295) = "10",
        "the most deliveries of a message before it becomes a dead letter";
    "queues.*.time_to_live": TimeOrForever = "forever",
        "how long a message is worth delivering, or `forever`";
    "queues.*.dead_letter_expired": Flag = "false",
        "turn expired messages into dead letters";
    "queues.*.duplicates_within": Time = "",
        "the window of duplicate detection by message id; unset: off";
    "queues.*.forward_to": Text = "",
        "the queue or topic that receives all messages; unset: they stay";
    "queues.*.forward_dead_letters_to": Text = "",
        "the queue or topic that receives all dead letters; unset: they stay";
    "queues.*.sessions": Flag = "false",
        "messages belong to sessions, each received in order by one receiver at a time";
    "queues.*.bytes_max": Size = "1GiB",
        "the most bytes of messages, which are in memory too; beyond it senders get 429";
    "queues.*.message_bytes_max": Size = "1MiB",
        "the largest message accepted";
    "queues.*.auto_delete_on_idle": Time = "",
        "delete the queue when it has not been used for this time, 5 minutes at least; unset: never";
    "queues.*.feed": Text = "",
        "the hub whose events become messages of the queue";

    "topics.*.time_to_live": TimeOrForever = "forever",
        "how long a message of the topic is worth delivering, or `forever`";
    "topics.*.duplicates_within": Time = "",
        "the window of duplicate detection by message id; unset: off";
    "topics.*.bytes_max": Size = "1GiB",
        "the most bytes of messages that are scheduled or that a subscription has not released; beyond it senders are refused";
    "topics.*.message_bytes_max": Size = "1MiB",
        "the largest message accepted, 1 MiB at most";
    "topics.*.auto_delete_on_idle": Time = "",
        "delete the topic when it has not been used for this time, 5 minutes at least; unset: never";
    "topics.*.subscriptions.*.lock": Time = "60s",
        "how long a received message is locked";
    "topics.*.subscriptions.*.deliveries_max": Count(1, 4_294_967_295) = "10",
        "the most deliveries of a message before it becomes a dead letter";
    "topics.*.subscriptions.*.time_to_live": TimeOrForever = "forever",
        "how long a message is worth delivering, or `forever`";
    "topics.*.subscriptions.*.dead_letter_expired": Flag = "false",
        "turn expired messages into dead letters";
    "topics.*.subscriptions.*.forward_to": Text = "",
        "the queue or topic that receives all messages; unset: they stay";
    "topics.*.subscriptions.*.forward_dead_letters_to": Text = "",
        "the queue or topic that receives all dead letters; unset: they stay";
    "topics.*.subscriptions.*.sessions": Flag = "false",
        "messages belong to sessions, each received in order by one receiver at a time";
    "topics.*.subscriptions.*.bytes_max": Size = "1GiB",
        "the most bytes of messages, which are in memory too; beyond it the topic keeps them for the subscription";
    "topics.*.subscriptions.*.auto_delete_on_idle": Time = "",
        "delete the subscription when it has not been used for this time, 5 minutes at least; unset: never";
    "topics.*.subscriptions.*.rules.*.sql": Text = "",
        "the rule selects messages for which this SQL expression is true; a rule without it and without conditions selects all";
    "topics.*.subscriptions.*.rules.*.action": Text = "",
        "`SET` and `REMOVE` statements on the copy of the message";
    "topics.*.subscriptions.*.rules.*.content_type": Text = "",
        "a condition of a correlation filter: the content type of the message";
    "topics.*.subscriptions.*.rules.*.correlation_id": Text = "",
        "a condition of a correlation filter: the correlation id of the message";
    "topics.*.subscriptions.*.rules.*.label": Text = "",
        "a condition of a correlation filter: the label (subject) of the message";
    "topics.*.subscriptions.*.rules.*.message_id": Text = "",
        "a condition of a correlation filter: the message id of the message";
    "topics.*.subscriptions.*.rules.*.reply_to": Text = "",
        "a condition of a correlation filter: the reply-to address of the message";
    "topics.*.subscriptions.*.rules.*.reply_to_session_id": Text = "",
        "a condition of a correlation filter: the session id for replies of the message";
    "topics.*.subscriptions.*.rules.*.session_id": Text = "",
        "a condition of a correlation filter: the session id of the message";
    "topics.*.subscriptions.*.rules.*.to": Text = "",
        "a condition of a correlation filter: the destination of the message";
    "topics.*.subscriptions.*.rules.*.properties.*": Text = "",
        "a condition of a correlation filter: a property of the application that is this text";

    "processors.*.hub": Text = "",
        "the hub of the events";
    "processors.*.group": Text = "",
        "the consumer group of the positions; unset: the name of the processor";
    "processors.*.start": Choice(&["earliest", "latest"]) = "earliest",
        "where a group without positions starts";
    "processors.*.handler.url": Text = "",
        "events are posted to this http or https address";
    "processors.*.handler.authorization": Secret = "",
        "the Authorization header of those requests";
    "processors.*.handler.ca": Path = "",
        "PEM file with certificates to trust in addition to those of the system";
    "processors.*.handler.command": List = "",
        "a program that reads events as lines and writes answers as lines";
    "processors.*.batch": Count(1, 10_000) = "1",
        "the most events of a call; if more than one, calls are sequential";
    "processors.*.format": Choice(&["any", "json"]) = "any",
        "with `json`, an event that is not JSON becomes a dead letter";
    "processors.*.order": Choice(&["none", "key", "partition"]) = "key",
        "the unit of ordered handling: none, the key, or the partition";
    "processors.*.concurrency": Count(1, 10_000) = "16",
        "concurrent events of a partition";
    "processors.*.timeout": Time = "30s",
        "timeout of a call";
    "processors.*.transient": Words(&["timeout", "connection", "5xx", "429", "408", "4xx"]) = "timeout,connection,5xx,429,408",
        "failures that are retried; any other makes the event a dead letter";
    "processors.*.retry.delay": Choice(&["exponential", "fixed"]) = "exponential",
        "whether the delay between attempts doubles or stays the same";
    "processors.*.retry.first": Time = "200ms",
        "the delay before the second attempt";
    "processors.*.retry.longest": Time = "30s",
        "the longest exponential delay";
    "processors.*.retry.jitter_percent": Count(0, 100) = "20",
        "the random share of a delay";
    "processors.*.retry.tries": CountOrForever(1, 1_000_000) = "8",
        "the most attempts, or `forever`";
    "processors.*.retry.deadline": TimeOrForever = "forever",
        "no retry later than this after the first attempt";
    "processors.*.checkpoint.events": Count(1, 10_000_000) = "1000",
        "positions are stored after this many events ...";
    "processors.*.checkpoint.period": Time = "5s",
        "... or after this time, whichever comes first";
    "processors.*.circuit.failures": Count(0, 1_000_000) = "100",
        "more failures than this within the window open the circuit";
    "processors.*.circuit.window": Time = "30s",
        "the window in which failures count";
    "processors.*.circuit.share_percent": Count(0, 100) = "0",
        "the minimum share of failures among at least 20 deliveries";
    "processors.*.circuit.open_for": TimeOrForever = "30s",
        "how long the circuit stays open before probes; `forever`: until it is closed by hand";
    "processors.*.circuit.probes": Count(1, 1000) = "3",
        "concurrent probes of each instance";
    "processors.*.circuit.successes": Count(1, 1000) = "3",
        "successful probes that close the circuit";
    "processors.*.circuit.poison": Count(0, 1000) = "3",
        "consecutive dead letters that open the circuit";
    "processors.*.instance": Text = "",
        "a name such as `reader-3`, whose number assigns partitions to this instance; unset: the group assigns them";
    "processors.*.instances": Count(1, 1024) = "",
        "with `instance`: the number n of instances; each reads every n-th partition; unset: one partition each";
    "processors.*.share": Text = "",
        "such as `0/4`: a share of every partition, by the hash of the key";
    "processors.*.dead": Text = "",
        "the dead-letter hub; unset: the name of the processor and `.dead`";
    "processors.*.replays": Count(1, 1000) = "3",
        "the most replays of a dead letter, unless forced";

    "egress.allow": List = "",
        "the hosts (`api.example.com`, `*.example.com`) and networks (`10.0.0.0/8`) that webhooks, workflows and outputs may connect to; unset: all but link-local and metadata addresses";

    "secrets.folder": Path = "",
        "the folder below which jobs deployed over HTTP may read secrets, as `${file:path}`; unset: none";

    "notify.url": Text = "",
        "the webhook for notifications: a circuit opens, or a workflow instance is parked";
    "notify.authorization": Secret = "",
        "the Authorization header of the webhook";
    "notify.ca": Path = "",
        "PEM file with certificates to trust in addition to those of the system, for webhook and mail";
    "notify.public_url": Text = "",
        "the base URL of links to this node; unset: the HTTP listener";
    "notify.link_lifetime": Time = "24h",
        "how long a link is valid";
    "notify.email.server": Text = "",
        "host:port of a mail server for the same notifications";
    "notify.email.tls": Choice(&["starttls", "tls", "off"]) = "starttls",
        "encryption by STARTTLS, from the first byte, or none";
    "notify.email.user": Text = "",
        "the user of the mail server";
    "notify.email.password": Secret = "",
        "its password; never sent unencrypted";
    "notify.email.from": Text = "",
        "the sender of mails";
    "notify.email.to": List = "",
        "the receivers of mails";
}

/// A setting and the parts of its key.
struct Pattern {
    parts: Vec<&'static str>,
    setting: &'static Setting,
}

/// The settings by the first part of their keys: a file may have thousands of tables, each with a dozen keys to look
/// up.
static PATTERNS: LazyLock<BTreeMap<&'static str, Vec<Pattern>>> = LazyLock::new(|| {
    let mut patterns = BTreeMap::<_, Vec<Pattern>>::new();
    for setting in SETTINGS {
        let parts = parts(setting.key);
        let section = patterns.entry(parts[0]).or_default();
        section.push(Pattern { parts, setting });
    }
    patterns
});

/// The setting of a full key such as `hubs.telemetry.partitions`.
pub(super) fn setting_of(key: &str) -> Option<&'static Setting> {
    let names = parts(key);
    let section = PATTERNS.get(names.first()?)?;
    let found = section.iter().find(|it| matches(&it.parts, &names));
    found.map(|pattern| pattern.setting)
}

/// The names that may follow the full key `prefix`.
pub(super) fn children(prefix: &str) -> Vec<&'static str> {
    let above = parts(prefix);
    let Some(first) = above.first() else {
        let mut sections: Vec<&str> = Vec::new();
        for setting in SETTINGS {
            let section = parts(setting.key)[0];
            if !sections.contains(&section) {
                sections.push(section);
            }
        }
        return sections;
    };
    let mut names = Vec::new();
    for pattern in PATTERNS.get(first).into_iter().flatten() {
        let Some((head, [name, ..])) = pattern.parts.split_at_checked(above.len()) else {
            continue;
        };
        if matches(head, &above) && !names.contains(name) {
            names.push(*name);
        }
    }
    names
}

/// The parts of a key. A quoted part may have dots: `hubs."toll.raw".partitions`.
pub(super) fn parts(key: &str) -> Vec<&str> {
    let mut quoted = false;
    let separates = |c: char| {
        quoted ^= c == '"';
        c == '.' && !quoted
    };
    match key {
        "" => Vec::new(),
        _ => key.split(separates).collect(),
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
        assert_eq!(
            children("http.tls"),
            ["cert", "key", "client_ca", "client_auth"]
        );
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
