//! Settings of topics, of the node, of groups and of subscriptions to client metrics: DescribeConfigs here, changes in
//! `alter.rs`.

mod alter;
pub(crate) mod definitions;
mod dynamic;
mod node;
pub(crate) mod settings;

use std::collections::HashSet;

use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};

use super::{Refusal, some_text, text, with_refusal};
use crate::access::Resource;
use crate::dynamic::SettingOwner;
use crate::request::RequestContext;
pub(crate) use alter::{SET, UNSET, alter, alter_incrementally};
use settings::{Setting, SettingLevel, source};

/// An upper bound of the memory for the settings of one resource in a response.
pub(super) const RESOURCE_BYTES: usize = 64 << 10;

const TOPIC: i8 = 2;
const NODE: i8 = 4;
const CLIENT_METRICS: i8 = 16;
const GROUP: i8 = 32;

const SUBSCRIPTION_NAME_BYTES_MAX: usize = 255;

const GROUP_NAME_BYTES_MAX: usize = 1024;

/// An upper bound of the memory of a response.
pub(crate) fn response_bytes(request: &DescribeConfigsRequest) -> usize {
    request.resources.len() * RESOURCE_BYTES
}

pub(crate) async fn describe(
    context: &RequestContext,
    mut request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let mut resources = std::mem::take(&mut request.resources);
    let mut seen = HashSet::with_capacity(resources.len());
    resources.retain(|one| seen.insert((one.resource_type, one.resource_name.clone())));
    let results = resources.iter().map(|resource| {
        let response = DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        let keys = resource.configuration_keys.as_deref();
        let keys = keys.filter(|keys| !keys.is_empty());
        let is_requested = |setting: &Setting| {
            keys.is_none_or(|keys| keys.iter().any(|key| **key == *setting.name))
        };
        let settings = settings_of(context, resource).map(|settings| {
            let requested = settings.into_iter().filter(is_requested);
            requested
                .map(|setting| described(context, &request, setting))
                .collect()
        });
        match settings {
            Ok(configs) => response.with_configs(configs).with_error_message(None),
            refused => with_refusal!(context, response, refused),
        }
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

fn settings_of(
    context: &RequestContext,
    resource: &DescribeConfigsResource,
) -> Result<Vec<Setting>, Refusal> {
    let name = &*resource.resource_name;
    match resource.resource_type {
        TOPIC => {
            let hub = context.hub(name)?;
            let defaults = &context.broker.options.topics;
            let dynamic = context.broker.settings();
            Ok(settings::all(&hub.settings, defaults, &dynamic))
        }
        NODE => {
            let owner = node_owner(context, name)?;
            Ok(settings_of_node(context, &owner))
        }
        CLIENT_METRICS => {
            let owner = client_metrics_owner(context, name)?;
            let definitions = dynamic::of_client_metrics();
            let settings = context.broker.settings();
            let sources = [(owner, source::CLIENT_METRICS)];
            Ok(dynamic::described(definitions, &settings, &sources))
        }
        GROUP => {
            let owner = group_owner(context, name)?;
            let definitions = dynamic::of_group(&context.broker.options);
            let settings = context.broker.settings();
            let sources = [(owner, source::GROUP)];
            Ok(dynamic::described(definitions, &settings, &sources))
        }
        _ => Err(Refusal::new(
            Code::InvalidRequest,
            "only topics, brokers, groups and subscriptions to client metrics have settings",
        )),
    }
}

/// Those of every node are the ones that were set for it, as in Kafka.
fn settings_of_node(context: &RequestContext, owner: &SettingOwner) -> Vec<Setting> {
    let definitions = dynamic::of_broker(&context.broker.options);
    let every = (SettingOwner::EveryBroker, source::DYNAMIC_EVERY_NODE);
    let changed = context.broker.settings();
    if *owner == SettingOwner::EveryBroker {
        let mut settings = dynamic::described(definitions, &changed, &[every]);
        settings.retain(|setting| setting.source() == source::DYNAMIC_EVERY_NODE);
        return settings;
    }
    let own = (SettingOwner::Broker, source::DYNAMIC_NODE);
    let mut settings = node::settings(context);
    settings.extend(dynamic::described(definitions, &changed, &[own, every]));
    settings.sort_by_key(|setting| setting.name);
    settings
}

/// Checks that this is the name of the node, or of all nodes, and that the client may manage it.
fn node_owner(context: &RequestContext, name: &str) -> Result<SettingOwner, Refusal> {
    context.allow(Resource::Node)?;
    let node = context.broker.options.node_id.to_string();
    match name {
        "" => Ok(SettingOwner::EveryBroker),
        name if name == node => Ok(SettingOwner::Broker),
        _ => {
            let reason = format!("node {node} is the only node");
            Err(Refusal::new(Code::InvalidRequest, reason))
        }
    }
}

fn group_owner(context: &RequestContext, name: &str) -> Result<SettingOwner, Refusal> {
    context.allow(Resource::Group(name))?;
    match name.is_empty() || name.len() > GROUP_NAME_BYTES_MAX {
        true => {
            let reason = format!("a group has a name of 1 to {GROUP_NAME_BYTES_MAX} bytes");
            Err(Refusal::new(Code::InvalidRequest, reason))
        }
        false => Ok(SettingOwner::Group(name.to_owned())),
    }
}

fn client_metrics_owner(context: &RequestContext, name: &str) -> Result<SettingOwner, Refusal> {
    context.allow(Resource::Node)?;
    match name.is_empty() || name.len() > SUBSCRIPTION_NAME_BYTES_MAX {
        true => {
            let reason =
                format!("a subscription has a name of 1 to {SUBSCRIPTION_NAME_BYTES_MAX} bytes");
            Err(Refusal::new(Code::InvalidRequest, reason))
        }
        false => Ok(SettingOwner::ClientMetrics(name.to_owned())),
    }
}

fn described(
    context: &RequestContext,
    request: &DescribeConfigsRequest,
    setting: Setting,
) -> DescribeConfigsResourceResult {
    let response = DescribeConfigsResourceResult::default()
        .with_name(text(setting.name))
        .with_value(some_text(setting.value()))
        .with_read_only(setting.read_only)
        .with_config_source(setting.source())
        .with_synonyms(match request.include_synonyms {
            true => synonyms(&setting),
            false => Vec::new(),
        });
    if context.version < 3 {
        return response;
    }
    let documentation = request.include_documentation;
    response
        .with_config_type(setting.kind)
        .with_documentation(documentation.then(|| text(setting.documentation)))
}

/// The values by precedence, of those that have a name.
fn synonyms(setting: &Setting) -> Vec<DescribeConfigsSynonym> {
    let levels = setting.levels.iter();
    let named = levels.filter(|level| !level.name.is_empty());
    let synonym = |level: &SettingLevel| {
        DescribeConfigsSynonym::default()
            .with_name(text(level.name))
            .with_value(some_text(&level.value))
            .with_source(level.source)
    };
    named.map(synonym).collect()
}
