//! Idempotent producers and transactions.

use std::time::Duration;

use highwater_log::{InitProducerRequest, OffsetCommit, Producer, TopicPartition, TransactionRef};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse, EndTxnRequest, EndTxnResponse, InitProducerIdRequest,
    InitProducerIdResponse, ProducerId, TransactionalId, TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
};

use super::groups::{may_join, membership};
use super::offsets::{committed_offsets, existing_partitions, topic_results};
use crate::access::{Resource, Right};
use crate::codes::{ErrorCode, OK, code_of};
use crate::request::RequestContext;

fn reference(id: &TransactionalId, producer: ProducerId, epoch: i16) -> TransactionRef {
    TransactionRef {
        id: id.to_string(),
        producer: Producer {
            id: producer.0,
            epoch,
        },
    }
}

fn may_transact(context: &RequestContext, id: &str) -> Result<(), Code> {
    context.allow(Right::Send, Resource::TransactionalId(id))
}

/// Clients before version `fenced_since` know fencing only as an invalid epoch.
fn code_for<T>(context: &RequestContext, fenced_since: i16, result: &Result<T, Code>) -> i16 {
    match result {
        Err(Code::ProducerFenced) if context.version < fenced_since => {
            Code::InvalidProducerEpoch.code()
        }
        result => code_of(result),
    }
}

fn kind_of<T>(result: Result<T, impl ErrorCode>) -> Result<T, Code> {
    result.map_err(|error| error.kind())
}

pub(crate) async fn init_producer(
    context: &RequestContext,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    let initialized = init(context, request).await;
    let code = code_for(context, 4, &initialized);
    let producer = initialized.unwrap_or(Producer { id: -1, epoch: -1 });
    InitProducerIdResponse::default()
        .with_error_code(context.count_error(code))
        .with_producer_id(ProducerId(producer.id))
        .with_producer_epoch(producer.epoch)
}

async fn init(context: &RequestContext, request: InitProducerIdRequest) -> Result<Producer, Code> {
    match &request.transactional_id {
        Some(id) => may_transact(context, id)?,
        None => context.allow(Right::Send, Resource::AnyHub)?,
    };
    let has_current = request.producer_id.0 >= 0 && request.producer_epoch >= 0;
    let init = InitProducerRequest {
        transactional_id: request.transactional_id.map(|id| id.to_string()),
        timeout: Duration::from_millis(u64::try_from(request.transaction_timeout_ms).unwrap_or(0)),
        current: has_current.then_some(Producer {
            id: request.producer_id.0,
            epoch: request.producer_epoch,
        }),
    };
    kind_of(context.transactions().init_producer(init).await)
}

pub(crate) async fn add_partitions(
    context: &RequestContext,
    request: AddPartitionsToTxnRequest,
) -> AddPartitionsToTxnResponse {
    let transaction = reference(
        &request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
    );
    let topics = request.v3_and_below_topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|index| (index, ()));
        (topic.name, partitions.collect())
    });
    let (topic_partitions, codes) = existing_partitions(context, Right::Send, topics.collect());
    let mut all_codes = codes.iter().flat_map(|(_, codes)| codes);
    let whole = match all_codes.all(|(_, code)| *code == OK) {
        true => {
            let topic_partitions = topic_partitions.into_iter().map(|(at, ())| at).collect();
            code_for(
                context,
                2,
                &add(context, transaction, topic_partitions).await,
            )
        }
        // One invalid partition fails the others.
        false => Code::OperationNotAttempted.code(),
    };
    let results = topic_results(
        context,
        codes,
        whole,
        |index, code| {
            AddPartitionsToTxnPartitionResult::default()
                .with_partition_index(index)
                .with_partition_error_code(code)
        },
        |name, partitions| {
            AddPartitionsToTxnTopicResult::default()
                .with_name(name)
                .with_results_by_partition(partitions)
        },
    );
    AddPartitionsToTxnResponse::default().with_results_by_topic_v3_and_below(results)
}

async fn add(
    context: &RequestContext,
    transaction: TransactionRef,
    topic_partitions: Vec<TopicPartition>,
) -> Result<(), Code> {
    may_transact(context, &transaction.id)?;
    let transactions = context.transactions();
    kind_of(
        transactions
            .add_partitions(transaction, topic_partitions)
            .await,
    )
}

pub(crate) async fn add_offsets(
    context: &RequestContext,
    request: AddOffsetsToTxnRequest,
) -> AddOffsetsToTxnResponse {
    let added = add_group(context, request).await;
    let code = context.count_error(code_for(context, 2, &added));
    AddOffsetsToTxnResponse::default().with_error_code(code)
}

async fn add_group(context: &RequestContext, request: AddOffsetsToTxnRequest) -> Result<(), Code> {
    may_transact(context, &request.transactional_id)?;
    may_join(context, &request.group_id)?;
    let transaction = reference(
        &request.transactional_id,
        request.producer_id,
        request.producer_epoch,
    );
    let group = request.group_id.to_string();
    kind_of(context.transactions().add_group(transaction, group).await)
}

pub(crate) async fn commit_offsets(
    context: &RequestContext,
    request: TxnOffsetCommitRequest,
) -> TxnOffsetCommitResponse {
    let transaction = reference(
        &request.transactional_id,
        request.producer_id,
        request.producer_epoch,
    );
    let member = membership(
        &request.group_id,
        request.generation_id,
        &request.member_id,
        request.group_instance_id,
    );
    let topics = committed_offsets!(request.topics);
    let (offsets, codes) = existing_partitions(context, Right::Listen, topics);
    let allowed =
        may_transact(context, &transaction.id).and_then(|()| may_join(context, &member.group));
    let whole = match allowed {
        Ok(()) => {
            let commit = OffsetCommit { member, offsets };
            let transactions = context.transactions();
            code_of(
                &transactions
                    .commit_transaction_offsets(transaction, commit)
                    .await,
            )
        }
        Err(code) => code.code(),
    };
    let topics = topic_results(
        context,
        codes,
        whole,
        |index, code| {
            TxnOffsetCommitResponsePartition::default()
                .with_partition_index(index)
                .with_error_code(code)
        },
        |name, partitions| {
            TxnOffsetCommitResponseTopic::default()
                .with_name(name)
                .with_partitions(partitions)
        },
    );
    TxnOffsetCommitResponse::default().with_topics(topics)
}

pub(crate) async fn end(context: &RequestContext, request: EndTxnRequest) -> EndTxnResponse {
    let ended = end_transaction(context, request).await;
    let code = context.count_error(code_for(context, 2, &ended));
    EndTxnResponse::default().with_error_code(code)
}

async fn end_transaction(context: &RequestContext, request: EndTxnRequest) -> Result<(), Code> {
    may_transact(context, &request.transactional_id)?;
    let transaction = reference(
        &request.transactional_id,
        request.producer_id,
        request.producer_epoch,
    );
    kind_of(
        context
            .transactions()
            .end(transaction, request.committed)
            .await,
    )
}
