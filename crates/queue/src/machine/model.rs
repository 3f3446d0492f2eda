//! Tests the machine against the oracle: random operations and time steps, restarts from the journal at any point, and
//! compacted journals. `HIGHWATER_SEEDS=50000 cargo test -p highwater-queue model` runs more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use highwater_env::random::Random;

use super::oracle::{At, Item, Oracle};
use super::*;
use crate::codec;
use crate::message::{Content, NewMessage};

struct World {
    random: Random,
    machine: Machine,
    oracle: Oracle,
    journal: Vec<(i64, Bytes)>,
    /// Start of the compaction in progress, and its cursor.
    compaction: Option<(usize, SnapshotCursor)>,
    tokens: Vec<LockToken>,
    session_locks: Vec<SessionLock>,
    /// All messages acknowledged as removed.
    gone: BTreeSet<u64>,
    sent: BTreeSet<u64>,
    /// The current token of each message.
    holders: BTreeMap<u64, LockToken>,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::seeded(seed);
        let sessions = random.below(2) == 0;
        let settings = Settings {
            lock: Duration::from_millis(1000 + 100 * random.below(30)),
            deliveries_max: 1 + random.below(4) as u32,
            time_to_live: (random.below(3) == 0).then(|| Duration::from_secs(5)),
            dead_letter_expired: random.below(2) == 0,
            duplicates_within: (random.below(2) == 0).then(|| Duration::from_secs(20)),
            sessions,
            ..Settings::default()
        };
        settings.check().unwrap();
        let ms = |time: Option<Duration>| time.map(millis);
        let oracle = Oracle {
            sessions,
            deliveries_max: settings.deliveries_max,
            dead_letter_expired: settings.dead_letter_expired,
            window: ms(settings.duplicates_within),
            time_to_live: ms(settings.time_to_live),
            lock: millis(settings.lock),
            next_seq: 1,
            next_lock: 1,
            ..Oracle::default()
        };
        let mut machine = Machine::new();
        machine.configure(settings);
        World {
            random,
            machine,
            oracle,
            journal: Vec::new(),
            compaction: None,
            tokens: Vec::new(),
            session_locks: Vec::new(),
            gone: BTreeSet::new(),
            sent: BTreeSet::new(),
            holders: BTreeMap::new(),
        }
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.random.below(count) == 0
    }

    fn sub_queue(&mut self) -> SubQueue {
        match self.one_in(4) {
            true => SubQueue::DeadLetters,
            false => SubQueue::Main,
        }
    }

    fn mode(&mut self) -> ReceiveMode {
        match self.one_in(5) {
            true => ReceiveMode::ReceiveAndDelete,
            false => ReceiveMode::PeekLock,
        }
    }

    fn some_seq(&mut self) -> u64 {
        self.random.below(self.oracle.next_seq + 1)
    }

    fn some_token(&mut self) -> LockToken {
        // Mostly a recent one, sometimes an old one, rarely one that never existed.
        let (seq, number) = (self.random.below(9), self.random.below(99));
        let count = self.tokens.len() as u64;
        let back = match self.one_in(3) {
            true => self.random.below(count),
            false => self.random.below(count.min(6)),
        };
        let at = count.wrapping_sub(1 + back) as usize;
        let token = self.tokens.get(at).copied();
        token.unwrap_or(LockToken { seq, number })
    }

    fn step(&mut self) {
        self.machine.advance(self.oracle.now);
        match self.random.below(21) {
            0..=3 => self.send(),
            4..=6 => self.receive(),
            7..=8 => self.complete(),
            9 => self.abandon(),
            10 => self.defer_or_kill(),
            11 => self.renew(),
            12 => self.receive_deferred(),
            13 => self.cancel_or_resubmit(),
            14..=15 => self.sessions(),
            16 => self.configure_or_purge(),
            17 => self.continue_compaction(),
            18 => self.restart(),
            _ => self.pass_time(),
        }
        let events = self.machine.take_events();
        self.record(events);
        self.check();
    }

    fn record(&mut self, events: Vec<Event>) {
        for event in events {
            let mut out = Vec::new();
            codec::write(&event, &mut out);
            self.journal.push((self.machine.now_ms(), out.into()));
        }
    }

    fn pass_time(&mut self) {
        let by = match self.one_in(2) {
            true => self.random.below(4),
            false => self.random.below(40),
        };
        self.oracle.advance_to(self.oracle.now + 100 * by as i64);
        // Sometimes the machine learns the time only with the next operation.
        if self.one_in(2) {
            self.machine.advance(self.oracle.now);
        }
    }

    fn send(&mut self) {
        let count = 1 + self.random.below(3);
        let messages: Vec<NewMessage> = (0..count).map(|_| self.message()).collect();
        let sent = self.machine.send(messages.clone());
        let missing = |new: &NewMessage| new.content.session.is_none();
        if self.oracle.sessions && messages.iter().any(missing) {
            assert_eq!(sent, Err(Refusal::SessionIdRequired));
            return;
        }
        let expected = messages.iter().map(|new| self.expect_sent(new)).collect();
        assert_eq!(sent, Ok(expected));
    }

    fn message(&mut self) -> NewMessage {
        let session = !(self.oracle.sessions && self.one_in(20));
        let session = session.then(|| format!("s{}", self.random.below(3)));
        let id = (!self.one_in(3)).then(|| format!("m{}", self.random.below(8)));
        let at = self.oracle.now + 100 * self.random.below(60) as i64;
        NewMessage {
            content: Content {
                body: vec![b'x'; self.random.below(9) as usize].into(),
                id,
                session,
                ..Content::default()
            },
            scheduled_ms: self.one_in(4).then_some(at),
            time_to_live_ms: self
                .one_in(4)
                .then(|| 100 + 100 * self.random.below(30) as i64),
        }
    }

    fn expect_sent(&mut self, new: &NewMessage) -> SendResult {
        let oracle = &mut self.oracle;
        let id = new.content.id.clone();
        let known = oracle
            .ids
            .iter()
            .find(|known| Some(&known.0) == id.as_ref());
        if let Some(&(_, _, seq)) = known.filter(|_| oracle.window.is_some()) {
            let duplicate = true;
            return SendResult { seq, duplicate };
        }
        let seq = oracle.next_seq;
        oracle.next_seq += 1;
        if let Some(id) = id.filter(|_| oracle.window.is_some()) {
            oracle.ids.push((id, oracle.now, seq));
        }
        let enqueued = new.scheduled_ms.unwrap_or(0).max(oracle.now);
        let lives = [new.time_to_live_ms, oracle.time_to_live];
        oracle.items.push(Item {
            seq,
            session: new.content.session.clone().unwrap_or_default(),
            enqueued,
            expires: lives.into_iter().flatten().min().map(|it| enqueued + it),
            count: 0,
            at: match enqueued > oracle.now {
                true => At::Scheduled,
                false => At::Ready,
            },
            dead: None,
        });
        self.sent.insert(seq);
        let duplicate = false;
        SendResult { seq, duplicate }
    }

    fn receive(&mut self) {
        let (sub_queue, mode) = (self.sub_queue(), self.mode());
        let max = 1 + self.random.below(3) as usize;
        let got = self.machine.receive(sub_queue, max, mode);
        if self.oracle.sessions && sub_queue == SubQueue::Main {
            assert_eq!(got, Err(Refusal::SessionRequired));
            return;
        }
        let mut expected = self.oracle.ready(sub_queue, None);
        expected.truncate(max);
        self.got(got.unwrap(), expected, mode, false);
    }

    /// Checks deliveries against the oracle's.
    fn got(&mut self, got: Vec<Delivery>, expected: Vec<u64>, mode: ReceiveMode, in_session: bool) {
        let seqs: Vec<u64> = got.iter().map(|delivery| delivery.seq).collect();
        assert_eq!(seqs, expected);
        for delivery in &got {
            assert!(
                !self.gone.contains(&delivery.seq),
                "delivered after its end"
            );
            assert!(!self.holders.contains_key(&delivery.seq), "two holders");
        }
        if mode == ReceiveMode::ReceiveAndDelete {
            self.oracle.remove(&seqs);
            self.gone.extend(&seqs);
            return;
        }
        let numbers = self.oracle.lock_all(&seqs, in_session);
        for (delivery, number) in got.iter().zip(numbers) {
            let seq = delivery.seq;
            let token = LockToken { seq, number };
            assert_eq!(delivery.lock.unwrap().0, token);
            let count = self.oracle.item(seq).unwrap().count;
            assert_eq!(delivery.message.deliveries, count);
            self.tokens.push(token);
            self.holders.insert(seq, token);
        }
    }

    /// Whether a token is valid, according to the oracle.
    fn is_live(&mut self, token: LockToken) -> Result<Item, Refusal> {
        let item = self.oracle.locked(token.seq, token.number);
        item.map(|item| item.clone())
    }

    fn complete(&mut self) {
        let token = self.some_token();
        let live = self.is_live(token).map(|_| ());
        assert_eq!(self.machine.complete(token), live);
        if live.is_ok() {
            assert!(self.gone.insert(token.seq), "completed twice");
            assert_eq!(self.holders.get(&token.seq), Some(&token));
            self.oracle.remove(&[token.seq]);
        }
    }

    fn abandon(&mut self) {
        let token = self.some_token();
        let live = self.is_live(token).map(|_| ());
        let counts = self.one_in(2);
        let settled = match counts {
            true => self.machine.abandon(token, None),
            false => self.machine.give_back(token),
        };
        assert_eq!(settled, live);
        if live.is_ok() {
            if !counts {
                self.oracle.uncount(token.seq);
            }
            self.oracle.release(token.seq);
        }
    }

    fn defer_or_kill(&mut self) {
        let token = self.some_token();
        let live = self.is_live(token);
        if self.one_in(2) {
            assert_eq!(self.machine.defer(token, None), live.clone().map(|_| ()));
            if live.is_ok() {
                self.oracle.item(token.seq).unwrap().at = At::Deferred;
            }
            return;
        }
        let expected = live.and_then(|item| match item.dead {
            Some(_) => Err(Refusal::AlreadyDeadLettered),
            None => Ok(()),
        });
        let why = "Wish".to_owned();
        let killed = (self.machine).dead_letter(token, why.clone(), String::new(), None);
        assert_eq!(killed, expected);
        if killed.is_ok() {
            let now = self.oracle.now;
            let item = self.oracle.item(token.seq).unwrap();
            (item.dead, item.at) = (Some((now, why)), At::Ready);
        }
    }

    fn renew(&mut self) {
        let token = self.some_token();
        let until = self.oracle.now + self.oracle.lock;
        let expected = match self.oracle.locked(token.seq, token.number) {
            Err(refusal) => Err(refusal),
            Ok(item) => match &mut item.at {
                At::Locked(_, Some(end), _) => {
                    *end = until;
                    Ok(until)
                }
                _ => Err(Refusal::SessionRequired),
            },
        };
        assert_eq!(self.machine.renew(token), expected);
    }

    fn receive_deferred(&mut self) {
        let (sub_queue, mode) = (self.sub_queue(), self.mode());
        let seqs = vec![self.some_seq(), self.some_seq()];
        let lock = self.session_locks.last().cloned();
        let by_session = self.oracle.sessions && sub_queue == SubQueue::Main;
        let got = (self.machine).receive_deferred(sub_queue, seqs.clone(), mode, lock.as_ref());
        let held = |lock: &SessionLock| self.oracle.holds(&lock.session, lock.number);
        match (by_session, &lock) {
            (true, None) => return assert_eq!(got, Err(Refusal::SessionRequired)),
            (true, Some(lock)) if !held(lock) => {
                return assert_eq!(got, Err(Refusal::SessionLost));
            }
            _ => {}
        }
        let session = lock.filter(|_| by_session).map(|lock| lock.session);
        let dead = sub_queue == SubQueue::DeadLetters;
        let good = |seq: &u64| {
            let mut items = self.oracle.items.iter();
            items.any(|item| {
                (item.seq, item.at.clone()) == (*seq, At::Deferred)
                    && item.dead.is_some() == dead
                    && session.as_ref().is_none_or(|name| item.session == *name)
            })
        };
        match seqs.iter().all(good) && seqs[0] != seqs[1] {
            true => self.got(got.unwrap(), seqs, mode, by_session),
            false => assert!(matches!(got, Err(Refusal::NoSuchMessage { .. }))),
        }
    }

    fn cancel_or_resubmit(&mut self) {
        let seq = self.some_seq();
        let (now, ttl) = (self.oracle.now, self.oracle.time_to_live);
        if self.one_in(2) {
            let scheduled = (self.oracle.item(seq)).is_some_and(|item| item.at == At::Scheduled);
            assert_eq!(self.machine.cancel(seq).is_ok(), scheduled);
            if scheduled {
                self.oracle.remove(&[seq]);
                self.gone.insert(seq);
            }
            return;
        }
        let dead = |item: &&mut Item| item.dead.is_some() && !matches!(item.at, At::Locked(..));
        let item = self.oracle.item(seq).filter(dead);
        assert_eq!(self.machine.resubmit(seq).is_ok(), item.is_some());
        if let Some(item) = item {
            (item.dead, item.count, item.at) = (None, 0, At::Ready);
            (item.enqueued, item.expires) = (now, ttl.map(|ttl| now + ttl));
        }
    }

    fn sessions(&mut self) {
        if !self.oracle.sessions {
            assert_eq!(self.machine.accept(None), Err(Refusal::SessionsDisabled));
            return;
        }
        let count = self.session_locks.len() as u64;
        let at = count.wrapping_sub(1 + self.random.below(count.min(4))) as usize;
        let lock = self.session_locks.get(at).cloned();
        match (self.random.below(8), lock) {
            (0..=1, _) | (_, None) => self.accept(),
            (2..=4, Some(lock)) => self.receive_in_session(&lock),
            (5, Some(lock)) => {
                let held = self.oracle.holds(&lock.session, lock.number);
                let counts = self.one_in(2);
                let released = match counts {
                    true => self.machine.release_session(&lock),
                    false => self.machine.return_session(&lock),
                };
                assert_eq!(released.is_ok(), held);
                if held {
                    self.oracle.free(&lock.session, counts);
                }
            }
            (6, Some(lock)) => {
                let until = self.oracle.now + self.oracle.lock;
                let renewed = self.machine.renew_session(&lock);
                let mut locks = self.oracle.session_locks.iter_mut();
                let held =
                    locks.find(|(name, number, _)| (name, *number) == (&lock.session, lock.number));
                assert_eq!(
                    renewed.map(|lock| lock.until_ms).ok(),
                    held.as_ref().map(|_| until)
                );
                if let Some(held) = held {
                    held.2 = until;
                }
            }
            (_, Some(lock)) => self.state(&lock),
        }
    }

    fn accept(&mut self) {
        let name = (self.one_in(2)).then(|| format!("s{}", self.random.below(3)));
        let accepted = self.machine.accept(name.clone());
        let taken = |name: &String| {
            let mut locks = self.oracle.session_locks.iter();
            locks.any(|(other, _, _)| other == name)
        };
        let expected = match name {
            Some(name) if taken(&name) => {
                return assert_eq!(accepted, Err(Refusal::SessionLocked(name)));
            }
            Some(name) => Some(name),
            None => self.oracle.first_free_session(),
        };
        let lock = accepted.unwrap();
        assert_eq!(lock.as_ref().map(|lock| lock.session.clone()), expected);
        if let Some(lock) = lock {
            let until = self.oracle.now + self.oracle.lock;
            let number = self.oracle.next_lock;
            self.oracle.next_lock += 1;
            assert_eq!((lock.number, lock.until_ms), (number, until));
            (self.oracle.session_locks).push((lock.session.clone(), number, until));
            self.session_locks.push(lock);
        }
    }

    fn receive_in_session(&mut self, lock: &SessionLock) {
        let (mode, max) = (self.mode(), 1 + self.random.below(3) as usize);
        let got = self.machine.receive_in_session(lock, max, mode);
        if !self.oracle.holds(&lock.session, lock.number) {
            return assert_eq!(got, Err(Refusal::SessionLost));
        }
        let mut expected = self.oracle.ready(SubQueue::Main, Some(&lock.session));
        expected.truncate(max);
        self.got(got.unwrap(), expected, mode, true);
    }

    fn state(&mut self, lock: &SessionLock) {
        let held = self.oracle.holds(&lock.session, lock.number);
        let state = (!self.one_in(3)).then(|| vec![self.random.below(256) as u8]);
        let set = (self.machine).set_session_state(lock, state.clone().map(Bytes::from));
        assert_eq!(set.is_ok(), held);
        if held {
            self.oracle.states.retain(|(name, _)| *name != lock.session);
            let state = state.map(|state| (lock.session.clone(), state));
            self.oracle.states.extend(state);
        }
    }

    fn configure_or_purge(&mut self) {
        if self.one_in(4) {
            let (sub_queue, max) = (self.sub_queue(), self.random.below(3) as usize);
            let dead = sub_queue == SubQueue::DeadLetters;
            let mut items: Vec<_> = (self.oracle.items.iter())
                .filter(|item| item.dead.is_some() == dead && !matches!(item.at, At::Locked(..)))
                .map(|item| item.seq)
                .collect();
            items.sort();
            items.truncate(max);
            assert_eq!(self.machine.purge(sub_queue, max), items.len());
            self.oracle.remove(&items);
            self.gone.extend(items);
            return;
        }
        let mut settings = self.machine.settings().clone();
        settings.deliveries_max = 1 + self.random.below(4) as u32;
        settings.dead_letter_expired = self.one_in(2);
        self.oracle.deliveries_max = settings.deliveries_max;
        self.oracle.dead_letter_expired = settings.dead_letter_expired;
        self.machine.configure(settings);
    }

    /// Writes a piece of the snapshot; after the last one the journal is trimmed.
    fn continue_compaction(&mut self) {
        let (from, cursor) = self.compaction.take().unwrap_or_else(|| {
            let events = self.machine.take_events();
            self.record(events);
            (self.journal.len(), SnapshotCursor::Start)
        });
        let (events, next) = self.machine.snapshot(cursor);
        self.record(events);
        match next {
            Some(next) => self.compaction = Some((from, next)),
            None => drop(self.journal.drain(..from)),
        }
    }

    fn restart(&mut self) {
        let mut fresh = self.replay();
        fresh.advance(self.machine.now_ms());
        assert!(fresh.equals(&self.machine), "a restart changed something");
        // A compaction in progress starts over.
        self.compaction = None;
        self.machine = fresh;
    }

    fn replay(&mut self) -> Machine {
        let events = self.machine.take_events();
        self.record(events);
        let mut fresh = Machine::new();
        for (now, bytes) in &self.journal {
            fresh.apply(*now, &codec::read(bytes).unwrap());
        }
        fresh
    }

    fn check(&mut self) {
        self.machine.advance(self.oracle.now);
        let oracle = &self.oracle;
        let dead = |item: &&Item| item.dead.is_some();
        let count = |at: fn(&At) -> bool| {
            let items = oracle.items.iter().filter(|item| !dead(item));
            items.filter(|item| at(&item.at)).count() as u64
        };
        let counts = self.machine.counts();
        assert_eq!(counts.active, count(|at| *at == At::Ready));
        assert_eq!(counts.scheduled, count(|at| *at == At::Scheduled));
        assert_eq!(counts.deferred, count(|at| *at == At::Deferred));
        assert_eq!(counts.locked, count(|at| matches!(at, At::Locked(..))));
        assert_eq!(counts.dead, oracle.items.iter().filter(dead).count() as u64);
        for sub_queue in [SubQueue::Main, SubQueue::DeadLetters] {
            let seen = self.machine.peek(sub_queue, None, 0, usize::MAX);
            let seen: Vec<_> = seen
                .iter()
                .map(|it| (it.seq, it.message.deliveries))
                .collect();
            let mut there: Vec<_> = (oracle.items.iter())
                .filter(|item| item.dead.is_some() == (sub_queue == SubQueue::DeadLetters))
                .map(|item| (item.seq, item.count))
                .collect();
            there.sort();
            assert_eq!(seen, there);
        }
        for (session, state) in &oracle.states {
            let session = &self.machine.sessions[session];
            assert_eq!(session.state.as_deref(), Some(&state[..]));
        }
        self.holders.retain(|seq, token| {
            let item = oracle.items.iter().find(|item| item.seq == *seq);
            let locked =
                |item: &Item| matches!(item.at, At::Locked(lock, ..) if lock == token.number);
            item.is_some_and(locked)
        });
    }

    /// Every accepted message is there, was settled, or has expired.
    fn nothing_is_lost(&self) {
        for seq in &self.sent {
            let there = self.machine.messages.contains_key(seq);
            let gone = self.gone.contains(seq) || self.oracle.dropped.contains(seq);
            assert!(there != gone, "message {seq}");
        }
    }
}

#[test]
fn a_queue_does_what_the_plain_list_does_through_restarts_and_sweeps() {
    // proves Q1, Q2
    let seeds = std::env::var("HIGHWATER_SEEDS").ok();
    let seeds = seeds.and_then(|text| text.parse().ok()).unwrap_or(2000);
    for seed in 0..seeds {
        let run = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            for _ in 0..150 {
                world.step();
            }
            world.restart();
            world.nothing_is_lost();
        });
        assert!(run.is_ok(), "seed {seed}");
    }
}
