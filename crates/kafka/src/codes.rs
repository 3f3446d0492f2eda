//! The Kafka error code for each error, chosen by how clients react to it.

use highwater_log::batch::BatchError;
use highwater_log::{AdminError, AppendError, GroupError, ReadError, TransactionError};
use kafka_protocol::ResponseError as Code;

pub(crate) const OK: i16 = 0;

/// The code of an error.
pub(crate) trait ErrorCode {
    fn kind(&self) -> Code;

    fn code(&self) -> i16 {
        self.kind().code()
    }
}

impl ErrorCode for Code {
    fn kind(&self) -> Code {
        *self
    }
}

/// The code of a result.
pub(crate) fn code_of<T>(result: &Result<T, impl ErrorCode>) -> i16 {
    match result {
        Ok(_) => OK,
        Err(error) => error.code(),
    }
}

impl ErrorCode for BatchError {
    fn kind(&self) -> Code {
        match self {
            BatchError::Codec(_) => Code::UnsupportedCompressionType,
            BatchError::Magic(_) => Code::UnsupportedForMessageFormat,
            BatchError::TooLong { .. } | BatchError::DecompressedTooLarge { .. } => {
                Code::MessageTooLarge
            }
            BatchError::Short { .. } | BatchError::Length(_) | BatchError::Checksum => {
                Code::CorruptMessage
            }
            _ => Code::InvalidRecord,
        }
    }
}

impl ErrorCode for AppendError {
    fn kind(&self) -> Code {
        match self {
            AppendError::Malformed(error) => error.kind(),
            AppendError::TooLarge { .. } => Code::MessageTooLarge,
            AppendError::OutOfSequence { .. } => Code::OutOfOrderSequenceNumber,
            AppendError::DuplicateTooOld { .. } => Code::DuplicateSequenceNumber,
            // Not ProducerFenced, which is final: this code lets a producer whose transaction timed out abort and
            // continue. Coordinator requests of a fenced producer do get ProducerFenced.
            AppendError::Fenced { .. } => Code::InvalidProducerEpoch,
            AppendError::NoTransaction { .. } => Code::InvalidTxnState,
            // librdkafka treats the throttling code as final and reports the messages as lost. Every client
            // retries this one, without a metadata request.
            AppendError::QueueFull { .. } | AppendError::Busy { .. } => Code::NotEnoughReplicas,
            // Every client retries this until its delivery timeout.
            AppendError::DiskFull { .. } | AppendError::Stopped { .. } => Code::KafkaStorageError,
            AppendError::OutcomeUnknown { .. } => Code::RequestTimedOut,
            AppendError::Deleted(_) => Code::UnknownTopicOrPartition,
        }
    }
}

impl ErrorCode for ReadError {
    fn kind(&self) -> Code {
        match self {
            ReadError::OutOfRange { .. } => Code::OffsetOutOfRange,
            // Clients retry this code. One that makes them skip would lose data silently.
            ReadError::Damaged { .. } | ReadError::Storage { .. } => Code::KafkaStorageError,
            ReadError::Deleted(_) => Code::UnknownTopicOrPartition,
        }
    }
}

impl ErrorCode for AdminError {
    fn kind(&self) -> Code {
        match self {
            AdminError::Unknown(_) => Code::UnknownTopicOrPartition,
            AdminError::Exists(_) => Code::TopicAlreadyExists,
            AdminError::Partitions { .. } | AdminError::Shrink { .. } => Code::InvalidPartitions,
            AdminError::TooMany { .. } => Code::PolicyViolation,
            AdminError::Settings(_) => Code::InvalidConfig,
            AdminError::Storage(_) => Code::KafkaStorageError,
        }
    }
}

impl ErrorCode for GroupError {
    fn kind(&self) -> Code {
        match self {
            GroupError::InvalidGroup => Code::InvalidGroupId,
            GroupError::MemberIdRequired { .. } => Code::MemberIdRequired,
            GroupError::UnknownMember(_) => Code::UnknownMemberId,
            GroupError::IllegalGeneration { .. } => Code::IllegalGeneration,
            GroupError::Rebalancing => Code::RebalanceInProgress,
            GroupError::FencedInstance(_) => Code::FencedInstanceId,
            GroupError::InconsistentProtocol => Code::InconsistentGroupProtocol,
            GroupError::FencedEpoch { .. } => Code::FencedMemberEpoch,
            GroupError::StaleEpoch { .. } => Code::StaleMemberEpoch,
            GroupError::UnreleasedInstance(_) => Code::UnreleasedInstanceId,
            GroupError::UnsupportedAssignor(_) => Code::UnsupportedAssignor,
            GroupError::InvalidPattern(_) => Code::InvalidRegularExpression,
            GroupError::InvalidRequest(_) => Code::InvalidRequest,
            GroupError::Unsupported => Code::UnsupportedVersion,
            GroupError::SessionTimeout { .. } => Code::InvalidSessionTimeout,
            GroupError::Full(_) | GroupError::TooLarge { .. } | GroupError::OutOfMemory { .. } => {
                Code::GroupMaxSizeReached
            }
            GroupError::NotEmpty => Code::NonEmptyGroup,
            GroupError::NotFound | GroupError::NotConsumerGroup => Code::GroupIdNotFound,
            GroupError::Subscribed => Code::GroupSubscribedToTopic,
            GroupError::UnknownPartition(_) => Code::UnknownTopicOrPartition,
            GroupError::MetadataTooLarge { .. } => Code::OffsetMetadataTooLarge,
            GroupError::Unstable => Code::UnstableOffsetCommit,
            GroupError::Loading => Code::CoordinatorLoadInProgress,
            GroupError::Transaction(error) => error.kind(),
            GroupError::Storage(_) => Code::CoordinatorNotAvailable,
        }
    }
}

impl ErrorCode for TransactionError {
    fn kind(&self) -> Code {
        match self {
            TransactionError::InvalidId => Code::InvalidRequest,
            TransactionError::Timeout { .. } => Code::InvalidTransactionTimeout,
            TransactionError::UnknownProducer(_) => Code::InvalidProducerIdMapping,
            TransactionError::Fenced(_) => Code::ProducerFenced,
            TransactionError::InvalidState(_) => Code::InvalidTxnState,
            TransactionError::Concurrent => Code::ConcurrentTransactions,
            TransactionError::UnknownPartition(_) => Code::UnknownTopicOrPartition,
            TransactionError::Loading => Code::CoordinatorLoadInProgress,
            TransactionError::Storage(_) => Code::CoordinatorNotAvailable,
        }
    }
}
