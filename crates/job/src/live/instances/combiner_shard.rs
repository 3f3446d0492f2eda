//! The combiner of a shared job, and its outputs: a job whose streams come from the exchange.

use std::sync::Arc;

use highwater_connect::OutputShard;
use highwater_log::Offset;
use highwater_time::Instant;
use tokio::sync::mpsc;

use super::super::fingerprint::Fingerprint;
use super::super::handle::stop_command;
use super::super::partitions::PartitionSet;
use super::super::run::{Command, RunEnd};
use super::super::shard_state::ShardState;
use super::super::start::{JobStart, StartOutcome, blocking};
use super::super::status::JobState;
use super::super::{JobContext, StartError};
use super::stream_shard::store_failed;
use super::{InstanceContext, ShardEnd};

/// Where the combiner begins if it has no checkpoint.
pub(in crate::live) struct CombinerStart {
    /// The partitions of the input, each with its partition of the exchange to read from.
    pub partitions: PartitionSet,
    /// The first offset of each partition of the input.
    pub starts: Vec<Offset>,
    pub epoch: u64,
    pub since: Instant,
    pub fingerprint: Fingerprint,
    /// Set if there are several combiners.
    pub shard: Option<OutputShard>,
}

pub(super) struct CombinerShard {
    pub instance: Arc<InstanceContext>,
    /// Its number among the combiners.
    pub number: usize,
}

impl CombinerShard {
    /// Runs until a command ends it, or something else does.
    pub(super) async fn run(self, mut commands: mpsc::Receiver<Command>) -> ShardEnd {
        let instance = &self.instance;
        let start = match self.exchange() {
            Some(partitions) => CombinerStart {
                partitions,
                starts: instance.identity.starts.clone(),
                epoch: instance.identity.epoch,
                since: instance.identity.since,
                fingerprint: instance.identity.fingerprint.clone(),
                shard: self.output_shard(),
            },
            None => {
                let exchange = &instance.exchange;
                return ShardEnd::Delayed(format!("the exchange `{exchange}` is not there yet"));
            }
        };
        let state = match start.shard {
            None => instance.shard_state("combiner"),
            Some(shard) => instance.shard_state(&format!("combiner-{:04}", shard.number)),
        };
        let context = JobContext {
            checkpoints: state.clone(),
            ..instance.context.clone()
        };
        let status = instance.status.of_outputs();
        let mut writing = None;
        let prepared = tokio::select! {
            prepared = JobStart {
                job: &instance.job,
                context: &context,
                logs: &instance.logs,
                options: &instance.options,
                status: &status,
                writing: &mut writing,
                state_limit: &instance.state_limit,
                exchange: Some(&start),
            }.prepare(false) => prepared,
            () = stop_command(&mut commands) => return ShardEnd::Stopped,
        };
        let running = match prepared {
            Ok(StartOutcome::Running(running)) => running,
            Ok(StartOutcome::HasEnded) => return ShardEnd::Stopped,
            Err(StartError::Checkpoints(error)) => return store_failed(&error),
            Err(error) if error.is_temporary() => return ShardEnd::Delayed(error.to_string()),
            Err(error) => return ShardEnd::Failed(error.to_string()),
        };
        match running.watch(&mut commands).await {
            RunEnd::State(JobState::Failed { reason }) => failed(state, reason).await,
            RunEnd::State(_) => ShardEnd::Stopped,
            RunEnd::Restart { .. } => ShardEnd::Delayed("it is restarted".into()),
        }
    }

    fn output_shard(&self) -> Option<OutputShard> {
        let of = self.instance.combiners;
        (of > 1).then_some(OutputShard {
            number: self.number as u32,
            of: of as u32,
        })
    }

    /// The partitions with those of the exchange to read from.
    fn exchange(&self) -> Option<PartitionSet> {
        let instance = &self.instance;
        let mut partitions = instance.partitions.clone();
        for (number, source) in partitions.all.iter_mut().enumerate() {
            let exchange = instance.exchange.as_str();
            let log = &instance.cluster.log;
            let partition = instance.exchange_partition(number, self.number);
            source.partition = log.partition(exchange, partition)?;
        }
        Some(partitions)
    }
}

/// An owner that was thought dead misses the records of the exchange that its successor has deleted; that is no failure of
/// the job.
async fn failed(state: Arc<ShardState>, reason: String) -> ShardEnd {
    let is_taken_over = blocking(move || state.is_taken_over()).await;
    match is_taken_over {
        Ok(Ok(true)) => ShardEnd::TakenOver(reason),
        Ok(Ok(false)) => ShardEnd::Failed(reason),
        Ok(Err(error)) => ShardEnd::Delayed(format!("{reason}; {error}")),
        Err(error) => ShardEnd::Failed(error.to_string()),
    }
}
