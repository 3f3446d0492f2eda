//! The kinds of outputs: the values of `type` in a job file, and how each is read and opened.
//!
//! An endpoint is one module with a `KIND`: its name, its keys, and a function that reads them into
//! [`OutputSettings`], which open the endpoint. [`OUTPUT_KINDS`] lists the modules; nothing else in the workspace
//! enumerates them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_env::{Disk, EgressPolicy, FolderPolicy};
use highwater_log::{Log, TransactionCoordinator};
use highwater_query::plan::Name;
use highwater_queue::Queues;
use highwater_settings::{FileReader, Secrets, Section};
use highwater_time::Duration;

use super::{Endpoint, EndpointError, file, files, hub, kafka, postgres, queue, stdout, webhook};
use crate::cluster::Clusters;
use crate::source::MissingFeature;
use crate::writer::OutputFormat;

/// Every kind of output that a job file may declare.
pub static OUTPUT_KINDS: &[OutputKind] = &[
    file::KIND,
    stdout::KIND,
    hub::KIND,
    files::KIND,
    postgres::KIND,
    webhook::KIND,
    queue::KIND,
    kafka::KIND,
];

/// One kind of output.
#[derive(Debug)]
pub struct OutputKind {
    /// The value of `type` in a job file.
    pub name: &'static str,
    /// The keys it has, beside `type`, `on_failure` and `early`.
    pub keys: &'static [&'static str],
    /// Reads the keys. `None` if a required key is absent or wrong, which the reader has reported.
    pub read: fn(&mut FileReader<'_>, &Section<'_>) -> Option<Arc<dyn OutputSettings>>,
    /// Set if the kind is not built in.
    pub missing_feature: Option<MissingFeature>,
}

impl OutputKind {
    /// A kind that this build knows by name only.
    #[cfg(not(feature = "postgres"))]
    pub(super) const fn not_built_in(name: &'static str, feature: &'static str) -> OutputKind {
        OutputKind {
            name,
            keys: &[],
            read: |_, _| None,
            missing_feature: Some(MissingFeature(feature)),
        }
    }
}

/// The key `timeout`, of at least a millisecond.
pub(super) fn read_timeout(
    reader: &mut FileReader<'_>,
    section: &Section<'_>,
) -> Option<std::time::Duration> {
    let timeout = reader.duration(section, "timeout")?;
    let micros = timeout.max(Duration::from_millis(1)).ticks().unsigned_abs() / 10;
    Some(std::time::Duration::from_micros(micros))
}

/// An open endpoint, or why there is none.
pub type OpenResult = Result<Box<dyn Endpoint>, EndpointError>;

/// The settings of one output, as its job file declares them.
pub trait OutputSettings: fmt::Debug + Send + Sync {
    /// Opens the output for rows whose columns have these names. Connects to nothing before [`Endpoint::resume`].
    fn open(&self, names: Vec<Name>, context: &OutputContext) -> OpenResult;

    /// The hub or queue that rows are sent to, if it is one of the node.
    fn destination(&self) -> Option<Destination<'_>> {
        None
    }

    /// The same output on a node whose log is a cluster, if it is another one there; `transactions`: the cluster has
    /// them.
    fn over_cluster(&self, transactions: bool) -> Option<Arc<dyn OutputSettings>> {
        let _ = transactions;
        None
    }

    /// Refuses paths and secrets beyond `access`; relative paths start at `folder`. Connections are checked when they
    /// are made.
    fn check(&self, access: &OutsideAccess, folder: &Path) -> Result<(), String> {
        let _ = (access, folder);
        Ok(())
    }

    /// A note for readers of the output if rows may be repeated.
    fn repeats(&self) -> Option<&'static str> {
        None
    }

    /// Whether it fences an instance of the job on another machine that still writes.
    fn is_fenced(&self) -> bool {
        false
    }

    /// The column whose value decides the partition of a row, if there is one.
    fn partition_key(&self) -> Option<&str> {
        None
    }

    /// The file or standard output that a job over files writes to in place; `None` if only a live job has the output.
    fn sink_target(&self, folder: &Path) -> Option<SinkTarget> {
        let _ = folder;
        None
    }
}

