//! ListConfigResources: the owners of settings.

use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::list_config_resources_response::ConfigResource;
use kafka_protocol::messages::{ListConfigResourcesRequest, ListConfigResourcesResponse};

use super::text;
use crate::access::Resource;
use crate::dynamic::SettingOwner;
use crate::request::RequestContext;

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const CLIENT_METRICS: i8 = 16;
const GROUP: i8 = 32;
/// Kafka's other type: loggers of a broker. Nothing here has such settings.
const WITHOUT_RESOURCES: [i8; 1] = [8];

/// Version 0 asks for the metrics of clients alone.
pub(crate) async fn list(
    context: &RequestContext,
    request: ListConfigResourcesRequest,
) -> ListConfigResourcesResponse {
    let response = ListConfigResourcesResponse::default();
    let known = |kind: &i8| {
        matches!(*kind, TOPIC | BROKER | CLIENT_METRICS | GROUP) || WITHOUT_RESOURCES.contains(kind)
    };
    let kinds = &request.resource_types;
    let refused = match context.allow(Resource::Node) {
        Err(code) => Some(code),
        Ok(()) if !kinds.iter().all(known) => Some(Code::UnsupportedVersion),
        Ok(()) => None,
    };
    if let Some(code) = refused {
        return response.with_error_code(context.error_code(&code));
    }
    let is_wanted = |kind: i8| match context.version {
        0 => kind == CLIENT_METRICS,
        _ => kinds.is_empty() || kinds.contains(&kind),
    };
    let resource = |kind, name: &str| {
        ConfigResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(name))
    };
    let mut resources = Vec::new();
    if is_wanted(TOPIC) {
        let hubs = context.log().hubs();
        resources.extend(hubs.iter().map(|hub| resource(TOPIC, hub.name.as_str())));
    }
    if is_wanted(BROKER) {
        let node = context.broker.options.node_id.to_string();
        resources.push(resource(BROKER, &node));
    }
    let settings = context.broker.settings();
    let named = settings.iter().filter_map(|(owner, _)| match owner {
        SettingOwner::ClientMetrics(name) => Some((CLIENT_METRICS, name)),
        SettingOwner::Group(name) => Some((GROUP, name)),
        _ => None,
    });
    let named = named.filter(|(kind, _)| is_wanted(*kind));
    resources.extend(named.map(|(kind, name)| resource(kind, name)));
    response.with_config_resources(resources)
}
