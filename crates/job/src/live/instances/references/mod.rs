//! The reference data of a shared job: every instance joins the same rows with the same snapshots.
//!
//! Tables are in the store of the job (`registry.rs`), so one instance reads the files and the others need none. A new
//! version takes effect at a time, for all partitions (`decision.rs`). Streams stop and vote with their position; the
//! time is later than every vote, so no row that was computed before changes. Outputs in the exchange have the version
//! with which they were computed, and a combiner with an earlier one loads that version first.

mod decision;
mod poller;
mod registry;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use highwater_codec::Reader;
use highwater_connect::StateStore;
use highwater_engine::{Chunk, PhysicalPlan, ReferenceTable};
use highwater_time::Instant;
use tokio::sync::watch;

use super::super::StartError;
use super::super::start::blocking;
use super::super::status::StatusHandle;
use super::ShardExit;
use super::assignment::ShardNumber;
use super::stream_shard::store_failed;
use crate::load::Job;
use crate::reference::{ReferenceError, plan_with_tables, read_rows, read_tables};
use decision::{DecidedSnapshot, TableDecision};
use registry::TableRegistry;

pub(super) use decision::ShardVote;
pub(super) use poller::ReferencePoller;

/// The reference data of an instance.
pub(super) struct SharedReferences {
    job: Arc<Job>,
    status: StatusHandle,
    registry: TableRegistry,
    versions: watch::Sender<ReferenceVersions>,
    loaded: Mutex<Option<Arc<VersionedTables>>>,
}

/// The known versions in the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReferenceVersions {
    /// The latest version that is decided.
    pub decided: u64,
    /// The version that waits for votes.
    pub pending: Option<u64>,
}

/// The tables of a decided version.
pub(super) struct VersionedTables {
    pub version: u64,
    /// Rows before this time would see other tables.
    pub base: Instant,
    pub physical: PhysicalPlan,
    /// By table, time in the path, and version.
    chunks: BTreeMap<(usize, Instant, u64), Chunk>,
}

