//! Session windows: runs of events without long gaps, cut at a maximum duration.
//!
//! A session closes `timeout` after its last event, or at the first multiple of `max` that is at least `max` after its
//! start, whichever comes first. After a cut the next session starts at the cut if an event comes within the timeout of
//! the old one; otherwise there is none. Without OVER all events of a lane share one session and only the rows are
//! split by the group keys.
//!
//! There may be a million open sessions, most of them with a single group. So a session is a few numbers, the groups of
//! all sessions are in one list with one accumulator per aggregate, and timers are sorted only coarsely until they are
//! due. If every key has sessions of its own with one group, and there are no substreams, [`KeySessions`] are cheaper.

use std::ops::Range;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_time::{Duration, Instant};

use super::WindowEntry;
use super::accumulate::Accumulator;
use super::groups::{self, EncodedKeys, GroupInput, GroupKeys, GroupSpec, OriginalKeys, hash_key};
use super::key_table::KeyTable;
use super::timer_queue::{ONE_LANE, TimerQueue};
use super::window_operator::{LaneWindow, RowWriter, WindowReport};
use crate::chunk::CHUNK_ROWS;

mod key_sessions;

pub(crate) use key_sessions::KeySessions;

const NONE: u32 = u32::MAX;

/// A session that closed; the order is that of the output.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct EndedSession {
    end: i64,
    lane: u32,
    sequence: u64,
    slot: u32,
}

pub(crate) struct Sessions {
    spec: Arc<GroupSpec>,
    rule: SessionRule,
    /// The keys that have sessions of their own.
    over: Vec<usize>,
    /// `over` is all keys, in order: a session has one group, with the session's key.
    single: bool,
    /// The keys of sessions and of groups.
    keys: KeyTable,
    /// The open session of each key number.
    open: Vec<u32>,
    sessions: Vec<Session>,
    free: Vec<u32>,
    groups: GroupList,
    /// Every session is in here once, not after its close. Timers are rounded down to a multiple of `coarse`; the exact
    /// time is stored with the session.
    due: TimerQueue<Vec<(i64, u32)>>,
    coarse: i64,
    sequence: u64,
    /// The events of each session, if window entries are traced.
    origins: HashMap<u32, Vec<u64>, FixedState>,
    ids: Vec<u32>,
    slots: Vec<u32>,
}

/// The size of a session with one group, without its key and aggregates.
pub(super) const BYTES: usize = size_of::<Session>() + size_of::<Group>();

/// When sessions end.
#[derive(Clone, Copy)]
pub(crate) struct SessionRule {
    pub timeout: Duration,
    pub max: Duration,
}

#[derive(Clone, Copy)]
struct Session {
    /// The number of its key; [`NONE`] for a free slot.
    key: u32,
    lane: u32,
    /// Sessions that end at one time are emitted in the order of their first events. The continuation after a cut gets
    /// its number with its own first event: a job that starts later does not know the earlier events.
    sequence: u64,
    start: i64,
    last: i64,
    /// The close time of a closed session, which stays until the watermark has passed it.
    closed: Option<i64>,
    /// The first and last of its groups.
    groups: (u32, u32),
}

/// The groups of all sessions.
struct GroupList {
    /// Finds the group of a key within a session; unused if sessions have one group each.
    table: HashTable<u32>,
    all: Vec<Group>,
    free: Vec<u32>,
    original_keys: OriginalKeys,
    accumulators: Vec<Accumulator>,
}

#[derive(Clone, Copy)]
struct Group {
    session: u32,
    key: u32,
    /// The next group of the session.
    next: u32,
}

/// The groups with the table of their keys.
struct SessionGroupKeys<'a> {
    groups: &'a GroupList,
    keys: &'a KeyTable,
}

impl GroupKeys for SessionGroupKeys<'_> {
    fn key(&self, slot: u32) -> &[u8] {
        self.keys.key(self.groups.all[slot as usize].key)
    }

    fn original_key(&self, slot: u32) -> Option<&[u8]> {
        self.groups.original_keys.get(slot)
    }
}

