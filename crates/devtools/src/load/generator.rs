//! A single thread that sends due requests and reads responses.
//!
//! It shares the machine with the processes it measures, so it uses no tasks, timers or locks: one loop over ready
//! sockets. Connections are used in turn. Each has one request in flight, like most clients, and keeps it until it is
//! accepted or abandoned, through retries and reconnects.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use highwater_env::{Clock, RealClock};
use mio::{Events, Poll, Token};

use super::connection::LoadConnection;
use super::schedule::Schedule;

/// Interval of the check for late responses; also the longest sleep.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The requests of a load, and the handling of responses.
pub trait LoadClient {
    type Task;

    /// The task of request `number` of the schedule.
    fn task(&mut self, number: u64, due: DueTime) -> Self::Task;

    /// A task after the scheduled ones.
    fn last_task(&mut self) -> Option<Self::Task> {
        None
    }

    fn write(&mut self, task: &Self::Task, request: &mut Vec<u8>);

    /// Takes the response to a task, and returns the task that follows on the same connection.
    fn receive(
        &mut self,
        task: &Self::Task,
        status: u16,
        body: &[u8],
        now: Duration,
    ) -> Result<Option<Self::Task>, AttemptError>;

    /// Before attempt `number` of a task, counted from 1.
    fn attempt(&mut self, number: u32) {
        let _ = number;
    }

    /// An attempt failed; `given_up` if it was the last one of its task.
    fn fail(&mut self, error: AttemptError, given_up: bool);

    /// Ends the load before its tasks.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// When a request is due.
#[derive(Clone, Copy, Debug)]
pub struct DueTime {
    pub at: Duration,
    pub in_spike: bool,
}

/// Why an attempt was not accepted.
pub enum AttemptError {
    /// Another status than the expected one.
    Refused(u16, String),
    Late(Duration),
    /// Connection failed or lost.
    Broken(io::Error),
}

impl AttemptError {
    /// A client error would fail the same way again.
    pub fn is_final(&self) -> bool {
        match self {
            AttemptError::Refused(408 | 429, _) => false,
            AttemptError::Refused(status, _) => (400..500).contains(status),
            AttemptError::Late(_) | AttemptError::Broken(_) => false,
        }
    }
}

pub struct LoadOptions {
    pub schedule: Schedule,
    pub address: SocketAddr,
    pub connections: usize,
    /// A response that takes longer, from the time its request was sent, is an error.
    pub timeout: Duration,
    /// Attempts of a task.
    pub tries: u32,
    /// Delay before a retry.
    pub retry_delay: Duration,
}

/// Runs until every task is accepted or abandoned, or the client stops. The load's time is that of `clock`.
pub fn generate(
    options: &LoadOptions,
    clock: &RealClock,
    client: &mut impl LoadClient,
) -> io::Result<()> {
    let connections = options.connections;
    let mut generator = Generator {
        options,
        client,
        clock,
        poll: Poll::new()?,
        slots: (0..connections).map(|_| Slot::default()).collect(),
        idle: (0..connections).collect(),
        retrying: VecDeque::new(),
        number: 0,
        next: None,
    };
    generator.schedule_next();
    generator.run()
}

/// Waits for ready sockets. A signal ends the wait without any.
pub fn wait(poll: &mut Poll, events: &mut Events, time: Duration) -> io::Result<()> {
    match poll.poll(events, Some(time)) {
        Err(error) if error.kind() == ErrorKind::Interrupted => {
            events.clear();
            Ok(())
        }
        polled => polled,
    }
}

struct Generator<'a, C: LoadClient> {
    options: &'a LoadOptions,
    client: &'a mut C,
    clock: &'a RealClock,
    poll: Poll,
    slots: Vec<Slot<C::Task>>,
    idle: VecDeque<usize>,
    /// Retry times and slots, in order, because all delays are equal.
    retrying: VecDeque<(Duration, usize)>,
    /// The number of the next request, and when it is due.
    number: u64,
    next: Option<DueTime>,
}

/// A connection and its current task.
struct Slot<T> {
    connection: LoadConnection,
    task: Option<T>,
    tries: u32,
    /// When the request was sent; `None` if none awaits a response.
    sent: Option<Duration>,
}

impl<T> Default for Slot<T> {
    fn default() -> Slot<T> {
        Slot {
            connection: LoadConnection::default(),
            task: None,
            tries: 0,
            sent: None,
        }
    }
}