/// Why the tables of a version cannot be used.
#[derive(Debug, thiserror::Error)]
enum TablesError {
    #[error(transparent)]
    Store(#[from] io::Error),
    #[error(transparent)]
    Reference(#[from] ReferenceError),
}

impl SharedReferences {
    /// Of a job with reference data.
    pub(super) fn of(
        job: &Arc<Job>,
        status: &StatusHandle,
        store: Arc<dyn StateStore>,
        folder: &str,
        shards: ShardCounts,
    ) -> Option<Arc<SharedReferences>> {
        let ShardCounts { streams, combiners } = shards;
        (!job.plan.references.is_empty()).then(|| {
            Arc::new(SharedReferences {
                job: job.clone(),
                status: status.clone(),
                registry: TableRegistry {
                    store,
                    folder: format!("{folder}/references"),
                    streams,
                    shards: streams + combiners,
                },
                versions: watch::Sender::default(),
                loaded: Mutex::default(),
            })
        })
    }

    /// Reads the files for the first version, unless there is one.
    pub(super) async fn begin(self: &Arc<Self>) -> Result<(), StartError> {
        let references = self.clone();
        let begun = blocking(move || references.ensure_first()).await?;
        begun.map_err(|error| match error {
            TablesError::Store(error) => StartError::Checkpoints(error),
            TablesError::Reference(error) => StartError::Reference(error),
        })
    }

    fn ensure_first(&self) -> Result<(), TablesError> {
        let mut listing = self.registry.list()?;
        if listing.decided().is_some() {
            return Ok(());
        }
        if listing.pending().is_none() {
            let files = read_tables(&self.job)?;
            let nothing = TableDecision::first(&decision::TableProposal::default());
            let tables = files.tables.iter().map(|table| &**table);
            self.registry.propose(0, &nothing.changes(tables))?;
            listing = self.registry.list()?;
        }
        self.registry.decide(&listing)?;
        Ok(())
    }

    pub(super) fn versions(&self) -> watch::Receiver<ReferenceVersions> {
        self.versions.subscribe()
    }

    /// The tables that are decided, and the version that waits for votes. The owner of a shard finds every version on
    /// which an earlier owner has voted.
    pub(super) async fn current(
        self: &Arc<Self>,
    ) -> Result<(Arc<VersionedTables>, Option<u64>), ShardExit> {
        let references = self.clone();
        let read = blocking(move || references.read_current()).await;
        let read = read.map_err(|error| ShardExit::Failed(error.to_string()))?;
        read.map_err(|error| match error {
            // It was removed because later versions are decided.
            TablesError::Store(error) if error.kind() == io::ErrorKind::NotFound => {
                ShardExit::Delayed(error.to_string())
            }
            TablesError::Store(error) => store_failed(&error),
            TablesError::Reference(error) => ShardExit::Failed(error.to_string()),
        })
    }

    fn read_current(&self) -> Result<(Arc<VersionedTables>, Option<u64>), TablesError> {
        let listing = self.registry.list()?;
        let decided = listing.decided().unwrap_or(0);
        let known = self.loaded();
        let tables = match known {
            Some(known) if known.version == decided => known,
            known => {
                let tables = Arc::new(self.load(decided, known.as_deref())?);
                let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
                *loaded = Some(tables.clone());
                tables
            }
        };
        Ok((tables, listing.pending()))
    }

    fn loaded(&self) -> Option<Arc<VersionedTables>> {
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.clone()
    }

    /// Loads a version. Snapshots that are known are not read again.
    fn load(
        &self,
        version: u64,
        known: Option<&VersionedTables>,
    ) -> Result<VersionedTables, TablesError> {
        let decision = self.registry.decision(version)?;
        let mut chunks = BTreeMap::new();
        let mut tables = vec![ReferenceTable::default(); self.job.plan.references.len()];
        let mut proposals = BTreeMap::new();
        for snapshot in &decision.snapshots {
            let key = (snapshot.table, snapshot.named, snapshot.version);
            let known = known.and_then(|known| known.chunks.get(&key));
            if known.is_none() && snapshot.version > 0 {
                self.tell(snapshot);
            }
            let Some(effective) = snapshot.effective else {
                continue;
            };
            if known.is_none() && !proposals.contains_key(&snapshot.version) {
                let tables = self.registry.tables(snapshot.version)?;
                proposals.insert(snapshot.version, tables);
            }
            let chunk = match (known, proposals.get(&snapshot.version)) {
                (Some(chunk), _) => chunk.clone(),
                (None, Some(proposal)) => rows_of(proposal, snapshot)?,
                (None, None) => return Err(damaged(snapshot).into()),
            };
            let table = tables.get_mut(snapshot.table);
            let table = table.ok_or_else(|| damaged(snapshot))?;
            table.snapshots.push((effective, chunk.clone()));
            chunks.insert(key, chunk);
        }
        let tables: Vec<Arc<ReferenceTable>> = tables.into_iter().map(Arc::new).collect();
        let physical = plan_with_tables(&self.job, &tables).map_err(ReferenceError::from)?;
        self.status.set_physical(Some(physical.clone()));
        Ok(VersionedTables {
            version,
            base: decision.base,
            physical,
            chunks,
        })
    }

    /// Logs from when on a snapshot is in effect.
    fn tell(&self, snapshot: &DecidedSnapshot) {
        let references = &self.job.plan.references;
        let name = references.get(snapshot.table).map(|table| &table.name[..]);
        let (name, named) = (name.unwrap_or_default(), snapshot.named);
        let text = match snapshot.effective {
            Some(at) if named == Instant::BEFORE_ALL => {
                format!("there is other reference data \"{name}\", which takes effect at {at}")
            }
            Some(at) if at == named => {
                format!("reference data \"{name}\" of {named} takes effect then")
            }
            Some(at) => {
                format!("reference data \"{name}\" of {named} is late and takes effect at {at}")
            }
            None => format!(
                "reference data \"{name}\" of {named} is older than that in effect, and no row sees it"
            ),
        };
        self.status.log(text);
    }

    /// Votes with the position of a shard that stops for a version or loads it.
    pub(super) async fn vote(
        self: &Arc<Self>,
        version: u64,
        shard: ShardNumber,
        vote: ShardVote,
    ) -> Result<(), ShardExit> {
        let references = self.clone();
        let voted = blocking(move || references.registry.vote(version, shard, vote)).await;
        let voted = voted.map_err(|error| ShardExit::Failed(error.to_string()))?;
        voted.map_err(|error| store_failed(&error))
    }
}

/// How many shards a job has.
#[derive(Clone, Copy)]
pub(super) struct ShardCounts {
    pub streams: usize,
    pub combiners: usize,
}

fn rows_of(
    proposal: &decision::TableProposal,
    snapshot: &DecidedSnapshot,
) -> Result<Chunk, io::Error> {
    let mut snapshots = proposal.snapshots.iter();
    let found = snapshots
        .find(|found| (found.table, found.named) == (snapshot.table, snapshot.named))
        .ok_or_else(|| damaged(snapshot))?;
    read_rows(&mut Reader::new(&found.rows)).map_err(|_| damaged(snapshot))
}

fn damaged(snapshot: &DecidedSnapshot) -> io::Error {
    let text = format!(
        "version {} of the reference data is damaged",
        snapshot.version
    );
    io::Error::new(io::ErrorKind::InvalidData, text)
}
