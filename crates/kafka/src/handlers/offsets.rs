//! Positions of groups: stored, asked for, forgotten.

use highwater_log::{Membership, Offset, OffsetAndMetadata, OffsetCommit, TopicPartition};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{
    GroupId, OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse,
    OffsetFetchRequest, OffsetFetchResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;

use super::groups::{may_join, membership};
use super::{text, topic};
use crate::access::{Resource, Right};
use crate::broker::{Broker, topic_partition};
use crate::call::Call;
use crate::codes::{ErrorCode, OK, code_of};

/// A topic and its partitions, each with what is asked or answered.
pub(super) type ByTopic<T> = Vec<(TopicName, Vec<(i32, T)>)>;

pub(super) fn stored(
    offset: i64,
    leader_epoch: i32,
    metadata: Option<StrBytes>,
) -> OffsetAndMetadata {
    OffsetAndMetadata {
        offset: Offset(offset),
        leader_epoch,
        metadata: metadata.unwrap_or_default().to_string(),
    }
}

/// Splits what is to be stored into what can be and the codes of the rest. The group's own verdict
/// is filled in later.
pub(super) fn sorted_out(
    broker: &Broker,
    call: &Call,
    wanted: ByTopic<OffsetAndMetadata>,
) -> (Vec<(TopicPartition, OffsetAndMetadata)>, ByTopic<i16>) {
    let mut offsets = Vec::new();
    let mut codes = Vec::with_capacity(wanted.len());
    for (name, partitions) in wanted {
        let hub = broker.hub(call, Right::Listen, &name);
        let of_topic = partitions.into_iter().map(|(index, stored)| {
            let topic_partition = match &hub {
                Ok(_) => broker.topic_partition(&name, index),
                Err(code) => Err(*code),
            };
            let code = code_of(&topic_partition);
            offsets.extend(
                topic_partition
                    .ok()
                    .map(|topic_partition| (topic_partition, stored)),
            );
            (index, code)
        });
        let of_topic = of_topic.collect();
        codes.push((name, of_topic));
    }
    (offsets, codes)
}

/// The code of a partition: its own, or else that of the whole.
pub(super) fn verdict(broker: &Broker, own: i16, whole: i16) -> i16 {
    broker.noted(if own == OK { whole } else { own })
}

pub(crate) async fn commit(
    broker: &Broker,
    call: &Call,
    request: OffsetCommitRequest,
) -> OffsetCommitResponse {
    let member = membership(
        &request.group_id,
        request.generation_id_or_member_epoch,
        &request.member_id,
        request.group_instance_id,
    );
    let wanted = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|one| {
            let epoch = one.committed_leader_epoch;
            let stored = stored(one.committed_offset, epoch, one.committed_metadata);
            (one.partition_index, stored)
        });
        (topic.name, partitions.collect())
    });
    let (offsets, codes) = sorted_out(broker, call, wanted.collect());
    let whole = store(broker, call, member, offsets).await;
    let topics = codes.into_iter().map(|(name, partitions)| {
        let partitions = partitions.into_iter().map(|(index, code)| {
            OffsetCommitResponsePartition::default()
                .with_partition_index(index)
                .with_error_code(verdict(broker, code, whole))
        });
        OffsetCommitResponseTopic::default()
            .with_name(name)
            .with_partitions(partitions.collect())
    });
    OffsetCommitResponse::default().with_topics(topics.collect())
}

async fn store(
    broker: &Broker,
    call: &Call,
    member: Membership,
    offsets: Vec<(TopicPartition, OffsetAndMetadata)>,
) -> i16 {
    if let Err(code) = may_join(broker, call, &member.group) {
        return code.code();
    }
    code_of(
        &broker
            .services
            .groups
            .commit_offsets(OffsetCommit { member, offsets })
            .await,
    )
}

/// What is stored for one group.
struct Positions {
    topics: ByTopic<(Option<OffsetAndMetadata>, i16)>,
    code: i16,
}

