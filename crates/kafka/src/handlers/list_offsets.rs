//! ListOffsets: the start and end of a partition, and the offset for a time.

use highwater_log::{EnqueueTime, Isolation, Partition};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::list_offsets_request::ListOffsetsPartition;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};

use super::LEADER_EPOCH;
use crate::access::Right;
use crate::codes::ErrorCode;
use crate::request::RequestContext;

const END: i64 = -1;
const START: i64 = -2;
const NEWEST: i64 = -3;
/// The start of the records on this node, which is the start of the partition.
const LOCAL_START: i64 = -4;
/// The end of tiered storage, which does not exist.
const TIERED_END: i64 = -5;

/// Offset and timestamp.
type OffsetAndTime = Option<(i64, i64)>;

pub(crate) async fn list_offsets(
    context: &RequestContext,
    request: ListOffsetsRequest,
) -> ListOffsetsResponse {
    let isolation = isolation(request.isolation_level);
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let hub = context.hub(Right::Listen, &topic.name).map(|_| ());
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for one in topic.partitions {
            let found = match hub {
                Ok(()) => find(context, &topic.name, &one, isolation).await,
                Err(code) => Err(code),
            };
            partitions.push(partition_response(context, &one, found));
        }
        let response = ListOffsetsTopicResponse::default().with_name(topic.name);
        topics.push(response.with_partitions(partitions));
    }
    ListOffsetsResponse::default().with_topics(topics)
}

pub(crate) fn isolation(level: i8) -> Isolation {
    match level {
        1 => Isolation::Committed,
        _ => Isolation::Uncommitted,
    }
}

async fn find(
    context: &RequestContext,
    hub: &str,
    partition: &ListOffsetsPartition,
    isolation: Isolation,
) -> Result<OffsetAndTime, Code> {
    let timestamp = partition.timestamp;
    let partition = context.partition(hub, partition.partition_index)?;
    let bounds = partition.bounds();
    match timestamp {
        END => Ok(Some((bounds.visible(isolation).0, -1))),
        START | LOCAL_START => Ok(Some((bounds.start.0, -1))),
        // Times never decrease within a partition, so the last is the newest.
        NEWEST => match bounds.last_time {
            Some(time) => by_time(&*partition, time, isolation).await,
            None => Ok(None),
        },
        TIERED_END => Ok(None),
        time if time >= 0 => by_time(&*partition, EnqueueTime(time), isolation).await,
        _ => Err(Code::InvalidRequest),
    }
}

async fn by_time(
    partition: &dyn Partition,
    time: EnqueueTime,
    isolation: Isolation,
) -> Result<OffsetAndTime, Code> {
    let found = partition
        .offset_for_time(time)
        .await
        .map_err(|error| error.kind())?;
    let visible = partition.bounds().visible(isolation);
    let found = found.filter(|(offset, _)| *offset < visible);
    Ok(found.map(|(offset, time)| (offset.0, time.0)))
}

fn partition_response(
    context: &RequestContext,
    partition: &ListOffsetsPartition,
    found: Result<OffsetAndTime, Code>,
) -> ListOffsetsPartitionResponse {
    let response =
        ListOffsetsPartitionResponse::default().with_partition_index(partition.partition_index);
    let (offset, time) = match found {
        Ok(Some(found)) => found,
        Ok(None) => (-1, -1),
        Err(code) => return response.with_error_code(context.error_code(&code)),
    };
    let response = response.with_offset(offset).with_timestamp(time);
    match context.version >= 4 && offset >= 0 {
        true => response.with_leader_epoch(LEADER_EPOCH),
        false => response,
    }
}
