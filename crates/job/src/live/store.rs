//! Where checkpoints are kept. `docs/formats/checkpoint.md` draws a file.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use highwater_env::disk::{Access, Disk};

/// A place for the checkpoints of one job. Calls may block.
pub trait Checkpoints: Send + Sync {
    /// The numbers of those that are there, ascending.
    fn list(&self) -> io::Result<Vec<u64>>;

    fn read(&self, number: u64) -> io::Result<Vec<u8>>;

    /// Keeps a checkpoint. When this is done it survives a crash; if it fails or is interrupted, none has appeared and none
    /// is gone. All but the latest two may be forgotten.
    fn write(&self, number: u64, bytes: &[u8]) -> io::Result<()>;
}

/// How many are kept: the last, and the one before in case the last is damaged.
const KEPT: usize = 2;

/// Checkpoints as files in a folder of their own.
pub struct DiskCheckpoints {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
}

impl DiskCheckpoints {
    pub fn new(disk: Arc<dyn Disk>, folder: impl Into<PathBuf>) -> DiskCheckpoints {
        DiskCheckpoints {
            disk,
            folder: folder.into(),
        }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{number:020}.checkpoint"))
    }

    fn make_folder(&self) -> io::Result<()> {
        self.disk.create_folder(&self.folder)?;
        match self.folder.parent() {
            Some(above) if !above.as_os_str().is_empty() => self.disk.sync_folder(above),
            _ => Ok(()),
        }
    }
}

impl Checkpoints for DiskCheckpoints {
    fn list(&self) -> io::Result<Vec<u64>> {
        let names = match self.disk.list(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            listed => listed?,
        };
        let number = |name: &String| name.strip_suffix(".checkpoint")?.parse().ok();
        Ok(names.iter().filter_map(number).collect())
    }

    fn read(&self, number: u64) -> io::Result<Vec<u8>> {
        self.disk.open(&self.path(number), Access::Read)?.read_all()
    }

    fn write(&self, number: u64, bytes: &[u8]) -> io::Result<()> {
        self.make_folder()?;
        let (temporary, path) = (self.folder.join("next.temporary"), self.path(number));
        let file = self.disk.open(&temporary, Access::Create)?;
        file.set_len(0)?;
        file.write_all_at(&[bytes], 0)?;
        file.sync_all()?;
        self.disk.rename(&temporary, &path)?;
        self.disk.sync_folder(&self.folder)?;
        let known = self.list()?;
        for old in known.iter().rev().skip(KEPT) {
            self.disk.remove_file(&self.path(*old))?;
        }
        Ok(())
    }
}
