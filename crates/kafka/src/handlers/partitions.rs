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

use super::topics::check_assignment;
use super::{Refusal, some_text, with_refusal};
use crate::codes::ErrorCode;
use crate::request::RequestContext;

pub(crate) async fn create(
    context: &RequestContext,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let mut results = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let grown = grow(context, &topic, request.validate_only).await;
        if !request.validate_only {
            context.audit(
                &topic.name,
                grown.as_ref().err().map(|refusal| refusal.code),
            );
        }
        let response = CreatePartitionsTopicResult::default().with_name(topic.name);
        results.push(with_refusal!(context, response, grown));
    }
    CreatePartitionsResponse::default().with_results(results)
}

async fn grow(
    context: &RequestContext,
    topic: &CreatePartitionsTopic,
    validate_only: bool,
) -> Result<(), Refusal> {
    let hub = context.hub(&topic.name)?;
    let assignments = topic.assignments.iter().flatten();
    check_assignment(context, assignments.map(|one| &one.broker_ids[..]))?;
    let count = u32::try_from(topic.count).unwrap_or(0);
    if hub.name.is_internal() {
        let reason = "this hub is internal to the node";
        return Err(Refusal::new(Code::InvalidTopicException, reason));
    }
    if count <= hub.partitions {
        let reason = format!("the hub already has {} partitions", hub.partitions);
        return Err(Refusal::new(Code::InvalidPartitions, reason));
    }
    if !validate_only {
        context.charge_partitions(count - hub.partitions)?;
        context.log().grow(&hub.name, count).await?;
    }
    Ok(())
}

/// Stands for the end of the partition.
const HIGH_WATERMARK: i64 = -1;

pub(crate) async fn delete_records(
    context: &RequestContext,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for one in topic.partitions {
            let trimmed = trim(context, &topic.name, one.partition_index, one.offset).await;
            context.audit(&topic.name, trimmed.as_ref().err().copied());
            let response =
                DeleteRecordsPartitionResult::default().with_partition_index(one.partition_index);
            partitions.push(match trimmed {
                Ok(start) => response.with_low_watermark(start.0),
                Err(code) => response
                    .with_low_watermark(-1)
                    .with_error_code(context.error_code(&code)),
            });
        }
        let result = DeleteRecordsTopicResult::default().with_name(topic.name);
        topics.push(result.with_partitions(partitions));
    }
    DeleteRecordsResponse::default().with_topics(topics)
}

async fn trim(
    context: &RequestContext,
    hub: &str,
    index: i32,
    offset: i64,
) -> Result<Offset, Code> {
    let info = context.hub(hub)?;
    if info.name.is_internal() {
        return Err(Code::PolicyViolation);
    }
    let partition = context.partition(hub, index)?;
    let offset = match offset {
        HIGH_WATERMARK => partition.bounds().end,
        ..HIGH_WATERMARK => return Err(Code::OffsetOutOfRange),
        offset => Offset(offset),
    };
    partition.trim(offset).await.map_err(|error| error.kind())
}
