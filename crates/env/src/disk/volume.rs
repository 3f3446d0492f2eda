//! The disk as a store of data sees it: files written at a position, folders whose entries are made
//! durable one by one, and nothing durable before it was synced.
//!
//! Two things implement [`Disk`]: [`RealDisk`](super::RealDisk), and [`SimDisk`](super::SimDisk),
//! which forgets on a crash whatever was not synced. Code that keeps its promises on the second
//! keeps them on the first.

use std::io;
use std::path::Path;
use std::sync::Arc;

pub trait Disk: Send + Sync {
    /// Makes a folder and those above it; no error if it is there. Its entry in the folder above is
    /// durable after [`Disk::sync_folder`] of that one.
    fn create_folder(&self, path: &Path) -> io::Result<()>;

    /// The names in a folder, sorted.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// Opens a file, or fails with `NotFound`, or makes an empty one, as `access` says.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>>;

    /// Gives a file or folder another name, replacing a file that has it, in one step: after a crash
    /// either name holds, never both and never none.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a folder and all that is in it, in no particular order.
    fn remove_folder(&self, path: &Path) -> io::Result<()>;

    /// Makes durable which names are in the folder.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;

    /// Takes a lock file for this process until the lock is dropped or the process ends; fails with
    /// `WouldBlock` while somebody else has it.
    fn lock(&self, path: &Path) -> io::Result<Lock>;
}

/// Held by whoever may use a folder.
pub struct Lock(#[allow(dead_code, reason = "held for its drop alone")] Box<dyn Send + Sync>);

impl Lock {
    pub(super) fn new(held: impl Send + Sync + 'static) -> Lock {
        Lock(Box::new(held))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    /// To read and write a file that exists.
    Write,
    /// To read and write, making the file if it is missing.
    Create,
}

/// An open file. Positions are given with every call, so a file can be shared.
#[allow(clippy::len_without_is_empty, reason = "a size, not a collection")]
pub trait DiskFile: Send + Sync {
    /// Reads into as much of `buffer` as one call fills; 0 at the end.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;

    /// Writes the slices one after another. A failure may leave any part of them written.
    fn write_all_at(&self, slices: &[&[u8]], position: u64) -> io::Result<()>;

    /// Reserves room up to `end` and makes the file at least that long, the new part reading as
    /// zeros. A failure changes nothing that can be read.
    fn allocate(&self, end: u64) -> io::Result<()>;

    /// Cuts the file, or makes it longer with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes the contents durable, and of the rest what is needed to read them. After a failure
    /// nobody knows what the disk holds, and a second call that succeeds proves nothing.
    fn sync_data(&self) -> io::Result<()>;

    fn sync_all(&self) -> io::Result<()>;

    fn len(&self) -> io::Result<u64>;
}

impl dyn DiskFile + '_ {
    /// Reads until `buffer` is full or the file ends; answers how much was read.
    pub fn read_full_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.read_at(&mut buffer[done..], position + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// The whole file.
    pub fn read_all(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(self.len()?).map_err(io::Error::other)?];
        let count = self.read_full_at(&mut bytes, 0)?;
        bytes.truncate(count);
        Ok(bytes)
    }
}
