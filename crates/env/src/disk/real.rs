//! The file system of the machine.

#![allow(
    clippy::disallowed_methods,
    reason = "this module opens data files for all others"
)]

use std::fs::{self, OpenOptions, TryLockError};
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::volume::{Access, Disk, DiskFile, Lock};
use crate::descriptors::with_spares;

/// The file system of the machine. Files and folders that it creates are for their owner alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

/// The file system of the machine for outputs, which other users may read as the umask allows.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutputDisk;

/// Permissions of created files and folders, before the umask.
#[derive(Clone, Copy)]
pub(super) struct Modes {
    file: u32,
    folder: u32,
}

pub(super) const PRIVATE: Modes = Modes {
    file: 0o600,
    folder: 0o700,
};

pub(super) const SHARED: Modes = Modes {
    file: 0o666,
    folder: 0o777,
};

impl Modes {
    /// The permissions of a file that is created with these options.
    pub(super) fn apply(self, options: &mut OpenOptions) {
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(options, self.file);
        #[cfg(not(unix))]
        let _ = (self.file, options);
    }
}

fn create_folder(path: &Path, modes: Modes) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, modes.folder);
    #[cfg(not(unix))]
    let _ = modes.folder;
    builder.create(path)
}

fn open(path: &Path, access: Access, modes: Modes) -> io::Result<Arc<dyn DiskFile>> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(access != Access::Read)
        .create(access == Access::Create)
        .truncate(false);
    modes.apply(&mut options);
    let file = with_spares(|| options.open(path))?;
    Ok(Arc::new(RealFile(file)))
}

impl Disk for OutputDisk {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        create_folder(path, SHARED)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        open(path, access, SHARED)
    }

    fn make_private(&self, folder: &Path) -> io::Result<()> {
        RealDisk.make_private(folder)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(folder)
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        RealDisk.len(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename_new(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_file(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_folder(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_folder(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Lock> {
        RealDisk.lock(path)
    }
}

impl Disk for RealDisk {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        create_folder(path, PRIVATE)
    }

    fn make_private(&self, folder: &Path) -> io::Result<()> {
        #[cfg(unix)]
        {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(PRIVATE.folder);
            fs::set_permissions(folder, mode)
        }
        #[cfg(not(unix))]
        {
            let _ = folder;
            Ok(())
        }
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut names: Vec<String> = with_spares(|| fs::read_dir(folder))?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<_>>()?;
        names.sort();
        Ok(names)
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        Ok(fs::metadata(path)?.len())
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        open(path, access, PRIVATE)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)?;
        fs::remove_file(from)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        with_spares(|| super::sync_folder(path))
    }

    fn lock(&self, path: &Path) -> io::Result<Lock> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        PRIVATE.apply(&mut options);
        let file = options.open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Lock::new(file)),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

struct RealFile(fs::File);

impl DiskFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        system::read_at(&self.0, buffer, position)
    }

    fn write_all_at(&self, slices: &[&[u8]], position: u64) -> io::Result<()> {
        system::write_all_at(&self.0, slices, position)
    }

    fn allocate(&self, end: u64) -> io::Result<()> {
        system::allocate(&self.0, end)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs::File;
    use std::io::{self, IoSlice};
    use std::os::unix::fs::FileExt;

    use rustix::fs::{FallocateFlags, fallocate};

    /// The limit of Linux for one call.
    const SLICES_MAX: usize = 1024;

    pub(super) fn read_at(file: &File, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        file.read_at(buffer, position)
    }

    pub(super) fn write_all_at(file: &File, slices: &[&[u8]], mut position: u64) -> io::Result<()> {
        for group in slices.chunks(SLICES_MAX) {
            let mut slices: Vec<IoSlice<'_>> = group.iter().map(|s| IoSlice::new(s)).collect();
            let mut left = &mut slices[..];
            IoSlice::advance_slices(&mut left, 0);
            while !left.is_empty() {
                match rustix::io::pwritev(file, left, position) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(count) => {
                        position += count as u64;
                        IoSlice::advance_slices(&mut left, count);
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    pub(super) fn allocate(file: &File, end: u64) -> io::Result<()> {
        Ok(fallocate(file, FallocateFlags::empty(), 0, end)?)
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::fs::File;
    use std::io;

    #[cfg(unix)]
    pub fn read_at(file: &File, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(file, buffer, position)
    }

    #[cfg(windows)]
    pub fn read_at(file: &File, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_read(file, buffer, position)
    }

    #[cfg(unix)]
    fn write_at(file: &File, bytes: &[u8], position: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::write_at(file, bytes, position)
    }

    #[cfg(windows)]
    fn write_at(file: &File, bytes: &[u8], position: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_write(file, bytes, position)
    }

    pub fn write_all_at(file: &File, slices: &[&[u8]], mut position: u64) -> io::Result<()> {
        for slice in slices {
            let mut left = *slice;
            while !left.is_empty() {
                match write_at(file, left, position) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(count) => {
                        position += count as u64;
                        left = &left[count..];
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Sets the length without allocating space.
    pub fn allocate(file: &File, end: u64) -> io::Result<()> {
        match file.metadata()?.len() < end {
            true => file.set_len(end),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_written_one_after_another_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        let file = RealDisk.open(&path, Access::Create).unwrap();
        file.allocate(100).unwrap();
        let many = vec![&b"ab"[..]; 3000];
        file.write_all_at(&many, 10).unwrap();
        file.write_all_at(&[b"", b"xy", b""], 6008).unwrap();
        file.sync_data().unwrap();
        let bytes = file.read_all().unwrap();
        assert_eq!(bytes.len(), 6010);
        assert_eq!(bytes[..10], [0; 10]);
        assert!(bytes[10..6008].chunks(2).all(|pair| pair == b"ab"));
        assert_eq!(&bytes[6008..], b"xy");
    }

    #[cfg(unix)]
    #[test]
    fn files_and_folders_are_for_their_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let root = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let folder = root.path().join("a/b");
        RealDisk.create_folder(&folder).unwrap();
        let file = folder.join("f");
        RealDisk.open(&file, Access::Create).unwrap();
        RealDisk.lock(&folder.join("lock")).unwrap();
        assert_eq!(mode(&folder), 0o700);
        assert_eq!((mode(&file), mode(&folder.join("lock"))), (0o600, 0o600));
        let replaced = folder.join("keys");
        fs::write(&replaced, "old").unwrap();
        crate::disk::write_private(&replaced, b"new").unwrap();
        assert_eq!(mode(&replaced), 0o600);
        assert_eq!(fs::read(&replaced).unwrap(), b"new");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        RealDisk.make_private(&folder).unwrap();
        assert_eq!(mode(&folder), 0o700);
    }

    #[test]
    fn a_lock_is_held_once_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let held = RealDisk.lock(&path).unwrap();
        let refused = RealDisk.lock(&path).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(held);
        RealDisk.lock(&path).unwrap();
    }
}
