//! Position stores: where checkpoints are stored.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};

use highwater_log::{
    BoxFuture, GroupCoordinator, GroupError, Membership, Offset, OffsetAndMetadata, OffsetCommit,
    TopicPartition,
};

pub trait PositionStore: Send + Sync {
    /// The stored position, if any.
    fn last(
        &self,
        topic_partition: &TopicPartition,
    ) -> BoxFuture<Result<Option<Offset>, GroupError>>;

    /// Completes when the position would survive a crash.
    fn store(
        &self,
        topic_partition: &TopicPartition,
        next: Offset,
    ) -> BoxFuture<Result<(), GroupError>>;
}

/// The committed offsets of a consumer group.
#[derive(Clone)]
pub struct GroupPositions {
    pub groups: Arc<dyn GroupCoordinator>,
    pub member: Membership,
}

impl PositionStore for GroupPositions {
    fn last(
        &self,
        topic_partition: &TopicPartition,
    ) -> BoxFuture<Result<Option<Offset>, GroupError>> {
        let partitions = Some(vec![topic_partition.clone()]);
        let committed = (self.groups).fetch_offsets(self.member.group.clone(), partitions, true);
        Box::pin(async move {
            let mut committed = committed.await?;
            let stored = committed.pop().and_then(|(_, stored)| stored);
            Ok(stored.map(|stored| stored.offset))
        })
    }

    fn store(
        &self,
        topic_partition: &TopicPartition,
        next: Offset,
    ) -> BoxFuture<Result<(), GroupError>> {
        let stored = OffsetAndMetadata {
            offset: next,
            leader_epoch: -1,
            metadata: String::new(),
        };
        self.groups.commit_offsets(OffsetCommit {
            member: self.member.clone(),
            offsets: vec![(topic_partition.clone(), stored)],
        })
    }
}

/// Positions in memory, for tests. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MemoryPositions(Arc<Mutex<BTreeMap<TopicPartition, Offset>>>);

impl PositionStore for MemoryPositions {
    fn last(
        &self,
        topic_partition: &TopicPartition,
    ) -> BoxFuture<Result<Option<Offset>, GroupError>> {
        let positions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Box::pin(ready(Ok(positions.get(topic_partition).copied())))
    }

    fn store(
        &self,
        topic_partition: &TopicPartition,
        next: Offset,
    ) -> BoxFuture<Result<(), GroupError>> {
        let mut positions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        positions.insert(topic_partition.clone(), next);
        Box::pin(ready(Ok(())))
    }
}
