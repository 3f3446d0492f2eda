//! Position stores: where checkpoints are stored.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};

use highwater_log::{Commit, GroupError, Groups, Membership, Offset, Pending, Place, StoredOffset};

pub trait PositionStore: Send + Sync {
    /// The stored position, if any.
    fn last(&self, place: &Place) -> Pending<Result<Option<Offset>, GroupError>>;

    /// Completes when the position would survive a crash.
    fn store(&self, place: &Place, next: Offset) -> Pending<Result<(), GroupError>>;
}

/// The committed offsets of a consumer group.
#[derive(Clone)]
pub struct GroupPositions {
    pub groups: Arc<dyn Groups>,
    pub member: Membership,
}

impl PositionStore for GroupPositions {
    fn last(&self, place: &Place) -> Pending<Result<Option<Offset>, GroupError>> {
        let places = Some(vec![place.clone()]);
        let committed = (self.groups).committed(self.member.group.clone(), places, true);
        Box::pin(async move {
            let mut committed = committed.await?;
            let stored = committed.pop().and_then(|(_, stored)| stored);
            Ok(stored.map(|stored| stored.offset))
        })
    }

    fn store(&self, place: &Place, next: Offset) -> Pending<Result<(), GroupError>> {
        let stored = StoredOffset {
            offset: next,
            leader_epoch: -1,
            metadata: String::new(),
        };
        self.groups.commit(Commit {
            member: self.member.clone(),
            offsets: vec![(place.clone(), stored)],
        })
    }
}

/// Positions in memory, for tests. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MemoryPositions(Arc<Mutex<BTreeMap<Place, Offset>>>);

impl PositionStore for MemoryPositions {
    fn last(&self, place: &Place) -> Pending<Result<Option<Offset>, GroupError>> {
        let positions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Box::pin(ready(Ok(positions.get(place).copied())))
    }

    fn store(&self, place: &Place, next: Offset) -> Pending<Result<(), GroupError>> {
        let mut positions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        positions.insert(place.clone(), next);
        Box::pin(ready(Ok(())))
    }
}
