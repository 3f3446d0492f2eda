//! Groups and transactions that fill every field of their answers.

use std::future::ready;
use std::time::Duration;

use bytes::Bytes;
use highwater_log::{
    Commit, GroupError, GroupInfo, GroupState, Groups, InitProducer, Join, Joined, JoinedMember,
    Leaving, MemberInfo, Membership, Offset, OffsetStored, Pending, Place, Producer, StoredOffset,
    SyncGroup, Synced, TransactionError, TransactionRef, Transactions,
};

pub struct FakeGroups;

fn now<T: Send + 'static>(value: T) -> Pending<T> {
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

impl Groups for FakeGroups {
    fn join(&self, request: Join) -> Pending<Result<Joined, GroupError>> {
        if request.expects_member_id && request.member.is_empty() {
            let member = "m-1".into();
            return now(Err(GroupError::MemberIdRequired { member }));
        }
        assert!(request.session_timeout > Duration::ZERO);
        assert!(request.rebalance_timeout > Duration::ZERO);
        now(check(&request.group).map(|()| Joined {
            generation: 3,
            protocol_type: request.protocol_type,
            protocol: request.protocols[0].0.clone(),
            leader: "m-1".into(),
            member: "m-1".into(),
            led_as: request.instance.map(|_| "m-0".into()),
            members: vec![JoinedMember {
                member: "m-1".into(),
                instance: Some("i-1".into()),
                metadata: request.protocols[0].1.clone(),
            }],
        }))
    }

    fn sync(&self, request: SyncGroup) -> Pending<Result<Synced, GroupError>> {
        now(check(&request.member.group).map(|()| Synced {
            protocol_type: "consumer".into(),
            protocol: "range".into(),
            assignment: request.assignments[0].1.clone(),
        }))
    }

    fn heartbeat(&self, member: Membership) -> Pending<Result<(), GroupError>> {
        now(check(&member.group))
    }

    fn leave(
        &self,
        group: String,
        leaving: Vec<Leaving>,
    ) -> Pending<Result<Vec<Result<(), GroupError>>, GroupError>> {
        let left = |who: Leaving| match &*who.member {
            "m-1" => Ok(()),
            _ => Err(GroupError::UnknownMember(who.member)),
        };
        now(check(&group).map(|()| leaving.into_iter().map(left).collect()))
    }

    fn commit(&self, request: Commit) -> Pending<Result<(), GroupError>> {
        now(check(&request.member.group))
    }

    fn committed(
        &self,
        group: String,
        places: Option<Vec<Place>>,
        _stable: bool,
    ) -> Pending<Result<Vec<OffsetStored>, GroupError>> {
        let everything = || {
            let hub = highwater_log::HubName::new("t").unwrap();
            vec![Place { hub, partition: 0 }]
        };
        let stored = |place: Place| {
            let stored = StoredOffset {
                offset: Offset(42),
                leader_epoch: 0,
                metadata: "note".into(),
            };
            let first = place.partition == 0;
            (place, first.then_some(stored))
        };
        let places = places.unwrap_or_else(everything);
        now(check(&group).map(|()| places.into_iter().map(stored).collect()))
    }

    fn list(&self) -> Pending<Vec<GroupInfo>> {
        now(vec![info()])
    }

    fn describe(&self, group: String) -> Pending<Option<GroupInfo>> {
        now((group == "readers").then(info))
    }

    fn delete(&self, group: String) -> Pending<Result<(), GroupError>> {
        now(check(&group))
    }

    fn forget(&self, group: String, _places: Vec<Place>) -> Pending<Result<(), GroupError>> {
        now(check(&group))
    }
}

pub struct FakeTransactions;

/// The transactional id of this name has been taken over.
fn fenced(transaction: &TransactionRef) -> Result<(), TransactionError> {
    match &*transaction.id {
        "fenced" => Err(TransactionError::Fenced(transaction.producer)),
        _ => Ok(()),
    }
}

impl Transactions for FakeTransactions {
    fn init_producer(&self, request: InitProducer) -> Pending<Result<Producer, TransactionError>> {
        let producer = Producer { id: 7, epoch: 1 };
        now(match request.transactional_id.as_deref() {
            Some("fenced") => Err(TransactionError::Fenced(producer)),
            _ => Ok(producer),
        })
    }

    fn add_partitions(
        &self,
        transaction: TransactionRef,
        _places: Vec<Place>,
    ) -> Pending<Result<(), TransactionError>> {
        now(fenced(&transaction))
    }

    fn add_group(
        &self,
        transaction: TransactionRef,
        _group: String,
    ) -> Pending<Result<(), TransactionError>> {
        now(fenced(&transaction))
    }

    fn commit_offsets(
        &self,
        transaction: TransactionRef,
        _commit: Commit,
    ) -> Pending<Result<(), GroupError>> {
        now(fenced(&transaction).map_err(GroupError::from))
    }

    fn end(
        &self,
        transaction: TransactionRef,
        _commit: bool,
    ) -> Pending<Result<(), TransactionError>> {
        now(fenced(&transaction))
    }
}