impl SessionRule {
    /// When a session that started at `start` is cut.
    fn cut(&self, start: i64) -> i64 {
        Instant::from_ticks(start.saturating_add(self.max.ticks()))
            .ceil_to(self.max, Duration::ZERO)
            .ticks()
    }

    /// When a session with this last event times out.
    fn timeout(&self, last: i64) -> i64 {
        last.saturating_add(self.timeout.ticks())
    }

    /// When a session closes without further events.
    fn close(&self, start: i64, last: i64) -> i64 {
        self.cut(start).min(self.timeout(last))
    }

    /// The start of the session that an event at `time` continues, if only cuts separate it from this one.
    fn continuation_start(&self, start: i64, last: i64, time: i64) -> Option<i64> {
        if self.timeout(last) < time {
            return None;
        }
        // After the first cut, cuts follow at the maximum duration.
        let (cut, max) = (self.cut(start), self.max.ticks());
        Some(if time > cut {
            cut + (time - cut - 1) / max * max
        } else {
            start
        })
    }

    /// The granularity of timers that are not due.
    fn slice(&self) -> i64 {
        (self.timeout.ticks() / 256).max(1)
    }
}

impl GroupList {
    fn new(spec: &GroupSpec) -> GroupList {
        GroupList {
            table: HashTable::new(),
            all: Vec::new(),
            free: Vec::new(),
            original_keys: OriginalKeys::default(),
            accumulators: spec.accumulators(),
        }
    }

    fn insert(&mut self, group: Group) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.all[slot as usize] = group;
            return slot;
        }
        self.all.push(group);
        (self.all.len() - 1) as u32
    }

    fn grow(&mut self) {
        let groups = self.all.len();
        let accumulators = self.accumulators.iter_mut();
        accumulators.for_each(|accumulator| accumulator.grow(groups));
    }

    fn find(&self, session: u32, key: u32) -> Option<u32> {
        let same = |&slot: &u32| {
            let group = &self.all[slot as usize];
            group.session == session && group.key == key
        };
        self.table.find(group_hash(session, key), same).copied()
    }

    fn remember(&mut self, slot: u32) {
        let all = &self.all;
        let hash = |slot: &u32| group_hash(all[*slot as usize].session, all[*slot as usize].key);
        self.table.insert_unique(hash(&slot), slot, hash);
    }

    /// Frees the slot for another group, after [`GroupList::forget`].
    fn remove(&mut self, slot: u32) {
        let group = self.all[slot as usize];
        if !self.table.is_empty()
            && let Ok(entry) = self
                .table
                .find_entry(group_hash(group.session, group.key), |&other| other == slot)
        {
            entry.remove();
        }
        self.original_keys.take(slot);
        self.free.push(slot);
    }

    /// Clears the aggregates of the groups removed last.
    fn forget(&mut self, removed: usize) {
        let slots = &self.free[self.free.len() - removed..];
        let accumulators = self.accumulators.iter_mut();
        accumulators.for_each(|accumulator| accumulator.clear(slots));
    }
}

