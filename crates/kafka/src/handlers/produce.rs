//! Produce: batches are enqueued in the log when the request is read, and acknowledged when they are
//! durable ([`acknowledge`]).

use bytes::Bytes;
use highwater_log::batch::{Batch, Codec};
use highwater_log::{AppendError, AppendInfo, BoxFuture, TransactionRef};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse};

use super::{hub_id, some_text};
use crate::access::{Resource, Right};
use crate::codes::ErrorCode;
use crate::request::{ProtocolError, RequestContext};
use crate::response::{ConnectionAction, EncodedResponse};

/// The first version that names topics by id.
const BY_ID: i16 = 13;
/// The first version that allows zstd.
const ZSTD: i16 = 7;
/// The first version with error messages.
const MESSAGES: i16 = 8;

/// The batch of one partition: being appended, or refused.
enum PendingProduce {
    Appending(BoxFuture<Result<AppendInfo, AppendError>>),
    Refused(Code, String),
}

impl From<Code> for PendingProduce {
    fn from(code: Code) -> PendingProduce {
        PendingProduce::Refused(code, code.to_string())
    }
}

struct PendingTopic {
    response: TopicProduceResponse,
    partitions: Vec<(i32, PendingProduce)>,
}

pub(crate) fn begin(
    context: RequestContext,
    body: Bytes,
) -> BoxFuture<Result<EncodedResponse, ProtocolError>> {
    let request: ProduceRequest = match context.decode(body) {
        Ok(request) => request,
        Err(refusal) => return Box::pin(std::future::ready(Err(refusal))),
    };
    let acks = request.acks;
    let allowed = allowed(&context, &request);
    let transaction = request.transactional_id.as_ref().map(|id| id.as_str());
    let topics = request.topic_data.into_iter();
    let pending = topics
        .map(|topic| begin_topic(&context, transaction, topic, allowed))
        .collect();
    Box::pin(async move { acknowledge(&context, acks, pending).await })
}

/// Checks `acks` and the right to the transactional id.
fn allowed(context: &RequestContext, request: &ProduceRequest) -> Result<(), Code> {
    if !matches!(request.acks, -1..=1) {
        return Err(Code::InvalidRequiredAcks);
    }
    match &request.transactional_id {
        Some(id) => context.allow(Right::Send, Resource::TransactionalId(id)),
        None => Ok(()),
    }
}

fn begin_topic(
    context: &RequestContext,
    transaction: Option<&str>,
    data: TopicProduceData,
    allowed: Result<(), Code>,
) -> PendingTopic {
    let hub = allowed.and_then(|()| writable_hub(context, &data));
    let pending = |partition: PartitionProduceData| {
        let index = partition.index;
        let pending = match &hub {
            Ok(hub) => append(context, transaction, hub, partition),
            Err(code) => PendingProduce::from(*code),
        };
        (index, pending)
    };
    let partitions = data.partition_data.into_iter().map(pending).collect();
    let response = TopicProduceResponse::default()
        .with_name(data.name)
        .with_topic_id(data.topic_id);
    PendingTopic {
        response,
        partitions,
    }
}

/// The name of a hub that the caller may write to.
fn writable_hub(context: &RequestContext, data: &TopicProduceData) -> Result<String, Code> {
    let name = match context.version >= BY_ID {
        true => {
            let hub = context.log().hub_by_id(hub_id(data.topic_id));
            hub.ok_or(Code::UnknownTopicId)?.name.to_string()
        }
        false => data.name.to_string(),
    };
    context.allow(Right::Send, Resource::Hub(&name))?;
    match name.starts_with("__") {
        true => Err(Code::TopicAuthorizationFailed),
        false => Ok(name),
    }
}

