//! The versions of reference data in the store of a shared job.
//!
//! ```text
//!  00..07.tables        the new snapshots; whoever creates it first proposes the version
//!  00..07-0003.vote     stream 3 has stopped, and its position
//!  00..07.decision      the effective time of each snapshot; follows from the votes of all streams
//! ```
//!
//! Objects are created and never replaced, so instances may do all of this at the same time, and one that was thought
//! dead as well. A vote counts only if its shard stored a checkpoint after the version was proposed: a later owner
//! claims the shard later, finds the version, and writes no more than its predecessor did. `docs/formats/state.md`
//! describes the objects.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use highwater_codec::DecodeError;
use highwater_connect::StateStore;
use highwater_time::Instant;

use super::super::assignment::ShardNumber;
use super::ReferenceVersions;
use super::decision::{Agreement, ShardVote, TableDecision, TableProposal};

const TABLES: &str = "tables";
const DECISION: &str = "decision";
const VOTE: &str = "vote";

pub(super) struct TableRegistry {
    pub store: Arc<dyn StateStore>,
    pub folder: String,
    /// Those that process events vote.
    pub streams: usize,
    /// Streams and combiners.
    pub shards: usize,
}

/// The names of the objects.
#[derive(Debug, Default)]
pub(super) struct RegistryListing {
    tables: BTreeSet<u64>,
    decisions: BTreeSet<u64>,
    votes: BTreeMap<u64, BTreeSet<ShardNumber>>,
}

impl RegistryListing {
    /// The latest version that is decided.
    pub(super) fn decided(&self) -> Option<u64> {
        self.decisions.last().copied()
    }

    /// The version that is proposed and not decided.
    pub(super) fn pending(&self) -> Option<u64> {
        let next = self.decided().map_or(0, |decided| decided + 1);
        self.tables.contains(&next).then_some(next)
    }

    pub(super) fn versions(&self) -> ReferenceVersions {
        ReferenceVersions {
            decided: self.decided().unwrap_or(0),
            pending: self.pending(),
        }
    }

    fn has_votes(&self, version: u64, shards: usize) -> bool {
        let votes = self.votes.get(&version);
        votes.is_some_and(|votes| (0..shards).all(|shard| votes.contains(&shard)))
    }

    fn add(&mut self, name: &str) {
        let Some((stem, kind)) = name.split_once('.') else {
            return;
        };
        let (version, shard) = match stem.split_once('-') {
            Some((version, shard)) => (version, shard.parse().ok()),
            None => (stem, None),
        };
        match (version.parse(), kind, shard) {
            (Ok(version), TABLES, None) => drop(self.tables.insert(version)),
            (Ok(version), DECISION, None) => drop(self.decisions.insert(version)),
            (Ok(version), VOTE, Some(shard)) => {
                self.votes.entry(version).or_default().insert(shard);
            }
            _ => {}
        }
    }
}

impl TableRegistry {
    fn path(&self, version: u64, kind: &str) -> String {
        format!("{}/{version:020}.{kind}", self.folder)
    }

    fn vote_path(&self, version: u64, shard: ShardNumber) -> String {
        format!("{}/{version:020}-{shard:04}.{VOTE}", self.folder)
    }

    pub(super) fn list(&self) -> io::Result<RegistryListing> {
        let mut listing = RegistryListing::default();
        for name in self.store.list(&self.folder)? {
            listing.add(&name);
        }
        Ok(listing)
    }

