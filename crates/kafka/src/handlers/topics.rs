//! CreateTopics and DeleteTopics.

use std::collections::BTreeMap;
use std::sync::Arc;

use highwater_log::{HubInfo, HubName, HubSpec};
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

use super::configs::settings::{self, Setting};
use super::{hub_id, some_text, text, topic, uuid_of};
use crate::access::{Resource, Right};
use crate::broker::Broker;
use crate::call::Call;
use crate::codes::ErrorCode;

/// Why something was not done, for the client's program and for its reader.
pub(crate) struct Refused {
    pub code: Code,
    pub reason: String,
}

impl Refused {
    pub fn new(code: Code, reason: impl ToString) -> Refused {
        let reason = reason.to_string();
        Refused { code, reason }
    }
}

impl From<Code> for Refused {
    fn from(code: Code) -> Refused {
        Refused::new(code, code)
    }
}

impl From<highwater_log::AdminError> for Refused {
    fn from(error: highwater_log::AdminError) -> Refused {
        Refused::new(error.kind(), error)
    }
}

pub(crate) async fn create(
    broker: &Broker,
    call: &Call,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let mut times_named = BTreeMap::new();
    for wanted in &request.topics {
        *times_named.entry(wanted.name.clone()).or_insert(0) += 1;
    }
    let mut topics = Vec::with_capacity(request.topics.len());
    for wanted in request.topics {
        let made = match times_named.get(&wanted.name) {
            Some(1) => make(broker, call, &wanted, request.validate_only).await,
            _ => Err(Refused::new(Code::InvalidRequest, "a topic is named twice")),
        };
        topics.push(created(broker, call, wanted, made));
    }
    CreateTopicsResponse::default().with_topics(topics)
}

/// A hub made, or one that could have been made and has no id.
enum Made {
    Really(Arc<HubInfo>),
    Tried(HubSpec),
}

async fn make(
    broker: &Broker,
    call: &Call,
    wanted: &CreatableTopic,
    only_try: bool,
) -> Result<Made, Refused> {
    broker.allow(call, Right::Manage, Resource::Hub(&wanted.name))?;
    let spec = spec(broker, wanted)?;
    if only_try {
        return match broker.services.log.hub(spec.name.as_str()) {
            Some(_) => Err(Code::TopicAlreadyExists.into()),
            None => Ok(Made::Tried(spec)),
        };
    }
    Ok(Made::Really(broker.services.log.create(spec).await?))
}

fn spec(broker: &Broker, wanted: &CreatableTopic) -> Result<HubSpec, Refused> {
    let name = HubName::new(&wanted.name)
        .map_err(|error| Refused::new(Code::InvalidTopicException, error))?;
    if name.is_internal() {
        let reason = "names that begin with two underscores belong to the node";
        return Err(Refused::new(Code::InvalidTopicException, reason));
    }
    let pairs = wanted.configs.iter();
    let pairs = pairs.map(|config| (&*config.name, config.value.as_deref()));
    Ok(HubSpec {
        name,
        partitions: partitions(broker, wanted)?,
        settings: settings::read(Default::default(), pairs)?,
    })
}

/// How many partitions are wanted, either as a number or as a list of who keeps which.
fn partitions(broker: &Broker, wanted: &CreatableTopic) -> Result<u32, Refused> {
    let assigned = wanted.assignments.iter().map(|one| &one.broker_ids[..]);
    only_here(broker, assigned)?;
    if !matches!(wanted.replication_factor, -1 | 1) {
        let reason = "there is one node, so the replication factor is 1";
        return Err(Refused::new(Code::InvalidReplicationFactor, reason));
    }
    let count = match (wanted.num_partitions, wanted.assignments.len()) {
        (-1, 0) => broker.options.partitions_default,
        (-1, assigned) => u32::try_from(assigned).unwrap_or(u32::MAX),
        (count, _) => u32::try_from(count).unwrap_or(0),
    };
    match (1..=HubSpec::PARTITIONS_MAX).contains(&count) {
        true => Ok(count),
        false => Err(Refused::new(
            Code::InvalidPartitions,
            format!("a hub has 1 to {} partitions", HubSpec::PARTITIONS_MAX),
        )),
    }
}

