//! ListOffsets: the start and end of a partition, and the offset for a time, by the timestamps that the topic shows:
//! the producers' or those of the append.

use highwater_log::batch::TimestampType;
use highwater_log::{EnqueueTime, HubInfo, Isolation, Offset, ReadError, TimestampLookup};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::list_offsets_request::ListOffsetsPartition;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};

use super::LEADER_EPOCH;
use crate::codes::ErrorCode;
use crate::request::RequestContext;

const END: i64 = -1;
const START: i64 = -2;
pub(crate) const NEWEST: i64 = -3;
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
        let hub = context.hub(&topic.name);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for one in topic.partitions {
            let found = match &hub {
                Ok(hub) => find(context, hub, &one, isolation).await,
                Err(code) => Err(*code),
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
    hub: &HubInfo,
    partition: &ListOffsetsPartition,
    isolation: Isolation,
) -> Result<OffsetAndTime, Code> {
    let timestamp = partition.timestamp;
    let partition = context.partition(hub.name.as_str(), partition.partition_index)?;
    let bounds = partition.bounds();
    let found = match timestamp {
        END => return Ok(Some((bounds.visible(isolation).0, -1))),
        START | LOCAL_START => return Ok(Some((bounds.start.0, -1))),
        TIERED_END => return Ok(None),
        NEWEST => {
            let lookup = TimestampLookup::Latest;
            partition.offset_for_timestamp(lookup).await
        }
        ..0 => return Err(Code::InvalidRequest),
        _ => match hub.settings.timestamps.kind {
            TimestampType::LogAppend => {
                let found = partition.offset_for_time(EnqueueTime(timestamp)).await;
                found.map(|found| found.map(|(offset, time)| (offset, time.0)))
            }
            TimestampType::Create => {
                let lookup = TimestampLookup::AtLeast(timestamp);
                partition.offset_for_timestamp(lookup).await
            }
        },
    };
    let found: Option<(Offset, i64)> = found.map_err(|error: ReadError| error.kind())?;
    let visible = partition.bounds().visible(isolation);
    let found = found.filter(|(offset, _)| *offset < visible);
    Ok(found.map(|(offset, timestamp)| (offset.0, timestamp)))
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
