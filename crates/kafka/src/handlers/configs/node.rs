//! Settings of the node and of groups that are described only: the node's own settings are in its settings file.

use super::definitions::kind;
use super::settings::{Setting, SettingLevel, source, timestamp_type_name};
use crate::options::Options;
use crate::request::RequestContext;

/// A setting with its value and documentation.
struct Described {
    name: &'static str,
    value: String,
    kind: i8,
    documentation: &'static str,
}

pub(super) fn settings(context: &RequestContext) -> Vec<Setting> {
    let mut described = listener_settings(context);
    described.extend(topic_settings(&context.broker.options));
    described.extend(limits(&context.broker.options));
    let of_node = |setting| to_setting(setting, source::NODE);
    described.into_iter().map(of_node).collect()
}

/// Whether the node has such a setting.
pub(super) fn has(context: &RequestContext, name: &str) -> bool {
    settings(context).iter().any(|setting| setting.name == name)
}

/// All groups have the same ones.
pub(super) fn group_settings(options: &Options) -> Vec<Setting> {
    let millis = |duration: std::time::Duration| duration.as_millis().to_string();
    let described = [
        Described {
            name: "consumer.heartbeat.interval.ms",
            value: millis(options.consumer_heartbeat),
            kind: kind::INT,
            documentation: "How often members of the consumer protocol send heartbeats.",
        },
        Described {
            name: "consumer.session.timeout.ms",
            value: millis(options.consumer_session),
            kind: kind::INT,
            documentation: "A member of the consumer protocol is removed after this time without a heartbeat.",
        },
    ];
    let of_group = |setting| to_setting(setting, source::DEFAULT);
    described.into_iter().map(of_group).collect()
}

fn to_setting(described: Described, source: i8) -> Setting {
    Setting {
        name: described.name,
        kind: described.kind,
        read_only: true,
        documentation: described.documentation,
        levels: vec![SettingLevel {
            name: described.name,
            value: described.value,
            source,
        }],
    }
}

fn listener_settings(context: &RequestContext) -> Vec<Described> {
    let options = &context.broker.options;
    vec![
        Described {
            name: "advertised.listeners",
            value: context.listener.advertised(),
            kind: kind::LIST,
            documentation: "The address of this listener that clients connect to (kafka.advertised).",
        },
        Described {
            name: "node.id",
            value: options.node_id.to_string(),
            kind: kind::INT,
            documentation: "The id of the only node.",
        },
    ]
}

fn topic_settings(options: &Options) -> Vec<Described> {
    vec![
        Described {
            name: "auto.create.topics.enable",
            value: options.auto_create.to_string(),
            kind: kind::BOOLEAN,
            documentation: "Whether a Metadata request creates a missing topic, if the client allows it and may.",
        },
        Described {
            name: "default.replication.factor",
            value: "1".into(),
            kind: kind::INT,
            documentation: "The replicas of a topic that is created without a number. There is one node.",
        },
        Described {
            name: "log.message.timestamp.type",
            value: timestamp_type_name(options.topics.timestamp_type).into(),
            kind: kind::STRING,
            documentation: "The timestamps of topics that are created without message.timestamp.type.",
        },
        Described {
            name: "num.partitions",
            value: options.partitions_default.to_string(),
            kind: kind::INT,
            documentation: "The partitions of a topic that is created without a number.",
        },
    ]
}

fn limits(options: &Options) -> Vec<Described> {
    vec![
        Described {
            name: "connections.max.idle.ms",
            value: options.idle_timeout.as_millis().to_string(),
            kind: kind::LONG,
            documentation: "An idle connection is closed after this time, up to half as much later.",
        },
        Described {
            name: "fetch.max.bytes",
            value: options.fetch_bytes_max.to_string(),
            kind: kind::INT,
            documentation: "The largest Fetch response, unless a single batch is larger.",
        },
        Described {
            name: "socket.request.max.bytes",
            value: options.frame_bytes_max.to_string(),
            kind: kind::INT,
            documentation: "A longer request closes its connection.",
        },
    ]
}
