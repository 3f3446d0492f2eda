//! Receivers waiting for a message or a session, served first come, first served.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::actor::{Operation, Reply};
use super::error::Error;
use crate::machine::{Machine, SessionLock, SubQueue, TopicPosition};

/// The condition of a wait.
#[derive(Clone, Debug)]
pub(super) enum WaitCondition {
    Message(SubQueue),
    AnySession,
    Session(String),
    InSession(SessionLock),
    /// A message of a topic after this position.
    Published(TopicPosition),
    /// A message to forward.
    Forward(SubQueue),
    /// A subscription no longer refers to some message of its topic.
    Released,
}

impl WaitCondition {
    /// Whether the waiter can be answered, even if only with an error.
    pub(super) fn is_met(&self, machine: &Machine) -> bool {
        let sessions = machine.settings().sessions;
        match self {
            WaitCondition::Message(SubQueue::Main) if sessions => true,
            WaitCondition::Message(SubQueue::Main) if machine.settings().forward_to.is_some() => {
                true
            }
            WaitCondition::Message(sub_queue) => machine.has_ready(*sub_queue),
            WaitCondition::AnySession => machine.has_free_session() || !sessions,
            WaitCondition::Session(name) => machine.is_free(name),
            WaitCondition::InSession(lock) => {
                machine.has_ready_in(&lock.session) || !machine.holds_session(lock)
            }
            WaitCondition::Published(after) => machine.has_published(*after),
            WaitCondition::Released => machine.has_released(),
            WaitCondition::Forward(sub_queue) => machine.has_forwardable(*sub_queue),
        }
    }

    /// Waiters of one queue have the same condition, so if the first one's is not met, no other's is.
    fn queue_index(&self) -> usize {
        match self {
            WaitCondition::Message(SubQueue::Main) => 0,
            WaitCondition::Message(SubQueue::DeadLetters) => 1,
            WaitCondition::AnySession => 2,
            WaitCondition::Session(_)
            | WaitCondition::InSession(_)
            | WaitCondition::Published(_)
            | WaitCondition::Released
            | WaitCondition::Forward(_) => 3,
        }
    }
}

/// Names a wait, so that its caller can end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitKey(pub(super) u64);

pub(super) struct Waiter {
    pub condition: WaitCondition,
    pub key: Option<WaitKey>,
    /// Deadline, on the clock's `elapsed`.
    pub until: Duration,
    pub operation: Operation,
    pub is_cancelled: Box<dyn Fn() -> bool + Send>,
}

#[derive(Default)]
pub(super) struct WaitQueues {
    queues: [VecDeque<(u64, Waiter)>; 4],
    deadlines: BTreeSet<(Duration, u64, usize)>,
    next: u64,
}

impl WaitQueues {
    pub(super) fn add(&mut self, waiter: Waiter) {
        let (number, queue) = (self.next, waiter.condition.queue_index());
        self.next += 1;
        self.deadlines.insert((waiter.until, number, queue));
        self.queues[queue].push_back((number, waiter));
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(until, _, _)| *until)
    }

    /// Runs the operations of waiters whose condition is met or whose deadline has passed.
    pub(super) fn serve(&mut self, machine: &mut Machine, now: Duration, replies: &mut Vec<Reply>) {
        for queue in 0..3 {
            while let Some((_, first)) = self.queues[queue].front() {
                if !(first.is_cancelled)() && !first.condition.is_met(machine) {
                    break;
                }
                self.take(queue, 0, machine, replies);
            }
        }
        let mut index = 0;
        while let Some((_, waiter)) = self.queues[3].get(index) {
            match (waiter.is_cancelled)() || waiter.condition.is_met(machine) {
                true => self.take(3, index, machine, replies),
                false => index += 1,
            }
        }
        while let Some(&(until, number, queue)) = self.deadlines.first() {
            if until > now {
                break;
            }
            let mut waiting = self.queues[queue].iter();
            match waiting.position(|(other, _)| *other == number) {
                Some(index) => self.take(queue, index, machine, replies),
                None => drop(self.deadlines.pop_first()),
            }
        }
    }

    /// Runs the operation of one waiter now, if it still waits.
    pub(super) fn end(&mut self, key: WaitKey, machine: &mut Machine, replies: &mut Vec<Reply>) {
        for queue in 0..self.queues.len() {
            let mut waiting = self.queues[queue].iter();
            if let Some(index) = waiting.position(|(_, waiter)| waiter.key == Some(key)) {
                return self.take(queue, index, machine, replies);
            }
        }
    }

    /// Fails all waiters.
    pub(super) fn refuse(&mut self, error: &Error) {
        self.deadlines.clear();
        for (_, waiter) in self.queues.iter_mut().flat_map(|queue| queue.drain(..)) {
            drop((waiter.operation)(Err(error)));
        }
    }

    fn take(
        &mut self,
        queue: usize,
        index: usize,
        machine: &mut Machine,
        replies: &mut Vec<Reply>,
    ) {
        let Some((number, waiter)) = self.queues[queue].remove(index) else {
            return;
        };
        self.deadlines.remove(&(waiter.until, number, queue));
        if !(waiter.is_cancelled)() {
            replies.extend((waiter.operation)(Ok(machine)));
        }
    }
}