impl<C: LoadClient> Generator<'_, C> {
    fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        let mut checked = Duration::ZERO;
        loop {
            let now = self.clock.elapsed();
            self.send_due(now);
            // With an idle connection there is nothing left to send.
            let is_done = self.next.is_none() && self.idle.len() == self.slots.len();
            if is_done || self.client.is_stopped() {
                return Ok(());
            }
            let pause = self.pause(now);
            wait(&mut self.poll, &mut events, pause)?;
            for event in &events {
                self.on_ready(event.token().0);
            }
            if now - checked > CHECK_INTERVAL {
                checked = now;
                self.expire(now);
            }
        }
    }

    fn schedule_next(&mut self) {
        let due = self.options.schedule.due(self.number);
        self.next = due.map(|(at, in_spike)| DueTime { at, in_spike });
    }

    /// Sends due requests. When all connections are busy they leave late, but their latency counts from the due time.
    fn send_due(&mut self, now: Duration) {
        while let Some((at, slot)) = self.retrying.front().copied()
            && at <= now
        {
            self.retrying.pop_front();
            self.attempt(slot, now);
        }
        while !self.idle.is_empty()
            && let Some(task) = self.next_task(now)
            && let Some(slot) = self.idle.pop_front()
        {
            self.begin(slot, task, now);
        }
    }

    fn next_task(&mut self, now: Duration) -> Option<C::Task> {
        match self.next {
            Some(due) if due.at <= now => {
                let task = self.client.task(self.number, due);
                self.number += 1;
                self.schedule_next();
                Some(task)
            }
            Some(_) => None,
            None => self.client.last_task(),
        }
    }

    /// Time until the next send.
    fn pause(&self, now: Duration) -> Duration {
        let request = self.next.filter(|_| !self.idle.is_empty());
        let request = request.map_or(CHECK_INTERVAL, |due| due.at.saturating_sub(now));
        let again = self.retrying.front();
        let again = again.map_or(CHECK_INTERVAL, |(at, _)| at.saturating_sub(now));
        request.min(again).min(CHECK_INTERVAL)
    }

    fn begin(&mut self, slot: usize, task: C::Task, now: Duration) {
        let to = &mut self.slots[slot];
        self.client.write(&task, to.connection.request());
        to.task = Some(task);
        to.tries = 0;
        self.attempt(slot, now);
    }

    fn attempt(&mut self, slot: usize, now: Duration) {
        let to = &mut self.slots[slot];
        to.tries += 1;
        to.sent = Some(now);
        self.client.attempt(to.tries);
        let (address, registry) = (self.options.address, self.poll.registry());
        if let Err(error) = to.connection.start(address, registry, Token(slot)) {
            self.fail(slot, AttemptError::Broken(error));
        }
    }

    fn on_ready(&mut self, slot: usize) {
        match self.receive(slot) {
            Ok(None) => {}
            Ok(Some(None)) => self.release(slot),
            Ok(Some(Some(task))) => {
                let now = self.clock.elapsed();
                self.begin(slot, task, now);
            }
            Err(error) => self.fail(slot, error),
        }
    }

    /// The task after a response, if there is one; `None` while the response is incomplete.
    fn receive(&mut self, slot: usize) -> Result<Option<Option<C::Task>>, AttemptError> {
        let to = &mut self.slots[slot];
        let received = to.connection.receive().map_err(AttemptError::Broken)?;
        let Some((status, body)) = received else {
            return Ok(None);
        };
        let Some(task) = to.task.as_ref().filter(|_| to.sent.is_some()) else {
            return Ok(None);
        };
        let now = self.clock.elapsed();
        self.client.receive(task, status, body, now).map(Some)
    }

    fn fail(&mut self, slot: usize, error: AttemptError) {
        let to = &mut self.slots[slot];
        if !matches!(error, AttemptError::Refused(..)) {
            to.connection.close();
        }
        // A connection that closes between two requests is not an error.
        if to.sent.take().is_none() {
            return;
        }
        let given_up = error.is_final() || to.tries >= self.options.tries;
        self.client.fail(error, given_up);
        match given_up {
            true => self.release(slot),
            false => {
                let at = self.clock.elapsed() + self.options.retry_delay;
                self.retrying.push_back((at, slot));
            }
        }
    }

    fn release(&mut self, slot: usize) {
        let to = &mut self.slots[slot];
        to.task = None;
        to.sent = None;
        self.idle.push_back(slot);
    }

    fn expire(&mut self, now: Duration) {
        let timeout = self.options.timeout;
        for slot in 0..self.slots.len() {
            let sent = self.slots[slot].sent;
            if sent.is_some_and(|sent| now.saturating_sub(sent) > timeout) {
                self.fail(slot, AttemptError::Late(timeout));
            }
        }
    }
}
