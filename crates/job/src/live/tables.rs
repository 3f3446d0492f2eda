//! The reference data that a start goes by.

use highwater_time::Instant;

use super::status::Board;
use crate::load::Job;
use crate::reference::{InForce, ReferenceError, References, Seen, load_in_force};

pub(super) struct Tables {
    pub loaded: References,
    pub force: InForce,
    /// What was seen of it, so that something else is known for such.
    pub known: Seen,
    /// Something was taken up that no checkpoint knows of yet.
    pub is_new: bool,
}

impl Tables {
    /// Reads them, which may block. `saved` is what a checkpoint says of them, and how far events had come. Only right after
    /// a checkpoint may anything be taken up that is new.
    pub fn find(
        job: &Job,
        saved: Option<(InForce, Instant)>,
        take_up: bool,
        board: &Board,
    ) -> Result<Tables, ReferenceError> {
        let known = Seen::look(job)?;
        let Some((mut force, reached)) = saved else {
            return Tables::load(job, InForce::first(&known), known);
        };
        force.mend(&known);
        let mut next = force.clone();
        let said = next.take_up(&known, reached);
        if next == force {
            return Tables::load(job, force, known);
        }
        if !take_up {
            // It will be found when the job runs, and is taken up then.
            return Tables::load(job, force, Seen::default());
        }
        match Tables::load(job, next, known.clone()) {
            Ok(mut tables) => {
                said.iter().for_each(|line| board.say(line));
                tables.is_new = true;
                Ok(tables)
            }
            Err(error) => {
                board.say(format!("reference data is not taken up: {error}"));
                Tables::load(job, force, known)
            }
        }
    }

    fn load(job: &Job, force: InForce, known: Seen) -> Result<Tables, ReferenceError> {
        Ok(Tables {
            loaded: load_in_force(job, &force)?,
            force,
            known,
            is_new: false,
        })
    }
}
