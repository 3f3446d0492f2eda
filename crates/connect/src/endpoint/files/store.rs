//! Storage for complete files: they appear whole or not at all, and are durable from then on.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use highwater_env::disk::{Access, Disk};

use super::super::{EndpointError, EndpointFuture};

/// How many folders are remembered as existing.
const FOLDERS_MAX: usize = 10_000;

pub(super) trait Store: Send + Sync {
    /// Writes a file. An existing file with the same contents is left alone; other contents are an error.
    fn put<'a>(&'a self, path: &'a str, bytes: Bytes) -> EndpointFuture<'a, ()>;
}

pub(super) fn conflict(path: &str) -> EndpointError {
    EndpointError::unfit(format!(
        "{path} exists with other contents: was the checkpoint lost, or does another job write to this folder?"
    ))
}

/// A folder on a disk.
#[derive(Clone)]
pub(super) struct Folder {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    known: Arc<Mutex<HashSet<PathBuf, FixedState>>>,
}

impl Folder {
    pub(super) fn new(disk: Arc<dyn Disk>, root: PathBuf) -> Folder {
        Folder {
            disk,
            root,
            known: Arc::default(),
        }
    }

    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), EndpointError> {
        let failed = |error: io::Error| endpoint_error(&self.root.join(path), error);
        match self.disk.open(&self.root.join(path), Access::Read) {
            Ok(file) if file.read_all().map_err(failed)? != bytes => return Err(conflict(path)),
            // It may exist and not be durable yet, so it is written again.
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        self.publish(&self.root.join(path), bytes).map_err(failed)
    }

    fn publish(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        self.make_folder(folder)?;
        // Always the same name, so that a crash leaves one file to overwrite.
        let temporary = folder.join(format!(".{}.tmp", name.to_string_lossy()));
        let file = self.disk.open(&temporary, Access::Create)?;
        file.set_len(0)?;
        file.write_all_at(&[bytes], 0)?;
        file.sync_all()?;
        drop(file);
        self.disk.rename(&temporary, path)?;
        self.disk.sync_folder(folder)
    }

    /// Creates a folder and its parents up to the root, and syncs them.
    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        let is_known = |known: &HashSet<_, _>| known.contains(folder);
        if is_known(&self.known.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(());
        }
        self.disk.create_folder(folder)?;
        let inside = folder.ancestors().take_while(|above| *above != self.root);
        let mut above: Vec<&Path> = inside.filter_map(Path::parent).collect();
        above.extend(
            self.root
                .parent()
                .filter(|path| !path.as_os_str().is_empty()),
        );
        for folder in above {
            self.disk.sync_folder(folder)?;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= FOLDERS_MAX {
            known.clear();
        }
        known.insert(folder.to_path_buf());
        Ok(())
    }
}

fn endpoint_error(path: &Path, error: io::Error) -> EndpointError {
    let reason = format!("cannot write {}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::InvalidFilename
        | io::ErrorKind::ReadOnlyFilesystem => EndpointError::unfit(reason),
        _ => EndpointError::unavailable(reason),
    }
}

impl Store for Folder {
    fn put<'a>(&'a self, path: &'a str, bytes: Bytes) -> EndpointFuture<'a, ()> {
        let (folder, path) = (self.clone(), path.to_owned());
        Box::pin(async move {
            let written = tokio::task::spawn_blocking(move || folder.write(&path, &bytes));
            written.await.map_err(EndpointError::unavailable)?
        })
    }
}
