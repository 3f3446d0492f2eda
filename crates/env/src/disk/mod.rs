//! Data files: readers, and files that are replaced atomically.
//!
//! [`create_atomic`] writes under a temporary name in the same folder. [`AtomicFile::commit`] syncs the bytes and
//! renames the file. A crash before the rename leaves the old file unchanged.

#![allow(
    clippy::disallowed_methods,
    reason = "this module opens data files for all others"
)]

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use real::Modes;

use crate::clock::unix_nanos_of;
use crate::random::Random;

mod real;
mod sim;
mod volume;

pub use real::{OutputDisk, RealDisk};
pub use sim::{Faults, SimDisk};
pub use volume::{Access, Disk, DiskFile, Lock};

/// An open file with its metadata at the time it was opened.
#[derive(Debug)]
pub struct Reader {
    file: File,
    len: u64,
    modified: i128,
    is_file: bool,
}

/// Opens a file for reading. Refuses a folder, because reading it would fail with a less clear error.
pub fn open(path: impl AsRef<Path>) -> io::Result<Reader> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::IsADirectory,
            "is a folder, not a file",
        ));
    }
    let modified = metadata.modified().map(unix_nanos_of).unwrap_or(0);
    Ok(Reader {
        file,
        len: metadata.len(),
        modified,
        is_file: metadata.is_file(),
    })
}

impl Reader {
    /// Size in bytes when the file was opened; meaningful only if [`Reader::is_file`].
    #[allow(clippy::len_without_is_empty, reason = "a size, not a collection")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Time of the last write in nanoseconds since 1970; 0 if the system does not know it.
    pub fn modified(&self) -> i128 {
        self.modified
    }

    /// False for pipes and devices, which have no size.
    pub fn is_file(&self) -> bool {
        self.is_file
    }

    /// Fills `buffer` from `offset` without moving the read position.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        read_exact_at(&self.file, buffer, offset)
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, buffer, offset)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                buffer = &mut buffer[count..];
                offset += count as u64;
            }
        }
    }
    Ok(())
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}

impl Seek for Reader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// Modification time (nanoseconds since 1970) and size of a file; they change when the file is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    pub modified: i128,
    pub len: u64,
}

/// The stamp of a file; `None` if the path is not a file, such as a folder.
pub fn stamp(path: impl AsRef<Path>) -> io::Result<Option<Stamp>> {
    let metadata = fs::metadata(path)?;
    let modified = metadata.modified().map(unix_nanos_of).unwrap_or(0);
    Ok(metadata.is_file().then_some(Stamp {
        modified,
        len: metadata.len(),
    }))
}

/// A file that appears under its name when it is committed. Dropping it uncommitted removes it.
#[derive(Debug)]
pub struct AtomicFile {
    /// `None` after the commit.
    file: Option<File>,
    temporary: PathBuf,
    path: PathBuf,
}

/// Starts a file that replaces `path` when committed. A symbolic link is followed, so the link stays a link. Anything
/// but a regular file is refused: renaming over a device would destroy it.
pub fn create_atomic(path: impl AsRef<Path>) -> io::Result<AtomicFile> {
    create_with(path.as_ref(), real::SHARED)
}

/// Replaces a file that only its owner may read, completely or not at all.
pub fn write_private(path: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
    let mut file = create_with(path.as_ref(), real::PRIVATE)?;
    file.write_all(bytes)?;
    file.commit()
}

fn create_with(path: &Path, modes: Modes) -> io::Result<AtomicFile> {
    let path = target(path)?;
    loop {
        let temporary = temporary_name(&path)?;
        let file = create_new(&temporary, modes)?;
        let is_ours = match file.try_lock() {
            // A concurrent `remove_stale` may have removed the file before it was locked.
            Ok(()) => temporary.exists(),
            Err(TryLockError::WouldBlock) => false,
            // On a file system without locks, `remove_stale` removes nothing.
            Err(TryLockError::Error(_)) => true,
        };
        if is_ours {
            return Ok(AtomicFile {
                file: Some(file),
                temporary,
                path,
            });
        }
    }
}

/// Removes the temporary files that killed processes left behind for `path`; returns how many. A file being written is
/// locked by its writer.
pub fn remove_stale(path: impl AsRef<Path>) -> io::Result<usize> {
    let path = target(path.as_ref())?;
    let mut removed = 0;
    for file in list(parent_folder(&path))? {
        if !is_temporary_of(&file, &path) {
            continue;
        }
        // A file that cannot be opened or removed stays.
        let Ok(left) = File::open(&file) else {
            continue;
        };
        if left.try_lock().is_ok() && fs::remove_file(&file).is_ok() {
            removed += 1;
        }
    }
    Ok(removed)
}

impl AtomicFile {
    /// Syncs the bytes, renames the file, syncs the folder.
    pub fn commit(mut self) -> io::Result<()> {
        let file = self.file.take();
        let done = file
            .map_or(Ok(()), |file| file.sync_all())
            .and_then(|()| self.publish());
        if done.is_err() {
            self.remove();
        }
        done
    }

    fn publish(&self) -> io::Result<()> {
        fs::rename(&self.temporary, &self.path)?;
        sync_folder(parent_folder(&self.path))
    }

