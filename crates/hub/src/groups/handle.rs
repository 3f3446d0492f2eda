//! The interface of the group coordinator.

use std::sync::Arc;

use highwater_log::{
    BoxFuture, CommittedOffset, ConsumerHeartbeat, ConsumerHeartbeatResponse, GroupCoordinator,
    GroupError, GroupInfo, GroupSummary, JoinRequest, JoinResponse, MemberIdentity, Membership,
    OffsetCommit, SyncRequest, SyncResponse, TopicPartition, TransactionMarker,
};

use super::commit::{ChangeReceiver, wait};
use super::coordinator::{Coordinator, LockedGroup};
use super::group_kind::GroupKind;
use super::pending_response::{ClassicResponse, PendingResponse};

/// A handle to the coordinator, which clones share. Its methods need a Tokio runtime.
#[derive(Clone)]
pub struct Handle {
    coordinator: Arc<Coordinator>,
}

impl Handle {
    pub(super) fn new(coordinator: Arc<Coordinator>) -> Handle {
        Handle { coordinator }
    }

    #[cfg(test)]
    pub(super) fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// See [`Coordinator::commit`].
    pub(crate) fn commit_pending(
        &self,
        producer: i64,
        commit: OffsetCommit,
    ) -> BoxFuture<Result<(), GroupError>> {
        let done = self.coordinator.commit(commit, Some(producer));
        Box::pin(async move { wait(done?).await })
    }

    /// See [`Coordinator::resolve`].
    pub(crate) fn resolve(
        &self,
        group: &str,
        producer: i64,
        marker: TransactionMarker,
    ) -> BoxFuture<Result<(), GroupError>> {
        let done = self.coordinator.resolve(group, producer, marker);
        Box::pin(async move {
            match done? {
                Some(done) => wait(done).await,
                None => Ok(()),
            }
        })
    }

    fn query<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Arc<Coordinator>) -> T + Send + 'static,
    ) -> BoxFuture<T> {
        let coordinator = Arc::clone(&self.coordinator);
        Box::pin(async move { query(&coordinator) })
    }

    fn change(
        &self,
        change: impl FnOnce(&Arc<Coordinator>) -> Result<ChangeReceiver, GroupError> + Send + 'static,
    ) -> BoxFuture<Result<(), GroupError>> {
        let coordinator = Arc::clone(&self.coordinator);
        Box::pin(async move { wait(change(&coordinator)?).await })
    }
}

impl GroupCoordinator for Handle {
    fn join(&self, request: JoinRequest) -> BoxFuture<Result<JoinResponse, GroupError>> {
        let coordinator = Arc::clone(&self.coordinator);
        Box::pin(async move {
            let request = coordinator.member_memory.count_join(request)?;
            coordinator.join(request)?.answer().await
        })
    }

    fn sync(&self, request: SyncRequest) -> BoxFuture<Result<SyncResponse, GroupError>> {
        let coordinator = Arc::clone(&self.coordinator);
        Box::pin(async move {
            let request = coordinator.member_memory.count_sync(request)?;
            coordinator.sync(request)?.answer().await
        })
    }

