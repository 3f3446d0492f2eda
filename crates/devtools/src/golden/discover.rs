//! Finds golden cases on disk.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use highwater_env::disk;
use highwater_job::project::{TEST_FILE, test_cases};
use toml::de::DeTable;

/// A golden case: a folder with a job and the rows that it must produce.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CaseDir {
    pub dir: PathBuf,
    /// The path below the searched folder, or the name of the folder itself.
    pub name: String,
    /// The index of the case in the folder's `testConfig.json`; `None` for a `job.toml`.
    pub test_index: Option<usize>,
}

impl CaseDir {
    /// The test configuration of a case in a Stream Analytics project.
    pub(super) fn test_file(&self) -> PathBuf {
        self.dir.join(TEST_FILE)
    }

    /// The expected rows by output: the text of each `expected/<name>.jsonl`.
    pub(super) fn expected_rows(&self) -> io::Result<BTreeMap<String, String>> {
        self.expected_files(&["jsonl"])
    }

    /// The expected text by output, for formats other than JSON lines: each `expected/<name>.csv` or `.json`. It is
    /// compared line by line.
    pub(super) fn expected_texts(&self) -> io::Result<BTreeMap<String, String>> {
        self.expected_files(&["csv", "json"])
    }

    /// The text of the files in `expected/` with one of these extensions, by output.
    fn expected_files(&self, extensions: &[&str]) -> io::Result<BTreeMap<String, String>> {
        let folder = self.dir.join("expected");
        let mut outputs = BTreeMap::new();
        if !folder.is_dir() {
            return Ok(outputs);
        }
        for path in disk::list(&folder)? {
            let name = path.file_stem().and_then(|stem| stem.to_str());
            let extension = path.extension().and_then(|e| e.to_str());
            if let (Some(name), Some(extension)) = (name, extension)
                && extensions.contains(&extension)
            {
                outputs.insert(name.to_owned(), disk::read_to_string(&path)?);
            }
        }
        Ok(outputs)
    }
}

/// All cases in these folders and below, sorted by path, each once. A job without expectations is not a case. Hidden,
/// missing and unreadable folders are skipped; links to folders are not followed, so that the search ends.
pub fn discover(dirs: &[PathBuf]) -> Vec<CaseDir> {
    let mut cases = Vec::new();
    for dir in dirs {
        // A job file or test configuration stands for its folder.
        let is_case_file = |name: &std::ffi::OsStr| name == "job.toml" || name == TEST_FILE;
        let is_job = dir.is_file() && dir.file_name().is_some_and(is_case_file);
        let root = if is_job {
            dir.parent().unwrap_or(dir)
        } else {
            dir
        };
        search(root, root, &mut cases);
    }
    cases.sort();
    cases.dedup_by(|a, b| a.dir == b.dir && a.test_index == b.test_index);
    cases
}

fn search(root: &Path, folder: &Path, cases: &mut Vec<CaseDir>) {
    if is_case(folder) {
        cases.push(CaseDir {
            dir: folder.to_owned(),
            name: name_of(root, folder),
            test_index: None,
        });
    }
    let tests = folder.join(TEST_FILE);
    if tests.is_file() {
        let name = name_of(root, folder);
        // An unreadable file is one case, which fails.
        let found = test_cases(&tests).map(|cases| cases.into_iter().map(|c| c.name).collect());
        let found: Vec<String> = found.unwrap_or_else(|_| vec![TEST_FILE.to_owned()]);
        cases.extend(found.iter().enumerate().map(|(i, case)| CaseDir {
            dir: folder.to_owned(),
            name: format!("{name}/{case}"),
            test_index: Some(i),
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
    // A job file with errors may be a case, which then fails.
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
