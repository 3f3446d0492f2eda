//! The task that owns a queue.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use highwater_env::Clock;
use highwater_env::random::Random;
use highwater_log::{AppendError, AppendInfo, BoxFuture, Offset};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::error::Error;
use super::handle::Queue;
use super::usage::Usage;
use super::waiting::{WaitKey, WaitQueues, Waiter};
use crate::journal::{Journal, JournalError, is_temporary};
use crate::machine::{ContentMap, Counts, Machine, SnapshotCursor, Totals};

/// Replies to a caller. Called when all events up to this operation are durable, or with the error that leaves
/// the outcome unknown.
pub(super) type Reply = Box<dyn FnOnce(Result<(), &Error>) + Send>;

/// An operation of a caller. It receives the machine, or the reason why the queue rejects requests.
pub(super) type Operation = Box<dyn FnOnce(Result<&mut Machine, &Error>) -> Option<Reply> + Send>;

/// Runs at once for a waiting caller, and returns its result.
pub(super) type WaitSetup = Box<dyn FnOnce(Result<&mut Machine, &Error>) -> Option<Waiter> + Send>;

pub(super) enum Command {
    /// Runs at once.
    Call(Operation),
    /// Runs when its condition is met.
    Wait(WaitSetup),
    /// Ends all waits now.
    EndWaits,
    /// Ends one wait now.
    EndWait(WaitKey),
    /// Stops after the commands before it.
    Stop,
}

/// Limits of a queue's task. The defaults suit one machine.
#[derive(Clone, Debug)]
pub struct Options {
    /// Commands run in one round.
    pub commands_max: usize,
    /// Bytes that may be in flight to the log.
    pub in_flight_bytes_max: usize,
    /// The journal is compacted when it exceeds twice the size of the messages by this many bytes.
    pub compaction_bytes: u64,
    /// How long requests are rejected after a failed append.
    pub pause: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            commands_max: 1024,
            in_flight_bytes_max: 16 << 20,
            compaction_bytes: 16 << 20,
            pause: Duration::from_secs(1),
        }
    }
}

/// Read by handles without a request.
pub(super) struct QueueStatus {
    pub counters: Mutex<(Counts, Totals)>,
    /// Another owner has claimed the journal.
    pub fenced: AtomicBool,
    pub usage: Usage,
}

pub(super) struct Actor {
    pub machine: Machine,
    pub journal: Journal,
    /// The topic of a subscription, which has the bodies of its messages.
    pub topic: Option<Queue>,
    pub clock: Arc<dyn Clock>,
    pub random: Random,
    pub options: Options,
    pub commands: mpsc::Receiver<Command>,
    pub status: Arc<QueueStatus>,
    pub progress: Progress,
}

/// The current work of an actor.
#[derive(Default)]
pub(super) struct Progress {
    waiting: WaitQueues,
    appends: VecDeque<PendingAppend>,
    in_flight_bytes: u64,
    compaction: Option<Compaction>,
    /// Why all requests are rejected, and until when.
    refusing: Option<(Error, Option<Duration>)>,
    /// The journal could not be read after a failed append, and the state in memory differs from the journal.
    must_reload: bool,
}

/// An append in flight, and the replies that wait for it.
struct PendingAppend {
    result: BoxFuture<Result<AppendInfo, AppendError>>,
    replies: Vec<Reply>,
    bytes: u64,
    marker: Option<CompactionMarker>,
}

/// Marks the first and the last batch of a compaction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CompactionMarker {
    First,
    Last,
}

/// Writes a snapshot, see `machine/snapshot.rs`.
struct Compaction {
    cursor: Option<SnapshotCursor>,
    from: Option<Offset>,
    /// Size of the journal when the compaction began.
    bytes_before: u64,
}

impl Actor {
    /// Runs until all handles are dropped or `Stop` arrives, and all replies are sent.
    pub(super) async fn run(mut self) {
        let mut commands = Vec::new();
        loop {
            let has_capacity =
                self.progress.in_flight_bytes < self.options.in_flight_bytes_max as u64;
            let max = self.options.commands_max;
            let wait = self.next_wait();
            tokio::select! {
                biased;
                result = next_append(&mut self.progress.appends), if !self.progress.appends.is_empty() => {
                    self.append_finished(result).await;
                }
                count = self.commands.recv_many(&mut commands, max), if has_capacity => {
                    let stop = |command: &Command| matches!(command, Command::Stop);
                    let stopping = count == 0 || commands.iter().any(stop);
                    self.run_round(&mut commands);
                    if stopping {
                        break;
                    }
                }
                () = pause(wait) => {
                    if let (true, Some((error, _))) = (self.progress.must_reload, self.progress.refusing.clone()) {
                        self.reload(error).await;
                    }
                    self.run_round(&mut commands);
                }
            }
        }
        while !self.progress.appends.is_empty() {
            let result = next_append(&mut self.progress.appends).await;
            self.append_finished(result).await;
        }
    }

