//! Those who wait for a message or a session, first come, first served.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::actor::{Act, Reply};
use super::error::Error;
use crate::machine::{Machine, Part, SessionLock};

/// What somebody waits for.
#[derive(Clone, Debug)]
pub enum Want {
    Message(Part),
    AnySession,
    Session(String),
    InSession(SessionLock),
}

impl Want {
    /// Whether there is something to be told, if only that it will never come.
    fn is_there(&self, machine: &Machine) -> bool {
        let sessions = machine.settings().sessions;
        match self {
            Want::Message(Part::Main) if sessions => true,
            Want::Message(part) => machine.has_ready(*part),
            Want::AnySession => machine.has_free_session() || !sessions,
            Want::Session(name) => machine.is_free(name),
            Want::InSession(lock) => {
                machine.has_ready_in(&lock.session) || !machine.holds_session(lock)
            }
        }
    }

    /// Those of one line want the same, so when there is nothing for the first there is nothing for
    /// the others.
    fn line(&self) -> usize {
        match self {
            Want::Message(Part::Main) => 0,
            Want::Message(Part::DeadLetters) => 1,
            Want::AnySession => 2,
            Want::Session(_) | Want::InSession(_) => 3,
        }
    }
}

pub struct Waiter {
    pub want: Want,
    /// On the clock's `elapsed`.
    pub until: Duration,
    pub act: Act,
    pub is_gone: Box<dyn Fn() -> bool + Send>,
}

#[derive(Default)]
pub struct Waiting {
    lines: [VecDeque<(u64, Waiter)>; 4],
    deadlines: BTreeSet<(Duration, u64, usize)>,
    next: u64,
}

impl Waiting {
    pub fn add(&mut self, waiter: Waiter) {
        let (number, line) = (self.next, waiter.want.line());
        self.next += 1;
        self.deadlines.insert((waiter.until, number, line));
        self.lines[line].push_back((number, waiter));
    }

    pub fn deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(until, _, _)| *until)
    }

    /// Serves whom it can, and tells those whose time is over that there was nothing.
    pub fn serve(&mut self, machine: &mut Machine, now: Duration, replies: &mut Vec<Reply>) {
        for line in 0..3 {
            while let Some((_, first)) = self.lines[line].front() {
                if !(first.is_gone)() && !first.want.is_there(machine) {
                    break;
                }
                self.take(line, 0, machine, replies);
            }
        }
        let mut at = 0;
        while let Some((_, waiter)) = self.lines[3].get(at) {
            match (waiter.is_gone)() || waiter.want.is_there(machine) {
                true => self.take(3, at, machine, replies),
                false => at += 1,
            }
        }
        while let Some(&(until, number, line)) = self.deadlines.first() {
            if until > now {
                break;
            }
            let mut waiting = self.lines[line].iter();
            match waiting.position(|(other, _)| *other == number) {
                Some(at) => self.take(line, at, machine, replies),
                None => drop(self.deadlines.pop_first()),
            }
        }
    }

    /// Tells everybody that there will be nothing, and why.
    pub fn refuse(&mut self, error: &Error) {
        self.deadlines.clear();
        for (_, waiter) in self.lines.iter_mut().flat_map(|line| line.drain(..)) {
            drop((waiter.act)(Err(error)));
        }
    }

    fn take(&mut self, line: usize, at: usize, machine: &mut Machine, replies: &mut Vec<Reply>) {
        let Some((number, waiter)) = self.lines[line].remove(at) else {
            return;
        };
        self.deadlines.remove(&(waiter.until, number, line));
        if !(waiter.is_gone)() {
            replies.extend((waiter.act)(Ok(machine)));
        }
    }
}
