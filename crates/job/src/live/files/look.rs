//! What lies in the folders of an input.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use highwater_connect::SliceOptions;
use highwater_env::disk::{self, Stamp};

/// What one look has found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// In the order in which they are taken: path by path, and by name in each folder.
    pub files: Vec<(String, Stamp)>,
    /// Nothing is known of what is in there, nor of the path itself unless it is not there.
    unseen: Vec<(PathBuf, bool)>,
    pub troubles: Vec<String>,
}

impl Found {
    /// Looks at the disk, which may block.
    pub fn look(paths: &[PathBuf], cutting: &SliceOptions) -> Found {
        let (mut found, mut known) = (Found::default(), BTreeSet::new());
        for path in paths {
            let is_folder = path.is_dir();
            let listed = match is_folder {
                true => disk::list(path),
                false => Ok(vec![path.clone()]),
            };
            match listed {
                Ok(files) => {
                    for file in files {
                        let wanted = !is_folder || (cutting.matches(&file) && !is_hidden(&file));
                        if wanted && known.insert(file.clone()) {
                            found.add(&file, is_folder);
                        }
                    }
                }
                Err(error) => found.miss(path, &error),
            }
        }
        found
    }

    fn add(&mut self, file: &Path, in_folder: bool) {
        let Some(name) = file.to_str() else {
            let shown = file.display();
            self.troubles.push(format!(
                "{shown} has a name that is no text, and is not read"
            ));
            return;
        };
        match disk::stamp(file) {
            Ok(Some(stamp)) => self.files.push((name.to_owned(), stamp)),
            Ok(None) => {}
            // It was there when the folder was listed, and is known to be gone when the folder is listed again.
            Err(error) if in_folder && error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.miss(file, &error),
        }
    }

    fn miss(&mut self, path: &Path, error: &io::Error) {
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        self.troubles.push(match is_missing {
            true => format!("{} is not there", path.display()),
            false => format!("{} cannot be looked at: {error}", path.display()),
        });
        self.unseen.push((path.to_owned(), is_missing));
    }

    /// Whether a file that was not found is not there.
    pub fn is_gone(&self, file: &str) -> bool {
        let file = Path::new(file);
        let may_be = |(unseen, is_missing): &(PathBuf, bool)| {
            file.starts_with(unseen) && !(*is_missing && file == unseen)
        };
        !self.unseen.iter().any(may_be)
    }
}

/// Names that start with a dot are on their way.
fn is_hidden(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_not_gone() {
        let mut found = Found::default();
        found.miss(
            Path::new("in/locked"),
            &io::ErrorKind::PermissionDenied.into(),
        );
        found.miss(Path::new("away"), &io::ErrorKind::NotFound.into());
        assert!(!found.is_gone("in/locked") && !found.is_gone("in/locked/a.csv"));
        assert!(found.is_gone("in/lock") && found.is_gone("in/a.csv"));
        // A folder on a disk that is not mounted, or a file that was removed.
        assert!(!found.is_gone("away/a.csv") && found.is_gone("away"));
    }
}
