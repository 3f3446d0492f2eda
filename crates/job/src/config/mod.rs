//! The job file: what to run, over which inputs, under which time policy, and where results go.
//!
//! A job file is read by a person who is waiting, so a wrong one is answered with everything that is
//! wrong in it, each mistake with its line, a caret and what to write instead. That is why the file
//! is walked by hand over spanned TOML and not derived: a derived reader stops at the first mistake
//! and knows no neighbours of a misspelt key.
//!
//! Kinds of endpoints that the language has but this version lacks are told apart from typing
//! errors: the one deserves "not supported yet", the other "did you mean".

mod error;
mod reader;
mod sections;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use highwater_env::disk;
use highwater_time::Policy;
use toml::de::DeTable;

pub use error::{ConfigError, Mistake};
use reader::{Reader, Section};

/// A whole job file, checked. Paths are as written until [`JobFile::resolve`].
#[derive(Clone, Debug, PartialEq)]
pub struct JobFile {
    /// The folder's name where the file gives none.
    pub name: String,
    pub query: QuerySource,
    pub time: Policy,
    /// In the order of the file.
    pub inputs: Vec<Input>,
    /// In the order of the file.
    pub outputs: Vec<Output>,
    pub on_error: OnError,
    /// Present only where the job is a golden case that says more than its expected files do.
    pub expect: Option<Expect>,
}

/// Where the query text is.
#[derive(Clone, Debug, PartialEq)]
pub enum QuerySource {
    File(PathBuf),
    Inline(String),
}

/// An input of the query, read from files.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    pub name: String,
    /// Files, each one partition, or folders that hold them; never empty.
    pub paths: Vec<PathBuf>,
    /// The payload column that holds the arrival time; without it arrival times are unknown.
    pub arrival: Option<String>,
    /// The payload column that holds the partition id; without it each file is a partition.
    pub partition: Option<String>,
    /// Reference data: read whole before the first event, and has no time.
    pub reference: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    pub name: String,
    pub sink: Sink,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Sink {
    File(PathBuf),
    Stdout,
}

/// What becomes of an event that cannot be read or computed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// Drop it, count it, go on.
    #[default]
    Drop,
    /// End the job with the error.
    Stop,
}

/// What a golden case expects beyond its expected files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expect {
    pub order: Order,
    /// The query must be rejected with a message that contains this text; empty: with any message.
    pub error: Option<String>,
}

/// Whether the order of rows within an output counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Rows are a multiset.
    #[default]
    Any,
    /// Rows are a sequence.
    Strict,
}

impl JobFile {
    /// Reads a job file's text; `file_name` is what errors call it, and names a nameless job.
    pub fn parse(text: &str, file_name: &str) -> Result<JobFile, ConfigError> {
        let (document, syntax) = DeTable::parse_recoverable(text);
        let mut reader = Reader::new(text, file_name);
        // A file that is not TOML is not searched further: half-read tables give false mistakes.
        if !syntax.is_empty() {
            syntax.iter().for_each(|e| reader.syntax(e));
            return Err(reader.into_error());
        }
        let job = sections::read_job(&mut reader, &Section::top(document.get_ref()), file_name);
        match job {
            Some(job) if reader.is_clean() => Ok(job),
            _ => Err(reader.into_error()),
        }
    }

    /// The same job with every path taken from `folder`, the folder of the job file.
    #[must_use]
    pub fn resolve(mut self, folder: &Path) -> JobFile {
        if let QuerySource::File(path) = &mut self.query {
            *path = folder.join(&*path);
        }
        for path in self.inputs.iter_mut().flat_map(|input| &mut input.paths) {
            *path = folder.join(&*path);
        }
        for output in &mut self.outputs {
            if let Sink::File(path) = &mut output.sink {
                *path = folder.join(&*path);
            }
        }
        self
    }
}

impl Input {
    /// The files to read, one partition each: a folder stands for the JSON files in it, by name.
    pub fn files(&self) -> Result<Vec<PathBuf>, FilesError> {
        let mut files = Vec::new();
        for path in &self.paths {
            if path.is_dir() {
                files.extend(json_files(path)?);
            } else {
                files.push(path.clone());
            }
        }
        Ok(files)
    }
}

/// Why a folder that an input names cannot serve as its files.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    #[error("cannot list the folder {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the folder {} holds no .jsonl, .json or .ndjson file", path.display())]
    Empty { path: PathBuf },
}

fn json_files(folder: &Path) -> Result<Vec<PathBuf>, FilesError> {
    let unreadable = |source| FilesError::Unreadable {
        path: folder.to_owned(),
        source,
    };
    let is_json = |path: &PathBuf| {
        let extension = path.extension().and_then(|e| e.to_str());
        matches!(extension, Some("jsonl" | "json" | "ndjson")) && path.is_file()
    };
    let listed = disk::list(folder).map_err(unreadable)?;
    let files: Vec<PathBuf> = listed.into_iter().filter(is_json).collect();
    if files.is_empty() {
        return Err(FilesError::Empty {
            path: folder.to_owned(),
        });
    }
    Ok(files)
}
