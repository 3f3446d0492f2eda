//! Jobs of the settings, and the egress policy of jobs. The files of jobs are read when they start, so that a wrong job
//! does not keep the node from starting.

use highwater_connect::OutsideAccess;
use highwater_env::{EgressPolicy, FolderPolicy};
use highwater_job::config::JobStateStore;
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

    /// The state of jobs whose files say nothing about it.
    pub(super) fn job_state(&mut self) -> Option<JobStateStore> {
        let table = self.table("state");
        let shared = table.flag("shared");
        let Some(path) = table.text("path") else {
            if shared {
                let message = "nodes share jobs through a state that all of them reach";
                self.problem(
                    "state.shared",
                    message,
                    "write state.path = \"s3://bucket/jobs\"",
                );
            }
            return None;
        };
        let root = self.table("");
        if shared && root.text("log").is_none() {
            let message = "nodes share jobs over a log that all of them have";
            let hint = "write log = \"kafka://host:port\", or shared = true in the files of jobs over Kafka topics";
            self.problem("state.shared", message, hint);
        }
        if shared && root.text("cluster.profile") == Some("event-hubs") {
            let message = "nodes share jobs by transactions of the cluster";
            let hint = "leave state.shared out: each job runs on one node";
            self.problem("state.shared", message, hint);
        }
        if let Err(error) = Secrets::default().resolve(path) {
            let hint = "write \"${env:NAME}\" or \"${file:/path}\"";
            self.problem("state.path", error.to_string(), hint);
        }
        let location = match path.contains("://") {
            true => path.to_owned(),
            false => table.resolve("path", path).display().to_string(),
        };
        Some(JobStateStore::of_node(
            location,
            shared,
            table.duration("session_timeout"),
        ))
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
