//! DescribeConfigs, AlterConfigs and IncrementalAlterConfigs.

pub(crate) mod definitions;
mod node;
pub(crate) mod settings;

use std::collections::HashSet;

use highwater_log::HubSettings;
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource as IncrementalResource, AlterableConfig as IncrementalConfig,
};
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, DescribeConfigsRequest, DescribeConfigsResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, alter_configs_response,
    incremental_alter_configs_response,
};

use super::{Refusal, some_text, text, with_refusal};
use crate::access::Resource;
use crate::request::RequestContext;
use settings::{Setting, source};

/// An upper bound of the memory for the settings of one resource in a response.
pub(super) const RESOURCE_BYTES: usize = 64 << 10;

const TOPIC: i8 = 2;
const NODE: i8 = 4;
const GROUP: i8 = 32;

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
    match resource.resource_type {
        TOPIC => {
            let hub = context.hub(&resource.resource_name)?;
            Ok(settings::all(&hub.settings, &context.broker.options.topics))
        }
        NODE => {
            node_name(context, &resource.resource_name)?;
            Ok(node::settings(context))
        }
        GROUP => {
            context.allow(Resource::Group(&resource.resource_name))?;
            Ok(node::group_settings(&context.broker.options))
        }
        _ => Err(Refusal::new(
            Code::InvalidRequest,
            "only topics, brokers and groups have settings",
        )),
    }
}

/// Checks that this is the name of the node, or of all nodes, and that the client may manage it.
fn node_name(context: &RequestContext, name: &str) -> Result<(), Refusal> {
    context.allow(Resource::Node)?;
    let node = context.broker.options.node_id.to_string();
    match *name == *node || name.is_empty() {
        true => Ok(()),
        false => {
            let reason = format!("node {node} is the only node");
            Err(Refusal::new(Code::InvalidRequest, reason))
        }
    }
}

fn described(
    context: &RequestContext,
    request: &DescribeConfigsRequest,
    setting: Setting,
) -> DescribeConfigsResourceResult {
    let response = DescribeConfigsResourceResult::default()
        .with_name(text(setting.name))
        .with_value(some_text(&setting.value))
        .with_read_only(setting.read_only)
        .with_config_source(setting.source)
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

/// The values by precedence: that of the topic, then that of the broker's setting.
fn synonyms(setting: &Setting) -> Vec<DescribeConfigsSynonym> {
    let synonym = |name: &'static str, value: &str, source| {
        DescribeConfigsSynonym::default()
            .with_name(text(name))
            .with_value(some_text(value))
            .with_source(source)
    };
    let mut synonyms = Vec::new();
    if setting.source != source::DEFAULT {
        synonyms.push(synonym(setting.name, &setting.value, setting.source));
    }
    if !setting.synonym.is_empty() {
        synonyms.push(synonym(setting.synonym, &setting.default, source::DEFAULT));
    }
    synonyms
}

/// Alters resources one after another. The two requests have different types with the same fields.
macro_rules! alter_resources {
    ($context:expr, $request:expr, $messages:ident, $change:expr, $is_node_reset:expr) => {{
        let mut responses = Vec::with_capacity($request.resources.len());
        for resource in $request.resources {
            let altered = match $is_node_reset(&resource) {
                true => node_name($context, &resource.resource_name),
                false => {
                    let altered = alter_resource(
                        $context,
                        resource.resource_type,
                        &resource.resource_name,
                        |settings| $change(settings, &resource.configs),
                        $request.validate_only,
                    );
                    altered.await
                }
            };
            if !$request.validate_only {
                let code = altered.as_ref().err().map(|refusal| refusal.code);
                $context.audit(&resource.resource_name, code);
            }
            let response = $messages::AlterConfigsResourceResponse::default()
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name);
            responses.push(with_refusal!($context, response, altered));
        }
        responses
    }};
}

/// Sets the named settings, and all others to their defaults.
pub(crate) async fn alter(
    context: &RequestContext,
    request: AlterConfigsRequest,
) -> AlterConfigsResponse {
    let change = |_: HubSettings, configs: &[AlterableConfig]| {
        let pairs = configs.iter();
        let pairs = pairs.map(|config| (&*config.name, config.value.as_deref()));
        let initial = settings::initial(&context.broker.options.topics);
        settings::read(initial.clone(), &initial, pairs)
    };
    let never = |_: &AlterConfigsResource| false;
    let responses = alter_resources!(context, request, alter_configs_response, change, never);
    AlterConfigsResponse::default().with_responses(responses)
}

pub(crate) const SET: i8 = 0;
pub(crate) const UNSET: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

/// Changes the named settings only.
pub(crate) async fn alter_incrementally(
    context: &RequestContext,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let change = |mut settings: HubSettings, configs: &[IncrementalConfig]| {
        let initial = settings::initial(&context.broker.options.topics);
        for config in configs {
            let (name, value) = (&*config.name, config.value.as_deref());
            let operation = config.config_operation;
            settings = match operation {
                SET => settings::read(settings, &initial, [(name, value)].into_iter())?,
                UNSET => settings::read(settings, &initial, [(name, None)].into_iter())?,
                APPEND | SUBTRACT => {
                    let append = operation == APPEND;
                    settings::change_list(settings, &initial, (name, value), append)?
                }
                _ => {
                    let reason = format!("operation {operation} is unknown");
                    return Err(Refusal::new(Code::InvalidRequest, reason));
                }
            };
        }
        Ok(settings)
    };
    // No setting of the node is changed at run time, so there is nothing to reset. Tools reset throttles after their work.
    let is_node_reset = |resource: &IncrementalResource| {
        let mut configs = resource.configs.iter();
        resource.resource_type == NODE && configs.all(|config| config.config_operation == UNSET)
    };
    let responses = alter_resources!(
        context,
        request,
        incremental_alter_configs_response,
        change,
        is_node_reset
    );
    IncrementalAlterConfigsResponse::default().with_responses(responses)
}

async fn alter_resource(
    context: &RequestContext,
    kind: i8,
    name: &str,
    change: impl FnOnce(HubSettings) -> Result<HubSettings, Refusal>,
    validate_only: bool,
) -> Result<(), Refusal> {
    if kind != TOPIC {
        let reason =
            "only settings of topics can be changed; those of the node are in its settings file";
        return Err(Refusal::new(Code::InvalidRequest, reason));
    }
    let hub = context.hub(name)?;
    if hub.name.is_internal() {
        let reason = "this hub is internal to the node";
        return Err(Refusal::new(Code::PolicyViolation, reason));
    }
    let settings = change(hub.settings.clone())?;
    if !validate_only {
        context.log().change(&hub.name, settings).await?;
    }
    Ok(())
}
