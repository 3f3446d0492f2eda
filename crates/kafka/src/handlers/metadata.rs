//! Metadata: which hubs there are and where their partitions live, which is always here.

use std::sync::Arc;

use highwater_log::{AdminError, HubInfo, HubName, HubSettings, HubSpec};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{BrokerId, MetadataRequest, MetadataResponse, TopicName};
use uuid::Uuid;

use super::{LEADER_EPOCH, hub_id, text, topic, uuid_of};
use crate::access::{Resource, Right};
use crate::broker::Broker;
use crate::call::Call;
use crate::codes::ErrorCode;

pub(crate) async fn metadata(
    broker: &Broker,
    call: &Call,
    request: MetadataRequest,
) -> MetadataResponse {
    let wanted = match request.topics {
        // Version 0 has no null and means everything by nothing.
        Some(topics) if call.version > 0 || !topics.is_empty() => Some(topics),
        _ => None,
    };
    let with_rights = request.include_topic_authorized_operations;
    let topics = match wanted {
        Some(wanted) => {
            let may_create = call.version < 4 || request.allow_auto_topic_creation;
            let mut topics = Vec::with_capacity(wanted.len());
            for one in wanted {
                topics.push(described(broker, call, one, may_create, with_rights).await);
            }
            topics
        }
        None => everything(broker, call, with_rights),
    };
    let answer = MetadataResponse::default()
        .with_brokers(vec![this_node(broker, call)])
        .with_cluster_id(Some(text(&*broker.options.cluster_id)))
        .with_controller_id(BrokerId(broker.options.node_id))
        .with_topics(topics);
    match request.include_cluster_authorized_operations {
        true => answer.with_cluster_authorized_operations(operations(broker, call, Resource::Node)),
        false => answer,
    }
}

fn this_node(broker: &Broker, call: &Call) -> MetadataResponseBroker {
    MetadataResponseBroker::default()
        .with_node_id(BrokerId(broker.options.node_id))
        .with_host(call.listener_info.host.clone())
        .with_port(i32::from(call.listener_info.port))
}

fn everything(broker: &Broker, call: &Call, with_rights: bool) -> Vec<MetadataResponseTopic> {
    let hubs = broker.services.log.hubs().into_iter();
    hubs.filter(|hub| broker.may_see(call, hub.name.as_str()))
        .map(|hub| present(broker, call, &hub, with_rights))
        .collect()
}

async fn described(
    broker: &Broker,
    call: &Call,
    wanted: MetadataRequestTopic,
    may_create: bool,
    with_rights: bool,
) -> MetadataResponseTopic {
    let found = match &wanted.name {
        Some(name) => by_name(broker, call, name, may_create).await,
        None => by_id(broker, call, wanted.topic_id),
    };
    match found {
        Ok(hub) => present(broker, call, &hub, with_rights),
        Err(code) => {
            // Only from version 12 on may a name be null.
            let nameless = (call.version < 12).then(TopicName::default);
            MetadataResponseTopic::default()
                .with_error_code(broker.fail(&code))
                .with_name(wanted.name.or(nameless))
                .with_topic_id(wanted.topic_id)
        }
    }
}

async fn by_name(
    broker: &Broker,
    call: &Call,
    name: &str,
    may_create: bool,
) -> Result<Arc<HubInfo>, Code> {
    if !broker.may_see(call, name) {
        return Err(Code::TopicAuthorizationFailed);
    }
    if let Some(hub) = broker.services.log.hub(name) {
        return Ok(hub);
    }
    let name = HubName::new(name).map_err(|_| Code::InvalidTopicException)?;
    let may_create = may_create
        && broker.options.auto_create
        && !name.is_internal()
        && broker.may(call, Right::Manage, Resource::Hub(name.as_str()));
    match may_create {
        true => make(broker, name).await,
        false => Err(Code::UnknownTopicOrPartition),
    }
}

async fn make(broker: &Broker, name: HubName) -> Result<Arc<HubInfo>, Code> {
    let spec = HubSpec {
        name: name.clone(),
        partitions: broker.options.partitions_default,
        settings: HubSettings::default(),
    };
    let made = broker.services.log.create(spec).await;
    // Somebody else may have been faster. A name that is taken by no hub leads nowhere.
    made.or_else(|error| {
        let found = broker.services.log.hub(name.as_str());
        found.ok_or(match error {
            AdminError::Exists(_) => Code::UnknownTopicOrPartition,
            error => error.kind(),
        })
    })
}

fn by_id(broker: &Broker, call: &Call, id: Uuid) -> Result<Arc<HubInfo>, Code> {
    let hub = broker.services.log.hub_by_id(hub_id(id));
    hub.filter(|hub| broker.may_see(call, hub.name.as_str()))
        .ok_or(Code::UnknownTopicId)
}

fn present(
    broker: &Broker,
    call: &Call,
    hub: &HubInfo,
    with_rights: bool,
) -> MetadataResponseTopic {
    let node = BrokerId(broker.options.node_id);
    let partition = |index| {
        MetadataResponsePartition::default()
            .with_partition_index(index as i32)
            .with_leader_id(node)
            .with_leader_epoch(LEADER_EPOCH)
            .with_replica_nodes(vec![node])
            .with_isr_nodes(vec![node])
    };
    let answer = MetadataResponseTopic::default()
        .with_name(Some(topic(hub.name.as_str())))
        .with_topic_id(uuid_of(hub))
        .with_is_internal(hub.name.is_internal())
        .with_partitions((0..hub.partitions).map(partition).collect());
    let resource = Resource::Hub(hub.name.as_str());
    match with_rights {
        true => answer.with_topic_authorized_operations(operations(broker, call, resource)),
        false => answer,
    }
}

/// Kafka's operations that the caller's rights come to, as bits.
pub(crate) fn operations(broker: &Broker, call: &Call, on: Resource<'_>) -> i32 {
    const READ: i32 = 1 << 3;
    const WRITE: i32 = 1 << 4;
    const CREATE: i32 = 1 << 5;
    const DELETE: i32 = 1 << 6;
    const ALTER: i32 = 1 << 7;
    const DESCRIBE: i32 = 1 << 8;
    const DESCRIBE_CONFIGS: i32 = 1 << 10;
    const ALTER_CONFIGS: i32 = 1 << 11;
    let rights = [
        (Right::Listen, READ | DESCRIBE),
        (Right::Send, WRITE | DESCRIBE),
        (
            Right::Manage,
            CREATE | DELETE | ALTER | DESCRIBE | DESCRIBE_CONFIGS | ALTER_CONFIGS,
        ),
    ];
    let granted = rights
        .into_iter()
        .filter(|(right, _)| broker.may(call, *right, on));
    granted.fold(0, |all, (_, bits)| all | bits)
}
