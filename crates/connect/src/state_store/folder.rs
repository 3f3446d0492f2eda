//! A store in a folder, which several processes and machines may share.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use highwater_env::disk::{Access, Disk};
use highwater_env::random::Random;

use super::StateStore;

/// Objects as files. A file has its name only when it is whole and durable.
pub struct FolderStore {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    /// Distinguishes the temporary files of this process from those of others.
    token: u64,
    temporary: AtomicU64,
    /// Folders whose entries are durable: one for each shard.
    durable: Mutex<HashSet<PathBuf>>,
}

const TEMPORARY: &str = ".temporary";

impl FolderStore {
    pub fn new(disk: Arc<dyn Disk>, root: impl Into<PathBuf>) -> FolderStore {
        FolderStore {
            disk,
            root: root.into(),
            token: Random::from_os().next_u64(),
            temporary: AtomicU64::new(0),
            durable: Mutex::default(),
        }
    }

    /// Creates a folder and makes its entry, and those of its parents, durable. An earlier process may have been killed
    /// before it did, so this is done once in each.
    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        let mut durable = self.durable.lock().unwrap_or_else(PoisonError::into_inner);
        if durable.contains(folder) {
            return Ok(());
        }
        self.disk.create_folder(folder)?;
        for at in folder.ancestors() {
            let Some(above) = at.parent() else { break };
            let is_current = above.as_os_str().is_empty();
            let synced = match is_current {
                true => self.disk.sync_folder(Path::new(".")),
                false => self.disk.sync_folder(above),
            };
            // Folders above the store may be closed to this user.
            if at.starts_with(&self.root) && !is_current {
                synced?;
            }
        }
        durable.insert(folder.to_path_buf());
        Ok(())
    }

    fn put_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        self.make_folder(folder)?;
        let number = self.temporary.fetch_add(1, Ordering::Relaxed);
        let temporary = folder.join(format!("{:016x}-{number}{TEMPORARY}", self.token));
        let file = self.disk.open(&temporary, Access::Create)?;
        file.set_len(0)?;
        file.write_all_at(&[bytes], 0)?;
        file.sync_all()?;
        drop(file);
        let renamed = self.disk.rename_new(&temporary, path);
        if renamed.is_err() {
            // A leftover that serves no purpose.
            let _ = self.disk.remove_file(&temporary);
        }
        renamed?;
        self.disk.sync_folder(folder)
    }
}

impl StateStore for FolderStore {
    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let mut names = match self.disk.list(&self.root.join(folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            listed => listed?,
        };
        names.retain(|name| !name.ends_with(TEMPORARY));
        Ok(names)
    }

    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        match self.disk.open(&self.root.join(path), Access::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened?.read_all().map(Some),
        }
    }

    fn create(&self, path: &str, bytes: &[u8]) -> io::Result<bool> {
        let whole = self.root.join(path);
        match self.put_new(&whole, bytes) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let is_same = self.read(path)?.is_some_and(|there| there == bytes);
                if is_same {
                    // It may have been created without being durable.
                    let folder = whole.parent().ok_or(io::ErrorKind::InvalidInput)?;
                    self.disk.sync_folder(folder)?;
                }
                Ok(is_same)
            }
            Err(error) => Err(error),
        }
    }

    fn delete(&self, path: &str) -> io::Result<()> {
        match self.disk.remove_file(&self.root.join(path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}
