//! The combiner of a shared job, and its outputs: a job whose streams come from the exchange.

use std::future::Future;
use std::sync::Arc;

use highwater_connect::OutputShard;
use highwater_log::Offset;
use highwater_time::Instant;
use tokio::sync::mpsc;

use super::super::fingerprint::Fingerprint;
use super::super::handle::stop_command;
use super::super::partitions::InputPartitions;
use super::super::run::{Command, RunEnd, RunningJob};
use super::super::shard_state::ShardState;
use super::super::start::{JobStart, StartOutcome, blocking};
use super::super::status::JobState;
use super::super::{JobContext, StartError};
use super::references::ShardVote;
use super::stream_shard::store_failed;
use super::{InstanceContext, ShardExit, ShardTables};

/// Where the combiner begins if it has no checkpoint.
pub(in crate::live) struct CombinerStart {
    /// The partitions of the input, each with its partition of the exchange to read from.
    pub partitions: InputPartitions,
    /// The first offset of each partition of the input.
    pub starts: Vec<Offset>,
    pub epoch: u64,
    pub since: Instant,
    pub fingerprint: Fingerprint,
    /// Set if there are several combiners.
    pub shard: Option<OutputShard>,
    pub tables: ShardTables,
}

pub(super) struct CombinerShard {
    pub instance: Arc<InstanceContext>,
    /// Its number among the combiners.
    pub number: usize,
}

impl CombinerShard {
    /// Runs until a command ends it, or something else does.
    pub(super) async fn run(self, mut commands: mpsc::Receiver<Command>) -> ShardExit {
        let instance = &self.instance;
        let tables = match ShardTables::current(instance).await {
            Ok(tables) => tables,
            Err(end) => return end,
        };
        let start = match self.exchange() {
            Some(partitions) => CombinerStart {
                partitions,
                starts: instance.identity.starts.clone(),
                epoch: instance.identity.epoch,
                since: instance.identity.since,
                fingerprint: instance.identity.fingerprint.clone(),
                shard: self.output_shard(),
                tables,
            },
            None => {
                let exchange = &instance.exchange;
                return ShardExit::Delayed(format!("the exchange `{exchange}` is not there yet"));
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
            () = stop_command(&mut commands) => return ShardExit::Stopped,
        };
        let shard = instance.partitions.all.len() + self.number;
        let running = match prepared {
            Ok(StartOutcome::Running(running)) => {
                instance.set_store_alarm(shard, None);
                running
            }
            Ok(StartOutcome::HasEnded) => return ShardExit::Stopped,
            Err(StartError::Checkpoints(error)) => return store_failed(&error),
            Err(error) if error.is_temporary() => return ShardExit::Delayed(error.to_string()),
            Err(error) => return ShardExit::Failed(error.to_string()),
        };
        if let Err(end) = self
            .note_start(&start.tables, running.start_watermark())
            .await
        {
            return end;
        }
        let newer = start.tables.newer(instance);
        let end = watch_until(running, commands, newer).await;
        self.shard_end(end, &start.tables, state).await
    }

    async fn shard_end(
        &self,
        end: CombinerExit,
        tables: &ShardTables,
        state: Arc<ShardState>,
    ) -> ShardExit {
        match end {
            CombinerExit::Newer(version) => ShardExit::AwaitsTables(version),
            CombinerExit::Run(RunEnd::State(JobState::Failed { reason })) => {
                match tables.newer_in_store(&self.instance).await {
                    Ok(Some(version)) => ShardExit::AwaitsTables(version),
                    Ok(None) => failed(state, reason).await,
                    // Whether that is the reason will be known when it has started again.
                    Err(end) => end,
                }
            }
            CombinerExit::Run(RunEnd::State(_)) => ShardExit::Stopped,
            CombinerExit::Run(RunEnd::Restart { .. }) => {
                ShardExit::Delayed("it is restarted".into())
            }
        }
    }

    /// Rows before `watermark` will not be computed again.
    async fn note_start(&self, tables: &ShardTables, watermark: Instant) -> Result<(), ShardExit> {
        tables.check(watermark)?;
        let vote = ShardVote {
            reached: watermark,
            watermark,
        };
        let shard = self.instance.partitions.all.len() + self.number;
        tables.vote(&self.instance, shard, vote).await
    }

    fn output_shard(&self) -> Option<OutputShard> {
        let of = self.instance.combiners;
        (of > 1).then_some(OutputShard {
            number: self.number as u32,
            of: of as u32,
        })
    }

    /// The partitions with those of the exchange to read from.
    fn exchange(&self) -> Option<InputPartitions> {
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

/// The end of a combiner's run.
enum CombinerExit {
    Run(RunEnd),
    /// It has stopped for this version of the reference data.
    Newer(u64),
}

/// Runs to the end, or stops when there is newer reference data.
async fn watch_until(
    running: Box<RunningJob>,
    mut commands: mpsc::Receiver<Command>,
    newer: impl Future<Output = u64>,
) -> CombinerExit {
    let (to_job, mut inbox) = mpsc::channel(8);
    let mut watch = std::pin::pin!(running.watch(&mut inbox));
    let mut newer = std::pin::pin!(newer);
    let mut stopping = None;
    loop {
        tokio::select! {
            end = &mut watch => return match (stopping, end) {
                (Some(version), RunEnd::State(JobState::Stopped)) => CombinerExit::Newer(version),
                (_, end) => CombinerExit::Run(end),
            },
            command = commands.recv() => {
                // It stops for good when its handle is dropped.
                let command = command.unwrap_or(Command::Stop);
                let ends = matches!(command, Command::Stop | Command::Kill);
                if ends {
                    stopping = None;
                }
                // A full inbox has a command to stop.
                let _ = to_job.try_send(command);
                if ends {
                    return CombinerExit::Run(watch.await);
                }
            }
            version = &mut newer, if stopping.is_none() => {
                stopping = Some(version);
                let _ = to_job.try_send(Command::Stop);
            }
        }
    }
}

/// An owner that was thought dead misses the records of the exchange that its successor has deleted; that is no failure
/// of the job.
async fn failed(state: Arc<ShardState>, reason: String) -> ShardExit {
    let is_fenced = blocking(move || state.is_fenced()).await;
    match is_fenced {
        Ok(Ok(true)) => ShardExit::Fenced(reason),
        Ok(Ok(false)) => ShardExit::Failed(reason),
        Ok(Err(error)) => ShardExit::WithoutStore(format!("{reason}; {error}")),
        Err(error) => ShardExit::Failed(error.to_string()),
    }
}