    fn now_ms(&self) -> i64 {
        let now = self.clock.unix_millis();
        now.max(self.machine.now_ms())
    }

    /// The time until the next timer or deadline.
    fn next_wait(&self) -> Option<Duration> {
        if let Some((_, until)) = &self.progress.refusing {
            return until.map(|until| until.saturating_sub(self.clock.elapsed()));
        }
        let due = self.machine.next_due_ms();
        let due =
            due.map(|at| Duration::from_millis(at.saturating_sub(self.now_ms()).max(0) as u64));
        let until = self.progress.waiting.deadline();
        let until = until.map(|until| until.saturating_sub(self.clock.elapsed()));
        due.into_iter().chain(until).min()
    }

    /// Runs all waiting commands, due timers and served waiters.
    fn run_round(&mut self, commands: &mut Vec<Command>) {
        let elapsed = self.clock.elapsed();
        if let Some((_, Some(until))) = &self.progress.refusing
            && *until <= elapsed
            && !self.progress.must_reload
        {
            self.progress.refusing = None;
        }
        if let Some((error, _)) = &self.progress.refusing {
            for command in commands.drain(..) {
                match command {
                    Command::Call(operation) => drop(operation(Err(error))),
                    Command::Wait(setup) => drop(setup(Err(error))),
                    Command::EndWaits | Command::EndWait(_) | Command::Stop => {}
                }
            }
            return;
        }
        self.machine.advance(self.now_ms());
        let mut replies = Vec::with_capacity(commands.len());
        let mut wait_end = elapsed;
        for command in commands.drain(..) {
            match command {
                Command::Call(operation) => replies.extend(operation(Ok(&mut self.machine))),
                Command::Wait(setup) => {
                    if let Some(waiter) = setup(Ok(&mut self.machine)) {
                        self.progress.waiting.add(waiter);
                    }
                }
                Command::EndWaits => wait_end = Duration::MAX,
                Command::EndWait(key) => {
                    self.progress
                        .waiting
                        .end(key, &mut self.machine, &mut replies)
                }
                Command::Stop => {}
            }
        }
        (self.progress.waiting).serve(&mut self.machine, wait_end, &mut replies);
        for event in self.machine.take_events() {
            self.journal.push(&event);
        }
        self.dispatch(replies, None);
        self.continue_compaction();
        *self.status.counters.lock() = (self.machine.counts(), self.machine.totals());
        self.status.usage.configure(self.machine.settings());
    }

    /// Appends the pushed events. Replies without new events wait for the last append in flight.
    fn dispatch(&mut self, replies: Vec<Reply>, marker: Option<CompactionMarker>) {
        if !self.journal.is_empty() {
            let before = self.journal.bytes;
            let result = self.journal.append(self.machine.now_ms());
            let bytes = self.journal.bytes - before;
            self.progress.in_flight_bytes += bytes;
            self.progress.appends.push_back(PendingAppend {
                result,
                replies,
                bytes,
                marker,
            });
        } else if let Some(last) = self.progress.appends.back_mut() {
            last.replies.extend(replies);
        } else {
            replies.into_iter().for_each(|reply| reply(Ok(())));
        }
    }

    async fn append_finished(&mut self, result: Result<AppendInfo, AppendError>) {
        let Some(append) = self.progress.appends.pop_front() else {
            return;
        };
        self.progress.in_flight_bytes -= append.bytes;
        match result {
            Ok(appended) => {
                append.replies.into_iter().for_each(|reply| reply(Ok(())));
                self.compaction_progress(append.marker, appended.offset);
            }
            Err(error) => {
                let error = Error::Log(error);
                append
                    .replies
                    .into_iter()
                    .for_each(|reply| reply(Err(&error)));
                self.recover(error).await;
            }
        }
    }