fn append(
    context: &RequestContext,
    transaction: Option<&str>,
    hub: &str,
    data: PartitionProduceData,
) -> PendingProduce {
    let partition = match context.partition(hub, data.index) {
        Ok(partition) => partition,
        Err(code) => return PendingProduce::from(code),
    };
    let invalid = |reason: &str| PendingProduce::Refused(Code::InvalidRecord, reason.to_string());
    let (batch, rest) = match Batch::parse(data.records.unwrap_or_default()) {
        Ok(parsed) => parsed,
        Err(error) => return PendingProduce::Refused(error.kind(), error.to_string()),
    };
    if !rest.is_empty() {
        return invalid("a request may have one batch per partition");
    }
    if context.version < ZSTD && batch.header().codec() == Ok(Codec::Zstd) {
        return PendingProduce::from(Code::UnsupportedCompressionType);
    }
    if let Err(refusal) = check(context, hub, &batch) {
        return refusal;
    }
    if !batch.header().is_transactional() {
        return PendingProduce::Appending(partition.append(batch));
    }
    let (Some(id), Some(producer)) = (transaction, batch.header().producer()) else {
        return invalid("a batch of a transaction needs a producer and a transactional id");
    };
    let id = id.to_owned();
    let transaction = TransactionRef { id, producer };
    let transactions = &context.transactions();
    PendingProduce::Appending(transactions.append(&transaction, &partition, batch))
}

/// Checks that the records can be read. A batch that the partition would refuse for its size is not decompressed.
fn check(context: &RequestContext, hub: &str, batch: &Batch) -> Result<(), PendingProduce> {
    let is_compressed = batch.header().codec() != Ok(Codec::None);
    if is_compressed
        && let Some(hub) = context.log().hub(hub)
        && batch.size() > hub.settings.batch_bytes_max as usize
    {
        return Err(PendingProduce::from(Code::MessageTooLarge));
    }
    batch
        .check_records()
        .map_err(|error| PendingProduce::Refused(error.kind(), error.to_string()))
}

/// Waits for the durable appends and builds the response.
async fn acknowledge(
    context: &RequestContext,
    acks: i16,
    topics: Vec<PendingTopic>,
) -> Result<EncodedResponse, ProtocolError> {
    let (mut failed, mut full) = (false, false);
    let mut responses = Vec::with_capacity(topics.len());
    for topic in topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for (index, pending) in topic.partitions {
            let result = match pending {
                PendingProduce::Appending(appending) => appending.await.map_err(|error| {
                    full |= matches!(
                        error,
                        AppendError::QueueFull { .. }
                            | AppendError::Busy { .. }
                            | AppendError::DiskFull { .. }
                    );
                    (error.kind(), error.to_string())
                }),
                PendingProduce::Refused(code, reason) => Err((code, reason)),
            };
            failed |= result.is_err();
            partitions.push(partition_response(context, index, result));
        }
        responses.push(topic.response.with_partition_responses(partitions));
    }
    if acks == 0 {
        // With acks=0 there is no response, so an error can only be signalled by closing the connection.
        let action = match failed {
            true => ConnectionAction::Close,
            false => ConnectionAction::Continue,
        };
        return Ok(EncodedResponse::default().then(action));
    }
    let quota_ms = context.quota_delay().as_millis() as i32;
    let response = ProduceResponse::default()
        .with_responses(responses)
        .with_throttle_time_ms(quota_ms);
    if !full {
        return context.encode(&response);
    }
    context.broker.metrics.throttled.add(1);
    let pause = context.broker.options.throttle;
    let response = response.with_throttle_time_ms(pause.as_millis() as i32);
    Ok(context
        .encode(&response)?
        .then(ConnectionAction::Pause(pause)))
}

fn partition_response(
    context: &RequestContext,
    index: i32,
    result: Result<AppendInfo, (Code, String)>,
) -> PartitionProduceResponse {
    let response = PartitionProduceResponse::default().with_index(index);
    match result {
        Ok(appended) => response
            .with_base_offset(appended.offset.0)
            .with_log_append_time_ms(appended.time.0)
            .with_log_start_offset(appended.start.0),
        Err((code, reason)) => {
            let response = response
                .with_error_code(context.error_code(&code))
                .with_base_offset(-1);
            match context.version >= MESSAGES {
                true => response.with_error_message(some_text(reason)),
                false => response,
            }
        }
    }
}
