//! Settings that can be changed while the node runs: which there are, and which values they take.

use kafka_protocol::ResponseError as Code;

use super::definitions::{self, DEFINITIONS, kind};
use super::settings::{self, Setting, SettingLevel, list, source};
use crate::dynamic::{DynamicSettings, SettingOwner, setting};
use crate::handlers::Refusal;
use crate::options::{Options, TopicDefaults};
use crate::telemetry::{INTERVAL_DEFAULT, check_match};

/// A setting that clients change.
pub(super) struct Definition {
    pub(super) name: &'static str,
    /// One of [`kind`].
    pub(super) kind: i8,
    pub(super) default: String,
    /// The name that the default has elsewhere; empty if it is the same.
    default_name: &'static str,
    values: Values,
    documentation: &'static str,
}

/// The values that a setting takes.
enum Values {
    /// From the first to the last number.
    Range(i64, i64),
    List,
    /// Expressions over clients.
    Matches,
    /// Those of a setting of topics, of which it is the default.
    OfTopics(&'static definitions::Definition, TopicDefaults),
}

const WITHOUT_EFFECT: &str = "Stored without effect.";

const INT_MAX: i64 = i32::MAX as i64;

/// The longest interval between two looks for something to retain or compact, a day.
const BACKOFF_MS_MAX: i64 = 86_400_000;

/// Name, kind, default and smallest number of those that tools set although nothing here depends on them.
const INEFFECTIVE: [(&str, i8, &str, i64); 10] = [
    ("background.threads", kind::INT, "10", 1),
    (
        "follower.replication.throttled.rate",
        kind::LONG,
        "9223372036854775807",
        0,
    ),
    (
        "leader.replication.throttled.rate",
        kind::LONG,
        "9223372036854775807",
        0,
    ),
    ("log.cleaner.threads", kind::INT, "1", 0),
    ("num.io.threads", kind::INT, "8", 1),
    ("num.network.threads", kind::INT, "3", 1),
    ("num.recovery.threads.per.data.dir", kind::INT, "2", 1),
    ("num.replica.fetchers", kind::INT, "1", 1),
    (
        "replica.alter.log.dirs.io.max.bytes.per.second",
        kind::LONG,
        "9223372036854775807",
        0,
    ),
    (
        "sasl.kerberos.min.time.before.relogin",
        kind::LONG,
        "60000",
        0,
    ),
];

/// The settings of the broker.
pub(super) fn of_broker(options: &Options) -> Vec<Definition> {
    let effective = [
        Definition {
            name: setting::CLEANER_BACKOFF,
            kind: kind::LONG,
            default: options.maintenance.as_millis().to_string(),
            default_name: "",
            values: Values::Range(100, BACKOFF_MS_MAX),
            documentation: "How often retention and compaction look for something to do.",
        },
        Definition {
            name: setting::CONNECTIONS_MAX,
            kind: kind::INT,
            default: options.connections_max.to_string(),
            // More than at the start would need more file descriptors than the node counts on.
            values: Values::Range(1, i64::try_from(options.connections_max).unwrap_or(INT_MAX)),
            default_name: "",
            documentation: "Further connections are closed. At most what the node has at its start.",
        },
    ];
    let ineffective = INEFFECTIVE
        .iter()
        .map(|(name, kind, default, min)| Definition {
            name,
            kind: *kind,
            default: (*default).to_owned(),
            default_name: "",
            values: Values::Range(
                *min,
                if *kind == kind::INT {
                    INT_MAX
                } else {
                    i64::MAX
                },
            ),
            documentation: WITHOUT_EFFECT,
        });
    let all = effective.into_iter().chain(ineffective);
    all.chain(of_topics(&options.topics)).collect()
}

/// The defaults of the settings of topics.
fn of_topics(defaults: &TopicDefaults) -> impl Iterator<Item = Definition> {
    let initial = settings::initial(defaults);
    let named = DEFINITIONS.iter().filter(|one| !one.synonym.is_empty());
    named.map(move |definition| Definition {
        name: definition.synonym,
        kind: definition.kind,
        default: settings::default_of(definition, &initial, defaults),
        default_name: "",
        values: Values::OfTopics(definition, defaults.clone()),
        documentation: definition.documentation,
    })
}

/// The settings of a consumer group, within the limits of Kafka's broker.
pub(super) fn of_group(options: &Options) -> Vec<Definition> {
    let millis = |duration: std::time::Duration| duration.as_millis().to_string();
    vec![
        Definition {
            name: setting::GROUP_HEARTBEAT,
            kind: kind::INT,
            default: millis(options.consumer_heartbeat),
            default_name: "group.consumer.heartbeat.interval.ms",
            values: Values::Range(5_000, 15_000),
            documentation: "How often members of the consumer protocol send heartbeats.",
        },
        Definition {
            name: setting::GROUP_SESSION,
            kind: kind::INT,
            default: millis(options.consumer_session),
            default_name: "group.consumer.session.timeout.ms",
            values: Values::Range(45_000, 60_000),
            documentation: "A member of the consumer protocol is removed after this time without a heartbeat.",
        },
    ]
}

/// The settings of a subscription to the metrics of clients.
pub(super) fn of_client_metrics() -> Vec<Definition> {
    let list = |name, values, documentation| Definition {
        name,
        kind: kind::LIST,
        default: String::new(),
        default_name: "",
        values,
        documentation,
    };
    vec![
        Definition {
            name: setting::INTERVAL,
            kind: kind::INT,
            default: INTERVAL_DEFAULT.as_millis().to_string(),
            default_name: "",
            values: Values::Range(100, 3_600_000),
            documentation: "How often clients push their metrics.",
        },
        list(
            setting::MATCH,
            Values::Matches,
            "The clients: NAME=REGEX, all of which must match. Empty: all clients.",
        ),
        list(
            setting::METRICS,
            Values::List,
            "Prefixes of the names of metrics; * for all of them.",
        ),
    ]
}

/// The longest value of a list.
const LIST_BYTES_MAX: usize = 4 << 10;

impl Definition {
    /// The value as it is stored.
    pub(super) fn check(&self, value: &str) -> Result<String, Refusal> {
        let invalid = |expected: String| {
            let reason = format!(
                "`{value}` is not valid for {}: expected {expected}",
                self.name
            );
            Refusal::new(Code::InvalidRequest, reason)
        };
        let value = value.trim();
        match &self.values {
            Values::Range(min, max) => {
                let number = value.parse::<i64>().ok();
                let number = number.filter(|number| (min..=max).contains(&number));
                let number = number.ok_or_else(|| invalid(format!("a number from {min} to {max}")));
                return Ok(number?.to_string());
            }
            Values::OfTopics(definition, defaults) => {
                settings::check_default(definition, defaults, value)?;
            }
            Values::Matches => {
                for pattern in list(value) {
                    check_match(pattern).map_err(invalid)?;
                }
            }
            Values::List => {}
        }
        match value.len() > LIST_BYTES_MAX {
            true => Err(invalid(format!("at most {LIST_BYTES_MAX} bytes"))),
            false => Ok(value.to_owned()),
        }
    }
}

/// The settings with the values that hold for an owner, and those that these precede.
pub(super) fn described(
    definitions: Vec<Definition>,
    settings: &DynamicSettings,
    owners: &[(SettingOwner, i8)],
) -> Vec<Setting> {
    let describe = |definition: Definition| {
        let name = definition.name;
        let levels = owners.iter().filter_map(|(owner, source)| {
            Some(SettingLevel {
                name,
                value: settings.value(owner, name)?.to_owned(),
                source: *source,
            })
        });
        let default = SettingLevel {
            name: match definition.default_name {
                "" => name,
                other => other,
            },
            value: definition.default,
            source: source::DEFAULT,
        };
        Setting {
            name,
            kind: definition.kind,
            read_only: false,
            documentation: definition.documentation,
            levels: levels.chain([default]).collect(),
        }
    };
    definitions.into_iter().map(describe).collect()
}
