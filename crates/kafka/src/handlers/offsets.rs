//! Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete.

use highwater_log::{OffsetAndMetadata, OffsetCommit, TopicPartition};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{
    GroupId, OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse,
    OffsetFetchRequest, OffsetFetchResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;

use super::groups::membership;
use super::{distinct, text, topic};
use crate::access::Resource;
use crate::broker::UNKNOWN_BYTES;
use crate::codes::{ErrorCode, OK, code_of};
use crate::request::{RequestContext, topic_partition};

/// A value for each partition of each topic, in the order of the request.
type TopicPartitionValues<T> = Vec<(TopicName, Vec<(i32, T)>)>;

/// The offsets that a request commits. OffsetCommit and TxnOffsetCommit have different types with the same fields.
macro_rules! committed_offsets {
    ($topics:expr) => {{
        let partition =
            |index, offset, leader_epoch, metadata: Option<kafka_protocol::protocol::StrBytes>| {
                let metadata = metadata.unwrap_or_default().to_string();
                let offset = highwater_log::Offset(offset);
                let stored = highwater_log::OffsetAndMetadata {
                    offset,
                    leader_epoch,
                    metadata,
                };
                (index, stored)
            };
        let topics = $topics.into_iter().map(|topic| {
            let partitions = topic.partitions.into_iter().map(|one| {
                partition(
                    one.partition_index,
                    one.committed_offset,
                    one.committed_leader_epoch,
                    one.committed_metadata,
                )
            });
            (topic.name, partitions.collect())
        });
        topics.collect()
    }};
}
pub(super) use committed_offsets;

/// The partitions that exist on hubs that the client may use, and the code of every partition. The code of the
/// coordinator is added later, by [`topic_results`].
pub(super) fn existing_partitions<T>(
    context: &RequestContext,
    topics: TopicPartitionValues<T>,
) -> (Vec<(TopicPartition, T)>, TopicPartitionValues<i16>) {
    let mut existing = Vec::new();
    let mut codes = Vec::with_capacity(topics.len());
    for (name, partitions) in topics {
        let allowed = context.allow(Resource::Hub(&name));
        let of_topic = partitions.into_iter().map(|(index, value)| {
            let found = allowed.and_then(|()| context.topic_partition(&name, index));
            let code = code_of(&found);
            existing.extend(found.ok().map(|topic_partition| (topic_partition, value)));
            (index, code)
        });
        let of_topic = of_topic.collect();
        codes.push((name, of_topic));
    }
    (existing, codes)
}

/// Builds the topics of a response. A partition without a code of its own gets that of the whole request.
pub(super) fn topic_results<P, T>(
    context: &RequestContext,
    codes: TopicPartitionValues<i16>,
    whole: i16,
    partition: impl Fn(i32, i16) -> P,
    topic: impl Fn(TopicName, Vec<P>) -> T,
) -> Vec<T> {
    let result = |(index, own)| {
        let code = if own == OK { whole } else { own };
        partition(index, context.count_error(code))
    };
    let topics = codes.into_iter();
    topics
        .map(|(name, partitions)| topic(name, partitions.into_iter().map(result).collect()))
        .collect()
}

pub(crate) async fn commit(
    context: &RequestContext,
    request: OffsetCommitRequest,
) -> OffsetCommitResponse {
    let member = membership(
        &request.group_id,
        request.generation_id_or_member_epoch,
        &request.member_id,
        request.group_instance_id,
    );
    let topics = committed_offsets!(request.topics);
    let (offsets, codes) = existing_partitions(context, topics);
    let whole = match context.allow(Resource::Group(&member.group)) {
        Ok(()) => {
            let commit = OffsetCommit { member, offsets };
            code_of(&context.groups().commit_offsets(commit).await)
        }
        Err(code) => code.code(),
    };
    let topics = topic_results(
        context,
        codes,
        whole,
        |index, code| {
            OffsetCommitResponsePartition::default()
                .with_partition_index(index)
                .with_error_code(code)
        },
        |name, partitions| {
            OffsetCommitResponseTopic::default()
                .with_name(name)
                .with_partitions(partitions)
        },
    );
    OffsetCommitResponse::default().with_topics(topics)
}

/// The committed offsets of one group.
struct GroupOffsets {
    topics: TopicPartitionValues<(Option<OffsetAndMetadata>, i16)>,
    code: i16,
}

pub(crate) async fn fetch(
    context: &RequestContext,
    request: OffsetFetchRequest,
) -> OffsetFetchResponse {
    let stable = request.require_stable;
    if context.version < 8 {
        let topics = request.topics.map(|topics| {
            let topics = topics.into_iter();
            topics
                .map(|topic| (topic.name, distinct(topic.partition_indexes)))
                .collect()
        });
        let offsets = group_offsets(context, &request.group_id, topics, stable).await;
        return single_group_response(context, offsets);
    }
    let mut groups = Vec::with_capacity(request.groups.len());
    for group in request.groups {
        let checked = check_member(context, &group).await;
        let topics = group.topics.map(|topics| {
            let topics = topics.into_iter();
            topics
                .map(|topic| (topic.name, distinct(topic.partition_indexes)))
                .collect()
        });
        let offsets = match checked {
            Ok(()) => group_offsets(context, &group.group_id, topics, stable).await,
            Err(code) => failed_offsets(context, topics, code),
        };
        groups.push(group_response(group.group_id, offsets));
    }
    OffsetFetchResponse::default().with_groups(groups)
}

type PartitionIndexes = Vec<(TopicName, Vec<i32>)>;

/// The memory for one offset in a response, with metadata of the usual length.
const OFFSET_BYTES: usize = 512;

/// An estimate of the memory of a response.
pub(crate) fn response_bytes(request: &OffsetFetchRequest) -> usize {
    let single = request.topics.iter().flatten();
    let single = single.map(|topic| topic.partition_indexes.len());
    let many = request
        .groups
        .iter()
        .flat_map(|group| group.topics.iter().flatten());
    let many = many.map(|topic| topic.partition_indexes.len());
    let is_unknown = request.groups.iter().any(|group| group.topics.is_none())
        || request.groups.is_empty() && request.topics.is_none();
    let named = single.chain(many).sum::<usize>() * OFFSET_BYTES;
    named + if is_unknown { UNKNOWN_BYTES } else { 0 }
}

async fn group_offsets(
    context: &RequestContext,
    group: &GroupId,
    topics: Option<PartitionIndexes>,
    stable: bool,
) -> GroupOffsets {
    let offsets = match context.allow(Resource::Group(group)) {
        Ok(()) => match &topics {
            Some(topics) => offsets_of_partitions(context, group, topics, stable).await,
            None => all_offsets(context, group, stable).await,
        },
        Err(code) => Err(code.code()),
    };
    offsets.unwrap_or_else(|code| failed_offsets(context, topics, code))
}

fn failed_offsets(
    context: &RequestContext,
    topics: Option<PartitionIndexes>,
    code: i16,
) -> GroupOffsets {
    let code = context.count_error(code);
    let topics = topics.unwrap_or_default().into_iter();
    let failed = |index| (index, (None, code));
    let topics = topics.map(|(name, indexes)| (name, indexes.into_iter().map(failed).collect()));
    GroupOffsets {
        topics: topics.collect(),
        code,
    }
}

/// A member of the consumer protocol fetches offsets in its epoch only: a later owner may have committed others.
async fn check_member(
    context: &RequestContext,
    request: &OffsetFetchRequestGroup,
) -> Result<(), i16> {
    let member = match &request.member_id {
        None if request.member_epoch < 0 => return Ok(()),
        member => member.as_ref().map(ToString::to_string).unwrap_or_default(),
    };
    let allowed = context.allow(Resource::Group(&request.group_id));
    allowed.map_err(|code| code.code())?;
    let group = request.group_id.to_string();
    let checked = context
        .groups()
        .check_member_epoch(group, member, request.member_epoch);
    checked.await.map_err(|error| error.code())
}

async fn offsets_of_partitions(
    context: &RequestContext,
    group: &GroupId,
    topics: &PartitionIndexes,
    stable: bool,
) -> Result<GroupOffsets, i16> {
    let mut topic_partitions = Vec::new();
    for (name, indexes) in topics {
        let named = indexes.iter();
        topic_partitions.extend(named.filter_map(|index| topic_partition(name, *index)));
    }
    let fetched = context
        .groups()
        .fetch_offsets(group.to_string(), Some(topic_partitions), stable)
        .await;
    let mut stored = fetched
        .map_err(|error| error.code())?
        .into_iter()
        .peekable();
    let topics = topics.iter().map(|(name, indexes)| {
        let allowed = context.allow(Resource::Hub(name));
        let of_topic = indexes.iter().map(|index| {
            let topic_partition = topic_partition(name, *index);
            let stored = topic_partition
                .and_then(|topic_partition| stored.next_if(|(at, _)| *at == topic_partition));
            match allowed {
                Ok(()) => (*index, (stored.and_then(|(_, stored)| stored), OK)),
                Err(code) => (*index, (None, context.error_code(&code))),
            }
        });
        (name.clone(), of_topic.collect())
    });
    Ok(GroupOffsets {
        topics: topics.collect(),
        code: OK,
    })
}

async fn all_offsets(
    context: &RequestContext,
    group: &GroupId,
    stable: bool,
) -> Result<GroupOffsets, i16> {
    let fetched = context
        .groups()
        .fetch_offsets(group.to_string(), None, stable)
        .await;
    let mut stored = fetched.map_err(|error| error.code())?;
    stored.retain(|(at, _)| context.may(Resource::Hub(at.hub.as_str())));
    stored.sort_by(|(one, _), (other, _)| one.cmp(other));
    let topics = stored
        .chunk_by(|(one, _), (other, _)| one.hub == other.hub)
        .map(|of_hub| {
            let partitions = of_hub.iter();
            let partitions =
                partitions.map(|(at, stored)| (at.partition as i32, (stored.clone(), OK)));
            (topic(of_hub[0].0.hub.as_str()), partitions.collect())
        });
    Ok(GroupOffsets {
        topics: topics.collect(),
        code: OK,
    })
}

/// Offset, leader epoch and metadata in their wire format. A partition without a committed offset is no error.
fn wire_offset(stored: Option<OffsetAndMetadata>) -> (i64, i32, Option<StrBytes>) {
    match stored {
        Some(stored) => (
            stored.offset.0,
            stored.leader_epoch,
            Some(text(stored.metadata)),
        ),
        None => (-1, -1, Some(StrBytes::default())),
    }
}

fn single_group_response(context: &RequestContext, offsets: GroupOffsets) -> OffsetFetchResponse {
    let topics = offsets.topics.into_iter().map(|(name, partitions)| {
        let partitions = partitions.into_iter().map(|(index, (stored, code))| {
            let (offset, epoch, metadata) = wire_offset(stored);
            let response = OffsetFetchResponsePartition::default()
                .with_partition_index(index)
                .with_committed_offset(offset)
                .with_metadata(metadata)
                .with_error_code(code);
            match context.version >= 5 {
                true => response.with_committed_leader_epoch(epoch),
                false => response,
            }
        });
        OffsetFetchResponseTopic::default()
            .with_name(name)
            .with_partitions(partitions.collect())
    });
    let response = OffsetFetchResponse::default().with_topics(topics.collect());
    match context.version >= 2 {
        true => response.with_error_code(offsets.code),
        false => response,
    }
}

fn group_response(group: GroupId, offsets: GroupOffsets) -> OffsetFetchResponseGroup {
    let topics = offsets.topics.into_iter().map(|(name, partitions)| {
        let partitions = partitions.into_iter().map(|(index, (stored, code))| {
            let (offset, epoch, metadata) = wire_offset(stored);
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
        .with_error_code(offsets.code)
}

pub(crate) async fn delete(
    context: &RequestContext,
    request: OffsetDeleteRequest,
) -> OffsetDeleteResponse {
    let group = request.group_id.to_string();
    let failed =
        |code: Code| OffsetDeleteResponse::default().with_error_code(context.error_code(&code));
    if let Err(code) = context.allow(Resource::Group(&group)) {
        return failed(code);
    }
    if context.groups().summary(group.clone()).await.is_none() {
        return failed(Code::GroupIdNotFound);
    }
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let indexes = topic.partitions.iter().map(|one| one.partition_index);
        let found: Vec<_> = indexes
            .map(|index| (index, context.topic_partition(&topic.name, index)))
            .collect();
        let codes = found.iter().map(|(index, found)| (*index, code_of(found)));
        let codes = vec![(topic.name, codes.collect())];
        let existing = found.into_iter().filter_map(|(_, found)| found.ok());
        let deleted = context
            .groups()
            .delete_offsets(group.clone(), existing.collect())
            .await;
        context.audit(&group, deleted.as_ref().err().map(|error| error.kind()));
        topics.extend(topic_results(
            context,
            codes,
            code_of(&deleted),
            |index, code| {
                OffsetDeleteResponsePartition::default()
                    .with_partition_index(index)
                    .with_error_code(code)
            },
            |name, partitions| {
                OffsetDeleteResponseTopic::default()
                    .with_name(name)
                    .with_partitions(partitions)
            },
        ));
    }
    OffsetDeleteResponse::default().with_topics(topics)
}
