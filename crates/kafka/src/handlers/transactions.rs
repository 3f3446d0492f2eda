//! Idempotent producers and transactions.

use std::time::Duration;

use highwater_log::{
    GroupError, InitProducerRequest, OffsetCommit, Producer, TopicPartition, TransactionError,
    TransactionRef,
};
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

use super::groups::membership;
use super::offsets::{committed_offsets, existing_partitions, topic_results};
use crate::access::Resource;
use crate::codes::{ErrorCode, OK, code_of};
use crate::request::RequestContext;

/// The first version of EndTxn for clients of the second transaction protocol (KIP-890).
const RAISES_EPOCH: i16 = 5;
/// The same of TxnOffsetCommit: no AddOffsetsToTxn comes before it.
const ADDS_GROUP: i16 = 5;
/// The first version of TxnOffsetCommit whose clients know that error.
const KNOWS_ABORTABLE: i16 = 4;

fn reference(id: &TransactionalId, producer: ProducerId, epoch: i16) -> TransactionRef {
    TransactionRef {
        id: id.to_string(),
        producer: Producer {
            id: producer.0,
            epoch,
        },
    }
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
        Some(id) => context.allow(Resource::TransactionalId(id))?,
        None => context.allow(Resource::AnyHub)?,
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
    let (topic_partitions, codes) = existing_partitions(context, topics.collect());
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
    context.allow(Resource::TransactionalId(&transaction.id))?;
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
    context.allow(Resource::TransactionalId(&request.transactional_id))?;
    context.allow(Resource::Group(&request.group_id))?;
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
    let (offsets, codes) = existing_partitions(context, topics);
    let allowed = context
        .allow(Resource::TransactionalId(&transaction.id))
        .and_then(|()| context.allow(Resource::Group(&member.group)));
    let whole = match allowed {
        Ok(()) => {
            let commit = OffsetCommit { member, offsets };
            offset_code(context, store_offsets(context, transaction, commit).await)
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

async fn store_offsets(
    context: &RequestContext,
    transaction: TransactionRef,
    commit: OffsetCommit,
) -> Result<(), GroupError> {
    let transactions = context.transactions();
    match context.version >= ADDS_GROUP {
        true => {
            transactions
                .commit_offsets_adding(transaction, commit)
                .await
        }
        false => {
            let commit = transactions.commit_transaction_offsets(transaction, commit);
            commit.await
        }
    }
}

/// Clients that know the code abort, and continue. A step of the transaction that is being stored is worth a retry, for
/// which this request has no other code.
fn offset_code(context: &RequestContext, stored: Result<(), GroupError>) -> i16 {
    let code = match &stored {
        Ok(()) => return OK,
        Err(GroupError::Transaction(TransactionError::InvalidState(_)))
            if context.version >= KNOWS_ABORTABLE =>
        {
            Code::TransactionAbortable
        }
        Err(GroupError::Transaction(TransactionError::Concurrent)) => {
            Code::CoordinatorLoadInProgress
        }
        Err(error) => error.kind(),
    };
    code.code()
}

pub(crate) async fn end(context: &RequestContext, request: EndTxnRequest) -> EndTxnResponse {
    let ended = end_transaction(context, request).await;
    let code = context.count_error(code_for(context, 2, &ended));
    let response = EndTxnResponse::default().with_error_code(code);
    match ended {
        Ok(Some(producer)) => response
            .with_producer_id(ProducerId(producer.id))
            .with_producer_epoch(producer.epoch),
        _ => response,
    }
}

/// Returns the producer of the next transaction, for clients whose epoch is raised with each.
async fn end_transaction(
    context: &RequestContext,
    request: EndTxnRequest,
) -> Result<Option<Producer>, Code> {
    context.allow(Resource::TransactionalId(&request.transactional_id))?;
    let transaction = reference(
        &request.transactional_id,
        request.producer_id,
        request.producer_epoch,
    );
    let (transactions, commit) = (context.transactions(), request.committed);
    match context.version >= RAISES_EPOCH {
        true => {
            let next = transactions.end_raising_epoch(transaction, commit).await;
            kind_of(next.map(Some))
        }
        false => kind_of(transactions.end(transaction, commit).await.map(|()| None)),
    }
}
