//! The log's errors for a broker's error codes, and which codes are retriable.

use highwater_log::batch::{Batch, BatchError};
use highwater_log::{
    AdminError, AppendError, GroupError, HubName, Membership, Offset, ReadError, TopicPartition,
    TransactionError, TransactionRef,
};
use kafka_protocol::ResponseError as Code;

use super::connection::CallError;
use crate::codes::OK;

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BrokerError {
    pub code: Code,
    pub message: Option<String>,
}

impl From<Code> for BrokerError {
    fn from(code: Code) -> BrokerError {
        BrokerError {
            code,
            message: None,
        }
    }
}

impl std::fmt::Display for BrokerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.message {
            Some(message) => write!(f, "{message} ({})", self.code),
            None => self.code.fmt(f),
        }
    }
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Call(CallError),
    Broker(BrokerError),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Call(error) => error.fmt(f),
            Failure::Broker(error) => error.fmt(f),
        }
    }
}

impl Failure {
    pub(super) fn code(&self) -> Option<Code> {
        match self {
            Failure::Broker(error) => Some(error.code),
            Failure::Call(_) => None,
        }
    }
}

pub(crate) fn code_from(code: i16) -> Code {
    Code::try_from_code(code).unwrap_or(Code::Unknown(code))
}

pub(crate) fn ok(code: i16) -> Result<(), BrokerError> {
    ok_or(code, None)
}

/// The only element of a response to a request with one element.
pub(crate) fn single<T>(items: Vec<T>) -> Result<T, BrokerError> {
    let first = items.into_iter().next();
    first.ok_or(Code::UnknownServerError.into())
}

/// The first error of several codes.
pub(crate) fn all_ok(codes: impl IntoIterator<Item = i16>) -> Result<(), BrokerError> {
    codes.into_iter().try_for_each(ok)
}

pub(crate) fn ok_or(
    code: i16,
    message: Option<kafka_protocol::protocol::StrBytes>,
) -> Result<(), BrokerError> {
    match code {
        OK => Ok(()),
        code => Err(BrokerError {
            code: code_from(code),
            message: message.map(|text| text.to_string()),
        }),
    }
}

/// Another broker is responsible, or this one is temporarily unable.
pub(crate) fn is_retriable(code: Code) -> bool {
    is_unknown(code)
        || matches!(
            code,
            Code::CorruptMessage
                | Code::LeaderNotAvailable
                | Code::NotLeaderOrFollower
                | Code::RequestTimedOut
                | Code::BrokerNotAvailable
                | Code::ReplicaNotAvailable
                | Code::NetworkException
                | Code::CoordinatorLoadInProgress
                | Code::CoordinatorNotAvailable
                | Code::NotCoordinator
                | Code::NotEnoughReplicas
                | Code::NotEnoughReplicasAfterAppend
                | Code::NotController
                | Code::ConcurrentTransactions
                | Code::KafkaStorageError
                | Code::FencedLeaderEpoch
                | Code::UnknownLeaderEpoch
                | Code::OffsetNotAvailable
                | Code::ThrottlingQuotaExceeded
        )
}

/// The broker does not know the hub: it was deleted, or this broker does not know it yet.
pub(crate) fn is_unknown(code: Code) -> bool {
    matches!(
        code,
        Code::UnknownTopicOrPartition | Code::UnknownTopicId | Code::InconsistentTopicId
    )
}

pub(crate) fn read_error(topic_partition: &TopicPartition, failure: Failure) -> ReadError {
    let topic_partition = topic_partition.clone();
    match failure.code() {
        Some(code) if is_unknown(code) => ReadError::Deleted(topic_partition),
        _ => ReadError::Storage {
            reason: failure.to_string(),
            topic_partition,
        },
    }
}

