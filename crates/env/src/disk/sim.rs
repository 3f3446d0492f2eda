//! A disk in memory that loses on a crash what a real one may lose.
//!
//! Every file has the bytes that are durable and the changes made since; every folder has the names
//! that are durable and the changes made since. [`SimDisk::crash`] is a power cut: of the changes
//! some subset survives, sector by sector and name by name, and open files are gone.
//! [`SimDisk::restart`] is `kill -9`: open files are gone and nothing else. Failures can be ordered
//! with [`Faults`]. All of it follows from one seed.

mod contents;
mod names;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::names::{Id, Names};
use super::volume::{Access, Disk, DiskFile, Lock};
use crate::random::Random;

/// How often things fail: one in so many calls, 0 for never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub reads: u64,
    /// A failed write leaves a part of its bytes.
    pub writes: u64,
    /// Of a file. As on Linux the changes may be gone and the next sync succeeds all the same.
    pub syncs: u64,
    /// Of a folder.
    pub folder_syncs: u64,
    /// How many bytes all files together may have.
    pub capacity: Option<u64>,
}

#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

struct State {
    random: Random,
    faults: Faults,
    /// Raised by every crash and restart; files and locks of earlier lives are dead.
    life: u64,
    names: Names,
    locks: BTreeSet<PathBuf>,
}

impl SimDisk {
    pub fn new(seed: u64) -> SimDisk {
        SimDisk {
            state: Arc::new(Mutex::new(State {
                random: Random::seeded(seed),
                faults: Faults::default(),
                life: 0,
                names: Names::new(),
                locks: BTreeSet::new(),
            })),
        }
    }

    pub fn set_faults(&self, faults: Faults) {
        self.lock_state().faults = faults;
    }

    /// A power cut.
    pub fn crash(&self) {
        let state = &mut *self.lock_state();
        state.end_life();
        state.names.crash(&mut state.random);
    }

    /// The process is killed and the machine goes on: what was written is there, synced or not.
    pub fn restart(&self) {
        self.lock_state().end_life();
    }

    /// What a reader of the file would see now.
    pub fn contents(&self, path: &Path) -> io::Result<Vec<u8>> {
        let state = self.lock_state();
        let id = state.names.find(path)?;
        Ok(state.names.file(id)?.current().to_vec())
    }

    /// Changes a byte behind everybody's back, as a failing disk does.
    pub fn flip(&self, path: &Path, position: u64, mask: u8) -> io::Result<()> {
        let state = &mut *self.lock_state();
        let id = state.names.find(path)?;
        state.names.file_mut(id)?.flip(position as usize, mask);
        Ok(())
    }

    /// Every file there is, sorted.
    pub fn files(&self) -> Vec<PathBuf> {
        self.lock_state().names.files()
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn end_life(&mut self) {
        self.life += 1;
        self.locks.clear();
    }

    fn fails(&mut self, one_in: u64) -> bool {
        one_in > 0 && self.random.below(one_in) == 0
    }

    /// How many of `wanted` more bytes the disk has room for.
    fn room_for(&self, wanted: u64) -> u64 {
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

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.lock_state().names.list(folder)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.lock_state();
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
            life: state.life,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.lock_state().names.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.lock_state().names.remove(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        self.lock_state().names.remove_tree(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let state = &mut *self.lock_state();
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
            life: state.life,
        }))
    }
}

struct SimLock {
    disk: SimDisk,
    path: PathBuf,
    life: u64,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.disk.lock_state();
        if state.life == self.life {
            state.locks.remove(&self.path);
        }
    }
}

struct SimFile {
    disk: SimDisk,
    id: Id,
    life: u64,
}

impl SimFile {
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.disk.lock_state();
        match state.life == self.life {
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
        let missing = more - state.room_for(more);
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
        if state.room_for(more) < more {
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
