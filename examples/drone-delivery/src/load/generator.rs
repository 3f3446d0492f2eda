//! A single thread that sends due requests and reads responses.
//!
//! It shares the machine with the processes it measures, so it uses no tasks, timers or locks: one loop over ready sockets.
//! Connections are used in turn. Each has one request in flight, like most clients, and keeps it until it is accepted or
//! given up, through retries and reconnects.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use highwater_env::{Clock, RealClock};
use mio::{Events, Poll};

use super::Load;
use super::connection::Connection;
use super::customer::Customers;
use super::report::{AttemptError, LoadReport};
use super::schedule::Schedule;
use crate::ledger::CustomerAction;

/// Interval of the check for late responses; also the longest sleep.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Delay before a retry.
const RETRY_DELAY: Duration = Duration::from_millis(500);

pub(super) struct Generator<'a> {
    load: &'a Load,
    address: SocketAddr,
    customers: Customers,
    schedule: Schedule,
    clock: &'a RealClock,
    poll: Poll,
    slots: Vec<ConnectionSlot>,
    idle: VecDeque<usize>,
    /// Retry times and slots, in order, because all delays are equal.
    retrying: VecDeque<(Duration, usize)>,
    /// The number of the next request, and when it is due.
    number: u64,
    next: Option<Due>,
    /// Deliveries to cancel after all requests are sent, when some are in progress.
    to_cancel: Vec<String>,
    report: &'a mut LoadReport,
}

#[derive(Clone, Copy)]
struct Due {
    at: Duration,
    in_spike: bool,
}

/// A connection and its current task.
#[derive(Default)]
struct ConnectionSlot {
    connection: Connection,
    task: Option<Task>,
    tries: u32,
    /// When the request was sent; `None` if none awaits a response.
    left: Option<Duration>,
}

enum Task {
    Deliver { number: u64, due: Due },
    Cancel { id: String },
}

impl Task {
    fn expected_status(&self) -> u16 {
        match self {
            Task::Deliver { .. } => 202,
            Task::Cancel { .. } => 204,
        }
    }
}

