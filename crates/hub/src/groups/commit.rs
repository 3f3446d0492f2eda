//! Storing positions, for good or for the case that a transaction commits, and taking them away.

use std::sync::Arc;

use highwater_log::{
    Commit, GroupError, GroupState, Marker, Membership, OffsetStored, Place, StoredOffset,
};
use tokio::sync::oneshot;

use super::coordinator::{Coordinator, Visit};
use super::positions::{Placed, Position};
use super::room::What;
use super::{record, subscription};
use crate::coordinator::journal::Entries;

/// Ready when the change is durable and counts.
pub(super) type Done = oneshot::Receiver<Result<(), GroupError>>;

pub(super) async fn wait(done: Done) -> Result<(), GroupError> {
    done.await.unwrap_or(Err(GroupError::Loading))
}

impl Coordinator {
    pub fn commit(self: &Arc<Self>, commit: Commit) -> Result<Done, GroupError> {
        self.change_as_member(commit, None)
    }

    /// Positions that count when the producer's transaction commits. Takes its place in the log at
    /// the call, before any [`Coordinator::resolve`] that follows.
    pub fn pend(self: &Arc<Self>, producer: i64, commit: Commit) -> Result<Done, GroupError> {
        self.change_as_member(commit, Some(producer))
    }

    fn change_as_member(
        self: &Arc<Self>,
        commit: Commit,
        producer: Option<i64>,
    ) -> Result<Done, GroupError> {
        self.journal()?;
        let who = commit.member;
        let positions = self.locate(commit.offsets)?;
        let change = |visit: &mut Visit<'_>| {
            (visit.room.group).check_commit(&who, producer.is_some(), visit.now)?;
            Ok(match producer {
                None => visit.store(positions),
                Some(producer) => visit.pend(producer, positions),
            })
        };
        if who.generation < 0 {
            return self.visit_or_make(&who.group, change)?;
        }
        // Nobody has heard of the group, so of no generation either.
        let stale = || Err(stale_generation(&who));
        self.visit(&who.group, change)?.unwrap_or_else(stale)
    }

    /// Which hubs are meant, so that a hub made later under the same name starts anew.
    fn locate(&self, offsets: Vec<(Place, StoredOffset)>) -> Result<Vec<Placed>, GroupError> {
        let (time_ms, max) = (self.now_ms(), self.options.metadata_bytes_max);
        let locate = |(place, stored): (Place, StoredOffset)| {
            let bytes = stored.metadata.len();
            if bytes > max {
                return Err(GroupError::MetadataTooLarge { bytes, max });
            }
            let hub = self.log.hub(place.hub.as_str());
            match hub.filter(|hub| place.partition < hub.partitions) {
                None => Err(GroupError::UnknownPlace(place)),
                Some(hub) => {
                    let hub = hub.id;
                    Ok((
                        place,
                        Position {
                            stored,
                            hub,
                            time_ms,
                        },
                    ))
                }
            }
        };
        offsets.into_iter().map(locate).collect()
    }

    /// The end of a producer's transaction: what it left pending counts now, or never.
    pub fn resolve(
        self: &Arc<Self>,
        group: &str,
        producer: i64,
        marker: Marker,
    ) -> Result<Option<Done>, GroupError> {
        let resolve = |visit: &mut Visit<'_>| visit.resolve(producer, marker);
        Ok(self.visit(group, resolve)?.flatten())
    }

    pub fn committed(
        self: &Arc<Self>,
        group: &str,
        places: Option<Vec<Place>>,
        stable: bool,
    ) -> Result<Vec<OffsetStored>, GroupError> {
        let unknown = places.clone().unwrap_or_default();
        let look = |visit: &mut Visit<'_>| visit.look_up(places, stable);
        let nothing = || Ok(unknown.into_iter().map(|place| (place, None)).collect());
        self.visit(group, look)?.unwrap_or_else(nothing)
    }

    pub fn forget(self: &Arc<Self>, group: &str, places: Vec<Place>) -> Result<Done, GroupError> {
        let forget = |visit: &mut Visit<'_>| match visit.uses(&places) {
            true => Err(GroupError::Subscribed),
            false => Ok(visit.forget(places)),
        };
        self.visit(group, forget)?
            .unwrap_or(Err(GroupError::NotFound))
    }

    pub fn delete(self: &Arc<Self>, group: &str) -> Result<Done, GroupError> {
        let delete = |visit: &mut Visit<'_>| {
            // A transaction under way would bring the group back.
            let used = !visit.room.group.is_idle() || !visit.room.positions.pending.is_empty();
            match used {
                true => Err(GroupError::NotEmpty),
                false => Ok(visit.delete()),
            }
        };
        self.visit(group, delete)?
            .unwrap_or(Err(GroupError::NotFound))
    }
}

