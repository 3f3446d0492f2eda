//! One thread that sends what is due and hears what has come.
//!
//! It shares the machine with what it measures, so it has no tasks, no timers and no locks: a loop over the sockets that
//! are ready. Connections take turns. Each has one request under way, as with most clients, and keeps it until it is
//! accepted or given up, through rests and new connections.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use highwater_env::{Clock, RealClock};
use mio::{Events, Poll};

use super::Load;
use super::book::{Book, Trouble};
use super::connection::Connection;
use super::customer::Customers;
use super::schedule::Schedule;
use crate::ledger::Wish;

/// How often late answers are looked for; also the longest sleep.
const LOOK: Duration = Duration::from_millis(100);
/// Before a request is sent again.
const REST: Duration = Duration::from_millis(500);

pub struct Generator<'a> {
    load: &'a Load,
    address: SocketAddr,
    customers: Customers,
    schedule: Schedule,
    clock: &'a RealClock,
    poll: Poll,
    turns: Vec<Turn>,
    idle: VecDeque<usize>,
    /// Who sends again, and when. All rest equally long, so the first is due first.
    resting: VecDeque<(Duration, usize)>,
    /// The number of the next request, and when it is due.
    number: u64,
    next: Option<Due>,
    /// Deliveries to be cancelled when all requests have been sent, and some are under way.
    regretted: Vec<String>,
    buffer: Box<[u8]>,
    book: &'a mut Book,
}

#[derive(Clone, Copy)]
struct Due {
    at: Duration,
    in_spike: bool,
}

/// A connection and what it is used for.
#[derive(Default)]
struct Turn {
    connection: Connection,
    errand: Option<Errand>,
    tries: u32,
    /// When the request left; nothing while there is none to be answered.
    left: Option<Duration>,
}

enum Errand {
    Deliver { number: u64, due: Due },
    Cancel { id: String },
}

impl Errand {
    fn wanted(&self) -> u16 {
        match self {
            Errand::Deliver { .. } => 202,
            Errand::Cancel { .. } => 204,
        }
    }
}

