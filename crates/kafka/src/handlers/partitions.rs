//! CreatePartitions and DeleteRecords.

use highwater_log::Offset;
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::{
    CreatePartitionsRequest, CreatePartitionsResponse, DeleteRecordsRequest, DeleteRecordsResponse,
};

use super::some_text;
use super::topics::{Refused, only_here};
use crate::access::Right;
use crate::broker::Broker;
use crate::call::Call;
use crate::codes::ErrorCode;

pub(crate) async fn create(
    broker: &Broker,
    call: &Call,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let mut results = Vec::with_capacity(request.topics.len());
    for wanted in request.topics {
        let grown = grow(broker, call, &wanted, request.validate_only).await;
        let answer = CreatePartitionsTopicResult::default().with_name(wanted.name);
        results.push(match grown {
            Ok(()) => answer,
            Err(refused) => answer
                .with_error_code(broker.fail(&refused.code))
                .with_error_message(some_text(refused.reason)),
        });
    }
    CreatePartitionsResponse::default().with_results(results)
}

async fn grow(
    broker: &Broker,
    call: &Call,
    wanted: &CreatePartitionsTopic,
    only_try: bool,
) -> Result<(), Refused> {
    let hub = broker.hub(call, Right::Manage, &wanted.name)?;
    let assignments = wanted.assignments.iter().flatten();
    only_here(broker, assignments.map(|one| &one.broker_ids[..]))?;
    let count = u32::try_from(wanted.count).unwrap_or(0);
    if hub.name.is_internal() {
        return Err(Refused::new(
            Code::InvalidTopicException,
            "the node keeps this hub for itself",
        ));
    }
    if count <= hub.partitions {
        let reason = format!("the hub has {} partitions already", hub.partitions);
        return Err(Refused::new(Code::InvalidPartitions, reason));
    }
    if !only_try {
        broker.services.log.grow(&hub.name, count).await?;
    }
    Ok(())
}

/// The end of the partition, instead of an offset.
const EVERYTHING: i64 = -1;

pub(crate) async fn delete_records(
    broker: &Broker,
    call: &Call,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let mut topics = Vec::with_capacity(request.topics.len());
    for wanted in request.topics {
        let mut partitions = Vec::with_capacity(wanted.partitions.len());
        for one in wanted.partitions {
            let trimmed = trim(broker, call, &wanted.name, one.partition_index, one.offset).await;
            let answer =
                DeleteRecordsPartitionResult::default().with_partition_index(one.partition_index);
            partitions.push(match trimmed {
                Ok(start) => answer.with_low_watermark(start.0),
                Err(code) => answer
                    .with_low_watermark(-1)
                    .with_error_code(broker.fail(&code)),
            });
        }
        let topic = DeleteRecordsTopicResult::default().with_name(wanted.name);
        topics.push(topic.with_partitions(partitions));
    }
    DeleteRecordsResponse::default().with_topics(topics)
}

async fn trim(
    broker: &Broker,
    call: &Call,
    hub: &str,
    index: i32,
    offset: i64,
) -> Result<Offset, Code> {
    let info = broker.hub(call, Right::Manage, hub)?;
    if info.name.is_internal() {
        return Err(Code::PolicyViolation);
    }
    let partition = broker.partition(hub, index)?;
    let offset = match offset {
        EVERYTHING => partition.bounds().end,
        offset => Offset(offset),
    };
    partition.trim(offset).await.map_err(|error| error.kind())
}