    fn remove(&self) {
        // If the removal fails too, nothing more can be done.
        let _ = fs::remove_file(&self.temporary);
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.file {
            Some(file) => file.write(bytes),
            None => Err(io::Error::other("the file has been committed")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), File::flush)
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            self.remove();
        }
    }
}

pub fn create_folder(path: impl AsRef<Path>) -> io::Result<()> {
    std::fs::create_dir_all(path)
}

pub fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    fs::read_to_string(path)
}

/// All entries of a folder, sorted by name, so that no result depends on the order of the file system.
pub fn list(folder: impl AsRef<Path>) -> io::Result<Vec<PathBuf>> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()?;
    paths.sort();
    Ok(paths)
}

fn target(path: &Path) -> io::Result<PathBuf> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => fs::canonicalize(path),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "is not a regular file",
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(path.to_path_buf()),
        Err(error) => Err(error),
    }
}

fn temporary_name(path: &Path) -> io::Result<PathBuf> {
    let no_name = || io::Error::new(io::ErrorKind::InvalidInput, "the path does not name a file");
    let mut name = OsString::from(".");
    name.push(path.file_name().ok_or_else(no_name)?);
    name.push(format!(".{:016x}.tmp", Random::from_os().next_u64()));
    Ok(path.with_file_name(name))
}

/// Whether [`temporary_name`] can have made this name for `path`.
fn is_temporary_of(file: &Path, path: &Path) -> bool {
    let name = |path: &Path| {
        path.file_name()
            .map(|name| name.to_string_lossy().into_owned())
    };
    let (Some(found), Some(of)) = (name(file), name(path)) else {
        return false;
    };
    let middle = found.strip_prefix(&format!(".{of}."));
    let digits = middle.and_then(|middle| middle.strip_suffix(".tmp"));
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    digits.is_some_and(|digits| digits.len() == 16 && digits.bytes().all(is_digit))
        && file.is_file()
}

fn create_new(path: &Path, modes: Modes) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    modes.apply(&mut options);
    options.open(path)
}

fn parent_folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Other systems cannot open a folder; the rename is as durable as the system makes it.
#[cfg(not(unix))]
fn sync_folder(_folder: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let name = |path: PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        list(folder).unwrap().into_iter().map(name).collect()
    }

    #[test]
    fn a_committed_file_appears_whole_and_leaves_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let mut file = create_atomic(&path).unwrap();
        file.write_all(b"one\n").unwrap();
        assert!(!path.exists());
        file.commit().unwrap();
        assert_eq!(read_to_string(&path).unwrap(), "one\n");
        assert_eq!(names(folder.path()), ["out.jsonl"]);
    }

    #[test]
    fn a_file_dropped_before_commit_leaves_the_old_one_untouched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        fs::write(&path, "old").unwrap();
        create_atomic(&path).unwrap().write_all(b"new").unwrap();
        assert_eq!(read_to_string(&path).unwrap(), "old");
        assert_eq!(names(folder.path()), ["out.jsonl"]);
    }

    #[test]
    fn only_stale_temporary_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let left = [".out.jsonl.0123456789abcdef.tmp"];
        let others = [
            ".out.jsonl.0123456789ABCDEF.tmp",
            ".out.jsonl.123.tmp",
            ".out.jsonl.0123456789abcdef.tmp.bak",
            ".x.jsonl.0123456789abcdef.tmp",
            "out.jsonl",
        ];
        for name in left.iter().chain(&others) {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let mut written = create_atomic(&path).unwrap();
        assert_eq!(remove_stale(&path).unwrap(), 1);
        written.write_all(b"new").unwrap();
        written.commit().unwrap();
        let mut expected = others.map(str::to_owned);
        expected.sort();
        assert_eq!(names(folder.path()), expected);
        assert_eq!(read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn a_folder_or_device_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(
            create_atomic(folder.path()).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        #[cfg(unix)]
        assert!(create_atomic("/dev/null").is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_symbolic_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        fs::write(&real, "old").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let mut file = create_atomic(&link).unwrap();
        file.write_all(b"new").unwrap();
        file.commit().unwrap();
        assert_eq!(read_to_string(&real).unwrap(), "new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn a_reader_knows_its_size_and_age() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in.jsonl");
        fs::write(&path, "12345").unwrap();
        let mut reader = open(&path).unwrap();
        assert_eq!(reader.len(), 5);
        assert!(reader.is_file() && reader.modified() > 0);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "12345");
        reader.seek(SeekFrom::Start(3)).unwrap();
        text.clear();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "45");
        let stamp = stamp(&path).unwrap().unwrap();
        assert_eq!((stamp.len, stamp.modified), (5, reader.modified()));
        assert_eq!(super::stamp(folder.path()).unwrap(), None);
    }

    #[test]
    fn a_missing_file_and_a_folder_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let missing = open(folder.path().join("nothing")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert_eq!(
            open(folder.path()).unwrap_err().kind(),
            io::ErrorKind::IsADirectory
        );
    }

    #[test]
    fn a_folder_is_listed_in_name_order() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b", "a", "c"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(names(folder.path()), ["a", "b", "c"]);
    }
}
