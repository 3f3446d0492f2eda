//! The definition of a job and its desired state, stored below the node's data.
//!
//! ```text
//! jobs/NAME/wanted.json        the desired state: the current definition, and whether it runs
//! jobs/NAME/definition-7/..    job.toml, the query and the files they name
//! jobs/NAME/checkpoints/..     the state of the job
//! ```
//!
//! A new definition is written beside the old one and becomes current with `wanted.json`, which is replaced atomically.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

use highwater_env::disk;
use highwater_env::{Disk, RealDisk};
use serde::{Deserialize, Serialize};

/// The files of a job's folder, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Files(pub BTreeMap<String, String>);

/// The desired state of a job. A job of the settings uses `running` only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DesiredState {
    /// The number of the current definition of a deployed job.
    pub definition: Option<u64>,
    pub running: bool,
    /// Where it starts if it has no checkpoint yet.
    pub start: Option<String>,
    /// The key that deployed the definition. `None`: a client of a node without keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// The log of the nodes has the definition, and this one is a copy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
}

/// The folder of one job.
#[derive(Clone, Debug)]
pub(super) struct JobFolder {
    folder: PathBuf,
}

impl JobFolder {
    pub(super) fn new(jobs: &Path, name: &str) -> JobFolder {
        JobFolder {
            folder: jobs.join(name),
        }
    }

    pub(super) fn checkpoints(&self) -> PathBuf {
        self.folder.join("checkpoints")
    }

    pub(super) fn definition(&self, number: u64) -> PathBuf {
        self.folder.join(format!("definition-{number}"))
    }

    /// `None` if it was never stored.
    pub(super) fn desired_state(&self) -> io::Result<Option<DesiredState>> {
        match disk::read_to_string(self.folder.join("wanted.json")) {
            Ok(text) => serde_json::from_str(&text)
                .map(Some)
                .map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn set_desired_state(&self, desired: &DesiredState) -> io::Result<()> {
        disk::create_folder(&self.folder)?;
        disk::write_private(
            self.folder.join("wanted.json"),
            serde_json::to_string(desired)?.as_bytes(),
        )
    }

    /// Stores a definition, which is not current yet.
    pub(super) fn store_definition(&self, number: u64, files: &Files) -> io::Result<PathBuf> {
        let folder = self.definition(number);
        for (path, text) in &files.0 {
            let path = folder.join(path);
            if let Some(above) = path.parent() {
                disk::create_folder(above)?;
            }
            disk::write_private(&path, text.as_bytes())?;
        }
        Ok(folder)
    }

    /// The files of a definition, as they were sent.
    pub(super) fn read_definition(&self, number: u64) -> io::Result<Files> {
        let mut files = Files::default();
        read_files(&self.definition(number), "", &mut files)?;
        Ok(files)
    }

    /// Deletes every definition but this one.
    pub(super) fn delete_definitions_except(&self, number: u64) {
        let Ok(names) = RealDisk.list(&self.folder) else {
            return;
        };
        let old = names.iter().filter_map(|name| {
            let of: u64 = name.strip_prefix("definition-")?.parse().ok()?;
            (of != number).then(|| self.folder.join(name))
        });
        for folder in old {
            // A folder that stays does no harm.
            let _ = remove(&folder);
        }
    }

    pub(super) fn delete(&self) -> io::Result<()> {
        match remove(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }
}

/// The names of all stored jobs.
pub(super) fn names(jobs: &Path) -> io::Result<Vec<String>> {
    match RealDisk.list(jobs) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed,
    }
}

impl Files {
    /// The first path that is no path of a file in the folder: it leads out of it, is no valid name, or goes through
    /// another file.
    pub(crate) fn invalid_path(&self) -> Option<&str> {
        let is_invalid = |path: &&String| !is_plain(path) || self.is_below_a_file(path);
        self.0.keys().find(is_invalid).map(String::as_str)
    }

    fn is_below_a_file(&self, path: &str) -> bool {
        let above = Path::new(path).ancestors().skip(1);
        above
            .filter_map(Path::to_str)
            .any(|above| self.0.contains_key(above))
    }
}

/// Limits that every file system supports.
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

/// Adds the files below a folder. They came as one request body, so they are few and small.
fn read_files(folder: &Path, prefix: &str, files: &mut Files) -> io::Result<()> {
    for name in RealDisk.list(folder)? {
        let (path, named) = (folder.join(&name), format!("{prefix}{name}"));
        match path.is_dir() {
            true => read_files(&path, &format!("{named}/"), files)?,
            false => {
                files.0.insert(named, disk::read_to_string(&path)?);
            }
        }
    }
    Ok(())
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
        assert_eq!(files(&["job.toml", "input/a.jsonl"]).invalid_path(), None);
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
            assert_eq!(files(&[path]).invalid_path(), Some(path), "{path}");
        }
        assert_eq!(files(&["a", "a/b"]).invalid_path(), Some("a/b"));
    }

    #[test]
    fn a_definition_becomes_current_and_the_others_are_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let job = JobFolder::new(folder.path(), "toll");
        assert_eq!(job.desired_state().unwrap(), None);
        job.store_definition(1, &files(&["job.toml"])).unwrap();
        let stored = job
            .store_definition(2, &files(&["job.toml", "in/x.csv"]))
            .unwrap();
        let desired = DesiredState {
            definition: Some(2),
            running: true,
            start: None,
            author: Some("app".to_owned()),
            shared: false,
        };
        job.set_desired_state(&desired).unwrap();
        job.delete_definitions_except(2);
        assert_eq!(job.desired_state().unwrap(), Some(desired));
        assert_eq!(
            disk::read_to_string(stored.join("in/x.csv")).unwrap(),
            "of in/x.csv"
        );
        let sent = files(&["job.toml", "in/x.csv"]);
        assert_eq!(job.read_definition(2).unwrap(), sent);
        assert!(!job.definition(1).exists());
        assert_eq!(names(folder.path()).unwrap(), ["toll"]);
        job.delete().unwrap();
        job.delete().unwrap();
        assert!(names(folder.path()).unwrap().is_empty());
    }
}
