//! Makes checkpoints of snapshots.

use std::time::Duration;

use highwater_time::Instant;

use super::build::JobParts;
use super::checkpoint::{Checkpoint, OutputCheckpoint};
use super::combiner_thread::JobSnapshot;
use super::fingerprint::Fingerprint;
use super::hub_stream::StreamSnapshot;
use super::output::EndpointStates;
use crate::reference::EffectiveSnapshots;

/// The constant parts of all checkpoints of a run.
pub(super) struct CheckpointBuilder {
    pub fingerprint: Fingerprint,
    pub epoch: u64,
    pub since: Instant,
    /// The names of the outputs.
    pub names: Vec<String>,
    pub references: EffectiveSnapshots,
    /// The number under which static reference tables are stored.
    pub tables: Option<u64>,
}

impl CheckpointBuilder {
    /// The checkpoint before the first read.
    pub(super) fn first(
        &self,
        parts: &JobParts,
        states: Vec<Option<EndpointStates>>,
    ) -> Checkpoint {
        let mut shared = Vec::new();
        parts.combiner.snapshot(&mut shared);
        let snapshot = JobSnapshot {
            streams: parts
                .streams
                .iter()
                .map(|stream| stream.snapshot())
                .collect(),
            shared,
            next: vec![0; self.names.len()],
            watermark: Instant::BEFORE_ALL,
            reached: Instant::BEFORE_ALL,
            pause: Duration::ZERO,
        };
        self.checkpoint(&snapshot, states)
    }

    pub(super) fn checkpoint(
        &self,
        snapshot: &JobSnapshot,
        states: Vec<Option<EndpointStates>>,
    ) -> Checkpoint {
        let outputs = self.names.iter().zip(&snapshot.next).zip(states);
        Checkpoint {
            fingerprint: self.fingerprint.clone(),
            epoch: self.epoch,
            since: self.since,
            watermark: snapshot.watermark,
            ended: snapshot.watermark == Instant::AFTER_ALL,
            streams: snapshot
                .streams
                .iter()
                .map(StreamSnapshot::encoded)
                .collect(),
            shared: snapshot.shared.clone(),
            outputs: outputs
                .map(|((name, next), states)| OutputCheckpoint {
                    name: name.clone(),
                    next: *next,
                    states,
                })
                .collect(),
            reached: snapshot.reached,
            references: self.references.clone(),
            tables: self.tables,
        }
    }
}