    /// Recovers from a failed append: discards the state in memory and replays the journal.
    async fn recover(&mut self, error: Error) {
        tracing::warn!(%error, "a queue's journal could not be written");
        while let Some(append) = self.progress.appends.pop_front() {
            // The log rejects every batch after one that it rejected.
            let _ = append.result.await;
            append
                .replies
                .into_iter()
                .for_each(|reply| reply(Err(&error)));
        }
        (self.progress.in_flight_bytes, self.progress.compaction) = (0, None);
        self.progress.waiting.refuse(&error);
        if let Error::Log(fenced @ AppendError::Fenced { .. }) = &error {
            let reason = format!("another instance has taken it over: {fenced}");
            self.progress.refusing = Some((Error::Stopped(reason), None));
            self.status.fenced.store(true, Ordering::Release);
            return;
        }
        self.reload(error).await;
    }

    /// Claims and replays the journal. Requests are refused with this error, until later if it is temporary.
    async fn reload(&mut self, error: Error) {
        let restarted = self.restart_journal().await;
        let until = self.clock.elapsed() + self.options.pause;
        match restarted {
            Ok(machine) => {
                self.machine = machine;
                let is_temporary = match &error {
                    Error::Log(error) => is_temporary(error),
                    _ => true,
                };
                self.progress.must_reload = false;
                self.progress.refusing = Some((error, is_temporary.then_some(until)));
            }
            Err(error) => {
                self.progress.must_reload = error.is_temporary();
                let stopped = Error::Stopped(error.to_string());
                self.progress.refusing =
                    Some((stopped, self.progress.must_reload.then_some(until)));
            }
        }
    }

    async fn restart_journal(&mut self) -> Result<Machine, JournalError> {
        let contents = match &self.topic {
            Some(topic) => read_contents(topic).await?,
            None => ContentMap::new(),
        };
        let producer = new_producer(&mut self.random);
        self.journal.restart(producer, &contents).await
    }

    /// Writes the next piece of the snapshot, if a compaction is due or running.
    fn continue_compaction(&mut self) {
        let live = self.machine.journaled_bytes();
        if self.progress.compaction.is_none()
            && self.journal.bytes > 2 * live + self.options.compaction_bytes
        {
            self.progress.compaction = Some(Compaction {
                cursor: Some(SnapshotCursor::Start),
                from: None,
                bytes_before: self.journal.bytes,
            });
        }
        let Some(compaction) = &mut self.progress.compaction else {
            return;
        };
        while let Some(cursor) = compaction.cursor.take() {
            let mut marker = (cursor == SnapshotCursor::Start).then_some(CompactionMarker::First);
            let (mut events, next) = self.machine.snapshot(cursor);
            if next.is_none() {
                marker = Some(CompactionMarker::Last);
                if events.is_empty() {
                    // The last marker needs a batch, and repeating the start is harmless.
                    (events, _) = self.machine.snapshot(SnapshotCursor::Start);
                }
            }
            compaction.cursor = next;
            if !events.is_empty() {
                events.iter().for_each(|event| self.journal.push(event));
                self.dispatch(Vec::new(), marker);
                return;
            }
        }
    }

    fn compaction_progress(&mut self, marker: Option<CompactionMarker>, offset: Offset) {
        let Some(compaction) = &mut self.progress.compaction else {
            return;
        };
        match marker {
            Some(CompactionMarker::First) => compaction.from = Some(offset),
            Some(CompactionMarker::Last) => {
                let (from, before) = (compaction.from, compaction.bytes_before);
                self.progress.compaction = None;
                if let Some(from) = from {
                    self.journal.bytes -= before.min(self.journal.bytes);
                    self.trim(from);
                }
            }
            None => {}
        }
        if self.progress.compaction.is_some() {
            self.continue_compaction();
        }
    }

    fn trim(&self, before: Offset) {
        let trim = self.journal.trim(before);
        // Not awaited, because that would delay the queue. A trim that fails is repeated after the next compaction.
        tokio::spawn(async move {
            if let Err(error) = trim.await {
                tracing::warn!(%error, "a queue's journal could not be trimmed");
            }
        });
    }
}

pub(super) fn new_producer(random: &mut Random) -> i64 {
    (random.next_u64() >> 1) as i64
}

/// The contents of a topic's messages.
pub(super) async fn read_contents(topic: &Queue) -> Result<ContentMap, JournalError> {
    let contents = topic.contents().await;
    contents.map_err(|error| JournalError::Topic(error.to_string()))
}

async fn next_append(appends: &mut VecDeque<PendingAppend>) -> Result<AppendInfo, AppendError> {
    match appends.front_mut() {
        Some(append) => append.result.as_mut().await,
        None => std::future::pending().await,
    }
}

async fn pause(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