/// For a refused batch, which is certainly not in the log. The expected sequence number is not in the response: -1.
pub(crate) fn append_error(
    topic_partition: &TopicPartition,
    batch: &Batch,
    bytes_max: usize,
    error: &BrokerError,
) -> AppendError {
    let header = batch.header();
    let (topic_partition, reason) = (topic_partition.clone(), error.to_string());
    let producer = header
        .producer()
        .unwrap_or(highwater_log::Producer { id: -1, epoch: -1 });
    let sequence = header.base_sequence();
    match error.code {
        code if is_unknown(code) => AppendError::Deleted(topic_partition),
        Code::MessageTooLarge | Code::RecordListTooLarge => AppendError::TooLarge {
            topic_partition,
            bytes: batch.size(),
            max: bytes_max,
        },
        Code::OutOfOrderSequenceNumber => AppendError::OutOfSequence {
            producer,
            expected: -1,
            got: sequence,
        },
        Code::DuplicateSequenceNumber => AppendError::DuplicateTooOld { producer, sequence },
        Code::InvalidProducerEpoch | Code::ProducerFenced => AppendError::Fenced {
            producer,
            current: producer.epoch.saturating_add(1),
        },
        Code::InvalidTxnState | Code::InvalidProducerIdMapping => AppendError::NoTransaction {
            producer,
            topic_partition,
        },
        Code::InvalidRecord
        | Code::InvalidTimestamp
        | Code::UnsupportedCompressionType
        | Code::UnsupportedForMessageFormat => AppendError::Malformed(BatchError::Record {
            index: 0,
            reason: "the broker refuses it",
        }),
        _ => AppendError::Stopped {
            topic_partition,
            reason,
        },
    }
}

pub(crate) fn admin_error(hub: &HubName, partitions: u32, failure: Failure) -> AdminError {
    let max = highwater_log::HubSpec::PARTITIONS_MAX;
    match failure.code() {
        Some(Code::TopicAlreadyExists) => AdminError::Exists(hub.clone()),
        Some(code) if is_unknown(code) => AdminError::Unknown(hub.clone()),
        Some(Code::InvalidPartitions) => AdminError::Partitions {
            requested: partitions,
            max,
        },
        Some(Code::InvalidConfig) => AdminError::Settings(failure.to_string()),
        _ => AdminError::Storage(failure.to_string()),
    }
}

/// `topic_partition` is that of the request, if it has one.
pub(crate) fn group_error(
    member: &Membership,
    topic_partition: Option<&TopicPartition>,
    failure: Failure,
) -> GroupError {
    let unknown = |code| topic_partition.filter(|_| is_unknown(code)).cloned();
    let Some(code) = failure.code() else {
        return GroupError::Storage(failure.to_string());
    };
    if let Some(topic_partition) = unknown(code) {
        return GroupError::UnknownPartition(topic_partition);
    }
    match code {
        Code::InvalidGroupId => GroupError::InvalidGroup,
        Code::UnknownMemberId => GroupError::UnknownMember(member.member.clone()),
        Code::IllegalGeneration => GroupError::IllegalGeneration {
            requested: member.generation,
            current: -1,
        },
        Code::RebalanceInProgress => GroupError::Rebalancing,
        Code::FencedInstanceId => {
            GroupError::FencedInstance(member.instance.clone().unwrap_or_default())
        }
        Code::InconsistentGroupProtocol => GroupError::InconsistentProtocol,
        Code::GroupMaxSizeReached => GroupError::Full(0),
        Code::NonEmptyGroup => GroupError::NotEmpty,
        Code::GroupIdNotFound => GroupError::NotFound,
        Code::GroupSubscribedToTopic => GroupError::Subscribed,
        Code::UnstableOffsetCommit => GroupError::Unstable,
        Code::CoordinatorLoadInProgress => GroupError::Loading,
        _ => GroupError::Storage(failure.to_string()),
    }
}

pub(crate) fn transaction_error(
    transaction: &TransactionRef,
    topic_partition: Option<&TopicPartition>,
    failure: Failure,
) -> TransactionError {
    let producer = transaction.producer;
    match (failure.code(), topic_partition) {
        (Some(code), Some(topic_partition)) if is_unknown(code) => {
            TransactionError::UnknownPartition(topic_partition.clone())
        }
        (Some(Code::InvalidProducerIdMapping), _) => TransactionError::UnknownProducer(producer),
        (Some(Code::ProducerFenced | Code::InvalidProducerEpoch), _) => {
            TransactionError::Fenced(producer)
        }
        (Some(Code::InvalidTxnState), _) => {
            TransactionError::InvalidState("the coordinator has another state")
        }
        (Some(Code::ConcurrentTransactions), _) => TransactionError::Concurrent,
        (Some(Code::CoordinatorLoadInProgress), _) => TransactionError::Loading,
        _ => TransactionError::Storage(failure.to_string()),
    }
}

pub(crate) fn out_of_range(
    topic_partition: &TopicPartition,
    requested: Offset,
    start: Offset,
    end: Offset,
) -> ReadError {
    ReadError::OutOfRange {
        topic_partition: topic_partition.clone(),
        requested,
        start,
        end,
    }
}
