//! The job file: query, inputs, time policy and outputs.
//!
//! A wrong job file is reported with all of its errors at once, each with its line, a caret and a correction. That is
//! why the file is read by hand from spanned TOML and not derived: a derived reader stops at the first error and
//! suggests no correction of a misspelt key.
//!
//! An endpoint type that this version lacks is reported as "not supported yet", a typing error with "did you mean".

mod kafka;
mod live;
mod outputs;
mod sections;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_connect::{Compression, CsvFormat, Format, Level, OutputSettings};
use highwater_env::disk;
use highwater_settings::{FileError, read_file};
use highwater_time::{Duration, TimePolicy};

pub use kafka::{ArrivalTime, KafkaInput};
pub(crate) use live::OnFailure;
pub use live::{JobStateStore, Live, Start};

/// A whole job file, checked. Paths are as written until [`JobFile::resolve`].
#[derive(Clone, Debug)]
pub struct JobFile {
    /// Defaults to the name of the folder.
    pub name: String,
    pub query: QuerySource,
    /// The base folder of relative paths; empty until [`JobFile::resolve`].
    pub folder: PathBuf,
    /// The compatibility level: which version of Stream Analytics the job behaves like.
    pub compatibility: Level,
    /// Text comparison is case-insensitive.
    pub ignore_case: bool,
    /// MIN, MAX and order keys reject text that is no number.
    pub strict_types: bool,
    pub time: TimePolicy,
    /// In the order of the file.
    pub inputs: Vec<Input>,
    /// In the order of the file.
    pub outputs: Vec<Output>,
    pub on_error: OnError,
    /// The output for dead letters, with `on_error = "dead_letter"`.
    pub dead_letter: Option<String>,
    /// Remarks about an imported job, such as parts that cannot run.
    pub remarks: Vec<String>,
    /// JavaScript functions that the query calls as `udf.name(..)` or `uda.name(..)`.
    pub functions: Vec<Function>,
    /// Settings of a live job.
    pub live: Live,
    /// Expectations of a golden case beyond its expected files.
    pub expect: Option<Expect>,
    /// Imported from a Stream Analytics project.
    pub project: bool,
    /// Live inputs of a project that have no local file: their [`Input`]s can be checked and not read.
    pub remote_inputs: Vec<RemoteInput>,
}

/// A live input of a project.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteInput {
    pub name: String,
    /// Such as `Event Hub`.
    pub kind: String,
}

/// The source of the query text.
#[derive(Clone, Debug, PartialEq)]
pub enum QuerySource {
    File(PathBuf),
    Inline(String),
}

/// An input of the query, read from files or hubs.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    pub name: String,
    /// Files, each one partition, or folders of files; empty for an input from hubs.
    pub paths: Vec<PathBuf>,
    /// Hubs, read as one: their partitions are numbered hub by hub. Empty for files, unless they are followed: then the
    /// hub that their events are appended to. With `kafka`, topics of that cluster.
    pub hubs: Vec<String>,
    /// The cluster of the topics; `None` for hubs of the node and for files.
    pub kafka: Option<KafkaInput>,
    /// The payload column with the arrival time; without it, arrival times are unknown.
    pub arrival: Option<String>,
    /// The payload column with the partition id; without it, each file is a partition.
    pub partition: Option<String>,
    /// Reference data: read whole before the first event, without event times.
    pub reference: bool,
    /// How often a live job looks for new reference data; `None` for only at the start.
    pub refresh: Option<Duration>,
    /// `None`: by the name of each file.
    pub format: Option<Format>,
    pub compression: Compression,
}

/// A JavaScript function of the job.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    pub name: String,
    /// The script.
    pub path: PathBuf,
}

#[derive(Clone, Debug)]
pub struct Output {
    pub name: String,
    pub settings: Arc<dyn OutputSettings>,
    pub on_failure: OnFailure,
    /// Set if the output receives rows before they are final.
    pub early: Option<EarlyResults>,
}

/// How often the rows of windows are sent before they are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlyResults {
    /// The interval in event time.
    pub every: Duration,
    /// The age of a window at its first early row.
    pub after: Duration,
}

/// The policy for events that cannot be decoded or processed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// Drop and count the event.
    #[default]
    Drop,
    /// Fail the job.
    Stop,
    /// Drop and count the event, and write it to the dead-letter output with its reason.
    DeadLetter,
}

/// Expectations of a golden case beyond its expected files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expect {
    pub order: Order,
    /// The query must be rejected with a message that contains this text; empty: with any message.
    pub error: Option<String>,
}

/// Whether the order of rows within an output matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Rows are a multiset.
    #[default]
    Any,
    /// Rows are a sequence.
    Strict,
}

impl JobFile {
    /// Reads the text of a job file. `file_name` is for errors, and for a job without a name.
    pub fn parse(text: &str, file_name: &str) -> Result<JobFile, FileError> {
        read_file(text, file_name, |reader, top| {
            sections::read_job(reader, top, file_name)
        })
    }

    /// Resolves the paths of query, inputs and functions relative to `folder`, the folder of the job file. Outputs
    /// resolve theirs when they are opened.
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
        self
    }
}

impl Input {
    /// The hubs of the node that it reads.
    pub fn node_hubs(&self) -> &[String] {
        match self.kafka {
            None => &self.hubs,
            Some(_) => &[],
        }
    }

    /// Whether its files are followed through a hub.
    pub fn is_followed(&self) -> bool {
        !self.paths.is_empty() && !self.hubs.is_empty()
    }

    /// The files to read, one partition each. A folder stands for its files of the input's format, by name; without a
    /// format, for those of the first format that it has.
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

/// The files of an input's folder cannot be listed.
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
    let candidates = match &format {
        Some(format) => std::slice::from_ref(format),
        None => &known,
    };
    for format in candidates {
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