impl<'a> Generator<'a> {
    /// The time of the load begins with the clock.
    pub fn new(
        load: &'a Load,
        address: SocketAddr,
        clock: &'a RealClock,
        book: &'a mut Book,
    ) -> io::Result<Generator<'a>> {
        let connections = load.connections as usize;
        let mut generator = Generator {
            address,
            customers: Customers::new(&load.name, &load.to, load.mix.clone()),
            schedule: load.schedule(),
            clock,
            poll: Poll::new()?,
            turns: (0..connections).map(|_| Turn::default()).collect(),
            idle: (0..connections).collect(),
            resting: VecDeque::new(),
            number: 0,
            next: None,
            regretted: Vec::new(),
            buffer: vec![0; 64 << 10].into(),
            book,
            load,
        };
        generator.look_ahead();
        Ok(generator)
    }

    /// Until every request was accepted or given up, or somebody says stop.
    pub fn run(mut self, stop: &AtomicBool, accepted: &AtomicU64) -> io::Result<()> {
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
                self.hear(event.token().0);
            }
            accepted.store(self.book.accepted, Ordering::Relaxed);
            if now - looked > LOOK {
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
        self.next.is_none() && self.regretted.is_empty() && self.idle.len() == self.turns.len()
    }

    /// Requests that are due while every connection is busy leave late; their latency counts from when they
    /// were due all the same.
    fn send_due(&mut self, now: Duration) {
        while let Some((at, turn)) = self.resting.front().copied()
            && at <= now
        {
            self.resting.pop_front();
            self.attempt(turn, now);
        }
        while !self.idle.is_empty()
            && let Some(errand) = self.next_errand(now)
            && let Some(turn) = self.idle.pop_front()
        {
            self.begin(turn, errand, now);
        }
    }

    fn next_errand(&mut self, now: Duration) -> Option<Errand> {
        match self.next {
            Some(due) if due.at <= now => {
                let number = self.number;
                self.number += 1;
                self.look_ahead();
                Some(Errand::Deliver { number, due })
            }
            Some(_) => None,
            None => self.regretted.pop().map(|id| Errand::Cancel { id }),
        }
    }

    /// Until something is to be sent.
    fn pause(&self, now: Duration) -> Duration {
        let request = self.next.filter(|_| !self.idle.is_empty());
        let request = request.map_or(LOOK, |due| due.at.saturating_sub(now));
        let again = self.resting.front();
        let again = again.map_or(LOOK, |(at, _)| at.saturating_sub(now));
        request.min(again).min(LOOK)
    }

    fn begin(&mut self, turn: usize, errand: Errand, now: Duration) {
        let to = &mut self.turns[turn];
        let room = to.connection.request();
        match &errand {
            Errand::Deliver { number, .. } => self.customers.request(*number, room),
            Errand::Cancel { id } => self.customers.cancellation(id, room),
        }
        to.errand = Some(errand);
        to.tries = 0;
        self.attempt(turn, now);
    }

    fn attempt(&mut self, turn: usize, now: Duration) {
        let to = &mut self.turns[turn];
        to.tries += 1;
        to.left = Some(now);
        self.book.repeated += u64::from(to.tries == 2);
        let registry = self.poll.registry();
        if let Err(error) = to.connection.begin(self.address, registry, turn) {
            self.fail(turn, Trouble::Broken(error));
        }
    }

    fn hear(&mut self, turn: usize) {
        match self.settle(turn) {
            Ok(None) => {}
            Ok(Some(After::Nothing)) => self.release(turn),
            Ok(Some(After::Cancel(id))) => {
                let now = self.clock.elapsed();
                self.begin(turn, Errand::Cancel { id }, now);
            }
            Err(trouble) => self.fail(turn, trouble),
        }
    }

    /// What is left to be done after an answer that was wanted; nothing while there is none.
    fn settle(&mut self, turn: usize) -> Result<Option<After>, Trouble> {
        let to = &mut self.turns[turn];
        to.connection.send().map_err(Trouble::Broken)?;
        let received = to.connection.receive(&mut self.buffer);
        let Some((status, body)) = received.map_err(Trouble::Broken)? else {
            return Ok(None);
        };
        let Some(errand) = to.errand.as_ref().filter(|_| to.left.is_some()) else {
            return Ok(None);
        };
        let refused = || Trouble::Refused(status, String::from_utf8_lossy(body).into_owned());
        if status != errand.wanted() {
            return Err(refused());
        }
        match errand {
            Errand::Deliver { number, due } => {
                let id = delivery_id(body).ok_or_else(refused)?;
                let took = self.clock.elapsed().saturating_sub(due.at);
                self.book.took(took, due.in_spike);
                self.book.enter(id, Wish::Deliver);
                // Some change their mind at once, others when their delivery may be under way.
                match (self.customers.changes_mind(*number), number % 2) {
                    (false, _) => {}
                    (true, 0) => return Ok(Some(After::Cancel(id.to_owned()))),
                    (true, _) => self.regretted.push(id.to_owned()),
                }
            }
            Errand::Cancel { id } => self.book.enter(id, Wish::Cancel),
        }
        Ok(Some(After::Nothing))
    }

    fn fail(&mut self, turn: usize, trouble: Trouble) {
        let to = &mut self.turns[turn];
        if !matches!(trouble, Trouble::Refused(..)) {
            to.connection.close();
        }
        // A connection that ends while there is nothing to be answered is no trouble.
        if to.left.take().is_none() {
            return;
        }
        if trouble.is_final() || to.tries >= self.load.tries {
            self.book.lost += 1;
            self.release(turn);
        } else {
            let now = self.clock.elapsed();
            self.resting.push_back((now + REST, turn));
        }
        self.book.trouble(trouble);
    }

    fn release(&mut self, turn: usize) {
        let to = &mut self.turns[turn];
        to.errand = None;
        to.left = None;
        self.idle.push_back(turn);
    }

    fn stop_waiting(&mut self, now: Duration) {
        let timeout = Duration::from_millis(self.load.timeout_ms);
        for turn in 0..self.turns.len() {
            let left = self.turns[turn].left;
            if left.is_some_and(|left| now.saturating_sub(left) > timeout) {
                self.fail(turn, Trouble::Late(timeout));
            }
        }
    }
}

enum After {
    Nothing,
    Cancel(String),
}

/// From `{"deliveryId":"..."`, which is how the answer begins.
fn delivery_id(body: &[u8]) -> Option<&str> {
    let rest = body.strip_prefix(b"{\"deliveryId\":\"")?;
    let end = rest.iter().position(|byte| *byte == b'"')?;
    std::str::from_utf8(&rest[..end]).ok()
}
