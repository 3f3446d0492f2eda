//! Produce: batches are enqueued in the log when the request is read, and acknowledged when they are
//! durable ([`acknowledge`]).

use std::sync::Arc;

use bytes::Bytes;
use highwater_env::{MemoryBudget, MemoryShare};
use highwater_log::batch::{Batch, Codec, Decompressor, RecordSummary, TimestampType};
use highwater_log::{
    AppendError, AppendInfo, BoxFuture, HubInfo, HubName, TimestampSettings, TransactionRef,
};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, PartitionProduceResponse, TopicProduceResponse,
};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse};

use super::{hub_id, some_text};
use crate::access::Resource;
use crate::codes::ErrorCode;
use crate::request::{ProtocolError, RequestContext};
use crate::response::{ConnectionAction, EncodedResponse};

/// The first version that names topics by id.
const BY_ID: i16 = 13;
/// The first version that allows zstd.
const ZSTD: i16 = 7;
/// The first version of the second transaction protocol (KIP-890): no AddPartitionsToTxn comes before it.
const ADDS_PARTITIONS: i16 = 12;
/// The first version whose clients know that error.
const KNOWS_ABORTABLE: i16 = 11;
/// The first version with error messages.
const MESSAGES: i16 = 8;

/// How many records without a key a response names.
const NAMED_RECORDS_MAX: usize = 1_000;

/// The code that every client retries; see [`AppendError::QueueFull`] in `codes.rs`.
const THROTTLED: Code = Code::NotEnoughReplicas;

/// The batch of one partition: being appended, or refused.
enum PendingProduce {
    Appending(BoxFuture<Result<AppendInfo, AppendError>>),
    Refused(Code, String),
    /// A compacted topic takes none of it, because of the records with these indexes.
    WithoutKey(Vec<i32>),
    /// The client must retry later.
    Throttled(String),
}

impl From<Code> for PendingProduce {
    fn from(code: Code) -> PendingProduce {
        PendingProduce::Refused(code, code.to_string())
    }
}

/// Why a batch was refused, and the indexes of the records that are to blame, if it is not all of them.
struct ProduceRefusal {
    code: Code,
    reason: String,
    records: Vec<i32>,
}

impl ProduceRefusal {
    fn new(code: Code, reason: String) -> ProduceRefusal {
        ProduceRefusal {
            code,
            reason,
            records: Vec::new(),
        }
    }
}

const WITHOUT_KEY: &str = "a compacted topic takes no record without a key";

struct PendingTopic {
    response: TopicProduceResponse,
    /// Clients learn the time of the append only if it is the timestamp of the records.
    timestamps: TimestampType,
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
        Some(id) => context.allow(Resource::TransactionalId(id)),
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
        timestamps: hub.map_or(TimestampType::Create, |hub| hub.settings.timestamps.kind),
        partitions,
    }
}

/// A hub that the caller may write to.
fn writable_hub(context: &RequestContext, data: &TopicProduceData) -> Result<Arc<HubInfo>, Code> {
    let by_id = match context.version >= BY_ID {
        true => {
            let hub = context.log().hub_by_id(hub_id(data.topic_id));
            Some(hub.ok_or(Code::UnknownTopicId)?)
        }
        false => None,
    };
    let name = by_id
        .as_ref()
        .map_or(data.name.as_str(), |hub| hub.name.as_str());
    context.allow(Resource::Hub(name))?;
    if HubName::is_internal_name(name) {
        return Err(context.refuse(Resource::Hub(name)));
    }
    let hub = by_id.clone().or_else(|| context.log().hub(name));
    hub.ok_or(Code::UnknownTopicOrPartition)
}

fn append(
    context: &RequestContext,
    transaction: Option<&str>,
    hub: &HubInfo,
    data: PartitionProduceData,
) -> PendingProduce {
    let partition = match context.partition(hub.name.as_str(), data.index) {
        Ok(partition) => partition,
        Err(code) => return PendingProduce::from(code),
    };
    let invalid = |reason: &str| PendingProduce::Refused(Code::InvalidRecord, reason.to_string());
    let (mut batch, rest) = match Batch::parse(data.records.unwrap_or_default()) {
        Ok(parsed) => parsed,
        Err(error) => return PendingProduce::Refused(error.kind(), error.to_string()),
    };
    if !rest.is_empty() {
        return invalid("a request may have one batch per partition");
    }
    if context.version < ZSTD && batch.header().codec() == Ok(Codec::Zstd) {
        return PendingProduce::from(Code::UnsupportedCompressionType);
    }
    batch = match checked(context, hub, batch) {
        Ok(batch) => batch,
        Err(refusal) => return refusal,
    };
    if let Some(producer) = batch.header().producer()
        && !context.admit_producer(producer.id)
    {
        let max = context.broker.options.producer_ids_max;
        let reason = format!("the client has used {max} other producer ids within five minutes");
        return PendingProduce::Throttled(reason);
    }
    if !batch.header().is_transactional() {
        return PendingProduce::Appending(partition.append(batch));
    }
    let (Some(id), Some(producer)) = (transaction, batch.header().producer()) else {
        return invalid("a batch of a transaction needs a producer and a transactional id");
    };
    let id = id.to_owned();
    let transaction = TransactionRef { id, producer };
    let transactions = context.transactions();
    PendingProduce::Appending(match context.version >= ADDS_PARTITIONS {
        true => transactions.append_adding(&transaction, &partition, batch),
        false => transactions.append(&transaction, &partition, batch),
    })
}

