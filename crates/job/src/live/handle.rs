//! The handle of a live job: status and commands.

use std::sync::Arc;
use std::time::Duration;

use highwater_log::Offset;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::event_fate::{FateError, FateQuestion, LiveEventFate};
use super::input_logs::InputLogs;
use super::instances::{Instance, is_shared};
use super::run::{Command, RunEnd};
use super::session_replay::SourcePartition;
use super::start::{JobStart, StartOutcome};
use super::state_limit::StateLimit;
use super::status::{JobFigures, JobState, JobStatus, StatusHandle};
use super::telemetry::StepFigures;
use super::watchdog::overdue_call;
use super::{JobContext, Options, StartError};
use crate::config::Start;
use crate::error_log::DataErrorSample;
use crate::load::Job;
use crate::samples::SampleWatcher;

/// A started job. Dropping the handle ends the job at once, like a crash.
pub struct Handle {
    job: Arc<Job>,
    context: JobContext,
    logs: InputLogs,
    status: StatusHandle,
    commands: mpsc::Sender<Command>,
    /// True or closed when the job is over.
    over: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

impl Handle {
    pub fn status(&self) -> JobStatus {
        self.status.current()
    }

    pub fn job(&self) -> &Arc<Job> {
        &self.job
    }

    /// Per node of the plan.
    pub fn step_figures(&self) -> Vec<StepFigures> {
        self.status.telemetry.figures()
    }

    pub fn figures(&self) -> JobFigures {
        self.status.figures()
    }

    /// The latest data errors, the latest first.
    pub fn data_errors(&self) -> Vec<DataErrorSample> {
        self.status.telemetry.errors.latest()
    }

    /// Samples the events of the job until the watcher is dropped. `None` if too many watch already.
    pub fn watch_samples(&self) -> Option<SampleWatcher> {
        SampleWatcher::new(&self.status.telemetry.samples, &self.context.clock)
    }

    /// The fate of an event. `partition` is its number among those of the input, an index in the plan.
    pub async fn event_fate(
        &self,
        input: usize,
        partition: usize,
        offset: Offset,
    ) -> Result<LiveEventFate, FateError> {
        let place = self.status.place(input, partition);
        let place = place.ok_or(FateError::NoPartition)?;
        let log = self.logs.log(&self.job, input);
        let source = log.and_then(|log| log.partition(place.hub.as_str(), place.partition));
        let source = source.ok_or(FateError::NoPartition)?;
        let samples = &self.status.telemetry.samples;
        let status = self.status.current();
        let question = FateQuestion {
            job: &self.job,
            input,
            number: partition,
            partition: &*source,
            offset,
            sample: samples.find(input, partition, offset.0 as u64),
            physical: self.status.physical().unwrap_or(self.job.physical.clone()),
            partitions: self.source_partitions(&status),
            watermark: status.watermark,
        };
        question.answer().await
    }

    /// The partitions that the job reads; `None` if a hub is gone.
    fn source_partitions(&self, status: &JobStatus) -> Option<Vec<SourcePartition>> {
        let mut sources = Vec::new();
        for (input, of) in status.inputs.iter().enumerate() {
            for (number, partition) in of.partitions.iter().enumerate() {
                let (hub, of_hub) = (partition.place.hub.as_str(), partition.place.partition);
                let log = self.logs.log(&self.job, input)?;
                sources.push(SourcePartition {
                    input,
                    number,
                    partition: log.partition(hub, of_hub)?,
                });
            }
        }
        Some(sources)
    }

    /// Whether the job is over, for any reason.
    pub fn is_over(&self) -> bool {
        // Closed without a message if its task was aborted.
        *self.over.borrow() || self.over.has_changed().is_err()
    }

    /// Takes a checkpoint and returns its number when it is durable.
    pub async fn checkpoint(&self) -> Result<u64, String> {
        let (answer, answered) = oneshot::channel();
        let over = || "the job is over".to_owned();
        let sent = self.commands.send(Command::Checkpoint(answer)).await;
        sent.map_err(|_| over())?;
        answered.await.unwrap_or_else(|_| Err(over()))
    }

    /// Takes a checkpoint and stops the job.
    pub async fn stop(&self) -> JobStatus {
        // The job may have ended already.
        let _ = self.commands.send(Command::Stop).await;
        self.ended().await
    }

    /// Ends the job like a crash, without a checkpoint. Ready when all of its tasks have ended.
    pub async fn kill(&self) -> JobStatus {
        let _ = self.commands.send(Command::Kill).await;
        self.ended().await
    }

