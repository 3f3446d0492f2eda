//! Small files with a checksum, replaced atomically.
//!
//! ```text
//! 0..8    kind of file and version
//! 8..12   CRC-32C of the body
//! 12..    body
//! ```

use std::io;
use std::path::{Path, PathBuf};

use highwater_env::Disk;
use highwater_env::disk::Access;

const HEAD: usize = 12;

/// Suffix of a file that is being written.
pub(crate) const TEMPORARY: &str = ".tmp";

/// The result of reading a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CheckedFile {
    Nothing,
    /// The file is incomplete or changed.
    Damaged,
    Body(Vec<u8>),
}

pub(crate) fn read(disk: &dyn Disk, path: &Path, kind: &[u8; 8]) -> io::Result<CheckedFile> {
    let file = match disk.open(path, Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(CheckedFile::Nothing),
        opened => opened?,
    };
    let mut bytes = file.read_all()?;
    let whole = bytes.len() >= HEAD
        && bytes[..8] == *kind
        && bytes[8..HEAD] == crc32c::crc32c(&bytes[HEAD..]).to_be_bytes();
    if !whole {
        return Ok(CheckedFile::Damaged);
    }
    bytes.drain(..HEAD);
    Ok(CheckedFile::Body(bytes))
}

/// Replaces a file atomically. With `durable` the new file survives a power cut; otherwise the old one, the new one or
/// a damaged one may be left.
pub(crate) fn replace(
    disk: &dyn Disk,
    path: &Path,
    kind: &[u8; 8],
    body: &[u8],
    durable: bool,
) -> io::Result<()> {
    let temporary = temporary(path);
    let file = disk.open(&temporary, Access::Create)?;
    file.set_len(0)?;
    let crc = crc32c::crc32c(body).to_be_bytes();
    file.write_all_at(&[kind, &crc, body], 0)?;
    if durable {
        file.sync_all()?;
    }
    disk.rename(&temporary, path)?;
    match path.parent() {
        Some(folder) if durable => disk.sync_folder(folder),
        _ => Ok(()),
    }
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY);
    name.into()
}
