//! Files as input of a job that never ends.
//!
//! ```text
//!  folder ── follower ──▶ hub of the input: marks and events ── feed ──▶ ..
//!                              └──▶ positions, so that a start need not read all marks
//! ```
//!
//! A follower copies what appears in files to a hub that belongs to the input, and the job reads that like any other. Every
//! batch begins with a mark (`mark.rs`) that says how far the file has been taken, so events and position are durable
//! together: whoever comes after a crash finds in the log itself where to go on, and takes nothing twice and leaves nothing out.
//! From there on everything is as with hubs: arrival is when an event was taken, silence is said in the partition, and
//! a replay sees what the first reading saw, though the files have long been changed or removed.

mod follow;
mod identity;
mod ledger;
mod look;
mod mark;
mod memory;

use std::sync::Arc;
use std::time::Duration;

use highwater_connect::SliceOptions;
use highwater_env::Clock;
use highwater_log::{AdminError, CleanupPolicy, HubName, HubSettings, HubSpec, Log, Partition};
use tokio::sync::watch;

use super::partitions::{InputPartition, PartitionSet};
use super::status::StatusHandle;
use super::{JobContext, Options, StartError};
use crate::config::{Input, JobFile};
use crate::load::Job;
pub(super) use mark::Mark;

/// Takes the files of one input.
pub(super) struct Follower {
    pub input: Input,
    pub cutting: SliceOptions,
    /// The place of what it writes among the streams of the job.
    pub stream: usize,
    pub events: Arc<dyn Partition>,
    pub positions: Arc<dyn Partition>,
    /// Between two looks.
    pub every: Duration,
    pub clock: Arc<dyn Clock>,
    pub board: StatusHandle,
    pub stop: watch::Receiver<bool>,
}

impl Follower {
    /// One for each input that is followed.
    pub fn all(
        (job, site, options): (&Job, &JobContext, &Options),
        places: &PartitionSet,
        (board, stop): (&StatusHandle, &watch::Receiver<bool>),
    ) -> Vec<Follower> {
        let sources = places.all.iter().enumerate();
        let follower = |(stream, source): (usize, &InputPartition)| {
            let name = &job.plan.inputs[source.input].name;
            let input = job.file.input(name).filter(|input| input.is_followed())?;
            let positions = hub_name(POSITIONS, &job.file.name, &input.name);
            Some(Follower {
                cutting: SliceOptions {
                    format: input.format,
                    compression: input.compression,
                    level: job.file.compatibility,
                },
                stream,
                events: source.partition.clone(),
                positions: site.log.partition(&positions, 0)?,
                input: input.clone(),
                every: options.look_every,
                clock: site.clock.clone(),
                board: board.clone(),
                stop: stop.clone(),
            })
        };
        sources.filter_map(follower).collect()
    }
}

/// More than any cut of a file.
const BATCH_BYTES_MAX: u32 = 64 << 20;

const EVENTS: &str = "__files.";
const POSITIONS: &str = "__files-taken.";

/// Why the files of an input cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("input \"{input}\" cannot be read by a job that never ends: {reason}")]
pub struct FollowError {
    pub input: String,
    pub reason: String,
}

impl JobFile {
    /// Lets every input that is read from files be followed, as jobs of a node do, through a hub of its own.
    pub fn follow_files(&mut self) -> Result<(), FollowError> {
        let job = self.name.clone();
        let own = |input: &&mut Input| !input.reference && input.hubs.is_empty();
        for input in self.inputs.iter_mut().filter(own) {
            let refused = |reason: &str| FollowError {
                input: input.name.clone(),
                reason: reason.to_owned(),
            };
            if input.arrival.is_some() {
                return Err(refused(
                    "its events arrive when they are taken, so leave `arrival` out, or run the job over the files once",
                ));
            }
            if input.partition.is_some() {
                return Err(refused(
                    "all of its files are one partition, so leave `partition` out, or run the job over the files once",
                ));
            }
            let name = hub_name(EVENTS, &job, &input.name);
            HubName::new(&name).map_err(|_| refused("the names of job and input are too long"))?;
            input.hubs = vec![name];
        }
        Ok(())
    }
}

/// The name of the hub for an input. No two inputs of all jobs share one.
fn hub_name(prefix: &str, job: &str, input: &str) -> String {
    format!("{prefix}{}..{}", escaped(job), escaped(input))
}

/// Without two dots in a row, and without characters that names of hubs cannot have.
fn escaped(name: &str) -> String {
    let escape = |byte: u8| match byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
        true => char::from(byte).to_string(),
        false => format!(".{byte:02x}"),
    };
    name.bytes().map(escape).collect()
}

/// Makes the hubs of inputs that are followed, where they are missing.
pub(super) async fn make_hubs(job: &Job, log: &dyn Log) -> Result<(), StartError> {
    let inputs = job.file.inputs.iter().filter(|input| input.is_followed());
    for input in inputs {
        let failed = |reason: String| StartError::Files {
            input: input.name.clone(),
            reason,
        };
        let positions = HubSettings {
            cleanup: CleanupPolicy::Compact,
            retention: None,
            ..HubSettings::default()
        };
        let events = HubSettings {
            batch_bytes_max: BATCH_BYTES_MAX,
            ..HubSettings::default()
        };
        for (prefix, settings) in [(EVENTS, events), (POSITIONS, positions)] {
            let name = hub_name(prefix, &job.file.name, &input.name);
            let name = HubName::new(&name).map_err(|error| failed(error.to_string()))?;
            if log.hub(name.as_str()).is_some() {
                continue;
            }
            let made = log.create(HubSpec {
                name,
                partitions: 1,
                settings,
            });
            match made.await {
                Ok(_) | Err(AdminError::Exists(_)) => {}
                Err(error) => return Err(failed(error.to_string())),
            }
        }
    }
    Ok(())
}

/// Removes what was kept of the files of a job that is no more.
pub async fn forget_files(job: &str, log: &dyn Log) -> Result<(), AdminError> {
    let prefixes = [EVENTS, POSITIONS].map(|prefix| hub_name(prefix, job, ""));
    for hub in log.hubs() {
        let mut prefixes = prefixes.iter();
        if prefixes.any(|prefix| hub.name.as_str().starts_with(prefix)) {
            log.delete(&hub.name).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_inputs_share_a_hub() {
        let name = |job: &str, input: &str| hub_name(EVENTS, job, input);
        assert_eq!(name("toll-counts", "Entry"), "__files.toll-counts..Entry");
        assert_eq!(name("a.b", "c"), "__files.a.2eb..c");
        assert_ne!(name("a.b", "c"), name("a", "b.c"));
        assert_ne!(name("a", "2eb"), name("a.b", ""));
        assert!(HubName::new(&name("a", "Ein Gang ä")).is_ok());
    }

    #[test]
    fn columns_that_only_history_has_are_refused() {
        let follow = |more: &str| {
            let text = format!("sql = \"SELECT 1\"\n[inputs.f]\npath = \"in\"\n{more}");
            let mut file = JobFile::parse(&text, "job.toml").unwrap();
            file.follow_files().map(|()| file.inputs.remove(0))
        };
        assert!(follow("").unwrap().is_followed());
        for column in ["arrival", "partition"] {
            let refused = follow(&format!("{column} = \"x\"\n")).unwrap_err();
            assert!(refused.reason.contains(column), "{refused}");
        }
        assert!(!follow("reference = true\n").unwrap().is_followed());
    }
}
