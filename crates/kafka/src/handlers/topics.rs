//! CreateTopics and DeleteTopics.

use std::collections::BTreeMap;
use std::sync::Arc;

use highwater_log::{HubInfo, HubName, HubSettings, HubSpec};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{
    BrokerId, CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse,
};
use uuid::Uuid;

use super::configs::RESOURCE_BYTES;
use super::configs::settings::{self, Setting};
use super::{Refusal, hub_id, some_text, text, topic, uuid_of, with_refusal};
use crate::access::Resource;
use crate::request::RequestContext;

/// An upper bound of the memory of a response.
pub(crate) fn response_bytes(request: &CreateTopicsRequest) -> usize {
    request.topics.len() * RESOURCE_BYTES
}

pub(crate) async fn create(
    context: &RequestContext,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let mut times_named = BTreeMap::new();
    for topic in &request.topics {
        *times_named.entry(topic.name.clone()).or_insert(0) += 1;
    }
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let created = match times_named.get(&topic.name) {
            Some(1) => create_hub(context, &topic, request.validate_only).await,
            _ => Err(Refusal::new(Code::InvalidRequest, "a topic is named twice")),
        };
        if !request.validate_only {
            context.audit(
                &topic.name,
                created.as_ref().err().map(|refusal| refusal.code),
            );
        }
        topics.push(create_result(context, topic, created));
    }
    CreateTopicsResponse::default().with_topics(topics)
}

/// A hub that was created, or would have been. Only the former has an id.
struct CreatedHub {
    id: Option<Uuid>,
    partitions: u32,
    settings: HubSettings,
}

async fn create_hub(
    context: &RequestContext,
    topic: &CreatableTopic,
    validate_only: bool,
) -> Result<CreatedHub, Refusal> {
    context.allow_creation(&topic.name)?;
    let spec = spec(context, topic)?;
    if !validate_only {
        context.charge_partitions(spec.partitions)?;
        let hub = context.log().create(spec).await?;
        return Ok(CreatedHub {
            id: Some(uuid_of(&hub)),
            partitions: hub.partitions,
            settings: hub.settings.clone(),
        });
    }
    match context.log().hub(spec.name.as_str()) {
        Some(_) => Err(Code::TopicAlreadyExists.into()),
        None => Ok(CreatedHub {
            id: None,
            partitions: spec.partitions,
            settings: spec.settings,
        }),
    }
}

fn spec(context: &RequestContext, topic: &CreatableTopic) -> Result<HubSpec, Refusal> {
    let name = HubName::new(&topic.name)
        .map_err(|error| Refusal::new(Code::InvalidTopicException, error))?;
    if name.is_internal() {
        let reason = "names that begin with two underscores are reserved";
        return Err(Refusal::new(Code::InvalidTopicException, reason));
    }
    let pairs = topic.configs.iter();
    let pairs = pairs.map(|config| (&*config.name, config.value.as_deref()));
    let initial = settings::initial(&context.broker.options.topics);
    Ok(HubSpec {
        name,
        partitions: partitions(context, topic)?,
        settings: settings::change(initial.clone(), &initial, pairs)?,
    })
}

/// The number of partitions, given as a number or as an assignment of replicas.
fn partitions(context: &RequestContext, topic: &CreatableTopic) -> Result<u32, Refusal> {
    let assigned = topic.assignments.iter().map(|one| &one.broker_ids[..]);
    check_assignment(context, assigned)?;
    if !matches!(topic.replication_factor, -1 | 1) {
        let reason = "the replication factor must be 1, because there is one node";
        return Err(Refusal::new(Code::InvalidReplicationFactor, reason));
    }
    let count = match (topic.num_partitions, topic.assignments.len()) {
        (-1, 0) => context.broker.options.partitions_default,
        (-1, assigned) => u32::try_from(assigned).unwrap_or(u32::MAX),
        (count, _) => u32::try_from(count).unwrap_or(0),
    };
    match (1..=HubSpec::PARTITIONS_MAX).contains(&count) {
        true => Ok(count),
        false => Err(Refusal::new(
            Code::InvalidPartitions,
            format!("a hub has 1 to {} partitions", HubSpec::PARTITIONS_MAX),
        )),
    }
}

