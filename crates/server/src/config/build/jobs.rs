//! Jobs of the settings, and what jobs may reach. The files of jobs are read when they start, so that a wrong job does not keep
//! the node from starting.

use std::path::{Path, PathBuf};

use highwater_connect::OutsideAccess;
use highwater_env::{EgressPolicy, FolderPolicy};
use highwater_settings::Secrets;

use super::Build;
use crate::config::Origin;
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

    pub(super) fn egress(&mut self) -> EgressPolicy {
        let allow = self.settings.list("egress.allow").unwrap_or_default();
        EgressPolicy::new(allow).unwrap_or_else(|wrong| {
            let message = format!("`{wrong}` is no host, address or network");
            let hint = "write allow = [\"api.example.com\", \"*.example.com\", \"10.0.0.0/8\"]";
            self.problem("egress.allow", message, hint);
            EgressPolicy::default()
        })
    }

    /// What jobs that come over HTTP may reach.
    pub(super) fn deployed_access(&self, egress: &EgressPolicy) -> OutsideAccess {
        let folders = self.settings.list("jobs.folders").unwrap_or_default();
        let folders = folders
            .iter()
            .map(|folder| self.absolute("jobs.folders", folder));
        OutsideAccess {
            egress: egress.restricted(),
            secrets: Secrets::restricted(FolderPolicy::below(self.path("secrets.folder"))),
            folders: FolderPolicy::below(folders),
        }
    }

    fn absolute(&self, key: &str, path: &str) -> PathBuf {
        match self.settings.origin(key) {
            Origin::File { .. } => self.folder.join(path),
            _ => Path::new(path).to_owned(),
        }
    }
}
