//! What lies in the folders of an input.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use highwater_connect::Cutting;
use highwater_env::disk::{self, Stamp};

/// What one look has found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// In the order in which they are taken: path by path, and by name in each folder.
    pub files: Vec<(String, Stamp)>,
    /// Nothing is known of what is in there.
    unseen: Vec<PathBuf>,
    pub troubles: Vec<String>,
}

impl Found {
    /// Looks at the disk, which may block.
    pub fn look(paths: &[PathBuf], cutting: &Cutting) -> Found {
        let mut found = Found::default();
        let mut known = BTreeMap::new();
        for path in paths {
            let listed = match path.is_dir() {
                true => disk::list(path),
                false => Ok(vec![path.clone()]),
            };
            let is_folder = path.is_dir();
            let files = match listed {
                Ok(files) => files,
                Err(error) => {
                    found.miss(path, &error);
                    continue;
                }
            };
            for file in files {
                let wanted = !is_folder || (cutting.matches(&file) && !is_hidden(&file));
                if wanted && known.insert(file.clone(), ()).is_none() {
                    found.add(&file, is_folder);
                }
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
        let reason = match error.kind() {
            io::ErrorKind::NotFound => format!("{} is not there", path.display()),
            _ => format!("{} cannot be looked at: {error}", path.display()),
        };
        self.troubles.push(reason);
        if error.kind() != io::ErrorKind::NotFound || !path.is_file() {
            self.unseen.push(path.to_owned());
        }
    }

    /// Whether a file that was not found is not there.
    pub fn is_gone(&self, file: &str) -> bool {
        let file = Path::new(file);
        let hidden = |unseen: &PathBuf| file.starts_with(unseen) && file != unseen;
        !self.unseen.iter().any(hidden)
    }
}

/// Names that start with a dot are on their way.
fn is_hidden(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with('.'))
}
