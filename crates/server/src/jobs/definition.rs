//! What a job is, kept below the node's data: the files of its folder, and whether it is wanted to run.
//!
//! ```text
//! jobs/NAME/wanted.json        which definition counts, and whether it is to run
//! jobs/NAME/definition-7/..    job.toml, the query and whatever they name
//! jobs/NAME/checkpoints/..     the state of the job
//! ```
//!
//! A new definition is written beside the old one and counts when `wanted.json` says so, which is replaced whole.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

use highwater_env::disk;
use highwater_env::{Disk, RealDisk};
use serde::{Deserialize, Serialize};

/// The files of a job's folder, by their paths in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Files(pub BTreeMap<String, String>);

/// What is wanted of a job. For a job of the settings only `running` counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Wanted {
    /// The number of the definition, where it was handed over.
    pub definition: Option<u64>,
    pub running: bool,
    /// Where it is to begin if it has no checkpoint yet.
    pub start: Option<String>,
}

/// The place of one job.
#[derive(Clone, Debug)]
pub(super) struct Home {
    folder: PathBuf,
}

impl Home {
    pub fn new(jobs: &Path, name: &str) -> Home {
        Home {
            folder: jobs.join(name),
        }
    }

    pub fn checkpoints(&self) -> PathBuf {
        self.folder.join("checkpoints")
    }

    pub fn definition(&self, number: u64) -> PathBuf {
        self.folder.join(format!("definition-{number}"))
    }

    /// `None` if nothing was ever said about the job.
    pub fn wanted(&self) -> io::Result<Option<Wanted>> {
        match disk::read_to_string(self.folder.join("wanted.json")) {
            Ok(text) => serde_json::from_str(&text)
                .map(Some)
                .map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub fn want(&self, wanted: &Wanted) -> io::Result<()> {
        disk::create_folder(&self.folder)?;
        write(
            &self.folder.join("wanted.json"),
            serde_json::to_string(wanted)?.as_bytes(),
        )
    }

    /// Keeps a definition, which does not count yet.
    pub fn keep(&self, number: u64, files: &Files) -> io::Result<PathBuf> {
        let folder = self.definition(number);
        for (path, text) in &files.0 {
            let path = folder.join(path);
            if let Some(above) = path.parent() {
                disk::create_folder(above)?;
            }
            write(&path, text.as_bytes())?;
        }
        Ok(folder)
    }

    /// Forgets every definition but this one.
    pub fn keep_only(&self, number: u64) {
        let Ok(names) = RealDisk.list(&self.folder) else {
            return;
        };
        let old = names.iter().filter_map(|name| {
            let of: u64 = name.strip_prefix("definition-")?.parse().ok()?;
            (of != number).then(|| self.folder.join(name))
        });
        for folder in old {
            // What cannot be removed now is in nobody's way.
            let _ = remove(&folder);
        }
    }

    pub fn forget(&self) -> io::Result<()> {
        match remove(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }
}

/// The names of all jobs that something is kept of.
pub(super) fn names(jobs: &Path) -> io::Result<Vec<String>> {
    match RealDisk.list(jobs) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed,
    }
}

impl Files {
    /// The first path that cannot be that of a file in the folder: it leads out of it or nowhere, no disk takes it, or
    /// another file would have to be a folder for it.
    pub fn strange_path(&self) -> Option<&str> {
        let strange = |path: &&String| !is_plain(path) || self.is_below_a_file(path);
        self.0.keys().find(strange).map(String::as_str)
    }

    fn is_below_a_file(&self, path: &str) -> bool {
        let above = Path::new(path).ancestors().skip(1);
        above
            .filter_map(Path::to_str)
            .any(|above| self.0.contains_key(above))
    }
}

/// What every disk takes.
const NAME_BYTES_MAX: usize = 200;
const PATH_BYTES_MAX: usize = 1000;

fn is_plain(path: &str) -> bool {
    let part = |part: Component<'_>| match part {
        Component::Normal(name) => name.len() <= NAME_BYTES_MAX,
        _ => false,
    };
    let shown = !path.chars().any(char::is_control) && !path.contains("//");
    let path_of = Path::new(path);
    let named = path_of.file_name().is_some() && !path.ends_with('/');
    shown && named && path.len() <= PATH_BYTES_MAX && path_of.components().all(part)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = disk::create_atomic(path)?;
    file.write_all(bytes)?;
    file.commit()
}

fn remove(folder: &Path) -> io::Result<()> {
    for name in RealDisk.list(folder)? {
        let path = folder.join(name);
        match path.is_dir() {
            true => remove(&path)?,
            false => RealDisk.remove_file(&path)?,
        }
    }
    RealDisk.remove_folder(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[&str]) -> Files {
        let text = |path: &&str| (path.to_string(), format!("of {path}"));
        Files(paths.iter().map(text).collect())
    }

    #[test]
    fn paths_stay_in_their_folder() {
        assert_eq!(files(&["job.toml", "input/a.jsonl"]).strange_path(), None);
        let long = "x".repeat(201);
        for path in [
            "../x",
            "/etc/x",
            "a/../../b",
            "",
            "a/..",
            ".",
            "a/",
            "a//b",
            "a\0",
            &long,
        ] {
            assert_eq!(files(&[path]).strange_path(), Some(path), "{path}");
        }
        assert_eq!(files(&["a", "a/b"]).strange_path(), Some("a/b"));
    }

    #[test]
    fn a_definition_counts_when_it_is_wanted_and_the_others_go() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::new(folder.path(), "toll");
        assert_eq!(home.wanted().unwrap(), None);
        home.keep(1, &files(&["job.toml"])).unwrap();
        let kept = home.keep(2, &files(&["job.toml", "in/x.csv"])).unwrap();
        let wanted = Wanted {
            definition: Some(2),
            running: true,
            start: None,
        };
        home.want(&wanted).unwrap();
        home.keep_only(2);
        assert_eq!(home.wanted().unwrap(), Some(wanted));
        assert_eq!(
            disk::read_to_string(kept.join("in/x.csv")).unwrap(),
            "of in/x.csv"
        );
        assert!(!home.definition(1).exists());
        assert_eq!(names(folder.path()).unwrap(), ["toll"]);
        home.forget().unwrap();
        home.forget().unwrap();
        assert!(names(folder.path()).unwrap().is_empty());
    }
}