pub(crate) async fn fetch(
    broker: &Broker,
    call: &Call,
    request: OffsetFetchRequest,
) -> OffsetFetchResponse {
    let stable = request.require_stable;
    if call.version < 8 {
        let wanted = request.topics.map(|topics| {
            let named = topics.into_iter();
            named
                .map(|topic| (topic.name, topic.partition_indexes))
                .collect()
        });
        let found = positions(broker, call, &request.group_id, wanted, stable).await;
        return single_group(call, found);
    }
    let mut groups = Vec::with_capacity(request.groups.len());
    for group in request.groups {
        let wanted = group.topics.map(|topics| {
            let named = topics.into_iter();
            named
                .map(|topic| (topic.name, topic.partition_indexes))
                .collect()
        });
        let found = positions(broker, call, &group.group_id, wanted, stable).await;
        groups.push(one_of_groups(group.group_id, found));
    }
    OffsetFetchResponse::default().with_groups(groups)
}

type Named = Vec<(TopicName, Vec<i32>)>;

async fn positions(
    broker: &Broker,
    call: &Call,
    group: &GroupId,
    wanted: Option<Named>,
    stable: bool,
) -> Positions {
    let found = match may_join(broker, call, group) {
        Ok(()) => match &wanted {
            Some(named) => of_places(broker, call, group, named, stable).await,
            None => of_everything(broker, call, group, stable).await,
        },
        Err(code) => Err(code.code()),
    };
    found.unwrap_or_else(|code| {
        let code = broker.noted(code);
        let named = wanted.unwrap_or_default().into_iter();
        let failed = |index| (index, (None, code));
        let topics = named.map(|(name, indexes)| (name, indexes.into_iter().map(failed).collect()));
        Positions {
            topics: topics.collect(),
            code,
        }
    })
}

async fn of_places(
    broker: &Broker,
    call: &Call,
    group: &GroupId,
    wanted: &Named,
    stable: bool,
) -> Result<Positions, i16> {
    let mut topic_partitions = Vec::new();
    for (name, indexes) in wanted {
        topic_partitions.extend(
            indexes
                .iter()
                .filter_map(|index| topic_partition(name, *index)),
        );
    }
    let requested =
        broker
            .services
            .groups
            .fetch_offsets(group.to_string(), Some(topic_partitions), stable);
    let mut found = requested
        .await
        .map_err(|error| error.code())?
        .into_iter()
        .peekable();
    let topics = wanted.iter().map(|(name, indexes)| {
        let visible = broker.may(call, Right::Listen, Resource::Hub(name));
        let of_topic = indexes.iter().map(|index| {
            let topic_partition = topic_partition(name, *index);
            let stored = topic_partition
                .and_then(|topic_partition| found.next_if(|(at, _)| *at == topic_partition));
            match visible {
                true => (*index, (stored.and_then(|(_, stored)| stored), OK)),
                false => (*index, (None, broker.fail(&Code::TopicAuthorizationFailed))),
            }
        });
        (name.clone(), of_topic.collect())
    });
    Ok(Positions {
        topics: topics.collect(),
        code: OK,
    })
}

async fn of_everything(
    broker: &Broker,
    call: &Call,
    group: &GroupId,
    stable: bool,
) -> Result<Positions, i16> {
    let requested = broker
        .services
        .groups
        .fetch_offsets(group.to_string(), None, stable);
    let mut found = requested.await.map_err(|error| error.code())?;
    found.retain(|(topic_partition, _)| {
        broker.may(
            call,
            Right::Listen,
            Resource::Hub(topic_partition.hub.as_str()),
        )
    });
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    let topics = found
        .chunk_by(|(one, _), (other, _)| one.hub == other.hub)
        .map(|of_hub| {
            let partitions = of_hub.iter();
            let partitions = partitions
                .map(|(topic_partition, at)| (topic_partition.partition as i32, (at.clone(), OK)));
            (topic(of_hub[0].0.hub.as_str()), partitions.collect())
        });
    Ok(Positions {
        topics: topics.collect(),
        code: OK,
    })
}

