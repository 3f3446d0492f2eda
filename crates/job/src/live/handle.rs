//! Starts a live job, and lets others ask and tell it.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::run::{Command, RunEnd};
use super::start::{Prepared, prepare};
use super::status::{JobState, JobStatus, StatusHandle};
use super::{JobContext, Options};
use crate::config::Start;
use crate::load::Job;

/// A job that was started. Dropping it ends the job at once, as a crash would.
pub struct Handle {
    board: StatusHandle,
    commands: mpsc::Sender<Command>,
    /// True, or gone, when the job is over.
    over: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

impl Handle {
    pub fn status(&self) -> JobStatus {
        self.board.status()
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
        if !told && !self.board.status().state.is_over() {
            let reason = "it ended unexpectedly".to_owned();
            self.board.set_state(JobState::Failed { reason });
        }
        self.board.status()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts a job. Must be called on a runtime of tokio.
pub fn start(job: Arc<Job>, context: JobContext, options: Options) -> Handle {
    let board = StatusHandle::new(&job.file.name, context.clock.clone());
    let (commands, inbox) = mpsc::channel(8);
    let (is_over, over) = watch::channel(false);
    let noted = board.clone();
    let task = tokio::spawn(async move {
        let state = run(job, context, options, &noted, inbox).await;
        if let JobState::Failed { reason } = &state {
            noted.log(format!("failed: {reason}"));
        }
        noted.set_state(state);
        // Nobody need be there to hear it.
        let _ = is_over.send(true);
    });
    Handle {
        board,
        commands,
        over,
        task,
    }
}

async fn run(
    job: Arc<Job>,
    context: JobContext,
    mut options: Options,
    board: &StatusHandle,
    mut inbox: mpsc::Receiver<Command>,
) -> JobState {
    let mut take_up = false;
    loop {
        match run_once((&job, &context, &options), take_up, board, &mut inbox).await {
            RunEnd::State(state) => return state,
            RunEnd::Again { take_up: other } => take_up = other,
        }
        options.start = Some(Start::Resume);
    }
}

async fn run_once(
    (job, context, options): (&Arc<Job>, &JobContext, &Options),
    take_up: bool,
    board: &StatusHandle,
    inbox: &mut mpsc::Receiver<Command>,
) -> RunEnd {
    // Preparing may take long, where an output does not answer; it can be stopped meanwhile.
    let mut writing = None;
    let around = (job.clone(), context.clone(), options.clone());
    let prepared = tokio::select! {
        prepared = prepare(around, take_up, board, &mut writing) => Some(prepared),
        () = told_to_end(inbox) => None,
    };
    RunEnd::State(match (prepared, writing) {
        (Some(Ok(Prepared::Live(live))), _) => return live.watch(inbox).await,
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

async fn told_to_end(inbox: &mut mpsc::Receiver<Command>) {
    while let Some(command) = inbox.recv().await {
        match command {
            Command::Stop | Command::Kill => return,
            // There is nothing to save yet.
            Command::Checkpoint(answer) => drop(answer),
        }
    }
}
