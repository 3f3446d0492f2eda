//! Starts a live job; its handle gives its status and takes commands.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::run::{Command, RunEnd};
use super::start::{JobStart, Prepared};
use super::status::{JobState, JobStatus, StatusHandle};
use super::{JobContext, Options};
use crate::config::Start;
use crate::load::Job;

/// A job that was started. Dropping it ends the job at once, as a crash would.
pub struct Handle {
    status: StatusHandle,
    commands: mpsc::Sender<Command>,
    /// True, or gone, when the job is over.
    over: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

impl Handle {
    pub fn status(&self) -> JobStatus {
        self.status.current()
    }

    /// Saves its state now; answers with the number of the checkpoint when that is durable.
    pub async fn checkpoint(&self) -> Result<u64, String> {
        let (answer, answered) = oneshot::channel();
        let over = || "the job is over".to_owned();
        let sent = self.commands.send(Command::Checkpoint(answer)).await;
        sent.map_err(|_| over())?;
        answered.await.unwrap_or_else(|_| Err(over()))
    }

    /// Saves its state and ends it. Ready when it has ended.
    pub async fn stop(&self) -> JobStatus {
        // One that has ended needs no telling.
        let _ = self.commands.send(Command::Stop).await;
        self.ended().await
    }

    /// Ends it as a crash would, leaving the last checkpoint as it is. Ready when nothing of it runs any more.
    pub async fn kill(&self) -> JobStatus {
        let _ = self.commands.send(Command::Kill).await;
        self.ended().await
    }

    /// Ready when it has ended, for whatever reason.
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

/// Starts a job. Must be called on a runtime of tokio.
pub fn start(job: Arc<Job>, context: JobContext, options: Options) -> Handle {
    let status = StatusHandle::new(&job.file.name, context.clock.clone());
    let (commands, inbox) = mpsc::channel(8);
    let (is_over, over) = watch::channel(false);
    let mut supervisor = Supervisor {
        job,
        context,
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
        status,
        commands,
        over,
        task,
    }
}

/// Runs a job from start to end, as often as it has to start again.
struct Supervisor {
    job: Arc<Job>,
    context: JobContext,
    options: Options,
    status: StatusHandle,
    inbox: mpsc::Receiver<Command>,
}

impl Supervisor {
    async fn run(&mut self) -> JobState {
        let mut take_up = false;
        loop {
            match self.run_once(take_up).await {
                RunEnd::State(state) => return state,
                RunEnd::Again { take_up: other } => take_up = other,
            }
            self.options.start = Some(Start::Resume);
        }
    }

    async fn run_once(&mut self, take_up: bool) -> RunEnd {
        let mut writing = None;
        let start = JobStart {
            job: &self.job,
            context: &self.context,
            options: &self.options,
            status: &self.status,
            writing: &mut writing,
        };
        // A start may take long, where an output does not answer; it can be stopped meanwhile.
        let prepared = tokio::select! {
            prepared = start.prepare(take_up) => Some(prepared),
            () = end_command(&mut self.inbox) => None,
        };
        RunEnd::State(match (prepared, writing) {
            (Some(Ok(Prepared::Running(job))), _) => return job.watch(&mut self.inbox).await,
            (Some(Ok(Prepared::HasEnded)), _) => JobState::Finished,
            (Some(Err(error)), _) => JobState::Failed {
                reason: error.to_string(),
            },
            (None, None) => JobState::Stopped,
            (None, Some(writing)) => {
                // It cannot be called back, and the next start must find it.
                let _ = writing.await;
                JobState::Stopped
            }
        })
    }
}

/// Ready when the job is told to stop.
async fn end_command(inbox: &mut mpsc::Receiver<Command>) {
    while let Some(command) = inbox.recv().await {
        match command {
            Command::Stop | Command::Kill => return,
            // There is nothing to save yet.
            Command::Checkpoint(answer) => drop(answer),
        }
    }
}