/// Offset, leader epoch and metadata as the wire has them; nothing stored is no error.
fn shutdown_signal(stored: Option<OffsetAndMetadata>) -> (i64, i32, Option<StrBytes>) {
    match stored {
        Some(stored) => (
            stored.offset.0,
            stored.leader_epoch,
            Some(text(stored.metadata)),
        ),
        None => (-1, -1, Some(StrBytes::default())),
    }
}

fn single_group(call: &Call, found: Positions) -> OffsetFetchResponse {
    let topics = found.topics.into_iter().map(|(name, partitions)| {
        let partitions = partitions.into_iter().map(|(index, (stored, code))| {
            let (offset, epoch, metadata) = shutdown_signal(stored);
            let answer = OffsetFetchResponsePartition::default()
                .with_partition_index(index)
                .with_committed_offset(offset)
                .with_metadata(metadata)
                .with_error_code(code);
            match call.version >= 5 {
                true => answer.with_committed_leader_epoch(epoch),
                false => answer,
            }
        });
        OffsetFetchResponseTopic::default()
            .with_name(name)
            .with_partitions(partitions.collect())
    });
    let answer = OffsetFetchResponse::default().with_topics(topics.collect());
    match call.version >= 2 {
        true => answer.with_error_code(found.code),
        false => answer,
    }
}

fn one_of_groups(group: GroupId, found: Positions) -> OffsetFetchResponseGroup {
    let topics = found.topics.into_iter().map(|(name, partitions)| {
        let partitions = partitions.into_iter().map(|(index, (stored, code))| {
            let (offset, epoch, metadata) = shutdown_signal(stored);
            OffsetFetchResponsePartitions::default()
                .with_partition_index(index)
                .with_committed_offset(offset)
                .with_committed_leader_epoch(epoch)
                .with_metadata(metadata)
                .with_error_code(code)
        });
        OffsetFetchResponseTopics::default()
            .with_name(name)
            .with_partitions(partitions.collect())
    });
    OffsetFetchResponseGroup::default()
        .with_group_id(group)
        .with_topics(topics.collect())
        .with_error_code(found.code)
}

pub(crate) async fn delete(
    broker: &Broker,
    call: &Call,
    request: OffsetDeleteRequest,
) -> OffsetDeleteResponse {
    let group = request.group_id.to_string();
    if let Err(code) = broker.allow(call, Right::Manage, Resource::Group(&group)) {
        return OffsetDeleteResponse::default().with_error_code(broker.fail(&code));
    }
    if broker
        .services
        .groups
        .describe(group.clone())
        .await
        .is_none()
    {
        return OffsetDeleteResponse::default()
            .with_error_code(broker.fail(&Code::GroupIdNotFound));
    }
    let mut topics = Vec::with_capacity(request.topics.len());
    for wanted in request.topics {
        let indexes = wanted.partitions.iter().map(|one| one.partition_index);
        let topic_partitions =
            indexes.filter_map(|index| broker.topic_partition(&wanted.name, index).ok());
        let forgotten = broker
            .services
            .groups
            .delete_offsets(group.clone(), topic_partitions.collect())
            .await;
        let whole = code_of(&forgotten);
        let partitions = wanted.partitions.iter().map(|one| {
            let own = code_of(&broker.topic_partition(&wanted.name, one.partition_index));
            OffsetDeleteResponsePartition::default()
                .with_partition_index(one.partition_index)
                .with_error_code(verdict(broker, own, whole))
        });
        let partitions = partitions.collect();
        topics.push(
            OffsetDeleteResponseTopic::default()
                .with_name(wanted.name)
                .with_partitions(partitions),
        );
    }
    OffsetDeleteResponse::default().with_topics(topics)
}
