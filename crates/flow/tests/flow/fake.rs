//! A group coordinator that only stores positions.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::Mutex;

use highwater_log::{
    Commit, GroupError, GroupInfo, Groups, Join, Joined, Leaving, Membership, OffsetStored,
    Pending, Place, StoredOffset, SyncGroup, Synced,
};

/// Accepts positions of generation 3 of `readers` only.
#[derive(Default)]
pub struct OnlyPositions(Mutex<BTreeMap<Place, StoredOffset>>);

fn now<T: Send + 'static>(value: T) -> Pending<T> {
    Box::pin(ready(value))
}

impl Groups for OnlyPositions {
    fn commit(&self, request: Commit) -> Pending<Result<(), GroupError>> {
        let (asked, current) = (request.member.generation, 3);
        if asked != current {
            return now(Err(GroupError::IllegalGeneration { asked, current }));
        }
        assert_eq!(request.member.group, "readers");
        self.0.lock().unwrap().extend(request.offsets);
        now(Ok(()))
    }

    fn committed(
        &self,
        group: String,
        places: Option<Vec<Place>>,
        _: bool,
    ) -> Pending<Result<Vec<OffsetStored>, GroupError>> {
        assert_eq!(group, "readers");
        let stored = self.0.lock().unwrap();
        let of_place = |place: Place| {
            let position = stored.get(&place).cloned();
            (place, position)
        };
        now(Ok(places.unwrap().into_iter().map(of_place).collect()))
    }

    fn join(&self, _: Join) -> Pending<Result<Joined, GroupError>> {
        now(Err(GroupError::NotFound))
    }

    fn sync(&self, _: SyncGroup) -> Pending<Result<Synced, GroupError>> {
        now(Err(GroupError::NotFound))
    }

    fn heartbeat(&self, _: Membership) -> Pending<Result<(), GroupError>> {
        now(Err(GroupError::NotFound))
    }

    fn leave(
        &self,
        _: String,
        _: Vec<Leaving>,
    ) -> Pending<Result<Vec<Result<(), GroupError>>, GroupError>> {
        now(Err(GroupError::NotFound))
    }

    fn list(&self) -> Pending<Vec<GroupInfo>> {
        now(Vec::new())
    }

    fn describe(&self, _: String) -> Pending<Option<GroupInfo>> {
        now(None)
    }

    fn delete(&self, _: String) -> Pending<Result<(), GroupError>> {
        now(Err(GroupError::NotFound))
    }

    fn forget(&self, _: String, _: Vec<Place>) -> Pending<Result<(), GroupError>> {
        now(Err(GroupError::NotFound))
    }
}
