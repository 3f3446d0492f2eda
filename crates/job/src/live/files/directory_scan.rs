//! Scans the paths of an input for files.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use highwater_connect::SliceOptions;
use highwater_env::disk::{self, Stamp};

/// The result of one scan.
#[derive(Debug, Default)]
pub(super) struct DirectoryScan {
    /// In reading order: path by path, and by name in each folder.
    pub files: Vec<(String, Stamp)>,
    unreadable: Vec<UnreadablePath>,
    pub errors: Vec<String>,
}

/// A path that could not be listed or examined, so nothing is known of the files below it.
#[derive(Debug)]
struct UnreadablePath {
    path: PathBuf,
    is_missing: bool,
}

impl DirectoryScan {
    /// Scans the disk. Blocks.
    pub(crate) fn scan(paths: &[PathBuf], slicing: &SliceOptions) -> DirectoryScan {
        let (mut scan, mut known) = (DirectoryScan::default(), BTreeSet::new());
        for path in paths {
            let is_folder = path.is_dir();
            let listed = match is_folder {
                true => disk::list(path),
                false => Ok(vec![path.clone()]),
            };
            match listed {
                Ok(files) => {
                    for file in files {
                        let is_input = !is_folder || (slicing.matches(&file) && !is_hidden(&file));
                        if is_input && known.insert(file.clone()) {
                            scan.add(&file, is_folder);
                        }
                    }
                }
                Err(error) => scan.add_unreadable(path, &error),
            }
        }
        scan
    }

    fn add(&mut self, file: &Path, in_folder: bool) {
        let Some(name) = file.to_str() else {
            let shown = file.display();
            self.errors
                .push(format!("{shown} is not read: its name is not UTF-8"));
            return;
        };
        match disk::stamp(file) {
            Ok(Some(stamp)) => self.files.push((name.to_owned(), stamp)),
            Ok(None) => {}
            // It was removed after the folder was listed; the next scan finds it missing.
            Err(error) if in_folder && error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.add_unreadable(file, &error),
        }
    }

    fn add_unreadable(&mut self, path: &Path, error: &io::Error) {
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        self.errors.push(match is_missing {
            true => format!("{} does not exist", path.display()),
            false => format!("{} cannot be read: {error}", path.display()),
        });
        self.unreadable.push(UnreadablePath {
            path: path.to_owned(),
            is_missing,
        });
    }

    /// Whether a file outside the scan was deleted, and is not just unreadable.
    pub(crate) fn is_gone(&self, file: &str) -> bool {
        let file = Path::new(file);
        let may_exist = |unreadable: &UnreadablePath| {
            file.starts_with(&unreadable.path)
                && !(unreadable.is_missing && file == unreadable.path)
        };
        !self.unreadable.iter().any(may_exist)
    }
}

/// Files whose names start with a dot are incomplete.
fn is_hidden(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_files_are_not_gone() {
        let mut scan = DirectoryScan::default();
        scan.add_unreadable(
            Path::new("in/locked"),
            &io::ErrorKind::PermissionDenied.into(),
        );
        scan.add_unreadable(Path::new("away"), &io::ErrorKind::NotFound.into());
        assert!(!scan.is_gone("in/locked") && !scan.is_gone("in/locked/a.csv"));
        assert!(scan.is_gone("in/lock") && scan.is_gone("in/a.csv"));
        // A folder on a disk that is not mounted, or a file that was removed.
        assert!(!scan.is_gone("away/a.csv") && scan.is_gone("away"));
    }
}
