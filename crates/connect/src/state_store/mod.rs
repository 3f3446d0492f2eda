//! Checkpoint stores that several machines share: a folder or an object store.
//!
//! Objects appear whole, are never replaced, and one of several creators of the same object succeeds. That is all that
//! the owners of a job's shards need to fence each other (`job/live/shard_state.rs`). Calls block, and may not be made
//! on a thread that drives the runtime.

#[cfg(any(test, feature = "object-store"))]
mod bucket;
mod folder;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use highwater_env::disk::Disk;
use highwater_settings::{FileReader, Section};

use crate::endpoint::OutsideAccess;

pub use folder::FolderStore;

/// Why a store did not answer as it should. It says nothing about the objects, and may go away.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StoreUnavailable(pub String);

impl StoreUnavailable {
    /// Whether this is the reason of an error.
    pub fn is_reason_of(error: &io::Error) -> bool {
        let inner = error.get_ref();
        inner.is_some_and(|inner| inner.is::<StoreUnavailable>())
    }
}

impl From<StoreUnavailable> for io::Error {
    fn from(error: StoreUnavailable) -> io::Error {
        io::Error::other(error)
    }
}

/// Named objects, in folders.
pub trait StateStore: Send + Sync {
    /// The names of the objects in a folder, sorted; none if there is no such folder.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;

    /// The contents of an object; `None` if it does not exist.
    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>>;

    /// Creates an object, durably. `false` if it exists with other contents.
    fn create(&self, path: &str, bytes: &[u8]) -> io::Result<bool>;

    /// Removes an object; no error if it does not exist.
    fn delete(&self, path: &str) -> io::Result<()>;
}

/// The keys of [`StateSettings`].
pub const STATE_KEYS: &[&str] = &["path", "options"];

/// How a job file names a store. Options may be secret, and are never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct StateSettings {
    /// A folder, or a URL such as `s3://bucket/prefix`.
    pub location: String,
    /// Settings of the object store, such as `region`, beside those in the environment.
    options: Vec<(String, String)>,
}

impl fmt::Debug for StateSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateSettings")
            .field("location", &self.location)
            .finish_non_exhaustive()
    }
}

impl StateSettings {
    /// Below a folder.
    pub fn folder(location: impl Into<String>) -> StateSettings {
        StateSettings {
            location: location.into(),
            options: Vec::new(),
        }
    }

    /// Reads [`STATE_KEYS`].
    pub fn read(reader: &mut FileReader<'_>, section: &Section<'_>) -> Option<StateSettings> {
        let location = reader.required_text(section, "path", "s3://bucket/jobs");
        let options = reader.pairs(section, "options", "region = \"eu-central-1\"");
        Some(StateSettings {
            location: location?,
            options,
        })
    }

    /// Refuses what is beyond `access`.
    pub fn check(&self, access: &OutsideAccess, folder: &Path) -> Result<(), String> {
        let texts = self.options.iter().map(|(_, value)| value);
        for text in texts.chain([&self.location]) {
            let checked = access.secrets.check_text(text);
            checked.map_err(|error| error.to_string())?;
        }
        match self.is_url() {
            true => crate::endpoint::check_store_options(&self.options, access),
            false => access.check_path(&folder.join(&self.location)),
        }
    }

    fn is_url(&self) -> bool {
        self.location.contains("://")
    }

    /// Opens the store; a path is relative to `folder`. Called on a tokio runtime.
    pub fn open(
        &self,
        access: &OutsideAccess,
        folder: &Path,
        disk: Arc<dyn Disk>,
    ) -> Result<Arc<dyn StateStore>, String> {
        let secret = |text: &str| {
            let resolved = access.secrets.resolve(text);
            resolved
                .map(|secret| secret.into_owned())
                .map_err(|error| error.to_string())
        };
        let location = secret(&self.location)?;
        if !self.is_url() {
            return Ok(Arc::new(FolderStore::new(disk, folder.join(location))));
        }
        let mut options = Vec::with_capacity(self.options.len());
        for (name, value) in &self.options {
            options.push((name.clone(), secret(value)?));
        }
        open_url(&location, &options, access)
    }
}

#[cfg(feature = "object-store")]
fn open_url(
    url: &str,
    options: &[(String, String)],
    access: &OutsideAccess,
) -> Result<Arc<dyn StateStore>, String> {
    let opened = crate::endpoint::object_store(url, options, &access.egress);
    let (store, prefix) = opened.map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Handle::try_current();
    let runtime = runtime.map_err(|error| error.to_string())?;
    Ok(Arc::new(bucket::BucketStore::new(store, &prefix, runtime)))
}

#[cfg(not(feature = "object-store"))]
fn open_url(
    url: &str,
    options: &[(String, String)],
    access: &OutsideAccess,
) -> Result<Arc<dyn StateStore>, String> {
    let _ = (options, access);
    let scheme = url.split_once("://").map_or(url, |(scheme, _)| scheme);
    Err(crate::endpoint::no_object_store(scheme).to_string())
}
