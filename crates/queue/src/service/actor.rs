//! The task that owns a queue.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::Clock;
use highwater_env::random::Random;
use highwater_log::{AppendError, Appended, Offset, Pending};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::error::Error;
use super::waiting::{Waiter, Waiting};
use crate::journal::Journal;
use crate::machine::{Counts, Cursor, Machine, Totals};

/// Tells a caller how it went. Called when everything up to it is durable, or with the reason why
/// nobody knows.
pub type Reply = Box<dyn FnOnce(Result<(), &Error>) + Send>;

/// What a caller wants done, or why it cannot be, which it is told at once.
pub type Act = Box<dyn FnOnce(Result<&mut Machine, &Error>) -> Option<Reply> + Send>;

/// What is done before a caller waits, and then for what it waits.
pub type Begin = Box<dyn FnOnce(Result<&mut Machine, &Error>) -> Option<Waiter> + Send>;

pub enum Command {
    /// To be done at once.
    Call(Act),
    /// To be done when there is something to be had.
    Wait(Begin),
    /// Everybody has waited long enough.
    EndWaits,
    /// What was asked before is still done.
    Stop,
}

/// Limits of a queue's task. The defaults suit one machine.
#[derive(Clone, Debug)]
pub struct Options {
    /// Commands that are taken together.
    pub commands_max: usize,
    /// Bytes that may be on their way to the log.
    pub in_flight_bytes_max: usize,
    /// The journal is said again and begun anew when it holds so many bytes more than twice what the
    /// messages take.
    pub sweep_bytes: u64,
    /// After the log turned something away, nothing is tried for so long.
    pub pause: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            commands_max: 1024,
            in_flight_bytes_max: 16 << 20,
            sweep_bytes: 16 << 20,
            pause: Duration::from_secs(1),
        }
    }
}

pub struct Actor {
    pub machine: Machine,
    pub journal: Journal,
    pub clock: Arc<dyn Clock>,
    pub random: Random,
    pub options: Options,
    pub commands: mpsc::Receiver<Command>,
    /// For whoever only wants to look.
    pub glance: Arc<Mutex<(Counts, Totals)>>,
    waiting: Waiting,
    flights: VecDeque<Flight>,
    in_flight_bytes: u64,
    sweep: Option<Sweep>,
    /// Why everything is refused, and until when.
    refusing: Option<(Error, Option<Duration>)>,
}

/// A batch on its way, and who waits for it.
struct Flight {
    append: Pending<Result<Appended, AppendError>>,
    replies: Vec<Reply>,
    bytes: u64,
    mark: Option<Mark>,
}

/// What a batch is for a sweep.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    First,
    Last,
}

/// Says again what is left, see `machine/keep.rs`.
struct Sweep {
    cursor: Option<Cursor>,
    from: Option<Offset>,
    /// Of the journal before it began.
    bytes_before: u64,
}

impl Actor {
    pub fn new(
        machine: Machine,
        journal: Journal,
        clock: Arc<dyn Clock>,
        random: Random,
        options: Options,
        commands: mpsc::Receiver<Command>,
        glance: Arc<Mutex<(Counts, Totals)>>,
    ) -> Actor {
        Actor {
            machine,
            journal,
            clock,
            random,
            options,
            commands,
            glance,
            waiting: Waiting::default(),
            flights: VecDeque::new(),
            in_flight_bytes: 0,
            sweep: None,
            refusing: None,
        }
    }

    /// Ends when nobody can ask for anything any more and everything is answered.
    pub async fn run(mut self) {
        let mut commands = Vec::new();
        loop {
            let room = self.in_flight_bytes < self.options.in_flight_bytes_max as u64;
            let max = self.options.commands_max;
            let wait = self.next_wait();
            tokio::select! {
                biased;
                landed = land(&mut self.flights), if !self.flights.is_empty() => {
                    self.landed(landed).await;
                }
                count = self.commands.recv_many(&mut commands, max), if room => {
                    let stop = |command: &Command| matches!(command, Command::Stop);
                    let stopping = count == 0 || commands.iter().any(stop);
                    self.turn(&mut commands);
                    if stopping {
                        break;
                    }
                }
                () = pause(wait) => self.turn(&mut commands),
            }
        }
        while !self.flights.is_empty() {
            let landed = land(&mut self.flights).await;
            self.landed(landed).await;
        }
    }

    fn now_ms(&self) -> i64 {
        let now = self.clock.unix_nanos().div_euclid(1_000_000) as i64;
        now.max(self.machine.now_ms())
    }

    /// How long nothing happens by itself.
    fn next_wait(&self) -> Option<Duration> {
        if let Some((_, until)) = &self.refusing {
            return until.map(|until| until.saturating_sub(self.clock.elapsed()));
        }
        let due = self.machine.next_due_ms();
        let due =
            due.map(|at| Duration::from_millis(at.saturating_sub(self.now_ms()).max(0) as u64));
        let until = self.waiting.deadline();
        let until = until.map(|until| until.saturating_sub(self.clock.elapsed()));
        due.into_iter().chain(until).min()
    }