fn group_hash(session: u32, key: u32) -> u64 {
    let mixed = (u64::from(session) << 32 | u64::from(key)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

impl Sessions {
    pub(crate) fn new(spec: Arc<GroupSpec>, rule: SessionRule, over: Vec<usize>) -> Sessions {
        Sessions {
            rule,
            single: over.iter().copied().eq(0..spec.keys.len()) && !over.is_empty(),
            over,
            keys: KeyTable::default(),
            open: Vec::new(),
            sessions: Vec::new(),
            free: Vec::new(),
            groups: GroupList::new(&spec),
            due: TimerQueue::default(),
            coarse: rule.slice(),
            sequence: 0,
            origins: HashMap::default(),
            ids: Vec::new(),
            slots: Vec::new(),
            spec,
        }
    }

    fn session(&mut self, slot: u32) -> &mut Session {
        &mut self.sessions[slot as usize]
    }

    /// The open session of an event at `time`, after closing those that ended before it. Takes over a reference to the
    /// key.
    fn session_at(&mut self, lane: u32, key: u32, time: i64) -> u32 {
        loop {
            let slot = self.open[key as usize];
            if slot == NONE {
                break;
            }
            let session = self.sessions[slot as usize];
            if self.rule.close(session.start, session.last) >= time {
                self.keys.release(key);
                if session.groups.0 == NONE {
                    self.sequence += 1;
                    self.session(slot).sequence = self.sequence;
                }
                return slot;
            }
            self.close(slot);
        }
        self.sequence += 1;
        let slot = self.insert(Session {
            key,
            lane,
            sequence: self.sequence,
            start: time,
            last: time,
            closed: None,
            groups: (NONE, NONE),
        });
        self.open[key as usize] = slot;
        slot
    }

    /// Closes an open session. A cut session continues, empty, from the cut.
    fn close(&mut self, slot: u32) {
        let session = self.sessions[slot as usize];
        let end = self.rule.close(session.start, session.last);
        self.session(slot).closed = Some(end);
        self.open[session.key as usize] = NONE;
        if end == self.rule.cut(session.start) {
            let key = self.keys.hold_again(session.key);
            self.open[key as usize] = self.insert(Session {
                start: end,
                groups: (NONE, NONE),
                ..session
            });
        }
    }

    /// Adds a session and its timer.
    fn insert(&mut self, session: Session) -> u32 {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.sessions[slot as usize] = session;
                slot
            }
            None => {
                self.sessions.push(session);
                (self.sessions.len() - 1) as u32
            }
        };
        let due = session
            .closed
            .unwrap_or_else(|| self.rule.close(session.start, session.last));
        self.put(session.lane, due, slot);
        slot
    }

    fn put(&mut self, lane: u32, due: i64, slot: u32) {
        let roughly = due - due.rem_euclid(self.coarse);
        self.due.at(lane, roughly, Vec::new).push((due, slot));
    }

    /// The group of a row within its session, created on first use.
    fn group_at(&mut self, session: u32, input: &GroupInput, row: usize) -> u32 {
        let (first, last) = self.sessions[session as usize].groups;
        let key = if self.single {
            if first != NONE {
                return first;
            }
            self.sessions[session as usize].key
        } else {
            let key = self.keys.hold(input.hash(row), input.key(row));
            if let Some(slot) = self.groups.find(session, key) {
                self.keys.release(key);
                return slot;
            }
            key
        };
        let next = NONE;
        let slot = self.groups.insert(Group { session, key, next });
        if !self.single {
            self.groups.remember(slot);
        }
        if let Some(look) = input.original_key(row) {
            self.groups.original_keys.set(slot, look);
        }
        match last {
            NONE => self.session(session).groups = (slot, slot),
            last => {
                self.groups.all[last as usize].next = slot;
                self.session(session).groups.1 = slot;
            }
        }
        slot
    }

    fn groups_of(&self, session: &Session) -> impl Iterator<Item = u32> {
        let first = Some(session.groups.0).filter(|&slot| slot != NONE);
        std::iter::successors(first, |&slot| {
            Some(self.groups.all[slot as usize].next).filter(|&next| next != NONE)
        })
    }

    /// Takes the sessions that closed before `watermark`, in output order.
    fn take_ended(&mut self, lane: Option<u32>, watermark: Instant) -> Vec<EndedSession> {
        let before = watermark.ticks();
        let (mut ended, mut later) = (Vec::new(), Vec::new());
        while let Some((lane, _, dues)) = self.due.pop(lane, watermark) {
            for (due, slot) in dues {
                if due >= before {
                    later.push((lane, due, slot));
                    continue;
                }
                let session = self.sessions[slot as usize];
                let end = session
                    .closed
                    .unwrap_or_else(|| self.rule.close(session.start, session.last));
                if end >= before {
                    later.push((lane, end, slot));
                    continue;
                }
                if session.closed.is_none() {
                    self.close(slot); // the timer of a continuation may fire in this loop
                }
                ended.push(EndedSession {
                    end,
                    lane,
                    sequence: session.sequence,
                    slot,
                });
            }
        }
        for (lane, due, slot) in later {
            self.put(lane, due, slot);
        }
        ended.sort_unstable();
        ended
    }

    fn remove(&mut self, slot: u32) {
        let session = self.sessions[slot as usize];
        let mut group = session.groups.0;
        while group != NONE {
            let Group { key, next, .. } = self.groups.all[group as usize];
            self.groups.remove(group);
            if !self.single {
                self.keys.release(key);
            }
            group = next;
        }
        self.keys.release(session.key);
        self.session(slot).key = NONE;
        self.origins.remove(&slot);
        self.free.push(slot);
    }

    /// Writes the rows of ended sessions, one lane at a time.
    fn emit(&self, ended: &[EndedSession], out: &mut RowWriter<'_>, report: &mut WindowReport<'_>) {
        let (mut times, mut slots) = (Vec::new(), Vec::new());
        let named = SessionGroupKeys {
            groups: &self.groups,
            keys: &self.keys,
        };
        for run in ended.chunk_by(|a, b| a.lane == b.lane) {
            times.clear();
            slots.clear();
            for &EndedSession { end, slot, .. } in run {
                for group in self.groups_of(&self.sessions[slot as usize]) {
                    times.push(end);
                    slots.push(group);
                }
            }
            out.lane = run[0].lane;
            let accumulators = &self.groups.accumulators;
            let parts = times.chunks(CHUNK_ROWS).zip(slots.chunks(CHUNK_ROWS));
            for (times, slots) in parts {
                let (spec, errors) = (&self.spec, &mut *report.errors);
                groups::emit(spec, times, slots, &named, accumulators, out, errors);
            }
        }
    }

    fn trace(&self, ended: &[EndedSession], report: &mut WindowReport<'_>) {
        let Some(trace) = &mut report.trace else {
            return;
        };
        for &EndedSession { end, slot, .. } in ended {
            let start = self.sessions[slot as usize].start;
            let origins = self.origins.get(&slot).into_iter().flatten();
            trace.extend(origins.map(|&origin| WindowEntry {
                origin,
                start: Instant::from_ticks(start),
                end: Instant::from_ticks(end),
            }));
        }
    }

    /// The number of each row's session key, with a reference for the row.
    fn hold_keys(&mut self, input: &GroupInput, lane: u32, rows: Range<usize>) {
        self.ids.clear();
        let over = (!self.single).then(|| {
            let over = self.over.iter().map(|&key| &input.compared()[key]);
            EncodedKeys::new(over, input.chunk.rows())
        });
        let encoded = over.as_ref().unwrap_or(&input.encoded);
        if lane == ONE_LANE {
            let keys = rows.map(|row| self.keys.hold(encoded.hash(row), encoded.key(row)));
            self.ids.extend(keys);
        } else {
            // The lane is part of the key, so that lanes have sessions of their own.
            let mut key = Vec::new();
            for row in rows {
                key.clear();
                key.extend_from_slice(encoded.key(row));
                key.extend_from_slice(&lane.to_le_bytes());
                self.ids.push(self.keys.hold(hash_key(&key), &key));
            }
        }
        self.open.resize(self.keys.bound(), NONE);
    }
}

