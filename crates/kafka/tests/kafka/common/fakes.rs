//! Groups and transactions that fill every field of their responses.

use std::future::ready;
use std::time::Duration;

use bytes::Bytes;
use highwater_log::{
    BoxFuture, CommittedOffset, GroupCoordinator, GroupError, GroupInfo, GroupState,
    InitProducerRequest, JoinRequest, JoinResponse, JoinResponseMember, MemberIdentity, MemberInfo,
    Membership, Offset, OffsetAndMetadata, OffsetCommit, Producer, SyncRequest, SyncResponse,
    TopicPartition, TransactionCoordinator, TransactionError, TransactionRef,
};

pub(crate) struct FakeGroups;

fn now<T: Send + 'static>(value: T) -> BoxFuture<T> {
    Box::pin(ready(value))
}

/// The group of this name refuses everything.
fn check(group: &str) -> Result<(), GroupError> {
    match group {
        "full" => Err(GroupError::Full(1)),
        _ => Ok(()),
    }
}

fn info() -> GroupInfo {
    GroupInfo {
        group: "readers".into(),
        state: GroupState::Stable,
        protocol_type: "consumer".into(),
        protocol: "range".into(),
        members: vec![MemberInfo {
            member: "m-1".into(),
            instance: Some("i-1".into()),
            client_id: "test".into(),
            client_host: "/127.0.0.1".into(),
            metadata: Bytes::from_static(b"metadata"),
            assignment: Bytes::from_static(b"assignment"),
        }],
    }
}

impl GroupCoordinator for FakeGroups {
    fn join(&self, request: JoinRequest) -> BoxFuture<Result<JoinResponse, GroupError>> {
        if request.expects_member_id && request.member.is_empty() {
            let member = "m-1".into();
            return now(Err(GroupError::MemberIdRequired { member }));
        }
        assert!(request.session_timeout > Duration::ZERO);
        assert!(request.rebalance_timeout > Duration::ZERO);
        now(check(&request.group).map(|()| JoinResponse {
            generation: 3,
            protocol_type: request.protocol_type,
            protocol: request.protocols[0].0.clone(),
            leader: "m-1".into(),
            member: "m-1".into(),
            led_as: request.instance.map(|_| "m-0".into()),
            members: vec![JoinResponseMember {
                member: "m-1".into(),
                instance: Some("i-1".into()),
                metadata: request.protocols[0].1.clone(),
            }],
        }))
    }

    fn sync(&self, request: SyncRequest) -> BoxFuture<Result<SyncResponse, GroupError>> {
        now(check(&request.member.group).map(|()| SyncResponse {
            protocol_type: "consumer".into(),
            protocol: "range".into(),
            assignment: request.assignments[0].1.clone(),
        }))
    }

    fn heartbeat(&self, member: Membership) -> BoxFuture<Result<(), GroupError>> {
        now(check(&member.group))
    }

    fn leave(
        &self,
        group: String,
        leaving: Vec<MemberIdentity>,
    ) -> BoxFuture<Result<Vec<Result<(), GroupError>>, GroupError>> {
        let left = |who: MemberIdentity| match &*who.member {
            "m-1" => Ok(()),
            _ => Err(GroupError::UnknownMember(who.member)),
        };
        now(check(&group).map(|()| leaving.into_iter().map(left).collect()))
    }

    fn commit_offsets(&self, request: OffsetCommit) -> BoxFuture<Result<(), GroupError>> {
        now(check(&request.member.group))
    }

    fn fetch_offsets(
        &self,
        group: String,
        topic_partitions: Option<Vec<TopicPartition>>,
        _stable: bool,
    ) -> BoxFuture<Result<Vec<CommittedOffset>, GroupError>> {
        let everything = || {
            let hub = highwater_log::HubName::new("t").unwrap();
            vec![TopicPartition { hub, partition: 0 }]
        };
        let stored = |topic_partition: TopicPartition| {
            let stored = OffsetAndMetadata {
                offset: Offset(42),
                leader_epoch: 0,
                metadata: "note".into(),
            };
            let first = topic_partition.partition == 0;
            (topic_partition, first.then_some(stored))
        };
        let topic_partitions = topic_partitions.unwrap_or_else(everything);
        now(check(&group).map(|()| topic_partitions.into_iter().map(stored).collect()))
    }

    fn list(&self) -> BoxFuture<Vec<GroupInfo>> {
        now(vec![info()])
    }

    fn describe(&self, group: String) -> BoxFuture<Option<GroupInfo>> {
        now((group == "readers").then(info))
    }

    fn delete(&self, group: String) -> BoxFuture<Result<(), GroupError>> {
        now(check(&group))
    }

    fn delete_offsets(
        &self,
        group: String,
        _places: Vec<TopicPartition>,
    ) -> BoxFuture<Result<(), GroupError>> {
        now(check(&group))
    }
}

pub(crate) struct FakeTransactions;

/// The transactional id of this name is fenced.
fn fenced(transaction: &TransactionRef) -> Result<(), TransactionError> {
    match &*transaction.id {
        "fenced" => Err(TransactionError::Fenced(transaction.producer)),
        _ => Ok(()),
    }
}

impl TransactionCoordinator for FakeTransactions {
    fn init_producer(
        &self,
        request: InitProducerRequest,
    ) -> BoxFuture<Result<Producer, TransactionError>> {
        let producer = Producer { id: 7, epoch: 1 };
        now(match request.transactional_id.as_deref() {
            Some("fenced") => Err(TransactionError::Fenced(producer)),
            _ => Ok(producer),
        })
    }

    fn add_partitions(
        &self,
        transaction: TransactionRef,
        _places: Vec<TopicPartition>,
    ) -> BoxFuture<Result<(), TransactionError>> {
        now(fenced(&transaction))
    }

    fn add_group(
        &self,
        transaction: TransactionRef,
        _group: String,
    ) -> BoxFuture<Result<(), TransactionError>> {
        now(fenced(&transaction))
    }

    fn commit_transaction_offsets(
        &self,
        transaction: TransactionRef,
        _commit: OffsetCommit,
    ) -> BoxFuture<Result<(), GroupError>> {
        now(fenced(&transaction).map_err(GroupError::from))
    }

    fn end(
        &self,
        transaction: TransactionRef,
        _commit: bool,
    ) -> BoxFuture<Result<(), TransactionError>> {
        now(fenced(&transaction))
    }
}