    fn read<T>(
        &self,
        path: &str,
        decode: impl FnOnce(&[u8]) -> Result<T, DecodeError>,
    ) -> io::Result<T> {
        let bytes = self.store.read(path)?;
        let bytes = bytes
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("`{path}` is gone")))?;
        decode(&bytes).map_err(|error| {
            let text = format!("`{path}` is damaged: {error}");
            io::Error::new(io::ErrorKind::InvalidData, text)
        })
    }

    pub(super) fn decision(&self, version: u64) -> io::Result<TableDecision> {
        self.read(&self.path(version, DECISION), TableDecision::decode)
    }

    /// The snapshots of a version.
    pub(super) fn tables(&self, version: u64) -> io::Result<TableProposal> {
        self.read(&self.path(version, TABLES), TableProposal::decode)
    }

    fn votes(&self, version: u64, shards: usize) -> io::Result<Vec<ShardVote>> {
        let read = |shard| self.read(&self.vote_path(version, shard), ShardVote::decode);
        (0..shards).map(read).collect()
    }

    /// Proposes a version, unless another instance has.
    pub(super) fn propose(&self, version: u64, tables: &TableProposal) -> io::Result<()> {
        let path = self.path(version, TABLES);
        self.store.create(&path, &tables.encode()).map(drop)
    }

    /// Stores the vote of a shard. An earlier owner of the shard may have voted already.
    pub(super) fn vote(&self, version: u64, shard: ShardNumber, vote: ShardVote) -> io::Result<()> {
        let path = self.vote_path(version, shard);
        self.store.create(&path, &vote.encode()).map(drop)
    }

    /// Decides about the pending version if all streams have voted. Returns whether it is decided.
    pub(super) fn decide(&self, listing: &RegistryListing) -> io::Result<bool> {
        let Some(version) = listing.pending() else {
            return Ok(false);
        };
        if version > 0 && !listing.has_votes(version, self.streams) {
            return Ok(false);
        }
        let proposal = self.tables(version)?;
        let decision = match version.checked_sub(1) {
            None => TableDecision::first(&proposal),
            Some(before) => {
                let agreed = self.agreement(version, listing)?;
                self.decision(before)?.next(&proposal, agreed)
            }
        };
        let path = self.path(version, DECISION);
        // Another instance may have been faster.
        self.store.create(&path, &decision.encode())?;
        self.remove_old(version, listing);
        Ok(true)
    }

    fn agreement(&self, version: u64, listing: &RegistryListing) -> io::Result<Agreement> {
        let reached = self.votes(version, self.streams)?.into_iter();
        let reached = reached.map(|vote| vote.reached).max();
        let before = version - 1;
        // Every checkpoint of a shard that is kept is later than its vote about the version before.
        let base = match listing.has_votes(before, self.shards) {
            true => {
                let votes = self.votes(before, self.shards)?.into_iter();
                votes.map(|vote| vote.watermark).min()
            }
            false => None,
        };
        Ok(Agreement {
            reached: reached.unwrap_or(Instant::BEFORE_ALL),
            base: base.unwrap_or(Instant::BEFORE_ALL),
        })
    }

    /// Removes what neither this decision nor the one before names. What is left is removed the next time.
    fn remove_old(&self, version: u64, listing: &RegistryListing) {
        let Some(before) = version.checked_sub(1) else {
            return;
        };
        let mut named = BTreeSet::new();
        for version in [before, version] {
            let Ok(decision) = self.decision(version) else {
                return;
            };
            named.extend(decision.snapshots.iter().map(|snapshot| snapshot.version));
        }
        let tables = listing.tables.range(..version);
        for old in tables.filter(|old| !named.contains(old)) {
            let _ = self.store.delete(&self.path(*old, TABLES));
        }
        for old in listing.decisions.range(..before) {
            let _ = self.store.delete(&self.path(*old, DECISION));
        }
        for (old, shards) in listing.votes.range(..version) {
            for shard in shards {
                let _ = self.store.delete(&self.vote_path(*old, *shard));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_connect::FolderStore;
    use highwater_env::SimDisk;

    use super::super::decision::ProposedSnapshot;
    use super::*;

    fn at(minute: i64) -> Instant {
        Instant::from_unix_millis(minute * 60_000)
    }

    fn registry(disk: &SimDisk) -> TableRegistry {
        TableRegistry {
            store: Arc::new(FolderStore::new(Arc::new(disk.clone()), "state")),
            folder: "job/references".into(),
            streams: 2,
            shards: 3,
        }
    }

    fn tables(content: u8) -> TableProposal {
        let snapshot = ProposedSnapshot {
            table: 0,
            named: Instant::BEFORE_ALL,
            rows: vec![content],
        };
        TableProposal {
            snapshots: vec![snapshot],
        }
    }

    fn vote(minute: i64) -> ShardVote {
        ShardVote {
            reached: at(minute),
            watermark: at(minute - 1),
        }
    }

    /// Decides, and returns the latest version.
    fn decided(registry: &TableRegistry) -> Option<u64> {
        registry.decide(&registry.list().unwrap()).unwrap();
        registry.list().unwrap().decided()
    }

    // proves X3
    #[test]
    fn a_version_counts_when_all_streams_have_voted_and_the_first_vote_of_each_counts() {
        let disk = SimDisk::new(1);
        let (one, other) = (registry(&disk), registry(&disk));
        assert_eq!(decided(&one), None);
        one.propose(0, &tables(1)).unwrap();
        other.propose(0, &tables(2)).unwrap();
        assert_eq!(decided(&other), Some(0));
        assert_eq!(one.tables(0).unwrap(), tables(1));
        one.propose(1, &tables(3)).unwrap();
        one.vote(1, 0, vote(10)).unwrap();
        assert_eq!(decided(&one), Some(0));
        assert_eq!(one.list().unwrap().pending(), Some(1));
        other.vote(1, 1, vote(7)).unwrap();
        // A zombie.
        other.vote(1, 0, vote(5)).unwrap();
        let stale = one.list().unwrap();
        assert_eq!(decided(&one), Some(1));
        let effective = one.decision(1).unwrap().snapshots[1].effective;
        assert_eq!(effective, Some(Instant::from_ticks(at(10).ticks() + 1)));
        let before = one.decision(1).unwrap();
        assert!(other.decide(&stale).unwrap());
        assert_eq!(one.decision(1).unwrap(), before);
    }

    #[test]
    fn what_no_row_will_see_is_removed() {
        let disk = SimDisk::new(2);
        let registry = registry(&disk);
        registry.propose(0, &tables(0)).unwrap();
        assert_eq!(decided(&registry), Some(0));
        for version in 1..9 {
            registry.propose(version, &tables(version as u8)).unwrap();
            for shard in 0..3 {
                let minute = version as i64 * 10;
                registry.vote(version, shard, vote(minute)).unwrap();
            }
            assert_eq!(decided(&registry), Some(version));
        }
        let decision = registry.decision(8).unwrap();
        assert_eq!(decision.base, at(69));
        // From minute 69 on rows see the snapshots that took effect at 60, 70 and 80.
        let versions = decision.snapshots.iter().map(|snapshot| snapshot.version);
        assert_eq!(versions.collect::<Vec<_>>(), [6, 7, 8]);
        for snapshot in &decision.snapshots {
            registry.tables(snapshot.version).unwrap();
        }
        let left = registry.list().unwrap();
        assert!(
            left.tables.len() <= 5 && left.decisions.len() <= 3,
            "{left:?}"
        );
        assert!(left.votes.len() <= 2, "{left:?}");
    }
}