impl Visit<'_> {
    fn store(&mut self, positions: Vec<Placed>) -> Done {
        let mut entries = Entries::default();
        let group = &self.room.name;
        for (place, position) in &positions {
            entries.put(
                |out| record::position_key(out, group, place),
                |out| record::put_position(out, position),
            );
        }
        self.change(&entries, What::Store(positions))
    }

    fn pend(&mut self, producer: i64, positions: Vec<Placed>) -> Done {
        let mut entries = Entries::default();
        let group = &self.room.name;
        for (place, position) in &positions {
            entries.put(
                |out| record::pending_key(out, group, producer, place),
                |out| record::put_position(out, position),
            );
        }
        self.room.positions.pend(producer, &positions);
        self.change(&entries, What::Pend(producer, positions))
    }

    /// `None` if there is nothing to do.
    fn resolve(&mut self, producer: i64, marker: Marker) -> Option<Done> {
        let pending = self.room.pending_of(producer);
        if pending.is_empty() {
            return None;
        }
        let mut entries = Entries::default();
        let group = &self.room.name;
        for (place, position) in &pending {
            if marker == Marker::Commit {
                entries.put(
                    |out| record::position_key(out, group, place),
                    |out| record::put_position(out, position),
                );
            }
        }
        for (place, _) in &pending {
            entries.remove(|out| record::pending_key(out, group, producer, place));
        }
        let left = match marker {
            Marker::Commit => pending,
            Marker::Abort => Vec::new(),
        };
        Some(self.change(&entries, What::Resolve(producer, left)))
    }

    pub fn forget(&mut self, places: Vec<Place>) -> Done {
        let mut entries = Entries::default();
        let group = &self.room.name;
        for place in &places {
            entries.remove(|out| record::position_key(out, group, place));
        }
        self.change(&entries, What::Forget(places))
    }

    pub fn delete(&mut self) -> Done {
        let mut entries = Entries::default();
        let group = &self.room.name;
        for place in self.room.positions.stored.keys() {
            entries.remove(|out| record::position_key(out, group, place));
        }
        entries.remove(|out| record::group_key(out, group));
        self.room.closing = true;
        self.change(&entries, What::Delete)
    }

    fn change(&mut self, entries: &Entries, what: What) -> Done {
        let (answer, done) = oneshot::channel();
        if entries.is_empty() {
            let _ = answer.send(Ok(()));
            return done;
        }
        self.append(entries, what, Some(answer));
        done
    }

    fn look_up(
        &self,
        places: Option<Vec<Place>>,
        stable: bool,
    ) -> Result<Vec<OffsetStored>, GroupError> {
        let positions = &self.room.positions;
        let all = || positions.stored.keys().cloned().collect();
        let every = places.is_none();
        let places = places.unwrap_or_else(all);
        if stable && places.iter().any(|place| positions.is_pending(place)) {
            return Err(GroupError::Unstable);
        }
        let look_up = |place: Place| {
            let hub = self
                .coordinator
                .log
                .hub(place.hub.as_str())
                .map(|hub| hub.id);
            let position = positions.stored.get(&place);
            let current = position.filter(|position| Some(position.hub) == hub);
            (place, current.map(|position| position.stored.clone()))
        };
        let found = places.into_iter().map(look_up);
        Ok(found
            .filter(|(_, stored)| !every || stored.is_some())
            .collect())
    }

    /// Whether a member may be reading one of these places now.
    fn uses(&self, places: &[Place]) -> bool {
        let info = self.room.group.info();
        info.state != GroupState::Empty
            && info.members.iter().any(|member| {
                let may_use =
                    |place: &Place| subscription::may_include(&member.metadata, place.hub.as_str());
                places.iter().any(may_use)
            })
    }
}

fn stale_generation(who: &Membership) -> GroupError {
    GroupError::IllegalGeneration {
        asked: who.generation,
        current: 0,
    }
}
