//! The store of checkpoints. `docs/formats/checkpoint.md` describes a file.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_connect::StoreUnavailable;
use highwater_env::disk::{Access, Disk};

/// The checkpoints of one job. Calls may block.
pub trait Checkpoints: Send + Sync {
    /// The numbers of the checkpoints, ascending.
    fn list(&self) -> io::Result<Vec<u64>>;

    fn read(&self, number: u64) -> io::Result<Vec<u8>>;

    /// Stores a checkpoint, which then survives a crash. If this fails or is interrupted, the stored checkpoints are as
    /// before. All but the latest two may be removed.
    fn write(&self, number: u64, bytes: &[u8]) -> io::Result<()>;

    /// Marks a checkpoint as damaged, so that it does not count among the two.
    fn mark_damaged(&self, number: u64);

    /// Stores the tables that checkpoints name by this number, as durably as a checkpoint. All others but those that
    /// are `in_use` may be removed.
    fn write_tables(&self, number: u64, bytes: &[u8], in_use: Option<u64>) -> io::Result<()>;

    fn read_tables(&self, number: u64) -> io::Result<Vec<u8>>;
}

/// What was read. The inner error says why it is damaged, the outer one that the store does not answer, which says
/// nothing about what is in it.
pub(super) fn unless_unavailable<T>(read: io::Result<T>) -> io::Result<Result<T, String>> {
    match read {
        Err(error) if StoreUnavailable::is_reason_of(&error) => Err(error),
        read => Ok(read.map_err(|error| error.to_string())),
    }
}

/// File extensions.
const CHECKPOINT: &str = "checkpoint";
const TABLES: &str = "tables";

/// How many are stored: the last, and the one before in case the last is damaged.
pub(super) const KEPT: usize = 2;

/// Checkpoints as files in a folder of their own.
pub struct DiskCheckpoints {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    damaged: Mutex<BTreeSet<u64>>,
}

impl DiskCheckpoints {
    pub fn new(disk: Arc<dyn Disk>, folder: impl Into<PathBuf>) -> DiskCheckpoints {
        DiskCheckpoints {
            disk,
            folder: folder.into(),
            damaged: Mutex::default(),
        }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{number:020}.{CHECKPOINT}"))
    }

    fn tables_path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{number:020}.{TABLES}"))
    }

    /// The numbers of the files of a kind, ascending.
    fn numbers(&self, kind: &str) -> io::Result<Vec<u64>> {
        let names = match self.disk.list(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            listed => listed?,
        };
        let number = |name: &String| {
            let (number, found) = name.split_once('.')?;
            number.parse().ok().filter(|_| found == kind)
        };
        Ok(names.iter().filter_map(number).collect())
    }

    /// Writes a file that is whole once it has its name.
    fn put(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.make_folder()?;
        let temporary = self.folder.join("next.temporary");
        let file = self.disk.open(&temporary, Access::Create)?;
        file.set_len(0)?;
        file.write_all_at(&[bytes], 0)?;
        file.sync_all()?;
        self.disk.rename(&temporary, path)?;
        self.disk.sync_folder(&self.folder)
    }

    fn make_folder(&self) -> io::Result<()> {
        self.disk.create_folder(&self.folder)?;
        match self.folder.parent() {
            Some(above) if !above.as_os_str().is_empty() => self.disk.sync_folder(above),
            _ => Ok(()),
        }
    }

    /// Checkpoints that are no longer needed. A damaged one goes when nothing older is stored, because the list of
    /// numbers tells which were used.
    fn obsolete_checkpoints(&self) -> io::Result<Vec<u64>> {
        let known = self.list()?;
        let damaged = lock(&self.damaged);
        let whole = known
            .iter()
            .rev()
            .filter(|number| !damaged.contains(number));
        let oldest = whole.take(KEPT).last().copied().unwrap_or(0);
        Ok(known
            .into_iter()
            .filter(|number| *number < oldest)
            .collect())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Checkpoints for DiskCheckpoints {
    fn list(&self) -> io::Result<Vec<u64>> {
        self.numbers(CHECKPOINT)
    }

    fn read(&self, number: u64) -> io::Result<Vec<u8>> {
        self.disk.open(&self.path(number), Access::Read)?.read_all()
    }

    fn write(&self, number: u64, bytes: &[u8]) -> io::Result<()> {
        self.put(&self.path(number), bytes)?;
        for old in self.obsolete_checkpoints()? {
            self.disk.remove_file(&self.path(old))?;
        }
        Ok(())
    }

    fn mark_damaged(&self, number: u64) {
        lock(&self.damaged).insert(number);
    }

    fn write_tables(&self, number: u64, bytes: &[u8], in_use: Option<u64>) -> io::Result<()> {
        self.put(&self.tables_path(number), bytes)?;
        for other in self.numbers(TABLES)? {
            if other != number && Some(other) != in_use {
                self.disk.remove_file(&self.tables_path(other))?;
            }
        }
        Ok(())
    }

    fn read_tables(&self, number: u64) -> io::Result<Vec<u8>> {
        let path = self.tables_path(number);
        self.disk.open(&path, Access::Read)?.read_all()
    }
}

/// Checkpoints of a job that runs once and is never resumed.
#[derive(Default)]
pub struct MemoryCheckpoints {
    kept: Mutex<BTreeMap<u64, Vec<u8>>>,
    tables: Mutex<BTreeMap<u64, Vec<u8>>>,
}

impl Checkpoints for MemoryCheckpoints {
    fn list(&self) -> io::Result<Vec<u64>> {
        Ok(lock(&self.kept).keys().copied().collect())
    }

    fn read(&self, number: u64) -> io::Result<Vec<u8>> {
        let found = lock(&self.kept).get(&number).cloned();
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn write(&self, number: u64, bytes: &[u8]) -> io::Result<()> {
        let mut kept = lock(&self.kept);
        kept.insert(number, bytes.to_vec());
        while kept.len() > KEPT {
            kept.pop_first();
        }
        Ok(())
    }

    fn mark_damaged(&self, number: u64) {
        lock(&self.kept).remove(&number);
    }

    fn write_tables(&self, number: u64, bytes: &[u8], in_use: Option<u64>) -> io::Result<()> {
        let mut tables = lock(&self.tables);
        tables.retain(|other, _| Some(*other) == in_use);
        tables.insert(number, bytes.to_vec());
        Ok(())
    }

    fn read_tables(&self, number: u64) -> io::Result<Vec<u8>> {
        let found = lock(&self.tables).get(&number).cloned();
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