/// Partitions can be assigned to this node only.
pub(super) fn check_assignment<'a>(
    context: &RequestContext,
    mut assigned: impl Iterator<Item = &'a [BrokerId]>,
) -> Result<(), Refusal> {
    let here = [BrokerId(context.broker.options.node_id)];
    match assigned.all(|nodes| nodes == here) {
        true => Ok(()),
        false => Err(Refusal::new(
            Code::InvalidReplicaAssignment,
            format!("node {} is the only node", here[0].0),
        )),
    }
}

fn create_result(
    context: &RequestContext,
    topic: CreatableTopic,
    created: Result<CreatedHub, Refusal>,
) -> CreatableTopicResult {
    let response = CreatableTopicResult::default().with_name(topic.name);
    let hub = match created {
        Ok(hub) => hub,
        refused => return with_refusal!(context, response, refused),
    };
    let response = response
        .with_topic_id(hub.id.unwrap_or_default())
        .with_error_message(None);
    if context.version < 5 {
        return response;
    }
    let defaults = &context.broker.options.topics;
    let configs = settings::all(&hub.settings, defaults, &context.broker.settings());
    let configs = configs.into_iter().map(created_config);
    response
        .with_num_partitions(hub.partitions as i32)
        .with_replication_factor(1)
        .with_configs(Some(configs.collect()))
}

fn created_config(setting: Setting) -> CreatableTopicConfigs {
    CreatableTopicConfigs::default()
        .with_name(text(setting.name))
        .with_value(some_text(setting.value()))
        .with_read_only(setting.read_only)
        .with_config_source(setting.source())
}

pub(crate) async fn delete(
    context: &RequestContext,
    request: DeleteTopicsRequest,
) -> DeleteTopicsResponse {
    let by_name = request.topic_names.into_iter();
    let by_name = by_name.map(|name| DeleteTopicState::default().with_name(Some(name)));
    let mut responses = Vec::new();
    for state in request.topics.into_iter().chain(by_name) {
        let response = DeletableTopicResult::default();
        let (response, deleted) = match existing_hub(context, &state) {
            Ok(hub) => (
                response
                    .with_name(Some(topic(hub.name.as_str())))
                    .with_topic_id(uuid_of(&hub)),
                delete_hub(context, &hub).await,
            ),
            Err(code) => (
                response.with_name(state.name).with_topic_id(state.topic_id),
                Err(code.into()),
            ),
        };
        let name = response.name.as_ref().map_or("", |name| name.as_str());
        context.audit(
            name,
            deleted.as_ref().err().map(|refusal: &Refusal| refusal.code),
        );
        responses.push(match deleted {
            Err(refusal) if context.version < 5 => {
                response.with_error_code(context.error_code(&refusal.code))
            }
            deleted => with_refusal!(context, response, deleted),
        });
    }
    DeleteTopicsResponse::default().with_responses(responses)
}

fn existing_hub(context: &RequestContext, state: &DeleteTopicState) -> Result<Arc<HubInfo>, Code> {
    match &state.name {
        Some(name) => context.hub(name),
        None => {
            let hub = context.log().hub_by_id(hub_id(state.topic_id));
            hub.filter(|hub| context.may_see(hub.name.as_str()))
                .ok_or(Code::UnknownTopicId)
        }
    }
}

async fn delete_hub(context: &RequestContext, hub: &HubInfo) -> Result<(), Refusal> {
    context.allow(Resource::Hub(hub.name.as_str()))?;
    if hub.name.is_internal() {
        let reason = "this hub is internal to the node";
        return Err(Refusal::new(Code::TopicDeletionDisabled, reason));
    }
    Ok(context.log().delete(&hub.name).await?)
}