impl LaneWindow for Sessions {
    fn spec(&self) -> &GroupSpec {
        &self.spec
    }

    fn rows(
        &mut self,
        input: &GroupInput,
        lane: u32,
        rows: Range<usize>,
        report: &mut WindowReport<'_>,
    ) {
        if rows.is_empty() {
            return;
        }
        self.hold_keys(input, lane, rows.clone());
        self.slots.clear();
        for row in rows.clone() {
            let time = input.chunk.times[row];
            let session = self.session_at(lane, self.ids[row - rows.start], time);
            self.session(session).last = time;
            let group = self.group_at(session, input, row);
            self.slots.push(group);
            if let (true, Some(origins)) = (report.tracing(), &input.chunk.origins) {
                self.origins.entry(session).or_default().push(origins[row]);
            }
        }
        self.groups.grow();
        let accumulators = &mut self.groups.accumulators;
        self.spec.update(accumulators, input, rows, &self.slots);
    }

    fn advance(
        &mut self,
        lane: Option<u32>,
        watermark: Instant,
        out: &mut RowWriter<'_>,
        report: &mut WindowReport<'_>,
    ) {
        let ended = self.take_ended(lane, watermark);
        self.emit(&ended, out, report);
        self.trace(&ended, report);
        let free = self.groups.free.len();
        for session in ended {
            self.remove(session.slot);
        }
        self.groups.forget(self.groups.free.len() - free);
    }

