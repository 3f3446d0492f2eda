//! DescribeConfigs, AlterConfigs and IncrementalAlterConfigs.

pub(crate) mod settings;

use highwater_log::HubSettings;
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, DescribeConfigsRequest, DescribeConfigsResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, alter_configs_response,
    incremental_alter_configs_response,
};

use super::topics::Refused;
use super::{some_text, text};
use crate::access::{Resource, Right};
use crate::broker::Broker;
use crate::call::Call;
use settings::{Setting, kind, source};

const TOPIC: i8 = 2;
const NODE: i8 = 4;

pub(crate) async fn describe(
    broker: &Broker,
    call: &Call,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let results = request.resources.into_iter().map(|wanted| {
        let answer = DescribeConfigsResult::default()
            .with_resource_type(wanted.resource_type)
            .with_resource_name(wanted.resource_name.clone());
        match settings_of(broker, call, &wanted) {
            Ok(found) => {
                let keys = wanted
                    .configuration_keys
                    .as_deref()
                    .filter(|keys| !keys.is_empty());
                let asked_for = |setting: &Setting| {
                    keys.is_none_or(|keys| keys.iter().any(|key| **key == *setting.name))
                };
                let shown = found.into_iter().filter(asked_for);
                let with_synonyms = request.include_synonyms;
                answer.with_configs(
                    shown
                        .map(|setting| show(call, setting, with_synonyms))
                        .collect(),
                )
            }
            Err(refused) => answer
                .with_error_code(broker.fail(&refused.code))
                .with_error_message(some_text(refused.reason)),
        }
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

fn settings_of(
    broker: &Broker,
    call: &Call,
    wanted: &DescribeConfigsResource,
) -> Result<Vec<Setting>, Refused> {
    match wanted.resource_type {
        TOPIC => {
            if !broker.may_see(call, &wanted.resource_name) {
                return Err(Code::TopicAuthorizationFailed.into());
            }
            let hub = broker.services.log.hub(&wanted.resource_name);
            let hub = hub.ok_or(Code::UnknownTopicOrPartition)?;
            Ok(settings::all(&hub.settings))
        }
        NODE => {
            broker.allow(call, Right::Manage, Resource::Node)?;
            Ok(settings_of_node(broker))
        }
        _ => Err(Refused::new(
            Code::InvalidRequest,
            "only topics and brokers have settings",
        )),
    }
}

fn settings_of_node(broker: &Broker) -> Vec<Setting> {
    let options = &broker.options;
    let of_node = |name, value: String, kind| Setting {
        name,
        value,
        kind,
        source: source::NODE,
        fixed: true,
    };
    vec![
        of_node(
            "auto.create.topics.enable",
            options.auto_create.to_string(),
            kind::BOOLEAN,
        ),
        of_node(
            "connections.max.idle.ms",
            options.idle_timeout.as_millis().to_string(),
            kind::LONG,
        ),
        of_node("default.replication.factor", "1".into(), kind::INT),
        of_node(
            "fetch.max.bytes",
            options.fetch_bytes_max.to_string(),
            kind::INT,
        ),
        of_node(
            "log.message.timestamp.type",
            "LogAppendTime".into(),
            kind::STRING,
        ),
        of_node(
            "max.connections",
            options.connections_max.to_string(),
            kind::INT,
        ),
        of_node("node.id", options.node_id.to_string(), kind::INT),
        of_node(
            "num.partitions",
            options.partitions_default.to_string(),
            kind::INT,
        ),
        of_node(
            "socket.request.max.bytes",
            options.frame_bytes_max.to_string(),
            kind::INT,
        ),
    ]
}

fn show(call: &Call, setting: Setting, with_synonyms: bool) -> DescribeConfigsResourceResult {
    let synonym = DescribeConfigsSynonym::default()
        .with_name(text(setting.name))
        .with_value(some_text(&setting.value))
        .with_source(setting.source);
    let answer = DescribeConfigsResourceResult::default()
        .with_name(text(setting.name))
        .with_value(some_text(&setting.value))
        .with_read_only(setting.fixed)
        .with_config_source(setting.source)
        .with_synonyms(if with_synonyms {
            vec![synonym]
        } else {
            Vec::new()
        });
    match call.version >= 3 {
        true => answer.with_config_type(setting.kind),
        false => answer,
    }
}

/// Sets everything that is named and everything else to its default.
pub(crate) async fn alter(
    broker: &Broker,
    call: &Call,
    request: AlterConfigsRequest,
) -> AlterConfigsResponse {
    let mut responses = Vec::with_capacity(request.resources.len());
    for wanted in request.resources {
        let change = |_: HubSettings| {
            let pairs = wanted.configs.iter();
            let pairs = pairs.map(|config| (&*config.name, config.value.as_deref()));
            settings::read(HubSettings::default(), pairs)
        };
        let resource = (wanted.resource_type, &*wanted.resource_name);
        let changed = changed(broker, call, resource, change, request.validate_only).await;
        let answer = alter_configs_response::AlterConfigsResourceResponse::default()
            .with_resource_type(wanted.resource_type)
            .with_resource_name(wanted.resource_name);
        responses.push(match changed {
            Ok(()) => answer,
            Err(refused) => answer
                .with_error_code(broker.fail(&refused.code))
                .with_error_message(some_text(refused.reason)),
        });
    }
    AlterConfigsResponse::default().with_responses(responses)
}

const SET: i8 = 0;
const UNSET: i8 = 1;

/// Sets or resets what is named and leaves the rest.
pub(crate) async fn alter_by_steps(
    broker: &Broker,
    call: &Call,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let mut responses = Vec::with_capacity(request.resources.len());
    for wanted in request.resources {
        let change = |mut settings: HubSettings| {
            for config in &wanted.configs {
                let value = match config.config_operation {
                    SET => config.value.as_deref(),
                    UNSET => None,
                    _ => {
                        let reason = "lists cannot be added to or taken from";
                        return Err(Refused::new(Code::InvalidConfig, reason));
                    }
                };
                settings = settings::read(settings, [(&*config.name, value)].into_iter())?;
            }
            Ok(settings)
        };
        let resource = (wanted.resource_type, &*wanted.resource_name);
        let changed = changed(broker, call, resource, change, request.validate_only).await;
        let answer = incremental_alter_configs_response::AlterConfigsResourceResponse::default()
            .with_resource_type(wanted.resource_type)
            .with_resource_name(wanted.resource_name);
        responses.push(match changed {
            Ok(()) => answer,
            Err(refused) => answer
                .with_error_code(broker.fail(&refused.code))
                .with_error_message(some_text(refused.reason)),
        });
    }
    IncrementalAlterConfigsResponse::default().with_responses(responses)
}

async fn changed(
    broker: &Broker,
    call: &Call,
    (kind, name): (i8, &str),
    change: impl FnOnce(HubSettings) -> Result<HubSettings, Refused>,
    only_try: bool,
) -> Result<(), Refused> {
    if kind != TOPIC {
        let reason = "only settings of topics can be changed";
        return Err(Refused::new(Code::InvalidRequest, reason));
    }
    let hub = broker.hub(call, Right::Manage, name)?;
    if hub.name.is_internal() {
        return Err(Refused::new(
            Code::PolicyViolation,
            "the node keeps this hub for itself",
        ));
    }
    let settings = change(hub.settings.clone())?;
    if !only_try {
        broker.services.log.change(&hub.name, settings).await?;
    }
    Ok(())
}