    /// Does what has gathered, and everything that is due.
    fn turn(&mut self, commands: &mut Vec<Command>) {
        let elapsed = self.clock.elapsed();
        if let Some((_, Some(until))) = &self.refusing
            && *until <= elapsed
        {
            self.refusing = None;
        }
        if let Some((error, _)) = &self.refusing {
            for command in commands.drain(..) {
                match command {
                    Command::Call(act) => drop(act(Err(error))),
                    Command::Wait(begin) => drop(begin(Err(error))),
                    Command::EndWaits | Command::Stop => {}
                }
            }
            return;
        }
        self.machine.advance(self.now_ms());
        let mut replies = Vec::with_capacity(commands.len());
        let mut wait_end = elapsed;
        for command in commands.drain(..) {
            match command {
                Command::Call(act) => replies.extend(act(Ok(&mut self.machine))),
                Command::Wait(begin) => {
                    if let Some(waiter) = begin(Ok(&mut self.machine)) {
                        self.waiting.add(waiter);
                    }
                }
                Command::EndWaits => wait_end = Duration::MAX,
                Command::Stop => {}
            }
        }
        (self.waiting).serve(&mut self.machine, wait_end, &mut replies);
        for event in self.machine.take_events() {
            self.journal.push(&event);
        }
        self.dispatch(replies, None);
        self.sweep_on();
        *self.glance.lock() = (self.machine.counts(), self.machine.totals());
    }

    /// Sends off what was pushed. Answers that say nothing new wait for what is ahead of them.
    fn dispatch(&mut self, replies: Vec<Reply>, mark: Option<Mark>) {
        if !self.journal.is_empty() {
            let before = self.journal.bytes;
            let append = self.journal.append(self.machine.now_ms());
            let bytes = self.journal.bytes - before;
            self.in_flight_bytes += bytes;
            self.flights.push_back(Flight {
                append,
                replies,
                bytes,
                mark,
            });
        } else if let Some(last) = self.flights.back_mut() {
            last.replies.extend(replies);
        } else {
            replies.into_iter().for_each(|reply| reply(Ok(())));
        }
    }

    async fn landed(&mut self, result: Result<Appended, AppendError>) {
        let Some(flight) = self.flights.pop_front() else {
            return;
        };
        self.in_flight_bytes -= flight.bytes;
        match result {
            Ok(appended) => {
                flight.replies.into_iter().for_each(|reply| reply(Ok(())));
                self.swept(flight.mark, appended.offset);
            }
            Err(error) => {
                let error = Error::Log(error);
                flight
                    .replies
                    .into_iter()
                    .for_each(|reply| reply(Err(&error)));
                self.recover(error).await;
            }
        }
    }

    /// What is in memory was not written: it is thrown away, and what was is read again.
    async fn recover(&mut self, error: Error) {
        tracing::warn!(%error, "a queue could not be written");
        while let Some(flight) = self.flights.pop_front() {
            // The log refuses what comes after a batch that it refused.
            let _ = flight.append.await;
            flight
                .replies
                .into_iter()
                .for_each(|reply| reply(Err(&error)));
        }
        (self.in_flight_bytes, self.sweep) = (0, None);
        self.waiting.refuse(&error);
        let lasting = !matches!(
            error,
            Error::Log(AppendError::Full { .. } | AppendError::NoRoom { .. })
        );
        match self.journal.replay().await {
            Ok(machine) => self.machine = machine,
            Err(error) => {
                self.refusing = Some((Error::Stopped(error.to_string()), None));
                return;
            }
        }
        self.journal.restart(new_producer(&mut self.random));
        let until = self.clock.elapsed() + self.options.pause;
        self.refusing = Some((error, (!lasting).then_some(until)));
    }

    /// Says a piece more again, if it is time to.
    fn sweep_on(&mut self) {
        let live = self.machine.counts().bytes;
        if self.sweep.is_none() && self.journal.bytes > 2 * live + self.options.sweep_bytes {
            self.sweep = Some(Sweep {
                cursor: Some(Cursor::Start),
                from: None,
                bytes_before: self.journal.bytes,
            });
        }
        let Some(sweep) = &mut self.sweep else {
            return;
        };
        while let Some(cursor) = sweep.cursor.take() {
            let mut mark = (cursor == Cursor::Start).then_some(Mark::First);
            let (mut events, next) = self.machine.keep(cursor);
            if next.is_none() {
                mark = Some(Mark::Last);
                if events.is_empty() {
                    // Something must say that it is over, and this does no harm.
                    (events, _) = self.machine.keep(Cursor::Start);
                }
            }
            sweep.cursor = next;
            if !events.is_empty() {
                events.iter().for_each(|event| self.journal.push(event));
                self.dispatch(Vec::new(), mark);
                return;
            }
        }
    }

    fn swept(&mut self, mark: Option<Mark>, offset: Offset) {
        let Some(sweep) = &mut self.sweep else {
            return;
        };
        match mark {
            Some(Mark::First) => sweep.from = Some(offset),
            Some(Mark::Last) => {
                let (from, before) = (sweep.from, sweep.bytes_before);
                self.sweep = None;
                if let Some(from) = from {
                    self.journal.bytes -= before.min(self.journal.bytes);
                    self.trim(from);
                }
            }
            None => {}
        }
        if self.sweep.is_some() {
            self.sweep_on();
        }
    }

    fn trim(&self, before: Offset) {
        let trim = self.journal.trim(before);
        // Whoever waits for the disk here would hold up the queue; what is not removed now is removed
        // after the next sweep.
        tokio::spawn(async move {
            if let Err(error) = trim.await {
                tracing::warn!(%error, "the journal of a queue could not be shortened");
            }
        });
    }
}

pub fn new_producer(random: &mut Random) -> i64 {
    (random.next_u64() >> 1) as i64
}

async fn land(flights: &mut VecDeque<Flight>) -> Result<Appended, AppendError> {
    match flights.front_mut() {
        Some(flight) => flight.append.as_mut().await,
        None => std::future::pending().await,
    }
}

async fn pause(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
