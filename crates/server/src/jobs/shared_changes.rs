//! Applies the definitions of shared jobs to this node: to the folders of its jobs, and to what runs.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use highwater_job::Job;
use highwater_log::HubName;

use super::definition::DesiredState;
use super::shared_definitions::{SharedChanges, SharedDefinition, SharedDefinitions};
use super::{Entry, Inner, JobError, JobView, Jobs, blocking};

/// Pause before definitions that could not be read are read again.
const PAUSE: Duration = Duration::from_secs(1);

/// Applies changes as they come, until the jobs are dropped.
pub(super) async fn follow_shared(jobs: Weak<Inner>, shared: SharedDefinitions) {
    loop {
        shared.wait().await;
        match (jobs.upgrade(), shared.read().await) {
            (None, _) => return,
            (Some(inner), Ok((changes, next))) if shared.is_new(next) => {
                Jobs(inner).apply_all(changes).await;
                shared.note_applied(next);
            }
            (Some(_), read) => {
                if let Err(error) = read {
                    tracing::warn!(%error, "definitions of shared jobs could not be read");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Whether it names a job, on every node.
pub(super) fn is_job_name(name: &str) -> bool {
    HubName::new(name).is_ok_and(|name| !name.is_internal())
}

impl Jobs {
    /// Appends a change of a shared job, which all nodes apply, this one before the answer.
    pub(super) async fn change_shared(
        &self,
        shared: &SharedDefinitions,
        name: &str,
        definition: &SharedDefinition,
    ) -> Result<JobView, JobError> {
        shared.change(name, Some(definition)).await?;
        self.view(name)
    }

    /// Takes a definition that was loaded to try it out of the folder of this node, if nodes share the job: each stores
    /// it when it reads it from the log.
    pub(super) fn unstore_shared(
        &self,
        entry: &Entry,
        job: &Job,
    ) -> Result<Option<&SharedDefinitions>, JobError> {
        let state = job.file.live.state.as_ref();
        let is_shared = state.is_some_and(|state| state.shared);
        let shared = self.0.shared.as_ref().filter(|_| is_shared);
        let before = entry.folder.desired_state()?.unwrap_or_default();
        let was_shared = before.shared && self.0.shared.is_some();
        if shared.is_some() || was_shared {
            let kept = before.definition.unwrap_or(0);
            entry.folder.delete_definitions_except(kept);
            self.drop_if_empty(entry);
        }
        match shared.is_none() && was_shared {
            true => Err(JobError::Shared(entry.name.clone())),
            false => Ok(shared),
        }
    }

    /// The definition of a job, if nodes share it.
    pub(super) fn shared_definition(
        &self,
        entry: &Entry,
    ) -> io::Result<Option<(SharedDefinitions, SharedDefinition)>> {
        let desired = entry
            .folder
            .desired_state()?
            .filter(|desired| desired.shared && entry.declared.is_none());
        let (Some(shared), Some(desired)) = (&self.0.shared, desired) else {
            return Ok(None);
        };
        let Some(number) = desired.definition else {
            return Ok(None);
        };
        let definition = SharedDefinition {
            files: entry.folder.read_definition(number)?,
            running: desired.running,
            start: desired.start,
            author: desired.author,
        };
        Ok(Some((shared.clone(), definition)))
    }

    /// Brings the folders of shared jobs up to date. Nothing runs yet.
    pub(super) async fn catch_up(&self, shared: &SharedDefinitions) -> io::Result<()> {
        let (changes, next) = shared.read().await?;
        for entry in self.entries() {
            let is_gone = !changes.contains_key(&entry.name) && entry.declared.is_none();
            let desired = entry.folder.desired_state()?;
            if is_gone && desired.is_some_and(|desired| desired.shared) {
                entry.folder.delete()?;
                self.lock().remove(&entry.name);
            }
        }
        for (name, definition) in changes {
            let Some(entry) = self.shared_entry(&name, definition.as_ref()) else {
                continue;
            };
            match definition {
                Some(definition) => drop(store(&entry, definition).await?),
                None => self.forget_shared(&entry)?,
            }
        }
        shared.note_applied(next);
        Ok(())
    }

    async fn apply_all(&self, changes: SharedChanges) {
        for (name, definition) in changes {
            let Some(entry) = self.shared_entry(&name, definition.as_ref()) else {
                continue;
            };
            if let Err(error) = self.apply(&entry, definition).await {
                tracing::error!(job = name, %error, "a shared job cannot be changed here");
                entry.set_problem(error.to_string());
            }
        }
    }

    /// The job of a change, unless the change is invalid or the settings have the job.
    fn shared_entry(
        &self,
        name: &str,
        definition: Option<&SharedDefinition>,
    ) -> Option<Arc<Entry>> {
        let invalid = definition.and_then(|definition| definition.files.invalid_path());
        if !is_job_name(name) || invalid.is_some() {
            tracing::warn!(
                job = name,
                path = invalid,
                "the definition of a shared job is invalid"
            );
            return None;
        }
        let entry = match definition {
            Some(_) => self.entry_or_new(name),
            None => self.entry(name).ok()?,
        };
        if entry.declared.is_some() {
            tracing::warn!(
                job = name,
                "the settings of this node have a job of this name"
            );
            return None;
        }
        Some(entry)
    }

    async fn apply(
        &self,
        entry: &Arc<Entry>,
        definition: Option<SharedDefinition>,
    ) -> Result<(), JobError> {
        let _one = entry.changing.lock().await;
        let Some(definition) = definition else {
            entry.stop().await;
            return Ok(self.forget_shared(entry)?);
        };
        let (running, start) = (definition.running, definition.start.clone());
        let has_changed = store(entry, definition).await?;
        if has_changed || !running {
            entry.stop().await;
        }
        match running && !entry.runs() {
            true => {
                self.run(entry, start.as_deref(), true, start.is_some())
                    .await
            }
            false => Ok(()),
        }
    }

    /// Deletes the folder of a job, if it is that of a shared one.
    fn forget_shared(&self, entry: &Entry) -> io::Result<()> {
        let desired = entry.folder.desired_state()?;
        if desired.is_some_and(|desired| desired.shared) {
            entry.folder.delete()?;
            self.lock().remove(&entry.name);
        }
        Ok(())
    }
}

/// Stores a definition in the folder of this node. Returns whether files or author are others than before.
async fn store(entry: &Arc<Entry>, definition: SharedDefinition) -> io::Result<bool> {
    let entry = entry.clone();
    blocking(move || {
        let folder = &entry.folder;
        let before = folder.desired_state()?.unwrap_or_default();
        let current = before
            .definition
            .filter(|_| before.shared && before.author == definition.author);
        let files = current
            .map(|number| folder.read_definition(number))
            .transpose()?;
        let is_same = files.as_ref() == Some(&definition.files);
        let number = match (is_same, before.definition) {
            (true, Some(number)) => number,
            (_, before) => {
                let number = before.map_or(1, |number| number + 1);
                folder.store_definition(number, &definition.files)?;
                number
            }
        };
        folder.set_desired_state(&DesiredState {
            definition: Some(number),
            running: definition.running,
            start: definition.start,
            author: definition.author,
            shared: true,
        })?;
        folder.delete_definitions_except(number);
        Ok(!is_same)
    })
    .await
}
