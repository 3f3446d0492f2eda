//! AlterConfigs and IncrementalAlterConfigs.

use highwater_log::HubSettings;
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::alter_configs_request::AlterConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource as IncrementalResource, AlterableConfig as IncrementalConfig,
};
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse, alter_configs_response, incremental_alter_configs_response,
};

use super::definitions::kind;
use super::dynamic::{self, Definition};
use super::settings::{self, changed_list};
use super::{
    CLIENT_METRICS, GROUP, NODE, TOPIC, client_metrics_owner, group_owner, node, node_owner,
};
use crate::dynamic::{SettingError, SettingOwner, SettingUpdate};
use crate::handlers::{Refusal, some_text, with_refusal};
use crate::request::RequestContext;

pub(crate) const SET: i8 = 0;
pub(crate) const UNSET: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

/// Puts the outcomes of resources into responses, with a line in the audit log for each change. The two requests have
/// different types with the same fields.
macro_rules! altered {
    ($context:expr, $request:expr, $messages:ident, $alter:ident) => {{
        let mut responses = Vec::with_capacity($request.resources.len());
        for resource in $request.resources {
            let altered = $alter($context, &resource, $request.validate_only).await;
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
    let responses = altered!(context, request, alter_configs_response, replace);
    AlterConfigsResponse::default().with_responses(responses)
}

/// Changes the named settings only.
pub(crate) async fn alter_incrementally(
    context: &RequestContext,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let responses = altered!(context, request, incremental_alter_configs_response, change);
    IncrementalAlterConfigsResponse::default().with_responses(responses)
}

/// A change of one setting.
struct Change<'a> {
    name: &'a str,
    operation: i8,
    value: Option<&'a str>,
}

async fn replace(
    context: &RequestContext,
    resource: &AlterConfigsResource,
    validate_only: bool,
) -> Result<(), Refusal> {
    let (kind, name) = (resource.resource_type, &*resource.resource_name);
    let configs = resource.configs.iter();
    if kind == TOPIC {
        let replaced = |_: HubSettings| {
            let pairs = configs.map(|config| (&*config.name, config.value.as_deref()));
            let initial = settings::initial(&context.broker.options.topics);
            settings::change(initial.clone(), &initial, pairs)
        };
        return alter_topic(context, name, replaced, validate_only).await;
    }
    let changes = configs.map(|config| Change {
        name: &config.name,
        operation: if config.value.is_some() { SET } else { UNSET },
        value: config.value.as_deref(),
    });
    let update = SettingUpdate {
        replaces: true,
        ..update(context, kind, name, changes)?
    };
    alter_dynamic(context, update, validate_only).await
}

async fn change(
    context: &RequestContext,
    resource: &IncrementalResource,
    validate_only: bool,
) -> Result<(), Refusal> {
    let (kind, name) = (resource.resource_type, &*resource.resource_name);
    let configs = &resource.configs;
    if kind == TOPIC {
        let changed = |settings| change_topic(context, settings, configs);
        return alter_topic(context, name, changed, validate_only).await;
    }
    let changes = configs.iter().map(|config| Change {
        name: &config.name,
        operation: config.config_operation,
        value: config.value.as_deref(),
    });
    let update = update(context, kind, name, changes)?;
    alter_dynamic(context, update, validate_only).await
}

fn unknown_operation(operation: i8) -> Refusal {
    Refusal::new(
        Code::InvalidRequest,
        format!("operation {operation} is unknown"),
    )
}

fn change_topic(
    context: &RequestContext,
    mut settings: HubSettings,
    configs: &[IncrementalConfig],
) -> Result<HubSettings, Refusal> {
    let initial = settings::initial(&context.broker.options.topics);
    for config in configs {
        let (name, value) = (&*config.name, config.value.as_deref());
        let operation = config.config_operation;
        settings = match operation {
            SET => settings::change(settings, &initial, [(name, value)].into_iter())?,
            UNSET => settings::change(settings, &initial, [(name, None)].into_iter())?,
            APPEND | SUBTRACT => {
                let append = operation == APPEND;
                settings::change_list(settings, &initial, (name, value), append)?
            }
            _ => return Err(unknown_operation(operation)),
        };
    }
    Ok(settings)
}

async fn alter_topic(
    context: &RequestContext,
    name: &str,
    change: impl FnOnce(HubSettings) -> Result<HubSettings, Refusal>,
    validate_only: bool,
) -> Result<(), Refusal> {
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

/// The checked changes of the node, of a group or of a subscription.
fn update<'a>(
    context: &RequestContext,
    kind: i8,
    name: &str,
    changes: impl Iterator<Item = Change<'a>>,
) -> Result<SettingUpdate, Refusal> {
    let (owner, definitions) = match kind {
        NODE => (
            node_owner(context, name)?,
            dynamic::of_broker(&context.broker.options),
        ),
        CLIENT_METRICS => (
            client_metrics_owner(context, name)?,
            dynamic::of_client_metrics(),
        ),
        GROUP => (
            group_owner(context, name)?,
            dynamic::of_group(&context.broker.options),
        ),
        _ => {
            let reason =
                "only topics, brokers, groups and client metrics have settings that can be changed";
            return Err(Refusal::new(Code::InvalidRequest, reason));
        }
    };
    let mut values = Vec::new();
    for change in changes {
        let definition = definitions.iter().find(|one| one.name == change.name);
        let value = match definition {
            // As in Kafka, which has another code for what is wrong with a group.
            Some(definition) if kind == GROUP => {
                let value = changed_value(context, &owner, definition, &change);
                value.map_err(|refusal| Refusal::new(Code::InvalidConfig, refusal.reason))?
            }
            None if kind == GROUP => {
                let reason = format!("unknown setting {} of a group", change.name);
                return Err(Refusal::new(Code::InvalidConfig, reason));
            }
            Some(definition) => changed_value(context, &owner, definition, &change)?,
            // Tools reset throttles after their work, whatever they are called.
            None if change.operation == UNSET && !node::has(context, change.name) => None,
            None => return Err(unchangeable(context, change.name)),
        };
        values.push((change.name.to_owned(), value));
    }
    Ok(SettingUpdate {
        owner,
        values,
        replaces: false,
    })
}

fn unchangeable(context: &RequestContext, name: &str) -> Refusal {
    match node::has(context, name) {
        true => {
            let reason = format!(
                "Cannot update these configs dynamically: {name} is in the settings file of the node"
            );
            Refusal::new(Code::InvalidRequest, reason)
        }
        false => {
            let reason = format!("unknown setting {name}, or none that can be changed");
            Refusal::new(Code::InvalidRequest, reason)
        }
    }
}

fn changed_value(
    context: &RequestContext,
    owner: &SettingOwner,
    definition: &Definition,
    change: &Change<'_>,
) -> Result<Option<String>, Refusal> {
    let given = change.value.unwrap_or_default();
    match change.operation {
        SET => definition.check(given).map(Some),
        UNSET => Ok(None),
        APPEND | SUBTRACT if definition.kind != kind::LIST => {
            let reason = format!(
                "{} is not a list, to which values can be added",
                change.name
            );
            Err(Refusal::new(Code::InvalidConfig, reason))
        }
        APPEND | SUBTRACT => {
            let settings = context.broker.settings();
            let current = settings.value(owner, change.name);
            let current = current.unwrap_or(&definition.default);
            let value = changed_list(current, given, change.operation == APPEND);
            definition.check(&value).map(Some)
        }
        operation => Err(unknown_operation(operation)),
    }
}

async fn alter_dynamic(
    context: &RequestContext,
    update: SettingUpdate,
    validate_only: bool,
) -> Result<(), Refusal> {
    match validate_only {
        true => Ok(()),
        false => {
            let changed = context.broker.services.settings.update(update).await;
            changed.map_err(Refusal::from)
        }
    }
}

impl From<SettingError> for Refusal {
    fn from(error: SettingError) -> Refusal {
        let code = match error {
            SettingError::Unsupported | SettingError::TooMany => Code::InvalidRequest,
            SettingError::Storage(_) => Code::KafkaStorageError,
        };
        Refusal::new(code, error)
    }
}
