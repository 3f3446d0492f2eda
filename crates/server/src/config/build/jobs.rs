//! Jobs of the settings. What is in their files is looked at when they are started, so that a job that is wrong keeps
//! no node from starting.

use super::Build;
use crate::jobs::Declared;

impl Build<'_> {
    pub(super) fn jobs(&mut self) -> Vec<Declared> {
        let names = self.settings.tables("jobs");
        let jobs = names.iter().filter_map(|name| self.job(name));
        jobs.collect()
    }

    fn job(&mut self, name: &str) -> Option<Declared> {
        let Some(path) = self.path(&format!("jobs.{name}.path")) else {
            let message = format!("job `{name}` has no folder");
            let hint = format!("write path = \"jobs/{name}\"");
            self.problem(&format!("jobs.{name}."), message, &hint);
            return None;
        };
        Some(Declared {
            name: name.to_owned(),
            path,
        })
    }
}