/// The access of a definition to the outside of the node. By default everything that its operator may.
#[derive(Clone, Debug, Default)]
pub struct OutsideAccess {
    pub egress: EgressPolicy,
    pub secrets: Secrets,
    pub folders: FolderPolicy,
}

impl OutsideAccess {
    /// Refuses a path outside of the allowed folders.
    pub fn check_path(&self, path: &Path) -> Result<(), String> {
        match self.folders.allows(path) {
            true => Ok(()),
            false => Err(format!(
                "{} is not below a folder of the setting jobs.folders",
                path.display()
            )),
        }
    }
}

/// The hub or queue that an output sends rows to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination<'a> {
    Hub(&'a str),
    Queue(&'a str),
}

/// A destination that a job over files writes to in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkTarget {
    /// `None` for standard output.
    pub path: Option<PathBuf>,
    pub format: OutputFormat,
}

/// One of the writers that share an output. A row belongs to the one with the number that is left when the hash of its
/// key is divided by the number of writers; so a partition has rows of one writer if the number of partitions is a
/// multiple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputShard {
    pub number: u32,
    /// How many there are.
    pub of: u32,
}

/// The job of an output, and the services of the process for endpoints.
#[derive(Clone)]
pub struct OutputContext {
    /// Together with `output` the identity of the output: a job must keep it, and no two may share it.
    pub job: String,
    pub output: String,
    /// Set for dead letters: the output that refused the rows. They are numbered apart, as an output of their own.
    pub refused_by: Option<String>,
    /// Raised when the job starts from the beginning, where the row numbers begin again.
    pub epoch: u64,
    /// Set if rows are sent before they are final: the columns that tell them apart. Rows have the columns `_revision`
    /// and `_final`, and a row with NULL in `_final` withdraws an earlier one.
    pub early_key: Option<Vec<String>>,
    /// Set if several writers share the output: this one has the rows of some keys, with numbers of its own.
    pub shard: Option<OutputShard>,
    /// Relative paths start here: the folder of the job file.
    pub folder: PathBuf,
    /// `None` where the process has no hubs.
    pub hubs: Option<(Arc<dyn Log>, Arc<dyn TransactionCoordinator>)>,
    /// `None` where the process has no queues.
    pub queues: Option<Queues>,
    /// `None` where the process connects to no clusters.
    pub clusters: Option<Arc<dyn Clusters>>,
    pub disk: Arc<dyn Disk>,
    pub access: OutsideAccess,
}

impl OutputContext {
    /// A context without hubs and queues.
    pub fn new(job: &str, output: &str, disk: Arc<dyn Disk>) -> OutputContext {
        OutputContext {
            job: job.to_owned(),
            output: output.to_owned(),
            refused_by: None,
            epoch: 0,
            early_key: None,
            shard: None,
            folder: PathBuf::new(),
            hubs: None,
            queues: None,
            clusters: None,
            disk,
            access: OutsideAccess::default(),
        }
    }

    /// The output, with the one that refused its rows.
    pub(super) fn output_name(&self) -> String {
        match &self.refused_by {
            None => self.output.clone(),
            Some(other) => format!("{}-of-{other}", self.output),
        }
    }

    /// `job/output`, and the number of the shard where there are several.
    pub(super) fn id(&self) -> String {
        let id = format!("{}/{}", self.job, self.output_name());
        match self.shard {
            None => id,
            Some(shard) => format!("{id}/{}", shard.number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "postgres")]
    #[test]
    fn every_kind_and_every_key_is_documented() {
        let page = include_str!("../../../../docs/outputs.md");
        let title = |section: &&str| section.lines().next().unwrap_or_default().to_owned();
        for kind in OUTPUT_KINDS {
            let name = format!("(`{}`)", kind.name);
            let section = page
                .split("\n## ")
                .find(|section| title(section).ends_with(&name));
            let section = section.unwrap_or_else(|| panic!("no section {name}"));
            for key in kind.keys {
                assert!(section.contains(&format!("`{key}`")), "{name}: `{key}`");
            }
        }
    }
}
