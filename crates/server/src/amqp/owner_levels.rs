//! Owner levels (epochs) of readers: of the readers of a partition in one consumer group, the one with the highest
//! level reads alone.
//!
//! A reader with a level takes the partition from readers with the same or a lower one, and from those without. A
//! reader without a level shares the partition with others of its kind, and is accepted only while no reader has a
//! level.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_log::HubId;
use tokio::sync::oneshot;

/// The readers that compete.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GroupPartition {
    pub(super) hub: HubId,
    pub(super) partition: u32,
    pub(super) group: String,
}

/// The readers of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnerLevels {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    readers: HashMap<GroupPartition, Vec<Reader>>,
    next_id: u64,
}

#[derive(Debug)]
struct Reader {
    id: u64,
    level: Option<i64>,
    stolen: oneshot::Sender<i64>,
}

/// The right to read, released on drop.
#[derive(Debug)]
pub(super) struct ReadLease {
    levels: OwnerLevels,
    partition: GroupPartition,
    id: u64,
}

/// A reader with this level is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HigherLevel(pub(super) i64);

impl OwnerLevels {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a reader. The receiver yields the level of the reader that takes over the partition.
    pub(super) fn admit(
        &self,
        partition: GroupPartition,
        level: Option<i64>,
    ) -> Result<(ReadLease, oneshot::Receiver<i64>), HigherLevel> {
        let mut state = self.lock();
        let id = state.next_id;
        let readers = state.readers.entry(partition.clone()).or_default();
        let highest = readers.iter().filter_map(|reader| reader.level).max();
        match (level, highest) {
            (None, Some(highest)) => return Err(HigherLevel(highest)),
            (Some(level), Some(highest)) if highest > level => return Err(HigherLevel(highest)),
            (Some(level), _) => {
                for reader in readers.drain(..) {
                    // A reader that has just ended need not be notified.
                    let _ = reader.stolen.send(level);
                }
            }
            (None, None) => {}
        }
        let (stolen, when_stolen) = oneshot::channel();
        readers.push(Reader { id, level, stolen });
        state.next_id += 1;
        drop(state);
        let lease = ReadLease {
            levels: self.clone(),
            partition,
            id,
        };
        Ok((lease, when_stolen))
    }
}

impl Drop for ReadLease {
    fn drop(&mut self) {
        let mut state = self.levels.lock();
        if let Some(readers) = state.readers.get_mut(&self.partition) {
            readers.retain(|reader| reader.id != self.id);
            if readers.is_empty() {
                state.readers.remove(&self.partition);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(group: &str) -> GroupPartition {
        GroupPartition {
            hub: HubId([1; 16]),
            partition: 0,
            group: group.into(),
        }
    }

    // proves A1
    #[test]
    fn the_highest_level_reads_alone() {
        let levels = OwnerLevels::default();
        let admit = |level| levels.admit(partition("g"), level);
        let (_plain, mut plain_stolen) = admit(None).unwrap();
        let (_second, _) = admit(None).unwrap();
        let (first, mut first_stolen) = admit(Some(5)).unwrap();
        assert_eq!(plain_stolen.try_recv(), Ok(5));
        assert_eq!(admit(None).unwrap_err(), HigherLevel(5));
        assert_eq!(admit(Some(4)).unwrap_err(), HigherLevel(5));
        // Another group is another matter.
        let (_other, _) = levels.admit(partition("h"), None).unwrap();
        let (second, mut second_stolen) = admit(Some(5)).unwrap();
        assert_eq!(first_stolen.try_recv(), Ok(5));
        // The lease of the loser gives nothing back that is not its own.
        drop(first);
        assert_eq!(admit(Some(1)).unwrap_err(), HigherLevel(5));
        drop(second);
        assert!(second_stolen.try_recv().is_err());
        assert!(admit(Some(1)).is_ok());
    }

    #[test]
    fn nothing_is_kept_of_readers_that_are_gone() {
        let levels = OwnerLevels::default();
        drop(levels.admit(partition("g"), Some(1)));
        drop(levels.admit(partition("g"), None));
        assert!(levels.lock().readers.is_empty());
    }
}
