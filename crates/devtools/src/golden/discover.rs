//! Finds golden cases on disk.

use highwater_env::disk;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use highwater_job::project::{TEST_FILE, test_cases};

/// A folder with a job and what it must give.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CaseDir {
    pub dir: PathBuf,
    /// What to call it: the path below the folder that was searched, or the folder's own name.
    pub name: String,
    /// Which case of a `testConfig.json` in that folder it is; `None` for a `job.toml`.
    pub test: Option<usize>,
}

impl CaseDir {
    pub fn job_file(&self) -> PathBuf {
        self.dir.join("job.toml")
    }

    /// The test configuration that holds the case, where it is one of a Stream Analytics project.
    pub fn test_file(&self) -> PathBuf {
        self.dir.join(TEST_FILE)
    }

    /// The expected rows of each output, by the output's name: the text of `expected/<name>.jsonl`.
    pub fn expected(&self) -> io::Result<BTreeMap<String, String>> {
        let folder = self.dir.join("expected");
        let mut outputs = BTreeMap::new();
        if !folder.is_dir() {
            return Ok(outputs);
        }
        for path in disk::list(&folder)? {
            let name = path.file_stem().and_then(|stem| stem.to_str());
            if let (Some(name), true) = (name, path.extension().is_some_and(|e| e == "jsonl")) {
                outputs.insert(name.to_owned(), disk::read_to_string(&path)?);
            }
        }
        Ok(outputs)
    }

    /// The expected text of each output that is not lines of JSON: `expected/<name>.csv` or
    /// `.json`. It must come out to the byte, line ends aside.
    pub fn expected_texts(&self) -> io::Result<BTreeMap<String, String>> {
        let folder = self.dir.join("expected");
        let mut outputs = BTreeMap::new();
        if !folder.is_dir() {
            return Ok(outputs);
        }
        for path in disk::list(&folder)? {
            let name = path.file_stem().and_then(|stem| stem.to_str());
            let extension = path.extension().and_then(|e| e.to_str());
            if let (Some(name), Some("csv" | "json")) = (name, extension) {
                outputs.insert(name.to_owned(), disk::read_to_string(&path)?);
            }
        }
        Ok(outputs)
    }
}

/// Every case at or below these folders, sorted by path, each once. A job without anything expected
/// of it is not a case. Folders that do not exist or cannot be read hold no cases, and neither do
/// hidden ones; links to folders are not followed, so that the search ends.
pub fn discover(dirs: &[PathBuf]) -> Vec<CaseDir> {
    let mut cases = Vec::new();
    for dir in dirs {
        // The job file itself stands for its folder, and so does a test configuration.
        let named = |name: &std::ffi::OsStr| name == "job.toml" || name == TEST_FILE;
        let is_job = dir.is_file() && dir.file_name().is_some_and(named);
        let root = if is_job {
            dir.parent().unwrap_or(dir)
        } else {
            dir
        };
        search(root, root, &mut cases);
    }
    cases.sort();
    cases.dedup_by(|a, b| a.dir == b.dir && a.test == b.test);
    cases
}

fn search(root: &Path, folder: &Path, cases: &mut Vec<CaseDir>) {
    if is_case(folder) {
        cases.push(CaseDir {
            dir: folder.to_owned(),
            name: name_of(root, folder),
            test: None,
        });
    }
    let tests = folder.join(TEST_FILE);
    if tests.is_file() {
        let name = name_of(root, folder);
        // A file that cannot be read is one case, which has to fail.
        let found = test_cases(&tests).map(|cases| cases.into_iter().map(|c| c.name).collect());
        let found: Vec<String> = found.unwrap_or_else(|_| vec![TEST_FILE.to_owned()]);
        cases.extend(found.iter().enumerate().map(|(i, case)| CaseDir {
            dir: folder.to_owned(),
            name: format!("{name}/{case}"),
            test: Some(i),
        }));
    }
    for path in disk::list(folder).unwrap_or_default() {
        let hidden = path
            .file_name()
            .is_some_and(|n| n.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.is_dir() && !path.is_symlink() {
            search(root, &path, cases);
        }
    }
}

fn is_case(folder: &Path) -> bool {
    let Ok(job) = disk::read_to_string(folder.join("job.toml")) else {
        return false;
    };
    // A job file with mistakes in it may be a case all the same, and then has to fail.
    let expects = || {
        DeTable::parse_recoverable(&job)
            .0
            .get_ref()
            .contains_key("expect")
    };
    folder.join("expected").is_dir() || expects()
}

fn name_of(root: &Path, folder: &Path) -> String {
    let below = folder.strip_prefix(root).unwrap_or(folder);
    let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
    if !parts.is_empty() {
        return parts.join("/");
    }
    let own = folder
        .canonicalize()
        .ok()
        .and_then(|path| path.file_name().map(ToOwned::to_owned));
    own.map_or_else(
        || folder.display().to_string(),
        |name| name.to_string_lossy().into_owned(),
    )
}
