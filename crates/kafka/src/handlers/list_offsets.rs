//! ListOffsets: where a partition starts and ends, and what offset belongs to a time.

use highwater_log::{EnqueueTime, Isolation, Partition};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::list_offsets_request::ListOffsetsPartition;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};

use super::LEADER_EPOCH;
use crate::access::Right;
use crate::broker::Broker;
use crate::call::Call;
use crate::codes::ErrorCode;

const END: i64 = -1;
const START: i64 = -2;
const NEWEST: i64 = -3;
/// Of what is on this node, which is everything.
const LOCAL_START: i64 = -4;
/// The end of what was moved elsewhere, which is nothing.
const MOVED_END: i64 = -5;

/// Offset and time.
type Found = Option<(i64, i64)>;

pub(crate) async fn list_offsets(
    broker: &Broker,
    call: &Call,
    request: ListOffsetsRequest,
) -> ListOffsetsResponse {
    let isolation = isolation(request.isolation_level);
    let mut topics = Vec::with_capacity(request.topics.len());
    for wanted in request.topics {
        let hub = broker.hub(call, Right::Listen, &wanted.name).map(|_| ());
        let mut partitions = Vec::with_capacity(wanted.partitions.len());
        for one in wanted.partitions {
            let found = match hub {
                Ok(()) => find(broker, &wanted.name, &one, isolation).await,
                Err(code) => Err(code),
            };
            partitions.push(answer(broker, call, &one, found));
        }
        let topic = ListOffsetsTopicResponse::default().with_name(wanted.name);
        topics.push(topic.with_partitions(partitions));
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
    broker: &Broker,
    hub: &str,
    wanted: &ListOffsetsPartition,
    isolation: Isolation,
) -> Result<Found, Code> {
    let partition = broker.partition(hub, wanted.partition_index)?;
    let bounds = partition.bounds();
    match wanted.timestamp {
        END => Ok(Some((bounds.visible(isolation).0, -1))),
        START | LOCAL_START => Ok(Some((bounds.start.0, -1))),
        // Times never go back within a partition, so the newest is the last.
        NEWEST => match bounds.last_time {
            Some(time) => by_time(&*partition, time, isolation).await,
            None => Ok(None),
        },
        MOVED_END => Ok(None),
        time if time >= 0 => by_time(&*partition, EnqueueTime(time), isolation).await,
        _ => Err(Code::InvalidRequest),
    }
}

async fn by_time(
    partition: &dyn Partition,
    time: EnqueueTime,
    isolation: Isolation,
) -> Result<Found, Code> {
    let found = partition
        .offset_for_time(time)
        .await
        .map_err(|error| error.kind())?;
    let visible = partition.bounds().visible(isolation);
    let found = found.filter(|(offset, _)| *offset < visible);
    Ok(found.map(|(offset, time)| (offset.0, time.0)))
}

fn answer(
    broker: &Broker,
    call: &Call,
    wanted: &ListOffsetsPartition,
    found: Result<Found, Code>,
) -> ListOffsetsPartitionResponse {
    let answer =
        ListOffsetsPartitionResponse::default().with_partition_index(wanted.partition_index);
    let (offset, time) = match found {
        Ok(Some(found)) => found,
        Ok(None) => (-1, -1),
        Err(code) => return answer.with_error_code(broker.fail(&code)),
    };
    let answer = answer.with_offset(offset).with_timestamp(time);
    match call.version >= 4 && offset >= 0 {
        true => answer.with_leader_epoch(LEADER_EPOCH),
        false => answer,
    }
}