    /// Completes when the job is over, for any reason.
    pub async fn ended(&self) -> JobStatus {
        let told = self.over.clone().wait_for(|over| *over).await.is_ok();
        if !told && !self.status.current().state.is_over() {
            let reason = "it ended unexpectedly".to_owned();
            self.status.set_state(JobState::Failed { reason });
        }
        self.status.current()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts a job on the current tokio runtime.
pub fn start(job: Arc<Job>, context: JobContext, options: Options) -> Handle {
    let status = StatusHandle::new(&job, context.clock.clone());
    let (commands, inbox) = mpsc::channel(8);
    let (is_over, over) = watch::channel(false);
    let logs = InputLogs::new(context.log.clone());
    let mut supervisor = Supervisor {
        job: job.clone(),
        context: context.clone(),
        logs: logs.clone(),
        options,
        status: status.clone(),
        inbox,
    };
    let task = tokio::spawn(async move {
        let state = supervisor.run().await;
        if let JobState::Failed { reason } = &state {
            supervisor.status.log(format!("failed: {reason}"));
        }
        supervisor.status.set_state(state);
        // The handle may be gone.
        let _ = is_over.send(true);
    });
    Handle {
        job,
        context,
        logs,
        status,
        commands,
        over,
        task,
    }
}

/// Pause before a start that a cluster held up is tried again.
const START_PAUSE: Duration = Duration::from_secs(5);

/// The alarm of a job that cannot start yet.
pub(super) const START: &str = "start";

/// Runs a job, with restarts for new reference data and partitions.
struct Supervisor {
    job: Arc<Job>,
    context: JobContext,
    logs: InputLogs,
    options: Options,
    status: StatusHandle,
    inbox: mpsc::Receiver<Command>,
}

impl Supervisor {
    async fn run(&mut self) -> JobState {
        let (scripts, clock) = (self.job.scripts.clone(), self.context.clock.clone());
        let overdue = overdue_call(scripts, clock, self.options.function_timeout);
        let mut overdue = std::pin::pin!(overdue);
        if is_shared(&self.job) && self.options.until_end.is_none() {
            let instance = Instance {
                job: self.job.clone(),
                context: self.context.clone(),
                logs: self.logs.clone(),
                options: self.options.clone(),
                status: self.status.clone(),
            };
            return tokio::select! {
                state = instance.run(&mut self.inbox) => state,
                reason = &mut overdue => JobState::Failed { reason },
            };
        }
        let mut adopt_new = false;
        loop {
            let end = tokio::select! {
                end = self.run_once(adopt_new) => end,
                reason = &mut overdue => return JobState::Failed { reason },
            };
            match end {
                RunEnd::State(state) => return state,
                RunEnd::Restart { adopt_new: other } => adopt_new = other,
            }
            self.options.start = Some(Start::Resume);
        }
    }

    async fn run_once(&mut self, adopt_new: bool) -> RunEnd {
        let mut writing = None;
        let state_limit = StateLimit::new(self.options.state_bytes_max);
        let start = async {
            loop {
                let start = JobStart {
                    job: &self.job,
                    context: &self.context,
                    logs: &self.logs,
                    options: &self.options,
                    status: &self.status,
                    writing: &mut writing,
                    state_limit: &state_limit,
                    exchange: None,
                };
                match start.prepare(adopt_new).await {
                    Err(error) if may_start_later(&error, &self.logs) => {
                        let alarm = format!("cannot start yet: {error}");
                        self.status.set_alarm(START, Some(alarm));
                        tokio::time::sleep(START_PAUSE).await;
                    }
                    prepared => return prepared,
                }
            }
        };
        // A start waits for outputs and clusters and can be stopped meanwhile.
        let prepared = tokio::select! {
            prepared = start => Some(prepared),
            () = stop_command(&mut self.inbox) => None,
        };
        self.status.set_alarm(START, None);
        RunEnd::State(match (prepared, writing) {
            (Some(Ok(StartOutcome::Running(job))), _) => return job.watch(&mut self.inbox).await,
            (Some(Ok(StartOutcome::HasEnded)), _) => JobState::Finished,
            (Some(Err(error)), _) => JobState::Failed {
                reason: error.to_string(),
            },
            (None, None) => JobState::Stopped,
            (None, Some(writing)) => {
                // The write cannot be cancelled, and the next start must find it.
                let _ = writing.await;
                JobState::Stopped
            }
        })
    }
}

/// Whether a cluster or a store may answer later. The node's own log always answers.
fn may_start_later(error: &StartError, logs: &InputLogs) -> bool {
    let is_local = matches!(error, StartError::Position(_)) && !logs.has_clusters();
    error.is_temporary() && !is_local
}

/// Ready when the job is to stop.
pub(super) async fn stop_command(inbox: &mut mpsc::Receiver<Command>) {
    while let Some(command) = inbox.recv().await {
        match command {
            Command::Stop | Command::Kill => return,
            // There is no state yet.
            Command::Checkpoint(answer) => drop(answer),
        }
    }
}
