//! A disk in memory that on a crash loses whatever a real one may lose.
//!
//! A file has durable bytes and changes since; a folder has durable names and changes since. [`SimDisk::crash`] is a
//! power cut: any subset of the changes survives, sector by sector and name by name, and open files are invalid.
//! [`SimDisk::restart`] is `kill -9`: open files are invalid, nothing is lost. [`Faults`] injects errors. One seed
//! determines all of it.

mod contents;
mod names;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::names::{Id, Names};
use super::volume::{Access, Disk, DiskFile, Lock};
use crate::random::Random;

/// How often calls fail: one in so many; 0 for never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub reads: u64,
    /// A failed write writes a part of its bytes.
    pub writes: u64,
    /// Syncs of files. As on Linux, the changes may be lost although the next sync succeeds.
    pub syncs: u64,
    /// Syncs of folders.
    pub folder_syncs: u64,
    /// Opens of files, and syncs of folders, that find no free descriptor.
    pub opens: u64,
    /// Total size of all files.
    pub capacity: Option<u64>,
}

#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

struct State {
    random: Random,
    faults: Faults,
    /// Raised by every crash and restart; files and locks of earlier generations are invalid.
    generation: u64,
    names: Names,
    locks: BTreeSet<PathBuf>,
}

impl SimDisk {
    pub fn new(seed: u64) -> SimDisk {
        SimDisk {
            state: Arc::new(Mutex::new(State {
                random: Random::seeded(seed),
                faults: Faults::default(),
                generation: 0,
                names: Names::new(),
                locks: BTreeSet::new(),
            })),
        }
    }

    pub fn set_faults(&self, faults: Faults) {
        self.lock_state().faults = faults;
    }

    /// Simulates a power cut.
    pub fn crash(&self) {
        let state = &mut *self.lock_state();
        state.start_generation();
        state.names.crash(&mut state.random);
    }

    /// Simulates a killed process: all writes survive, synced or not.
    pub fn restart(&self) {
        self.lock_state().start_generation();
    }

    /// The current contents of a file.
    pub fn contents(&self, path: &Path) -> io::Result<Vec<u8>> {
        let state = self.lock_state();
        let id = state.names.find(path)?;
        Ok(state.names.file(id)?.current().to_vec())
    }

    /// Flips bits of a byte, durable and current, as a failing disk does.
    pub fn flip(&self, path: &Path, position: u64, mask: u8) -> io::Result<()> {
        let state = &mut *self.lock_state();
        let id = state.names.find(path)?;
        state.names.file_mut(id)?.flip(position as usize, mask);
        Ok(())
    }

    /// All files, sorted.
    pub fn files(&self) -> Vec<PathBuf> {
        self.lock_state().names.files()
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn start_generation(&mut self) {
        self.generation += 1;
        self.locks.clear();
    }

    fn check_descriptors(&mut self) -> io::Result<()> {
        /// EMFILE
        const TOO_MANY_OPEN_FILES: i32 = 24;
        match self.fails(self.faults.opens) {
            true => Err(io::Error::from_raw_os_error(TOO_MANY_OPEN_FILES)),
            false => Ok(()),
        }
    }

    fn fails(&mut self, one_in: u64) -> bool {
        one_in > 0 && self.random.below(one_in) == 0
    }

    /// How many of `wanted` more bytes fit on the disk.
    fn bytes_available(&self, wanted: u64) -> u64 {
        match self.faults.capacity {
            Some(capacity) => wanted.min(capacity.saturating_sub(self.names.bytes())),
            None => wanted,
        }
    }
}

impl Disk for SimDisk {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.lock_state().names.create_folder(path)
    }

    fn make_private(&self, folder: &Path) -> io::Result<()> {
        self.lock_state().names.find(folder).map(|_| ())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.lock_state().names.list(folder)
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        let state = self.lock_state();
        let id = state.names.find(path)?;
        Ok(state.names.file(id)?.current().len() as u64)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.lock_state();
        state.check_descriptors()?;
        let id = match state.names.find(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && access == Access::Create => {
                state.names.create_file(path)?
            }
            found => found?,
        };
        state.names.file(id)?;
        Ok(Arc::new(SimFile {
            disk: self.clone(),
            id,
            generation: state.generation,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.lock_state().names.rename(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.lock_state();
        match state.names.find(to) {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => state.names.rename(from, to),
        }
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.lock_state().names.remove(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        self.lock_state().names.remove_tree(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let state = &mut *self.lock_state();
        state.check_descriptors()?;
        if state.fails(state.faults.folder_syncs) {
            return Err(io::Error::other(
                "simulated: the folder could not be synced",
            ));
        }
        state.names.sync(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Lock> {
        let mut state = self.lock_state();
        if !state.locks.insert(path.to_path_buf()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Lock::new(SimLock {
            disk: self.clone(),
            path: path.to_path_buf(),
            generation: state.generation,
        }))
    }
}

struct SimLock {
    disk: SimDisk,
    path: PathBuf,
    generation: u64,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.disk.lock_state();
        if state.generation == self.generation {
            state.locks.remove(&self.path);
        }
    }
}

struct SimFile {
    disk: SimDisk,
    id: Id,
    generation: u64,
}

impl SimFile {
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.disk.lock_state();
        match state.generation == self.generation {
            true => Ok(state),
            false => Err(io::Error::other(
                "simulated: the process that opened the file is dead",
            )),
        }
    }

    fn sync(&self) -> io::Result<()> {
        let state = &mut *self.state()?;
        let failed = state.fails(state.faults.syncs);
        let file = state.names.file_mut(self.id)?;
        if failed {
            file.fail_sync(&mut state.random);
            return Err(io::Error::other("simulated: the file could not be synced"));
        }
        file.sync();
        Ok(())
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let state = &mut *self.state()?;
        if state.fails(state.faults.reads) {
            return Err(io::Error::other("simulated: the file could not be read"));
        }
        let bytes = state.names.file(self.id)?.current();
        let rest = bytes.get(position as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_all_at(&self, slices: &[&[u8]], position: u64) -> io::Result<()> {
        let mut bytes = slices.concat();
        if bytes.is_empty() {
            return Ok(());
        }
        let state = &mut *self.state()?;
        let mut outcome = Ok(());
        if state.fails(state.faults.writes) {
            bytes.truncate(state.random.below(bytes.len() as u64) as usize);
            outcome = Err(io::Error::other("simulated: the file could not be written"));
        }
        let len = state.names.file(self.id)?.current().len() as u64;
        let more = (position + bytes.len() as u64).saturating_sub(len);
        let missing = more - state.bytes_available(more);
        if missing > 0 {
            bytes.truncate(bytes.len().saturating_sub(missing as usize));
            outcome = outcome.and(Err(io::ErrorKind::StorageFull.into()));
        }
        state.names.file_mut(self.id)?.write(position, bytes);
        outcome
    }

    fn allocate(&self, end: u64) -> io::Result<()> {
        let state = &mut *self.state()?;
        let len = state.names.file(self.id)?.current().len() as u64;
        let more = end.saturating_sub(len);
        if state.bytes_available(more) < more {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if more > 0 {
            state.names.file_mut(self.id)?.set_len(end);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.state()?.names.file_mut(self.id)?.set_len(len);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.state()?.names.file(self.id)?.current().len() as u64)
    }
}

#[cfg(test)]
mod tests;
