//! Settings of the node that are described only: they are in its settings file.

use super::definitions::kind;
use super::settings::{Setting, SettingLevel, source};
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
    described.into_iter().map(to_setting).collect()
}

/// Whether the node has such a setting.
pub(super) fn has(context: &RequestContext, name: &str) -> bool {
    settings(context).iter().any(|setting| setting.name == name)
}

fn to_setting(described: Described) -> Setting {
    Setting {
        name: described.name,
        kind: described.kind,
        read_only: true,
        documentation: described.documentation,
        levels: vec![SettingLevel {
            name: described.name,
            value: described.value,
            source: source::NODE,
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
