//! The disk as a storage engine sees it: files written at a position, folders whose entries are synced separately,
//! nothing durable before its sync.
//!
//! [`RealDisk`](super::RealDisk) and [`SimDisk`](super::SimDisk) implement [`Disk`]. `SimDisk` loses unsynced changes
//! on a crash: code that is correct on it is correct on a real disk.

use std::io;
use std::path::Path;
use std::sync::Arc;

#[allow(clippy::len_without_is_empty, reason = "a size, not a collection")]
pub trait Disk: Send + Sync {
    /// Creates a folder and its parents; no error if it exists. Its entry is durable after [`Disk::sync_folder`] of its
    /// parent.
    fn create_folder(&self, path: &Path) -> io::Result<()>;

    /// Lets only the owner of an existing folder use it.
    fn make_private(&self, folder: &Path) -> io::Result<()>;

    /// The names in a folder, sorted.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// The length of a file.
    fn len(&self, path: &Path) -> io::Result<u64>;

    /// Opens a file. If it is missing, creates it or fails with `NotFound`, depending on `access`.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>>;

    /// Renames a file or folder atomically, replacing a file of that name: after a crash exactly one of the names
    /// exists.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Renames a file like [`Disk::rename`], unless there is a file of that name: then fails with `AlreadyExists`. Of
    /// several processes one succeeds. A crash may leave both names.
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a folder with its contents, in no particular order.
    fn remove_folder(&self, path: &Path) -> io::Result<()>;

    /// Makes the entries of the folder durable.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;

    /// Locks a file for this process until the lock is dropped or the process ends; fails with `WouldBlock` while
    /// another process holds it.
    fn lock(&self, path: &Path) -> io::Result<Lock>;
}

/// The lock of a folder; dropping it releases the folder.
pub struct Lock(#[allow(dead_code, reason = "held for its drop alone")] Box<dyn Send + Sync>);

impl Lock {
    pub(super) fn new(held: impl Send + Sync + 'static) -> Lock {
        Lock(Box::new(held))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    /// Read and write an existing file.
    Write,
    /// Read and write; create the file if it is missing.
    Create,
}

/// An open file. Every call names its position, so a file can be shared.
#[allow(clippy::len_without_is_empty, reason = "a size, not a collection")]
pub trait DiskFile: Send + Sync {
    /// Reads up to `buffer.len()` bytes with one call; 0 at the end of the file.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;

    /// Writes the slices one after another. A failure may leave any part of them written.
    fn write_all_at(&self, slices: &[&[u8]], position: u64) -> io::Result<()>;

    /// Allocates space up to `end` and extends the file to it with zeros. A failure changes nothing that can be read.
    fn allocate(&self, end: u64) -> io::Result<()>;

    /// Truncates the file or extends it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes the contents durable, with the metadata needed to read them. After a failure the state of the disk is
    /// unknown, and a second call that succeeds proves nothing.
    fn sync_data(&self) -> io::Result<()>;

    fn sync_all(&self) -> io::Result<()>;

    fn len(&self) -> io::Result<u64>;
}

impl dyn DiskFile + '_ {
    /// Reads until `buffer` is full or the file ends; returns the number of bytes read.
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