/// Partitions can be given to no other node than this.
pub(super) fn only_here<'a>(
    broker: &Broker,
    mut assigned: impl Iterator<Item = &'a [BrokerId]>,
) -> Result<(), Refused> {
    let here = [BrokerId(broker.options.node_id)];
    match assigned.all(|nodes| nodes == here) {
        true => Ok(()),
        false => Err(Refused::new(
            Code::InvalidReplicaAssignment,
            format!("node {} is the only one", here[0].0),
        )),
    }
}

fn created(
    broker: &Broker,
    call: &Call,
    wanted: CreatableTopic,
    made: Result<Made, Refused>,
) -> CreatableTopicResult {
    let answer = CreatableTopicResult::default().with_name(wanted.name);
    let (answer, partitions, settings) = match made {
        Ok(Made::Really(hub)) => {
            let answer = answer.with_topic_id(uuid_of(&hub));
            (answer, hub.partitions, hub.settings.clone())
        }
        Ok(Made::Tried(spec)) => (answer, spec.partitions, spec.settings),
        Err(refused) => {
            return answer
                .with_error_code(broker.fail(&refused.code))
                .with_error_message(some_text(refused.reason));
        }
    };
    if call.version < 5 {
        return answer;
    }
    let configs = settings::all(&settings).into_iter().map(created_config);
    answer
        .with_num_partitions(partitions as i32)
        .with_replication_factor(1)
        .with_configs(Some(configs.collect()))
}

fn created_config(setting: Setting) -> CreatableTopicConfigs {
    CreatableTopicConfigs::default()
        .with_name(text(setting.name))
        .with_value(some_text(setting.value))
        .with_read_only(setting.fixed)
        .with_config_source(setting.source)
}

pub(crate) async fn delete(
    broker: &Broker,
    call: &Call,
    request: DeleteTopicsRequest,
) -> DeleteTopicsResponse {
    let by_name = request.topic_names.into_iter();
    let by_name = by_name.map(|name| DeleteTopicState::default().with_name(Some(name)));
    let wanted = request.topics.into_iter().chain(by_name);
    let mut responses = Vec::new();
    for one in wanted {
        let (answer, deleted) = match named(broker, call, &one) {
            Ok(hub) => {
                let answer = DeletableTopicResult::default()
                    .with_name(Some(topic(hub.name.as_str())))
                    .with_topic_id(uuid_of(&hub));
                (answer, remove(broker, call, &hub).await)
            }
            Err(refused) => {
                let answer = DeletableTopicResult::default()
                    .with_name(one.name)
                    .with_topic_id(one.topic_id);
                (answer, Err(refused))
            }
        };
        responses.push(match deleted {
            Ok(()) => answer,
            Err(refused) => {
                let answer = answer.with_error_code(broker.fail(&refused.code));
                match call.version >= 5 {
                    true => answer.with_error_message(some_text(refused.reason)),
                    false => answer,
                }
            }
        });
    }
    DeleteTopicsResponse::default().with_responses(responses)
}

fn named(broker: &Broker, call: &Call, wanted: &DeleteTopicState) -> Result<Arc<HubInfo>, Refused> {
    match &wanted.name {
        Some(name) => Ok(broker.hub(call, Right::Manage, name)?),
        None => {
            let hub = broker.services.log.hub_by_id(hub_id(wanted.topic_id));
            let seen = hub.filter(|hub| broker.may_see(call, hub.name.as_str()));
            Ok(seen.ok_or(Code::UnknownTopicId)?)
        }
    }
}

async fn remove(broker: &Broker, call: &Call, hub: &HubInfo) -> Result<(), Refused> {
    broker.allow(call, Right::Manage, Resource::Hub(hub.name.as_str()))?;
    if hub.name.is_internal() {
        let reason = "the node keeps this hub for itself";
        return Err(Refused::new(Code::TopicDeletionDisabled, reason));
    }
    Ok(broker.services.log.delete(&hub.name).await?)
}
