//! Files as the input of a live job.
//!
//! ```text
//!  folder ── follower ──▶ hub of the input: markers and events ── feed ──▶ ..
//!                              └──▶ positions, so that a start need not read all markers
//! ```
//!
//! A follower appends new events of files to a hub of the input's own, and the job reads that hub like any other. Every
//! batch begins with a marker (`file_marker.rs`) that holds the position in the file, so events and position are
//! durable together: after a crash the follower resumes from the log itself, without duplicates and gaps. All else is
//! as with hubs: the arrival time is the time of the append, punctuation is written to the partition, and a replay
//! reads the same events although the files have changed or are gone.

mod directory_scan;
mod file_marker;
mod file_positions;
mod follow;
mod follower_state;
mod identity;

use std::sync::Arc;
use std::time::Duration;

use highwater_connect::SliceOptions;
use highwater_env::Clock;
use highwater_log::{AdminError, CleanupPolicy, HubName, HubSettings, HubSpec, Log, Partition};
use tokio::sync::watch;

use super::partitions::{InputPartition, InputPartitions};
use super::status::StatusHandle;
use super::{JobContext, Options, StartError};
use crate::config::{Input, JobFile};
use crate::load::Job;
pub(super) use file_marker::FileMarker;

/// Appends the events of one input's files to its hub.
pub(super) struct Follower {
    pub input: Input,
    pub slicing: SliceOptions,
    /// The index of the input's partition among the streams of the job.
    pub stream: usize,
    pub events: Arc<dyn Partition>,
    pub positions: Arc<dyn Partition>,
    /// Pause between two scans.
    pub scan_interval: Duration,
    pub clock: Arc<dyn Clock>,
    pub status: StatusHandle,
    pub stop: watch::Receiver<bool>,
}

impl Follower {
    /// One for each followed input.
    pub(crate) fn all(
        job: &Job,
        context: &JobContext,
        options: &Options,
        partitions: &InputPartitions,
        status: &StatusHandle,
        stop: &watch::Receiver<bool>,
    ) -> Vec<Follower> {
        let sources = partitions.all.iter().enumerate();
        let follower = |(stream, source): (usize, &InputPartition)| {
            let name = &job.plan.inputs[source.input].name;
            let input = job.file.input(name).filter(|input| input.is_followed())?;
            let positions = hub_name(POSITIONS, &job.file.name, &input.name);
            Some(Follower {
                slicing: SliceOptions {
                    format: input.format,
                    compression: input.compression,
                    level: job.file.compatibility,
                },
                stream,
                events: source.partition.clone(),
                positions: context.log.partition(&positions, 0)?,
                input: input.clone(),
                scan_interval: options.poll_interval,
                clock: context.clock.clone(),
                status: status.clone(),
                stop: stop.clone(),
            })
        };
        sources.filter_map(follower).collect()
    }
}

/// Larger than any piece of a file that is read at once.
const BATCH_BYTES_MAX: u32 = 64 << 20;

const EVENTS: &str = "__files.";
const POSITIONS: &str = "__files-taken.";

/// The files of an input cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("input \"{input}\" cannot be read by a live job: {reason}")]
pub struct FollowError {
    pub input: String,
    pub reason: String,
}

impl JobFile {
    /// Turns every file input into a followed one with a hub of its own, as for jobs of a node.
    pub fn follow_files(&mut self) -> Result<(), FollowError> {
        let job = self.name.clone();
        let is_file_input = |input: &&mut Input| !input.reference && input.hubs.is_empty();
        for input in self.inputs.iter_mut().filter(is_file_input) {
            let refused = |reason: &str| FollowError {
                input: input.name.clone(),
                reason: reason.to_owned(),
            };
            if input.arrival.is_some() {
                return Err(refused(
                    "its events arrive when they are read, so remove `arrival`, or run the job over the files once",
                ));
            }
            if input.partition.is_some() {
                return Err(refused(
                    "all of its files are one partition, so remove `partition`, or run the job over the files once",
                ));
            }
            let name = hub_name(EVENTS, &job, &input.name);
            HubName::new(&name).map_err(|_| refused("the names of job and input are too long"))?;
            input.hubs = vec![name];
        }
        Ok(())
    }
}

/// The name of the hub of an input, unique across inputs and jobs.
fn hub_name(prefix: &str, job: &str, input: &str) -> String {
    format!("{prefix}{}..{}", escaped(job), escaped(input))
}

/// Escapes characters that hub names cannot have; the result has no two dots in a row.
fn escaped(name: &str) -> String {
    let escape = |byte: u8| match byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
        true => char::from(byte).to_string(),
        false => format!(".{byte:02x}"),
    };
    name.bytes().map(escape).collect()
}

/// Creates the missing hubs of followed inputs.
pub(super) async fn create_hubs(job: &Job, log: &dyn Log) -> Result<(), StartError> {
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
            let created = log.create(HubSpec {
                name,
                partitions: 1,
                settings,
            });
            match created.await {
                Ok(_) | Err(AdminError::Exists(_)) => {}
                Err(error) => return Err(failed(error.to_string())),
            }
        }
    }
    Ok(())
}

/// Deletes the hubs of a deleted job's file inputs.
pub async fn delete_file_hubs(job: &str, log: &dyn Log) -> Result<(), AdminError> {
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
