//! The reference data that a start goes by.

use highwater_time::Instant;

use super::checkpoint_store::Checkpoints;
use super::status::StatusHandle;
use crate::load::Job;
use crate::reference::{
    EffectiveSnapshots, ReferenceError, References, SnapshotListing, TableCopies, load_effective,
};

pub(super) struct ReferenceTables {
    pub loaded: References,
    pub force: EffectiveSnapshots,
    /// What was seen of it, so that something else is known for such.
    pub known: SnapshotListing,
    /// The number under which tables without times are kept, if they are.
    pub kept: Option<u64>,
    /// The number under which the last checkpoint has them.
    pub before: Option<u64>,
    /// Something was taken up that no checkpoint knows of yet.
    pub is_new: bool,
}

/// What a checkpoint says of reference data, and how far events had come.
pub(super) struct CheckpointedReferences {
    pub force: EffectiveSnapshots,
    pub reached: Instant,
    pub kept: Option<u64>,
}

impl ReferenceTables {
    /// Reads them, which may block. Only right after a checkpoint may anything be taken up that is new.
    pub fn find(
        job: &Job,
        before: Option<CheckpointedReferences>,
        take_up: bool,
        store: &dyn Checkpoints,
        status: &StatusHandle,
    ) -> Result<ReferenceTables, ReferenceError> {
        let known = SnapshotListing::list(job)?;
        let Some(mut before) = before else {
            return ReferenceTables::load(
                job,
                EffectiveSnapshots::initial(&known),
                known,
                &TableCopies::default(),
            );
        };
        before.force.reconcile(&known);
        let copies = copies(before.kept, store, status);
        let mut next = before.force.clone();
        let said = next.adopt(&known, before.reached);
        let there =
            ReferenceTables::load(job, next.clone(), known.clone(), &TableCopies::default());
        let is_other = |there: &ReferenceTables| {
            let tables = &there.loaded.copies;
            !copies.is_empty() && tables.encode() != copies.encode()
        };
        let kept = before.kept.filter(|_| !copies.is_empty());
        match there {
            Ok(there) if next == before.force && !is_other(&there) => {
                Ok(ReferenceTables { kept, ..there })
            }
            Ok(mut there) if take_up => {
                said.iter().for_each(|line| status.log(line));
                there.is_new = true;
                there.before = before.kept;
                there.kept = kept.filter(|_| !is_other(&there));
                Ok(there)
            }
            Ok(_) => {
                // It will be found when the job runs, and is taken up then.
                let tables =
                    ReferenceTables::load(job, before.force, SnapshotListing::default(), &copies)?;
                Ok(ReferenceTables { kept, ..tables })
            }
            Err(error) => {
                let tables = ReferenceTables::load(job, before.force, known, &copies)?;
                status.log(format!("reference data is not taken up: {error}"));
                Ok(ReferenceTables { kept, ..tables })
            }
        }
    }

    fn load(
        job: &Job,
        force: EffectiveSnapshots,
        known: SnapshotListing,
        copies: &TableCopies,
    ) -> Result<ReferenceTables, ReferenceError> {
        Ok(ReferenceTables {
            loaded: load_effective(job, &force, copies)?,
            force,
            known,
            kept: None,
            before: None,
            is_new: false,
        })
    }

    /// What is to be kept before a checkpoint may name it, if anything is.
    pub fn to_keep(&self) -> Option<Vec<u8>> {
        let copies = &self.loaded.copies;
        (self.kept.is_none() && !copies.is_empty()).then(|| copies.encode())
    }
}

/// What was kept of tables without times; nothing if that cannot be read, and then the files count.
fn copies(kept: Option<u64>, store: &dyn Checkpoints, status: &StatusHandle) -> TableCopies {
    let Some(number) = kept else {
        return TableCopies::default();
    };
    let read = store.read_tables(number).map_err(|error| error.to_string());
    let copies =
        read.and_then(|bytes| TableCopies::decode(&bytes).map_err(|error| error.to_string()));
    copies.unwrap_or_else(|reason| {
        status.log(format!(
            "what was kept of reference data cannot be used: {reason}; rows since the last checkpoint are made with the files \
             as they are now"
        ));
        TableCopies::default()
    })
}