    fn heartbeat(&self, member: Membership) -> BoxFuture<Result<(), GroupError>> {
        self.query(move |coordinator| {
            let beat = |locked: &mut LockedGroup<'_>| match &mut locked.entry.group {
                GroupKind::Classic(group) => group.heartbeat(&member, locked.now),
                GroupKind::Consumer(group) => group.heartbeat_classic(&member, locked.now),
            };
            let unknown = || Err(GroupError::UnknownMember(member.member.clone()));
            let beat = coordinator.with_group(&member.group, beat)?;
            beat.unwrap_or_else(unknown)
        })
    }

    fn leave(
        &self,
        group: String,
        leaving: Vec<MemberIdentity>,
    ) -> BoxFuture<Result<Vec<Result<(), GroupError>>, GroupError>> {
        let coordinator = Arc::clone(&self.coordinator);
        Box::pin(async move {
            let leave = |locked: &mut LockedGroup<'_>| match &mut locked.entry.group {
                GroupKind::Classic(group) => (group.leave(&leaving, locked.now), None),
                GroupKind::Consumer(group) => {
                    let results = group.leave_classic(&leaving);
                    (results, locked.entry.await_stored())
                }
            };
            let unknown = |one: &MemberIdentity| Err(GroupError::UnknownMember(one.member.clone()));
            let unknown_group = || (leaving.iter().map(unknown).collect(), None);
            let left = coordinator.with_group(&group, leave)?;
            let (results, stored) = left.unwrap_or_else(unknown_group);
            if let Some(stored) = stored {
                wait(stored).await?;
            }
            Ok(results)
        })
    }

    fn commit_offsets(&self, request: OffsetCommit) -> BoxFuture<Result<(), GroupError>> {
        self.change(move |coordinator| coordinator.commit(request, None))
    }

    fn fetch_offsets(
        &self,
        group: String,
        topic_partitions: Option<Vec<TopicPartition>>,
        stable: bool,
    ) -> BoxFuture<Result<Vec<CommittedOffset>, GroupError>> {
        self.query(move |coordinator| coordinator.committed(&group, topic_partitions, stable))
    }

    fn consumer_heartbeat(
        &self,
        request: ConsumerHeartbeat,
    ) -> BoxFuture<Result<ConsumerHeartbeatResponse, GroupError>> {
        let coordinator = Arc::clone(&self.coordinator);
        Box::pin(async move {
            let (response, stored) = coordinator.consumer_heartbeat(request)?;
            if let Some(stored) = stored {
                wait(stored).await?;
            }
            Ok(response)
        })
    }

    fn check_member_epoch(
        &self,
        group: String,
        member: String,
        epoch: i32,
    ) -> BoxFuture<Result<(), GroupError>> {
        self.query(move |coordinator| {
            let check = |locked: &mut LockedGroup<'_>| match locked.entry.group.consumer() {
                Some(group) => group.check_epoch(&member, epoch),
                None => Ok(()),
            };
            coordinator.with_group(&group, check)?.unwrap_or(Ok(()))
        })
    }

    fn list(&self) -> BoxFuture<Vec<GroupSummary>> {
        self.query(|coordinator| {
            let names = coordinator.slots.names();
            let look = |locked: &mut LockedGroup<'_>| locked.entry.group.summary();
            let groups = names.iter().map(|name| coordinator.with_group(name, look));
            groups.filter_map(|group| group.ok().flatten()).collect()
        })
    }

    fn summary(&self, group: String) -> BoxFuture<Option<GroupSummary>> {
        self.query(move |coordinator| {
            let look = |locked: &mut LockedGroup<'_>| locked.entry.group.summary();
            coordinator.with_group(&group, look).ok().flatten()
        })
    }

    fn describe(&self, group: String) -> BoxFuture<Option<GroupInfo>> {
        self.query(move |coordinator| {
            let look = |locked: &mut LockedGroup<'_>| locked.entry.group.info();
            coordinator.with_group(&group, look).ok().flatten()
        })
    }

    fn delete(&self, group: String) -> BoxFuture<Result<(), GroupError>> {
        self.change(move |coordinator| coordinator.delete(&group))
    }

    fn delete_offsets(
        &self,
        group: String,
        topic_partitions: Vec<TopicPartition>,
    ) -> BoxFuture<Result<(), GroupError>> {
        self.change(move |coordinator| coordinator.forget(&group, topic_partitions))
    }
}

impl Coordinator {
    fn join(
        self: &Arc<Self>,
        request: JoinRequest,
    ) -> Result<ClassicResponse<JoinResponse>, GroupError> {
        let group = request.group.clone();
        let member = request.member.clone();
        let new_id = self.member_id(&request.client_id);
        let join = |locked: &mut LockedGroup<'_>| {
            let (coordinator, now) = (locked.coordinator, locked.now);
            if let Some(group) = locked
                .entry
                .group
                .consumer()
                .filter(|group| !group.is_empty())
            {
                let find = |name: &str| coordinator.hub_shape(name);
                let response = group.join_classic(request, new_id, &find, now)?;
                return Ok(ClassicResponse::Stored(
                    response,
                    locked.entry.await_stored(),
                ));
            }
            // First: a pending response that is dropped under the lock would wait for it.
            locked.classic_group()?;
            let (responder, pending) = PendingResponse::new(locked);
            locked.entry.joins.insert(pending.request_id, responder);
            if let Some(group) = locked.entry.group.classic() {
                group.join(request, new_id, pending.request_id, locked.now);
            }
            Ok(ClassicResponse::Pending(pending))
        };
        match member.is_empty() {
            true => self.with_group_or_new(&group, join)?,
            false => self
                .with_group(&group, join)?
                .unwrap_or(Err(GroupError::UnknownMember(member))),
        }
    }

    fn sync(
        self: &Arc<Self>,
        request: SyncRequest,
    ) -> Result<ClassicResponse<SyncResponse>, GroupError> {
        let group = request.member.group.clone();
        let member = request.member.member.clone();
        let sync = |locked: &mut LockedGroup<'_>| {
            let (coordinator, now) = (locked.coordinator, locked.now);
            if let Some(group) = locked.entry.group.consumer() {
                let log = &coordinator.log;
                let find_name = |hub| Some(log.hub_by_id(hub)?.name.as_str().to_owned());
                let response = group.sync_classic(&request, &find_name, now)?;
                return Ok(ClassicResponse::Stored(
                    response,
                    locked.entry.await_stored(),
                ));
            }
            let (responder, pending) = PendingResponse::new(locked);
            locked.entry.syncs.insert(pending.request_id, responder);
            if let Some(group) = locked.entry.group.classic() {
                group.sync(request, pending.request_id, locked.now);
            }
            Ok(ClassicResponse::Pending(pending))
        };
        let unknown = Err(GroupError::UnknownMember(member));
        self.with_group(&group, sync)?.unwrap_or(unknown)
    }
}