/// Clients that know the code abort, and continue.
fn append_code(context: &RequestContext, error: &AppendError) -> Code {
    match error {
        AppendError::NoTransaction { .. } if context.version >= KNOWS_ABORTABLE => {
            Code::TransactionAbortable
        }
        error => error.kind(),
    }
}

/// The batch as the hub stores it, if its records can be read and the hub takes them.
fn checked(
    context: &RequestContext,
    hub: &HubInfo,
    mut batch: Batch,
) -> Result<Batch, PendingProduce> {
    let records = check(context, hub, &batch)?;
    // Consumers find records by it, so it must be right.
    batch.set_max_timestamp(records.timestamp_max);
    match hub.settings.compression {
        Some(codec) if batch.header().codec() != Ok(codec) => {
            // The records without compression, and at most as much with it.
            let budget = &context.broker.unpack_memory;
            let _share = take_unpack_memory(budget, 2 * records.bytes)?;
            let packed = batch.recompressed(codec, &mut Decompressor::default());
            packed.map_err(|error| PendingProduce::Refused(error.kind(), error.to_string()))
        }
        _ => Ok(batch),
    }
}

/// Checks that the records can be read, and that the hub takes them. A batch that the partition would refuse for its
/// size is not decompressed.
fn check(
    context: &RequestContext,
    hub: &HubInfo,
    batch: &Batch,
) -> Result<RecordSummary, PendingProduce> {
    let is_compressed = batch.header().codec() != Ok(Codec::None);
    if is_compressed && batch.size() > hub.settings.batch_bytes_max as usize {
        return Err(PendingProduce::from(Code::MessageTooLarge));
    }
    let _share = take_unpack_memory(&context.broker.unpack_memory, batch.check_memory())?;
    let records = batch
        .check_records()
        .map_err(|error| PendingProduce::Refused(error.kind(), error.to_string()))?;
    if records.null_key && hub.settings.cleanup.compacts() {
        let _share = take_unpack_memory(&context.broker.unpack_memory, records.bytes)?;
        return Err(PendingProduce::WithoutKey(records_without_key(batch)));
    }
    let now = context.broker.services.clock.unix_millis();
    check_timestamps(&hub.settings.timestamps, &records, now)
        .map_err(|reason| PendingProduce::Refused(Code::InvalidTimestamp, reason))?;
    Ok(records)
}

/// The indexes of the first records without a key.
fn records_without_key(batch: &Batch) -> Vec<i32> {
    let mut decompressor = Decompressor::default();
    let Ok(records) = batch.records(&mut decompressor) else {
        return Vec::new();
    };
    let indexes = (0..).zip(records).filter_map(|(index, record)| {
        let without_key = record.is_ok_and(|record| record.key.is_none());
        without_key.then_some(index)
    });
    indexes.take(NAMED_RECORDS_MAX).collect()
}

/// Checks producers' timestamps against the bounds of the hub.
fn check_timestamps(
    settings: &TimestampSettings,
    records: &RecordSummary,
    now: i64,
) -> Result<(), String> {
    let (TimestampType::Create, Some(first)) = (settings.kind, records.timestamp_min) else {
        return Ok(());
    };
    if first < 0 {
        return Err(format!("the timestamp {first} is before 1970"));
    }
    let bound = |limit: std::time::Duration| i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
    let earliest = settings
        .before_max
        .map(|max| now.saturating_sub(bound(max)));
    if let Some(earliest) = earliest.filter(|earliest| first < *earliest) {
        return Err(format!(
            "the timestamp {first} is before {earliest}, the earliest now"
        ));
    }
    let latest = settings.after_max.map(|max| now.saturating_add(bound(max)));
    match latest.filter(|latest| records.timestamp_max > *latest) {
        Some(latest) => {
            let timestamp = records.timestamp_max;
            Err(format!(
                "the timestamp {timestamp} is after {latest}, the latest now"
            ))
        }
        None => Ok(()),
    }
}

