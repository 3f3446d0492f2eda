//! Jobs of the settings, and the egress policy of jobs. The files of jobs are read when they start, so that a wrong job
//! does not keep the node from starting.

use highwater_connect::OutsideAccess;
use highwater_env::{EgressPolicy, FolderPolicy};
use highwater_settings::Secrets;

use super::{Build, Table};
use crate::jobs::DeclaredJob;

impl Build<'_> {
    pub(super) fn job(&mut self, table: &Table<'_>) -> Option<DeclaredJob> {
        let name = table.name.clone();
        let Some(path) = table.path("path") else {
            let message = format!("job `{name}` has no folder");
            let hint = format!("write path = \"jobs/{name}\"");
            return self.refuse(&table.key(""), message, &hint);
        };
        Some(DeclaredJob { name, path })
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

    /// The egress policy of jobs deployed over HTTP.
    pub(super) fn deployed_access(&self, egress: &EgressPolicy) -> OutsideAccess {
        let jobs = self.table("jobs");
        let folders = jobs.list("folders").unwrap_or_default().iter();
        let folders = folders.map(|folder| jobs.resolve("folders", folder));
        OutsideAccess {
            egress: egress.restricted(),
            secrets: Secrets::restricted(FolderPolicy::below(self.table("secrets").path("folder"))),
            folders: FolderPolicy::below(folders),
        }
    }
}
