//! The reference model of a queue: a list that is searched from the front for every operation. Slow and obviously
//! correct.

use super::{Refusal, SubQueue};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum At {
    Ready,
    Scheduled,
    Deferred,
    /// Lock number, its expiry, and whether it was deferred before. `None` expires with the session lock.
    Locked(u64, Option<i64>, bool),
}

#[derive(Clone, Debug)]
pub(super) struct Item {
    pub seq: u64,
    pub session: String,
    pub enqueued: i64,
    pub expires: Option<i64>,
    pub count: u32,
    pub at: At,
    /// When it was dead-lettered, and the reason.
    pub dead: Option<(i64, String)>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Oracle {
    pub items: Vec<Item>,
    /// Session, lock number, expiry.
    pub session_locks: Vec<(String, u64, i64)>,
    /// Expired messages.
    pub dropped: Vec<u64>,
    pub states: Vec<(String, Vec<u8>)>,
    /// Id, when, number.
    pub ids: Vec<(String, i64, u64)>,
    pub now: i64,
    pub sessions: bool,
    pub deliveries_max: u32,
    pub dead_letter_expired: bool,
    pub window: Option<i64>,
    pub time_to_live: Option<i64>,
    pub lock: i64,
    pub next_seq: u64,
    pub next_lock: u64,
}

impl Oracle {
    /// Advances time in steps of 100 ms: in the model every timer is due at one.
    pub(super) fn advance_to(&mut self, now: i64) {
        while self.now < now {
            self.now += 100;
            self.tick();
        }
    }

    fn tick(&mut self) {
        let now = self.now;
        for item in &mut self.items {
            if item.at == At::Scheduled && item.enqueued <= now {
                item.at = At::Ready;
            }
        }
        let over = |item: &Item| matches!(item.at, At::Locked(_, Some(until), _) if until <= now);
        for seq in self.seqs(over) {
            self.release(seq);
        }
        self.expire();
        let ended = self.session_locks.iter().filter(|lock| lock.2 <= now);
        for (session, _, _) in ended.cloned().collect::<Vec<_>>() {
            self.free(&session, true);
        }
        if let Some(window) = self.window {
            self.ids.retain(|(_, at, _)| at + window > now);
        }
    }

    fn seqs(&self, which: impl Fn(&Item) -> bool) -> Vec<u64> {
        let items = self.items.iter().filter(|item| which(item));
        items.map(|item| item.seq).collect()
    }

    fn expire(&mut self) {
        let now = self.now;
        let old = |item: &Item| {
            item.at == At::Ready && item.dead.is_none() && item.expires.is_some_and(|at| at <= now)
        };
        if self.dead_letter_expired {
            for item in self.items.iter_mut().filter(|item| old(item)) {
                item.dead = Some((now, "TTLExpiredException".into()));
            }
        } else {
            let dropped = self.seqs(old);
            self.remove(&dropped);
            self.dropped.extend(dropped);
        }
    }

    pub(super) fn item(&mut self, seq: u64) -> Option<&mut Item> {
        self.items.iter_mut().find(|item| item.seq == seq)
    }

    pub(super) fn release(&mut self, seq: u64) {
        let (now, max) = (self.now, self.deliveries_max);
        let Some(item) = self.item(seq) else { return };
        let At::Locked(_, _, deferred) = item.at else {
            return;
        };
        item.at = if deferred { At::Deferred } else { At::Ready };
        if item.dead.is_none() && item.count >= max {
            item.at = At::Ready;
            item.dead = Some((now, "MaxDeliveryCountExceeded".into()));
        }
        self.expire();
    }

    /// The last delivery does not count.
    pub(super) fn uncount(&mut self, seq: u64) {
        if let Some(item) = self.item(seq) {
            item.count -= 1;
        }
    }

    pub(super) fn free(&mut self, session: &str, counts: bool) {
        self.session_locks.retain(|(name, _, _)| name != session);
        let held =
            |item: &Item| item.session == session && matches!(item.at, At::Locked(_, None, _));
        for seq in self.seqs(held) {
            if !counts {
                self.uncount(seq);
            }
            self.release(seq);
        }
    }

    /// Ready messages in the order in which they are received.
    pub(super) fn ready(&self, sub_queue: SubQueue, session: Option<&str>) -> Vec<u64> {
        let mut found: Vec<_> = (self.items.iter())
            .filter(|item| item.at == At::Ready)
            .filter(|item| item.dead.is_some() == (sub_queue == SubQueue::DeadLetters))
            .filter(|item| session.is_none_or(|session| item.session == session))
            .map(|item| {
                let at = item.dead.as_ref().map_or(item.enqueued, |dead| dead.0);
                (at, item.seq)
            })
            .collect();
        found.sort();
        found.into_iter().map(|(_, seq)| seq).collect()
    }

    pub(super) fn holds(&self, session: &str, number: u64) -> bool {
        let mut locks = self.session_locks.iter();
        locks.any(|(name, lock, _)| name == session && *lock == number)
    }

    /// The session that `accept(None)` returns.
    pub(super) fn first_free_session(&self) -> Option<String> {
        let ready = self.ready(SubQueue::Main, None).into_iter();
        let sessions = ready.filter_map(|seq| {
            let item = self.items.iter().find(|item| item.seq == seq)?;
            Some(item.session.clone())
        });
        let locked = |name: &String| self.session_locks.iter().any(|(other, _, _)| other == name);
        sessions.into_iter().find(|name| !locked(name))
    }

    pub(super) fn lock_all(&mut self, seqs: &[u64], in_session: bool) -> Vec<u64> {
        let until = (!in_session).then_some(self.now + self.lock);
        let mut numbers = Vec::new();
        for seq in seqs {
            let number = self.next_lock;
            self.next_lock += 1;
            if let Some(item) = self.item(*seq) {
                item.count += 1;
                item.at = At::Locked(number, until, item.at == At::Deferred);
                numbers.push(number);
            }
        }
        numbers
    }

    pub(super) fn locked(&mut self, seq: u64, number: u64) -> Result<&mut Item, Refusal> {
        let item = self.item(seq).ok_or(Refusal::LockLost)?;
        match item.at {
            At::Locked(lock, _, _) if lock == number => Ok(item),
            _ => Err(Refusal::LockLost),
        }
    }

    pub(super) fn remove(&mut self, seqs: &[u64]) {
        self.items.retain(|item| !seqs.contains(&item.seq));
    }
}
