//! The reference data of a start.

use std::io;

use highwater_time::Instant;

use super::StartError;
use super::checkpoint_store::{Checkpoints, unless_unavailable};
use super::status::StatusHandle;
use crate::load::Job;
use crate::reference::{
    EffectiveSnapshots, ReferenceError, References, SnapshotListing, TableCopies, load_effective,
};

pub(super) struct ReferenceTables {
    pub loaded: References,
    pub effective: EffectiveSnapshots,
    /// The files that were found, to detect changes.
    pub known: SnapshotListing,
    /// The number under which static tables are stored, if they are.
    pub stored: Option<u64>,
    /// Their number in the last checkpoint.
    pub previous: Option<u64>,
    /// They are not in a checkpoint yet.
    pub is_new: bool,
}

/// The reference data of a checkpoint, and the latest time of its events.
pub(super) struct CheckpointedReferences {
    pub effective: EffectiveSnapshots,
    pub reached: Instant,
    pub stored: Option<u64>,
}

impl ReferenceTables {
    /// For a job whose caller supplies the tables.
    pub(super) fn none() -> ReferenceTables {
        ReferenceTables {
            loaded: References::default(),
            effective: EffectiveSnapshots::default(),
            known: SnapshotListing::default(),
            stored: None,
            previous: None,
            is_new: false,
        }
    }

    /// Loads the tables; blocks. `adopt_new` is allowed only right after a checkpoint.
    pub(super) fn find(
        job: &Job,
        before: Option<CheckpointedReferences>,
        adopt_new: bool,
        store: &dyn Checkpoints,
        status: &StatusHandle,
    ) -> Result<ReferenceTables, StartError> {
        let known = SnapshotListing::list(job)?;
        let Some(mut before) = before else {
            let (initial, none) = (EffectiveSnapshots::initial(&known), TableCopies::default());
            return Ok(ReferenceTables::load(job, initial, known, &none)?);
        };
        before.effective.reconcile(&known);
        let copies = copies(before.stored, store, status);
        let copies = copies.map_err(StartError::Checkpoints)?;
        let mut next = before.effective.clone();
        let said = next.adopt(&known, before.reached);
        let there =
            ReferenceTables::load(job, next.clone(), known.clone(), &TableCopies::default());
        let is_other = |there: &ReferenceTables| {
            let tables = &there.loaded.copies;
            !copies.is_empty() && tables.encode() != copies.encode()
        };
        let stored = before.stored.filter(|_| !copies.is_empty());
        match there {
            Ok(there) if next == before.effective && !is_other(&there) => {
                Ok(ReferenceTables { stored, ..there })
            }
            Ok(mut there) if adopt_new => {
                said.iter().for_each(|line| status.log(line));
                there.is_new = true;
                there.previous = before.stored;
                there.stored = stored.filter(|_| !is_other(&there));
                Ok(there)
            }
            Ok(_) => {
                // The running job finds and adopts it.
                let tables = ReferenceTables::load(
                    job,
                    before.effective,
                    SnapshotListing::default(),
                    &copies,
                )?;
                Ok(ReferenceTables { stored, ..tables })
            }
            Err(error) => {
                let tables = ReferenceTables::load(job, before.effective, known, &copies)?;
                status.log(format!("new reference data is not adopted: {error}"));
                Ok(ReferenceTables { stored, ..tables })
            }
        }
    }

    fn load(
        job: &Job,
        effective: EffectiveSnapshots,
        known: SnapshotListing,
        copies: &TableCopies,
    ) -> Result<ReferenceTables, ReferenceError> {
        Ok(ReferenceTables {
            loaded: load_effective(job, &effective, copies)?,
            effective,
            known,
            ..ReferenceTables::none()
        })
    }

    /// The static tables to store before a checkpoint may name them, if there are any.
    pub(super) fn unstored(&self) -> Option<Vec<u8>> {
        let copies = &self.loaded.copies;
        (self.stored.is_none() && !copies.is_empty()).then(|| copies.encode())
    }
}

/// The stored static tables; none if they cannot be read, and then the files are read.
fn copies(
    stored: Option<u64>,
    store: &dyn Checkpoints,
    status: &StatusHandle,
) -> io::Result<TableCopies> {
    let Some(number) = stored else {
        return Ok(TableCopies::default());
    };
    let read = unless_unavailable(store.read_tables(number))?;
    let copies =
        read.and_then(|bytes| TableCopies::decode(&bytes).map_err(|error| error.to_string()));
    Ok(copies.unwrap_or_else(|reason| {
        status.log(format!(
            "stored reference data cannot be used: {reason}; rows since the last checkpoint are computed with the files \
             as they are now"
        ));
        TableCopies::default()
    }))
}
