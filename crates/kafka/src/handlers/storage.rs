//! DescribeLogDirs, AlterReplicaLogDirs and DescribeProducers: the stored state of partitions.

use highwater_log::ProducerInfo;
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::alter_replica_log_dirs_response::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult,
};
use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use kafka_protocol::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use kafka_protocol::messages::{
    AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse, DescribeLogDirsRequest,
    DescribeLogDirsResponse, DescribeProducersRequest, DescribeProducersResponse, ProducerId,
    TopicName,
};

use super::{distinct, some_text, text, topic};
use crate::access::Resource;
use crate::codes::{OK, code_of};
use crate::request::RequestContext;

/// The name of the data folder. Its path is the business of the node.
const LOG_DIR: &str = "data";

/// Kafka's value for a size that is not known.
const UNKNOWN_SIZE: i64 = -1;

/// The memory of a partition in a response, while it is built.
const PARTITION_BYTES: usize = 100;

/// An upper bound of the memory of a response.
pub(crate) fn log_dirs_bytes(context: &RequestContext, _request: &DescribeLogDirsRequest) -> usize {
    let hubs = context.log().hubs();
    let partitions: usize = hubs.iter().map(|hub| hub.partitions as usize).sum();
    (hubs.len() + partitions) * PARTITION_BYTES
}

/// All partitions are in the one data folder. Unknown ones are left out, as in Kafka.
pub(crate) async fn describe_log_dirs(
    context: &RequestContext,
    request: DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    let response = DescribeLogDirsResponse::default();
    let result = DescribeLogDirsResult::default().with_log_dir(text(LOG_DIR));
    let result = match context.version {
        ..4 => result,
        _ => result
            .with_total_bytes(UNKNOWN_SIZE)
            .with_usable_bytes(UNKNOWN_SIZE),
    };
    if let Err(code) = context.allow(Resource::Node) {
        let code = context.error_code(&code);
        return match context.version {
            ..3 => response.with_results(vec![result.with_error_code(code)]),
            _ => response.with_error_code(code),
        };
    }
    let topics = match request.topics {
        Some(topics) => topics
            .into_iter()
            .map(|topic| sizes(context, topic.topic, distinct(topic.partitions)))
            .collect(),
        None => (context.log().hubs().iter())
            .map(|hub| {
                let all = (0..hub.partitions).map(|index| index as i32).collect();
                sizes(context, topic(hub.name.as_str()), all)
            })
            .collect(),
    };
    response.with_results(vec![result.with_topics(topics)])
}

fn sizes(context: &RequestContext, name: TopicName, indexes: Vec<i32>) -> DescribeLogDirsTopic {
    let size = |index: i32| {
        let partition = context.partition(&name, index).ok()?;
        let bytes = i64::try_from(partition.stored_bytes()?).ok()?;
        Some(
            DescribeLogDirsPartition::default()
                .with_partition_index(index)
                .with_partition_size(bytes),
        )
    };
    let partitions = indexes.into_iter().filter_map(size).collect();
    DescribeLogDirsTopic::default()
        .with_name(name)
        .with_partitions(partitions)
}

/// A partition stays where it is. As in Kafka that can be asked for, and another folder is not found.
pub(crate) async fn alter_log_dirs(
    context: &RequestContext,
    request: AlterReplicaLogDirsRequest,
) -> AlterReplicaLogDirsResponse {
    let allowed = context.allow(Resource::Node);
    let mut results = Vec::new();
    for folder in request.dirs {
        let is_own = *folder.path == *LOG_DIR;
        let moved = |topic: &TopicName, index: i32| -> Result<(), Code> {
            allowed?;
            context.topic_partition(topic, index)?;
            is_own.then_some(()).ok_or(Code::LogDirNotFound)
        };
        for topic in folder.topics {
            let partitions = distinct(topic.partitions).into_iter().map(|index| {
                let code = code_of(&moved(&topic.name, index));
                AlterReplicaLogDirPartitionResult::default()
                    .with_partition_index(index)
                    .with_error_code(context.count_error(code))
            });
            let partitions = partitions.collect();
            results.push(
                AlterReplicaLogDirTopicResult::default()
                    .with_topic_name(topic.name)
                    .with_partitions(partitions),
            );
        }
    }
    AlterReplicaLogDirsResponse::default().with_results(results)
}

pub(crate) async fn describe_producers(
    context: &RequestContext,
    request: DescribeProducersRequest,
) -> DescribeProducersResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let indexes = distinct(topic.partition_indexes).into_iter();
        let partitions = indexes.map(|index| described_partition(context, &topic.name, index));
        let partitions = partitions.collect();
        TopicResponse::default()
            .with_name(topic.name)
            .with_partitions(partitions)
    });
    DescribeProducersResponse::default().with_topics(topics.collect())
}

fn described_partition(context: &RequestContext, name: &str, index: i32) -> PartitionResponse {
    let find = || {
        context.allow(Resource::Hub(name))?;
        let partition = context.partition(name, index)?;
        partition.producers().ok_or(Code::UnsupportedVersion)
    };
    let response = PartitionResponse::default().with_partition_index(index);
    match find() {
        Ok(producers) => response
            .with_error_code(OK)
            .with_active_producers(producers.iter().map(producer_state).collect()),
        Err(code) => response
            .with_error_code(context.error_code(&code))
            .with_error_message(some_text(code)),
    }
}

fn producer_state(info: &ProducerInfo) -> ProducerState {
    ProducerState::default()
        .with_producer_id(ProducerId(info.producer.id))
        .with_producer_epoch(i32::from(info.producer.epoch))
        .with_last_sequence(info.last_sequence.unwrap_or(-1))
        .with_last_timestamp(info.last_time.0)
        .with_current_txn_start_offset(info.open.map_or(-1, |open| open.0))
}
