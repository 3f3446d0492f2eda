//! Groups and transactions that fill every field of their responses, and settings in memory.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use highwater_kafka::{DynamicSettingStore, DynamicSettings, SettingError, SettingUpdate};
use highwater_log::{
    BoxFuture, CommittedOffset, ConsumerGroupInfo, ConsumerHeartbeat, ConsumerHeartbeatResponse,
    ConsumerMemberInfo, GroupCoordinator, GroupError, GroupInfo, GroupState, GroupSummary, HubId,
    InitProducerRequest, JoinRequest, JoinResponse, JoinResponseMember, MemberIdentity, MemberInfo,
    Membership, Offset, OffsetAndMetadata, OffsetCommit, Producer, SyncRequest, SyncResponse,
    TopicPartition, TransactionCoordinator, TransactionError, TransactionInfo, TransactionPhase,
    TransactionRef,
};
use tokio::sync::watch;

/// Settings in memory.
pub(crate) struct MemorySettings(watch::Sender<Arc<DynamicSettings>>);

impl Default for MemorySettings {
    fn default() -> MemorySettings {
        MemorySettings(watch::Sender::new(Arc::default()))
    }
}

impl DynamicSettingStore for MemorySettings {
    fn watch(&self) -> watch::Receiver<Arc<DynamicSettings>> {
        self.0.subscribe()
    }

    fn update(&self, update: SettingUpdate) -> BoxFuture<Result<(), SettingError>> {
        let changed = self.0.borrow().updated(update);
        now(changed.map(|changed| {
            self.0.send_replace(Arc::new(changed));
        }))
    }
}

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
        consumer: None,
    }
}

/// A group with 20 MiB of metadata.
fn large() -> GroupInfo {
    let mut info = info();
    info.members[0].metadata = vec![7; 20 << 20].into();
    info
}

/// A group of the consumer protocol. Only classic members have metadata.
fn modern() -> GroupInfo {
    let mut classic = info();
    classic.members[0].metadata = Bytes::new();
    GroupInfo {
        group: "modern".into(),
        state: GroupState::Reconciling,
        protocol: "uniform".into(),
        consumer: Some(ConsumerGroupInfo {
            epoch: 5,
            assignment_epoch: 4,
            members: vec![ConsumerMemberInfo {
                epoch: 3,
                rack: Some("r".into()),
                names: vec!["t".into()],
                pattern: Some("t.*".into()),
                assigned: vec![(HubId([9; 16]), vec![0])],
                target: vec![(HubId([9; 16]), vec![1])],
            }],
        }),
        ..classic
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

    fn consumer_heartbeat(
        &self,
        request: ConsumerHeartbeat,
    ) -> BoxFuture<Result<ConsumerHeartbeatResponse, GroupError>> {
        assert_eq!(request.rebalance_timeout, Some(Duration::from_secs(10)));
        now(check(&request.group).map(|()| ConsumerHeartbeatResponse {
            member: "m-1".into(),
            epoch: 1,
            interval: Duration::from_secs(5),
            assignment: request
                .visible
                .name("t")
                .is_some()
                .then(|| vec![(HubId([9; 16]), vec![0, 1])]),
        }))
    }

    fn check_member_epoch(
        &self,
        _group: String,
        _member: String,
        epoch: i32,
    ) -> BoxFuture<Result<(), GroupError>> {
        now(match epoch {
            1 => Ok(()),
            received => Err(GroupError::StaleEpoch {
                received,
                current: 1,
            }),
        })
    }

    fn list(&self) -> BoxFuture<Vec<GroupSummary>> {
        now(vec![info().summary(), modern().summary()])
    }

    fn summary(&self, group: String) -> BoxFuture<Option<GroupSummary>> {
        let described = self.describe(group);
        Box::pin(async move { described.await.as_ref().map(GroupInfo::summary) })
    }

    fn describe(&self, group: String) -> BoxFuture<Option<GroupInfo>> {
        now(match &*group {
            "readers" => Some(info()),
            "large" => Some(large()),
            "modern" => Some(modern()),
            _ => None,
        })
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
    fn transactions(&self) -> BoxFuture<Result<Vec<TransactionInfo>, TransactionError>> {
        let hub = highwater_log::HubName::new("t").unwrap();
        let partition = |partition| TopicPartition {
            hub: hub.clone(),
            partition,
        };
        now(Ok(vec![TransactionInfo {
            id: "mine".into(),
            producer: Producer { id: 7, epoch: 2 },
            timeout: Duration::from_secs(60),
            phase: TransactionPhase::Ongoing,
            started_ms: Some(1000),
            topic_partitions: vec![partition(0), partition(3)],
        }]))
    }

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

    fn end_raising_epoch(
        &self,
        transaction: TransactionRef,
        _commit: bool,
    ) -> BoxFuture<Result<Producer, TransactionError>> {
        now(fenced(&transaction).map(|()| Producer { id: 7, epoch: 3 }))
    }
}