    fn state_bytes(&self) -> usize {
        let groups = self.groups.all.len() - self.groups.free.len();
        (self.sessions.len() - self.free.len()) * BYTES
            + self.keys.state_bytes()
            + groups::aggregate_bytes(&self.groups.accumulators, groups)
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        out.u64(self.sequence);
        let sessions = || self.sessions.iter().filter(|session| session.key != NONE);
        out.count(sessions().count());
        for session in sessions() {
            out.u32(session.lane);
            out.blob(self.keys.key(session.key));
            out.u64(session.sequence);
            out.i64(session.start);
            out.i64(session.last);
            out.u8(session.closed.is_some().into());
            out.i64(session.closed.unwrap_or_default());
            let groups: Vec<u32> = self.groups_of(session).collect();
            out.count(groups.len());
            for &slot in &groups {
                out.blob(self.keys.key(self.groups.all[slot as usize].key));
                groups::snapshot_original_key(self.groups.original_keys.get(slot), out);
            }
        }
        let order: Vec<u32> = sessions().flat_map(|s| self.groups_of(s)).collect();
        for accumulator in &self.groups.accumulators {
            accumulator.pick(&order).snapshot(out);
        }
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        let mut fresh = Sessions::new(self.spec.clone(), self.rule, self.over.clone());
        fresh.sequence = from.u64()?;
        for _ in 0..from.count()? {
            fresh.restore_session(from)?;
        }
        let groups = fresh.groups.all.len();
        for accumulator in &mut fresh.groups.accumulators {
            accumulator.restore(groups, from)?;
        }
        *self = fresh;
        Ok(())
    }
}

impl Sessions {
    fn restore_session(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        let (lane, key) = (from.u32()?, from.blob()?);
        let key = self.keys.hold(hash_key(key), key);
        let (sequence, start, last) = (from.u64()?, from.i64()?, from.i64()?);
        let (is_closed, closed) = (from.u8()? != 0, from.i64()?);
        let slot = self.insert(Session {
            key,
            lane,
            sequence,
            start,
            last,
            closed: is_closed.then_some(closed),
            groups: (NONE, NONE),
        });
        for _ in 0..from.count()? {
            let bytes = from.blob()?;
            let group = self.groups.insert(Group {
                session: slot,
                key: match self.single {
                    true => key,
                    false => self.keys.hold(hash_key(bytes), bytes),
                },
                next: NONE,
            });
            if !self.single {
                self.groups.remember(group);
            }
            if let Some(look) = groups::restore_original_key(from)? {
                self.groups.original_keys.set(group, look);
            }
            match self.sessions[slot as usize].groups.1 {
                NONE => self.session(slot).groups = (group, group),
                last => {
                    self.groups.all[last as usize].next = group;
                    self.session(slot).groups.1 = group;
                }
            }
        }
        self.open.resize(self.keys.bound(), NONE);
        if !is_closed {
            self.open[key as usize] = slot;
        }
        Ok(())
    }
}
