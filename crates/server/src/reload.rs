//! Reads files again when they change: certificates, and the keys of a tokens' issuer.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::disk;

/// How often files are checked for changes.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);

/// Files, as they were when they were last read.
pub(crate) struct WatchedFiles {
    paths: Vec<PathBuf>,
    stamps: Vec<Option<disk::Stamp>>,
}

impl WatchedFiles {
    /// Made before the files are read, so that no change is missed.
    pub(crate) fn new(paths: Vec<PathBuf>) -> WatchedFiles {
        let stamps = stamps(&paths);
        WatchedFiles { paths, stamps }
    }

    /// Calls `reload` after each change, as long as `owner` is in use. Files may be written one after the other, so a
    /// failed reload is tried again.
    pub(crate) fn watch<T, E>(mut self, owner: &Arc<T>, reload: fn(&T) -> Result<(), E>)
    where
        T: Send + Sync + 'static,
        E: Display + 'static,
    {
        let owner = Arc::downgrade(owner);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(INTERVAL).await;
                let Some(owner) = owner.upgrade() else {
                    return;
                };
                let found = stamps(&self.paths);
                if found == self.stamps {
                    continue;
                }
                let path = self.paths[0].display();
                match reload(&owner) {
                    Ok(()) => {
                        tracing::info!("{path} was reloaded");
                        self.stamps = found;
                    }
                    Err(error) => tracing::warn!(%error, "{path} was not reloaded"),
                }
            }
        });
    }
}

fn stamps(paths: &[PathBuf]) -> Vec<Option<disk::Stamp>> {
    let stamp = |path: &PathBuf| disk::stamp(path).ok().flatten();
    paths.iter().map(stamp).collect()
}
