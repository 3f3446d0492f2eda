//! Metadata: the hubs, and the leaders of their partitions, which is always this node.

use std::collections::HashSet;
use std::sync::Arc;

use highwater_log::{AdminError, HubInfo, HubName, HubSpec};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{BrokerId, MetadataRequest, MetadataResponse, TopicName};
use uuid::Uuid;

use super::configs::settings;
use super::{LEADER_EPOCH, hub_id, text, topic, uuid_of};
use crate::access::Resource;
use crate::codes::ErrorCode;
use crate::request::RequestContext;

pub(crate) async fn metadata(
    context: &RequestContext,
    request: MetadataRequest,
) -> MetadataResponse {
    let requested = match request.topics {
        // Version 0 has no null: there an empty list means all topics.
        Some(topics) if context.version > 0 || !topics.is_empty() => Some(topics),
        _ => None,
    };
    let with_rights = request.include_topic_authorized_operations;
    let topics = match requested {
        Some(mut requested) => {
            let mut seen = HashSet::with_capacity(requested.len());
            requested.retain(|topic| seen.insert((topic.name.clone(), topic.topic_id)));
            let may_create = context.version < 4 || request.allow_auto_topic_creation;
            let mut topics = Vec::with_capacity(requested.len());
            for topic in requested {
                topics.push(requested_topic(context, topic, may_create, with_rights).await);
            }
            topics
        }
        None => all_topics(context, with_rights),
    };
    let response = MetadataResponse::default()
        .with_brokers(vec![this_node(context)])
        .with_cluster_id(context.broker.cluster_id().map(text))
        .with_controller_id(BrokerId(context.broker.options.node_id))
        .with_topics(topics);
    match request.include_cluster_authorized_operations {
        true => {
            let operations = context.authorized_operations(Resource::Node);
            response.with_cluster_authorized_operations(operations)
        }
        false => response,
    }
}

/// The bytes of a partition and of a topic in a response, while it is built.
const PARTITION_BYTES: usize = 200;
const TOPIC_BYTES: usize = 300;

/// An upper bound of the memory of a response.
pub(crate) fn response_bytes(context: &RequestContext, request: &MetadataRequest) -> usize {
    let bytes = |hub: &HubInfo| TOPIC_BYTES + hub.partitions as usize * PARTITION_BYTES;
    let all = || context.log().hubs().iter().map(|hub| bytes(hub)).sum();
    match &request.topics {
        Some(topics) if !topics.is_empty() => {
            let named = topics.iter().filter_map(|topic| topic.name.as_ref());
            let distinct: HashSet<_> = named.collect();
            let by_id = topics.len() - distinct.len();
            let hubs = distinct.iter().filter_map(|name| context.log().hub(name));
            let by_name = hubs.map(|hub| bytes(&hub)).sum::<usize>();
            let unknown = topics.len() * TOPIC_BYTES;
            unknown + by_name + if by_id > 0 { all() } else { 0 }
        }
        Some(_) if context.version > 0 => 0,
        _ => all(),
    }
}

fn this_node(context: &RequestContext) -> MetadataResponseBroker {
    MetadataResponseBroker::default()
        .with_node_id(BrokerId(context.broker.options.node_id))
        .with_host(context.listener.host.clone())
        .with_port(i32::from(context.listener.port))
}

fn all_topics(context: &RequestContext, with_rights: bool) -> Vec<MetadataResponseTopic> {
    let hubs = context.log().hubs().into_iter();
    hubs.filter(|hub| context.may(Resource::Hub(hub.name.as_str())))
        .map(|hub| topic_response(context, &hub, with_rights))
        .collect()
}

async fn requested_topic(
    context: &RequestContext,
    requested: MetadataRequestTopic,
    may_create: bool,
    with_rights: bool,
) -> MetadataResponseTopic {
    let found = match &requested.name {
        Some(name) => by_name(context, name, may_create).await,
        None => by_id(context, requested.topic_id),
    };
    match found {
        Ok(hub) => topic_response(context, &hub, with_rights),
        Err(code) => {
            // Before version 12 a name must not be null.
            let nameless = (context.version < 12).then(TopicName::default);
            MetadataResponseTopic::default()
                .with_error_code(context.error_code(&code))
                .with_name(requested.name.or(nameless))
                .with_topic_id(requested.topic_id)
        }
    }
}

async fn by_name(
    context: &RequestContext,
    name: &str,
    may_create: bool,
) -> Result<Arc<HubInfo>, Code> {
    context.allow(Resource::Hub(name))?;
    if let Some(hub) = context.log().hub(name) {
        return Ok(hub);
    }
    let name = HubName::new(name).map_err(|_| Code::InvalidTopicException)?;
    let may_create = may_create
        && context.broker.options.auto_create
        && !name.is_internal()
        && context.may_create(name.as_str());
    match may_create {
        true => create(context, name).await,
        false => Err(Code::UnknownTopicOrPartition),
    }
}

async fn create(context: &RequestContext, name: HubName) -> Result<Arc<HubInfo>, Code> {
    let spec = HubSpec {
        name: name.clone(),
        partitions: context.broker.options.partitions_default,
        settings: settings::initial(&context.broker.options.topics),
    };
    context.charge_partitions(spec.partitions)?;
    let created = context.log().create_automatically(spec).await;
    let code = created.as_ref().err().map(|error| error.kind());
    context.audit(name.as_str(), code);
    // Another client may have created it meanwhile. A name can be taken by something that is not a hub.
    created.or_else(|error| {
        let found = context.log().hub(name.as_str());
        found.ok_or(match error {
            AdminError::Exists(_) => Code::UnknownTopicOrPartition,
            error => error.kind(),
        })
    })
}

fn by_id(context: &RequestContext, id: Uuid) -> Result<Arc<HubInfo>, Code> {
    let hub = context.log().hub_by_id(hub_id(id));
    hub.filter(|hub| context.may(Resource::Hub(hub.name.as_str())))
        .ok_or(Code::UnknownTopicId)
}

fn topic_response(
    context: &RequestContext,
    hub: &HubInfo,
    with_rights: bool,
) -> MetadataResponseTopic {
    let node = BrokerId(context.broker.options.node_id);
    let partition = |index| {
        MetadataResponsePartition::default()
            .with_partition_index(index as i32)
            .with_leader_id(node)
            .with_leader_epoch(LEADER_EPOCH)
            .with_replica_nodes(vec![node])
            .with_isr_nodes(vec![node])
    };
    let response = MetadataResponseTopic::default()
        .with_name(Some(topic(hub.name.as_str())))
        .with_topic_id(uuid_of(hub))
        .with_is_internal(hub.name.is_internal())
        .with_partitions((0..hub.partitions).map(partition).collect());
    let resource = Resource::Hub(hub.name.as_str());
    match with_rights {
        true => response.with_topic_authorized_operations(context.authorized_operations(resource)),
        false => response,
    }
}
