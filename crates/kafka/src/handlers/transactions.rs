//! Producers with numbers, and transactions.

use std::time::Duration;

use highwater_log::{
    InitProducerRequest, OffsetCommit, Producer, TopicPartition, TransactionError, TransactionRef,
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

use super::groups::{may_join, membership};
use super::offsets::{sorted_out, stored, verdict};
use crate::access::{Resource, Right};
use crate::broker::Broker;
use crate::call::Call;
use crate::codes::{ErrorCode, OK, code_of};

fn reference(id: &TransactionalId, producer: ProducerId, epoch: i16) -> TransactionRef {
    TransactionRef {
        id: id.to_string(),
        producer: Producer {
            id: producer.0,
            epoch,
        },
    }
}

fn may_transact(broker: &Broker, call: &Call, id: &str) -> Result<(), Code> {
    broker.allow(call, Right::Send, Resource::Transaction(id))
}

/// Clients before a certain version know fencing only as a wrong epoch.
fn code_for(call: &Call, knows_fencing_since: i16, result: &Result<(), Code>) -> i16 {
    match result {
        Err(Code::ProducerFenced) if call.version < knows_fencing_since => {
            Code::InvalidProducerEpoch.code()
        }
        result => code_of(result),
    }
}

fn kind_of(result: Result<(), TransactionError>) -> Result<(), Code> {
    result.map_err(|error| error.kind())
}

pub(crate) async fn init_producer(
    broker: &Broker,
    call: &Call,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    let allowed = match &request.transactional_id {
        Some(id) => may_transact(broker, call, id),
        None => broker.allow(call, Right::Send, Resource::Node),
    };
    let had = request.producer_id.0 >= 0 && request.producer_epoch >= 0;
    let init = InitProducerRequest {
        transactional_id: request.transactional_id.map(|id| id.to_string()),
        timeout: Duration::from_millis(u64::try_from(request.transaction_timeout_ms).unwrap_or(0)),
        current: had.then_some(Producer {
            id: request.producer_id.0,
            epoch: request.producer_epoch,
        }),
    };
    let given = match allowed {
        Ok(()) => {
            let given = broker.services.transactions.init_producer(init).await;
            given.map_err(|error| error.kind())
        }
        Err(code) => Err(code),
    };
    match given {
        Ok(producer) => InitProducerIdResponse::default()
            .with_producer_id(ProducerId(producer.id))
            .with_producer_epoch(producer.epoch),
        Err(code) => InitProducerIdResponse::default()
            .with_error_code(broker.noted(code_for(call, 4, &Err(code))))
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1),
    }
}

pub(crate) async fn add_partitions(
    broker: &Broker,
    call: &Call,
    request: AddPartitionsToTxnRequest,
) -> AddPartitionsToTxnResponse {
    let transaction = reference(
        &request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
    );
    let mut topic_partitions = Vec::new();
    let mut topics = Vec::with_capacity(request.v3_and_below_topics.len());
    for wanted in request.v3_and_below_topics {
        let allowed = broker.allow(call, Right::Send, Resource::Hub(&wanted.name));
        let codes = wanted.partitions.into_iter().map(|index| {
            let topic_partition =
                allowed.and_then(|()| broker.topic_partition(&wanted.name, index));
            let code = code_of(&topic_partition);
            topic_partitions.extend(topic_partition);
            (index, code)
        });
        let codes: Vec<(i32, i16)> = codes.collect();
        topics.push((wanted.name, codes));
    }
    let refused = topics
        .iter()
        .flat_map(|(_, codes)| codes)
        .any(|(_, code)| *code != OK);
    let whole = match refused {
        // One that cannot be takes the others with it.
        true => Code::OperationNotAttempted.code(),
        false => added(broker, call, transaction, topic_partitions).await,
    };
    let results = topics.into_iter().map(|(name, codes)| {
        let partitions = codes.into_iter().map(|(index, code)| {
            AddPartitionsToTxnPartitionResult::default()
                .with_partition_index(index)
                .with_partition_error_code(verdict(broker, code, whole))
        });
        AddPartitionsToTxnTopicResult::default()
            .with_name(name)
            .with_results_by_partition(partitions.collect())
    });
    AddPartitionsToTxnResponse::default().with_results_by_topic_v3_and_below(results.collect())
}

async fn added(
    broker: &Broker,
    call: &Call,
    transaction: TransactionRef,
    topic_partitions: Vec<TopicPartition>,
) -> i16 {
    let added = match may_transact(broker, call, &transaction.id) {
        Ok(()) => {
            let transactions = &broker.services.transactions;
            kind_of(
                transactions
                    .add_partitions(transaction, topic_partitions)
                    .await,
            )
        }
        Err(code) => Err(code),
    };
    code_for(call, 2, &added)
}

pub(crate) async fn add_offsets(
    broker: &Broker,
    call: &Call,
    request: AddOffsetsToTxnRequest,
) -> AddOffsetsToTxnResponse {
    let transaction = reference(
        &request.transactional_id,
        request.producer_id,
        request.producer_epoch,
    );
    let allowed = may_transact(broker, call, &transaction.id)
        .and_then(|()| may_join(broker, call, &request.group_id));
    let added = match allowed {
        Ok(()) => {
            let group = request.group_id.to_string();
            kind_of(
                broker
                    .services
                    .transactions
                    .add_group(transaction, group)
                    .await,
            )
        }
        Err(code) => Err(code),
    };
    AddOffsetsToTxnResponse::default().with_error_code(broker.noted(code_for(call, 2, &added)))
}

pub(crate) async fn commit_transaction_offsets(
    broker: &Broker,
    call: &Call,
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
    let wanted = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|one| {
            let epoch = one.committed_leader_epoch;
            let stored = stored(one.committed_offset, epoch, one.committed_metadata);
            (one.partition_index, stored)
        });
        (topic.name, partitions.collect())
    });
    let (offsets, codes) = sorted_out(broker, call, wanted.collect());
    let allowed = may_transact(broker, call, &transaction.id)
        .and_then(|()| may_join(broker, call, &member.group));
    let whole = match allowed {
        Ok(()) => {
            let transactions = &broker.services.transactions;
            let commit = OffsetCommit { member, offsets };
            code_of(
                &transactions
                    .commit_transaction_offsets(transaction, commit)
                    .await,
            )
        }
        Err(code) => code.code(),
    };
    let topics = codes.into_iter().map(|(name, partitions)| {
        let partitions = partitions.into_iter().map(|(index, code)| {
            TxnOffsetCommitResponsePartition::default()
                .with_partition_index(index)
                .with_error_code(verdict(broker, code, whole))
        });
        TxnOffsetCommitResponseTopic::default()
            .with_name(name)
            .with_partitions(partitions.collect())
    });
    TxnOffsetCommitResponse::default().with_topics(topics.collect())
}

pub(crate) async fn end(broker: &Broker, call: &Call, request: EndTxnRequest) -> EndTxnResponse {
    let transaction = reference(
        &request.transactional_id,
        request.producer_id,
        request.producer_epoch,
    );
    let ended = match may_transact(broker, call, &transaction.id) {
        Ok(()) => {
            let transactions = &broker.services.transactions;
            kind_of(transactions.end(transaction, request.committed).await)
        }
        Err(code) => Err(code),
    };
    EndTxnResponse::default().with_error_code(broker.noted(code_for(call, 2, &ended)))
}
