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
mod live;
mod outputs;
mod reader;
mod sections;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_connect::{Compression, CsvFormat, Format, Level, OutputFormat, OutputSettings};
use highwater_env::disk;
use highwater_time::{Duration, TimePolicy};
use toml::de::DeTable;

pub use error::{ConfigError, Mistake};
pub use live::{Live, OnFailure, Start};
use reader::{Reader, Section};
pub(crate) use sections::is_delimiter;

/// A whole job file, checked. Paths are as written until [`JobFile::resolve`].
#[derive(Clone, Debug)]
pub struct JobFile {
    /// The folder's name where the file gives none.
    pub name: String,
    pub query: QuerySource,
    /// The folder that paths are taken from; empty until [`JobFile::resolve`].
    pub folder: PathBuf,
    /// The compatibility level: which version of Stream Analytics the job behaves like.
    pub compatibility: Level,
    /// Text is compared without regard to case.
    pub ignore_case: bool,
    pub time: TimePolicy,
    /// In the order of the file.
    pub inputs: Vec<Input>,
    /// In the order of the file.
    pub outputs: Vec<Output>,
    pub on_error: OnError,
    /// The output that takes the events which `on_error = "dead_letter"` sets aside.
    pub dead_letter: Option<String>,
    /// What a person should know about a job that was imported, such as parts that cannot run.
    pub remarks: Vec<String>,
    /// JavaScript functions that the query calls as `udf.name(..)` or `uda.name(..)`.
    pub functions: Vec<Function>,
    /// How it runs where it reads hubs.
    pub live: Live,
    /// Present only where the job is a golden case that says more than its expected files do.
    pub expect: Option<Expect>,
}

/// Where the query text is.
#[derive(Clone, Debug, PartialEq)]
pub enum QuerySource {
    File(PathBuf),
    Inline(String),
}

/// An input of the query, read from files or hubs.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    pub name: String,
    /// Files, each one partition, or folders that hold them; empty for an input that is read from hubs.
    pub paths: Vec<PathBuf>,
    /// Hubs, read as one: their partitions are numbered hub by hub. Empty for files, unless they are followed: then this is
    /// where what appears in them is brought.
    pub hubs: Vec<String>,
    /// The payload column that holds the arrival time; without it arrival times are unknown.
    pub arrival: Option<String>,
    /// The payload column that holds the partition id; without it each file is a partition.
    pub partition: Option<String>,
    /// Reference data: read whole before the first event, and has no time.
    pub reference: bool,
    /// How often a live job looks for other reference data; only when it starts, if never.
    pub refresh: Option<Duration>,
    /// `None`: by the name of each file.
    pub format: Option<Format>,
    pub compression: Compression,
}

/// A function of the job's own.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    pub name: String,
    /// The script that defines it.
    pub path: PathBuf,
}

#[derive(Clone, Debug)]
pub struct Output {
    pub name: String,
    pub sink: Sink,
    pub format: OutputFormat,
    pub on_failure: OnFailure,
}

#[derive(Clone, Debug)]
pub enum Sink {
    File(PathBuf),
    Stdout,
    /// Something that only a live job writes to, such as a hub or a database.
    Live(Arc<dyn OutputSettings>),
}

/// What becomes of an event that cannot be read or computed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// Drop it, count it, go on.
    #[default]
    Drop,
    /// End the job with the error.
    Stop,
    /// Drop it, count it, and write it to the dead-letter output with its reason.
    DeadLetter,
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
        self.folder = folder.to_path_buf();
        if let QuerySource::File(path) = &mut self.query {
            *path = folder.join(&*path);
        }
        for path in self.inputs.iter_mut().flat_map(|input| &mut input.paths) {
            *path = folder.join(&*path);
        }
        for function in &mut self.functions {
            function.path = folder.join(&function.path);
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
    /// Whether its files are brought to a hub as they grow, and read from there.
    pub fn is_followed(&self) -> bool {
        !self.paths.is_empty() && !self.hubs.is_empty()
    }

    /// The files to read, one partition each. A folder stands for the files in it that have the
    /// input's format, by name; without a format, for those of the first format that it has.
    pub fn files(&self) -> Result<Vec<PathBuf>, FilesError> {
        let mut files = Vec::new();
        for path in &self.paths {
            if path.is_dir() {
                files.extend(files_in(path, self.format)?);
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
    #[error("the folder {} holds no {extensions} file", path.display())]
    Empty { path: PathBuf, extensions: String },
}

fn files_in(folder: &Path, format: Option<Format>) -> Result<Vec<PathBuf>, FilesError> {
    let listed = disk::list(folder).map_err(|source| FilesError::Unreadable {
        path: folder.to_owned(),
        source,
    })?;
    let known = [
        Format::Json,
        Format::Csv(CsvFormat::default()),
        Format::Avro,
        Format::Parquet,
    ];
    let wanted = match &format {
        Some(format) => std::slice::from_ref(format),
        None => &known,
    };
    for format in wanted {
        let matching = listed
            .iter()
            .filter(|path| format.matches(path) && path.is_file());
        let files: Vec<PathBuf> = matching.cloned().collect();
        if !files.is_empty() {
            return Ok(files);
        }
    }
    let extensions = format.unwrap_or(Format::Json).extensions();
    Err(FilesError::Empty {
        path: folder.to_owned(),
        extensions: one_of(extensions),
    })
}

/// `.jsonl, .json or .ndjson`
fn one_of(extensions: &[&str]) -> String {
    let dotted: Vec<String> = extensions.iter().map(|e| format!(".{e}")).collect();
    match &dotted[..] {
        [rest @ .., last] if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        only => only.join(""),
    }
}
