//! A group coordinator that only stores positions.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::Mutex;

use highwater_log::{
    BoxFuture, CommittedOffset, GroupCoordinator, GroupError, GroupInfo, GroupSummary, JoinRequest,
    JoinResponse, MemberIdentity, Membership, OffsetAndMetadata, OffsetCommit, SyncRequest,
    SyncResponse, TopicPartition,
};

/// Accepts positions of generation 3 of `readers` only.
#[derive(Default)]
pub(crate) struct OnlyPositions(Mutex<BTreeMap<TopicPartition, OffsetAndMetadata>>);

fn now<T: Send + 'static>(value: T) -> BoxFuture<T> {
    Box::pin(ready(value))
}

impl GroupCoordinator for OnlyPositions {
    fn commit_offsets(&self, request: OffsetCommit) -> BoxFuture<Result<(), GroupError>> {
        let (requested, current) = (request.member.generation, 3);
        if requested != current {
            return now(Err(GroupError::IllegalGeneration { requested, current }));
        }
        assert_eq!(request.member.group, "readers");
        self.0.lock().unwrap().extend(request.offsets);
        now(Ok(()))
    }

    fn fetch_offsets(
        &self,
        group: String,
        places: Option<Vec<TopicPartition>>,
        _: bool,
    ) -> BoxFuture<Result<Vec<CommittedOffset>, GroupError>> {
        assert_eq!(group, "readers");
        let stored = self.0.lock().unwrap();
        let committed = |topic_partition: TopicPartition| {
            let position = stored.get(&topic_partition).cloned();
            (topic_partition, position)
        };
        now(Ok(places.unwrap().into_iter().map(committed).collect()))
    }

    fn join(&self, _: JoinRequest) -> BoxFuture<Result<JoinResponse, GroupError>> {
        now(Err(GroupError::NotFound))
    }

    fn sync(&self, _: SyncRequest) -> BoxFuture<Result<SyncResponse, GroupError>> {
        now(Err(GroupError::NotFound))
    }

    fn heartbeat(&self, _: Membership) -> BoxFuture<Result<(), GroupError>> {
        now(Err(GroupError::NotFound))
    }

    fn leave(
        &self,
        _: String,
        _: Vec<MemberIdentity>,
    ) -> BoxFuture<Result<Vec<Result<(), GroupError>>, GroupError>> {
        now(Err(GroupError::NotFound))
    }

    fn list(&self) -> BoxFuture<Vec<GroupSummary>> {
        now(Vec::new())
    }

    fn summary(&self, _: String) -> BoxFuture<Option<GroupSummary>> {
        now(None)
    }

    fn describe(&self, _: String) -> BoxFuture<Option<GroupInfo>> {
        now(None)
    }

    fn delete(&self, _: String) -> BoxFuture<Result<(), GroupError>> {
        now(Err(GroupError::NotFound))
    }

    fn delete_offsets(
        &self,
        _: String,
        _: Vec<TopicPartition>,
    ) -> BoxFuture<Result<(), GroupError>> {
        now(Err(GroupError::NotFound))
    }
}
