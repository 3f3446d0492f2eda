//! Jobs of the settings. Their files are read when they start, so that a wrong job does not keep the node from starting.

use super::Build;
use crate::jobs::DeclaredJob;

impl Build<'_> {
    pub(super) fn job(&mut self, name: &str) -> Option<DeclaredJob> {
        let Some(path) = self.path(&format!("jobs.{name}.path")) else {
            let message = format!("job `{name}` has no folder");
            let hint = format!("write path = \"jobs/{name}\"");
            self.problem(&format!("jobs.{name}."), message, &hint);
            return None;
        };
        Some(DeclaredJob {
            name: name.to_owned(),
            path,
        })
    }
}