/// Takes memory without waiting, because a Produce is enqueued when it is read.
fn take_unpack_memory(budget: &MemoryBudget, bytes: usize) -> Result<MemoryShare, PendingProduce> {
    budget.try_take(bytes).map_err(|exhausted| {
        let reason = format!("the batch needs {bytes} bytes to be decompressed: {exhausted}");
        match bytes > exhausted.max {
            true => PendingProduce::Refused(Code::MessageTooLarge, reason),
            false => PendingProduce::Throttled(reason),
        }
    })
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
                    ProduceRefusal::new(append_code(context, &error), error.to_string())
                }),
                PendingProduce::Refused(code, reason) => Err(ProduceRefusal::new(code, reason)),
                PendingProduce::WithoutKey(records) => Err(ProduceRefusal {
                    records,
                    ..ProduceRefusal::new(Code::InvalidRecord, WITHOUT_KEY.to_owned())
                }),
                PendingProduce::Throttled(reason) => {
                    full = true;
                    Err(ProduceRefusal::new(THROTTLED, reason))
                }
            };
            failed |= result.is_err();
            let times = topic.timestamps;
            partitions.push(partition_response(context, index, times, result));
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
    let response = ProduceResponse::default().with_responses(responses);
    if !full {
        return context.encode(response);
    }
    context.broker.metrics.throttled.add(1);
    let pause = context.broker.options.throttle;
    let response = response.with_throttle_time_ms(pause.as_millis() as i32);
    Ok(context
        .encode(response)?
        .then(ConnectionAction::Pause(pause)))
}

fn partition_response(
    context: &RequestContext,
    index: i32,
    timestamps: TimestampType,
    result: Result<AppendInfo, ProduceRefusal>,
) -> PartitionProduceResponse {
    let response = PartitionProduceResponse::default().with_index(index);
    match result {
        Ok(appended) => response
            .with_base_offset(appended.offset.0)
            .with_log_append_time_ms(match timestamps {
                TimestampType::LogAppend => appended.time.0,
                TimestampType::Create => -1,
            })
            .with_log_start_offset(appended.start.0),
        Err(refusal) => {
            let response = response
                .with_error_code(context.error_code(&refusal.code))
                .with_base_offset(-1);
            match context.version >= MESSAGES {
                true => response
                    .with_record_errors(refusal.records.into_iter().map(record_error).collect())
                    .with_error_message(some_text(refusal.reason)),
                false => response,
            }
        }
    }
}

fn record_error(index: i32) -> BatchIndexAndErrorMessage {
    BatchIndexAndErrorMessage::default()
        .with_batch_index(index)
        .with_batch_index_error_message(some_text(WITHOUT_KEY))
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves K4
    #[test]
    fn timestamps_of_producers_are_bounded_on_both_sides() {
        let ms = std::time::Duration::from_millis;
        let settings = TimestampSettings {
            kind: TimestampType::Create,
            before_max: Some(ms(100)),
            after_max: Some(ms(10)),
        };
        let check = |settings: &TimestampSettings, first, last| {
            let records = RecordSummary {
                timestamp_min: first,
                timestamp_max: last,
                null_key: false,
                bytes: 0,
            };
            check_timestamps(settings, &records, 1_000).is_ok()
        };
        assert!(check(&settings, Some(900), 1_010));
        assert!(!check(&settings, Some(899), 1_010));
        assert!(!check(&settings, Some(900), 1_011));
        assert!(check(&settings, None, -1));
        assert!(!check(&settings, Some(-2), 1_000));
        let unlimited = TimestampSettings {
            before_max: None,
            after_max: None,
            ..settings
        };
        assert!(check(&unlimited, Some(0), i64::MAX));
        let append = TimestampSettings {
            kind: TimestampType::LogAppend,
            ..settings
        };
        assert!(check(&append, Some(0), i64::MAX));
    }

    // proves G2
    #[test]
    fn a_batch_waits_for_memory_to_be_decompressed_in() {
        let budget = MemoryBudget::new(100);
        let held = take_unpack_memory(&budget, 60).ok();
        assert!(held.is_some());
        assert!(matches!(
            take_unpack_memory(&budget, 60),
            Err(PendingProduce::Throttled(_))
        ));
        assert!(matches!(
            take_unpack_memory(&budget, 101),
            Err(PendingProduce::Refused(Code::MessageTooLarge, _))
        ));
        drop(held);
        assert!(take_unpack_memory(&budget, 60).is_ok());
    }
}