impl<'a> Generator<'a> {
    /// The load's time is that of `clock`.
    pub(super) fn new(
        load: &'a Load,
        address: SocketAddr,
        clock: &'a RealClock,
        report: &'a mut LoadReport,
    ) -> io::Result<Generator<'a>> {
        let connections = load.connections as usize;
        let mut generator = Generator {
            address,
            customers: Customers::new(&load.name, &load.to, load.mix.clone()),
            schedule: load.schedule(),
            clock,
            poll: Poll::new()?,
            slots: (0..connections)
                .map(|_| ConnectionSlot::default())
                .collect(),
            idle: (0..connections).collect(),
            retrying: VecDeque::new(),
            number: 0,
            next: None,
            to_cancel: Vec::new(),
            report,
            load,
        };
        generator.look_ahead();
        Ok(generator)
    }

    /// Runs until every request is accepted or given up, or `stop` is set.
    pub(super) fn run(mut self, stop: &AtomicBool, accepted: &AtomicU64) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        let mut looked = Duration::ZERO;
        loop {
            let now = self.clock.elapsed();
            self.send_due(now);
            if self.is_done() || stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            match self.poll.poll(&mut events, Some(self.pause(now))) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            for event in &events {
                self.receive(event.token().0);
            }
            accepted.store(self.report.accepted, Ordering::Relaxed);
            if now - looked > CHECK_INTERVAL {
                looked = now;
                self.stop_waiting(now);
            }
        }
    }

    fn look_ahead(&mut self) {
        let due = self.schedule.due(self.number);
        self.next = due.map(|(at, in_spike)| Due { at, in_spike });
    }

    fn is_done(&self) -> bool {
        self.next.is_none() && self.to_cancel.is_empty() && self.idle.len() == self.slots.len()
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

    fn next_task(&mut self, now: Duration) -> Option<Task> {
        match self.next {
            Some(due) if due.at <= now => {
                let number = self.number;
                self.number += 1;
                self.look_ahead();
                Some(Task::Deliver { number, due })
            }
            Some(_) => None,
            None => self.to_cancel.pop().map(|id| Task::Cancel { id }),
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

    fn begin(&mut self, slot: usize, task: Task, now: Duration) {
        let to = &mut self.slots[slot];
        let room = to.connection.request();
        match &task {
            Task::Deliver { number, .. } => self.customers.request(*number, room),
            Task::Cancel { id } => self.customers.cancellation(id, room),
        }
        to.task = Some(task);
        to.tries = 0;
        self.attempt(slot, now);
    }

    fn attempt(&mut self, slot: usize, now: Duration) {
        let to = &mut self.slots[slot];
        to.tries += 1;
        to.left = Some(now);
        self.report.repeated += u64::from(to.tries == 2);
        let registry = self.poll.registry();
        if let Err(error) = to.connection.begin(self.address, registry, slot) {
            self.fail(slot, AttemptError::Broken(error));
        }
    }

    fn receive(&mut self, slot: usize) {
        match self.settle(slot) {
            Ok(None) => {}
            Ok(Some(NextAction::Nothing)) => self.release(slot),
            Ok(Some(NextAction::Cancel(id))) => {
                let now = self.clock.elapsed();
                self.begin(slot, Task::Cancel { id }, now);
            }
            Err(error) => self.fail(slot, error),
        }
    }

    /// The action after an expected response; `None` while the response is incomplete.
    fn settle(&mut self, slot: usize) -> Result<Option<NextAction>, AttemptError> {
        let to = &mut self.slots[slot];
        let received = to.connection.poll().map_err(AttemptError::Broken)?;
        let Some((status, body)) = received else {
            return Ok(None);
        };
        let Some(task) = to.task.as_ref().filter(|_| to.left.is_some()) else {
            return Ok(None);
        };
        let refused = || AttemptError::Refused(status, String::from_utf8_lossy(body).into_owned());
        if status != task.expected_status() {
            return Err(refused());
        }
        match task {
            Task::Deliver { number, due } => {
                let id = delivery_id(body).ok_or_else(refused)?;
                let took = self.clock.elapsed().saturating_sub(due.at);
                self.report.record_latency(took, due.in_spike);
                self.report.record(id, CustomerAction::Deliver);
                // Some cancel at once, others when their delivery may be in progress.
                match (self.customers.changes_mind(*number), number % 2) {
                    (false, _) => {}
                    (true, 0) => return Ok(Some(NextAction::Cancel(id.to_owned()))),
                    (true, _) => self.to_cancel.push(id.to_owned()),
                }
            }
            Task::Cancel { id } => self.report.record(id, CustomerAction::Cancel),
        }
        Ok(Some(NextAction::Nothing))
    }

    fn fail(&mut self, slot: usize, error: AttemptError) {
        let to = &mut self.slots[slot];
        if !matches!(error, AttemptError::Refused(..)) {
            to.connection.close();
        }
        // A connection that ends without an outstanding request is no error.
        if to.left.take().is_none() {
            return;
        }
        if error.is_final() || to.tries >= self.load.tries {
            self.report.lost += 1;
            self.release(slot);
        } else {
            let now = self.clock.elapsed();
            self.retrying.push_back((now + RETRY_DELAY, slot));
        }
        self.report.error(error);
    }

    fn release(&mut self, slot: usize) {
        let to = &mut self.slots[slot];
        to.task = None;
        to.left = None;
        self.idle.push_back(slot);
    }

    fn stop_waiting(&mut self, now: Duration) {
        let timeout = Duration::from_millis(self.load.timeout_ms);
        for slot in 0..self.slots.len() {
            let left = self.slots[slot].left;
            if left.is_some_and(|left| now.saturating_sub(left) > timeout) {
                self.fail(slot, AttemptError::Late(timeout));
            }
        }
    }
}

enum NextAction {
    Nothing,
    Cancel(String),
}

/// From `{"deliveryId":"..."`, the beginning of the response.
fn delivery_id(body: &[u8]) -> Option<&str> {
    let rest = body.strip_prefix(b"{\"deliveryId\":\"")?;
    let end = rest.iter().position(|byte| *byte == b'"')?;
    std::str::from_utf8(&rest[..end]).ok()
}
