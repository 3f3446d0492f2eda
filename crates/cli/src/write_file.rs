//! Writes the files of commands that lay down folders.

use std::io::Write;
use std::path::Path;

use highwater_env::disk;

/// Replaces a file, completely or not at all, and makes its folder.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        disk::create_folder(folder)?;
    }
    let mut file = disk::create_atomic(path)?;
    file.write_all(bytes)?;
    Ok(file.commit()?)
}
