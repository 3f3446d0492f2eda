//! Session windows: events that follow each other closely, cut at a largest duration.
//!
//! A session closes `timeout` after its last event, or at the first multiple of `max` that is at least `max` after its
//! start, whichever comes first. After a cut the next session starts at the cut, if an event comes while the old one
//! would still have been open; otherwise nothing is left of it. Without OVER all events of a lane share one session and
//! only the rows are split by the group keys.
//!
//! There may be a million open sessions, most of them with a single group. So a session is a few numbers, the groups of
//! all sessions stand in one list with one accumulator per aggregate, and what falls due is sorted only roughly until
//! it does. Where keys have sessions of their own with one group each, and go by one clock, [`KeySessions`] do the same
//! with less.

use std::ops::Range;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_time::{Duration, Instant};

use super::WindowEntry;
use super::accumulate::Accumulator;
use super::agenda::{Agenda, ONE_LANE};
use super::groups::{self, Encoded, GroupSpec, Keyed, Looks, Prepared, hash_key};
use super::interned::KeyTable;
use super::lanes::{LaneWindow, Notes, RowsOut};
use crate::chunk::CHUNK_ROWS;

mod by_key;

pub(crate) use by_key::KeySessions;

const NONE: u32 = u32::MAX;

pub(crate) struct Sessions {
    spec: Arc<GroupSpec>,
    rule: Rule,
    /// Which keys have sessions of their own.
    over: Vec<usize>,
    /// Those are all keys, in order: a session has one group, with the session's key.
    single: bool,
    /// The keys of sessions and of groups.
    keys: KeyTable,
    /// By the number of a session's key: the session that is open.
    open: Vec<u32>,
    sessions: Vec<Session>,
    free: Vec<u32>,
    groups: GroupList,
    /// Every session stands in here once, not after the instant at which it closes. Due times are rounded down to a
    /// multiple of `coarse`; the exact one stands beside the session.
    due: Agenda<Vec<(i64, u32)>>,
    coarse: i64,
    born: u64,
    /// The events of each session, when somebody asks for their fate.
    origins: HashMap<u32, Vec<u64>, FixedState>,
    ids: Vec<u32>,
    slots: Vec<u32>,
}

/// What a session with one group takes, without its key and aggregates.
pub(super) const BYTES: usize = size_of::<Session>() + size_of::<Group>();

/// When sessions end.
#[derive(Clone, Copy)]
pub(crate) struct Rule {
    pub timeout: Duration,
    pub max: Duration,
}

#[derive(Clone, Copy)]
struct Session {
    /// The number of its key; [`NONE`] marks a free place.
    key: u32,
    lane: u32,
    /// Sessions of one instant come out in the order in which they began; what is left of one after a cut keeps its
    /// place.
    born: u64,
    start: i64,
    last: i64,
    /// When it closed, if it has; it stays until the watermark has passed that too.
    closed: Option<i64>,
    /// The first and last of its groups.
    groups: (u32, u32),
}

/// The groups of all sessions.
struct GroupList {
    /// Finds the group of a key within a session; not used if sessions have one group each.
    table: HashTable<u32>,
    all: Vec<Group>,
    free: Vec<u32>,
    looks: Looks,
    accumulators: Vec<Accumulator>,
}

#[derive(Clone, Copy)]
struct Group {
    session: u32,
    key: u32,
    /// The next group of the session.
    next: u32,
}

/// The list with the table that its keys are in.
struct Named<'a> {
    groups: &'a GroupList,
    keys: &'a KeyTable,
}

impl Keyed for Named<'_> {
    fn key(&self, slot: u32) -> &[u8] {
        self.keys.key(self.groups.all[slot as usize].key)
    }

    fn look(&self, slot: u32) -> Option<&[u8]> {
        self.groups.looks.get(slot)
    }
}

impl Rule {
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

    /// When a session closes if no further event comes.
    fn close(&self, start: i64, last: i64) -> i64 {
        self.cut(start).min(self.timeout(last))
    }

    /// Where the session starts that an event at `time` continues, if cuts alone lie between it and this one.
    fn rest(&self, start: i64, last: i64, time: i64) -> Option<i64> {
        if self.timeout(last) < time {
            return None;
        }
        // After the first cut, one follows the other at the largest duration.
        let (cut, max) = (self.cut(start), self.max.ticks());
        Some(if time > cut {
            cut + (time - cut - 1) / max * max
        } else {
            start
        })
    }

    /// How finely due times are sorted before they come up.
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
            looks: Looks::default(),
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
        self.table.find(place(session, key), same).copied()
    }

    fn remember(&mut self, slot: u32) {
        let all = &self.all;
        let hash = |slot: &u32| place(all[*slot as usize].session, all[*slot as usize].key);
        self.table.insert_unique(hash(&slot), slot, hash);
    }

    /// Frees the slot for another group, once what it has gathered is forgotten.
    fn remove(&mut self, slot: u32) {
        let group = self.all[slot as usize];
        if !self.table.is_empty()
            && let Ok(entry) = self
                .table
                .find_entry(place(group.session, group.key), |&other| other == slot)
        {
            entry.remove();
        }
        self.looks.take(slot);
        self.free.push(slot);
    }

    /// Forgets what the groups removed last have gathered.
    fn forget(&mut self, removed: usize) {
        let slots = &self.free[self.free.len() - removed..];
        let accumulators = self.accumulators.iter_mut();
        accumulators.for_each(|accumulator| accumulator.clear(slots));
    }
}

fn place(session: u32, key: u32) -> u64 {
    let mixed = (u64::from(session) << 32 | u64::from(key)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

impl Sessions {
    pub fn new(spec: Arc<GroupSpec>, rule: Rule, over: Vec<usize>) -> Sessions {
        Sessions {
            rule,
            single: over.iter().copied().eq(0..spec.keys.len()) && !over.is_empty(),
            over,
            keys: KeyTable::default(),
            open: Vec::new(),
            sessions: Vec::new(),
            free: Vec::new(),
            groups: GroupList::new(&spec),
            due: Agenda::default(),
            coarse: rule.slice(),
            born: 0,
            origins: HashMap::default(),
            ids: Vec::new(),
            slots: Vec::new(),
            spec,
        }
    }

    fn session(&mut self, slot: u32) -> &mut Session {
        &mut self.sessions[slot as usize]
    }

    /// The open session that an event at `time` belongs to, after closing what ended before it. Takes over a hold on the
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
                return slot;
            }
            self.close(slot);
        }
        self.born += 1;
        let slot = self.insert(Session {
            key,
            lane,
            born: self.born,
            start: time,
            last: time,
            closed: None,
            groups: (NONE, NONE),
        });
        self.open[key as usize] = slot;
        slot
    }

    /// Ends an open session. One that is cut goes on, empty, from the cut.
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

    /// Puts a session into the list and on the agenda.
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

    /// The group of a row within its session, made on first use.
    fn group_at(&mut self, session: u32, input: &Prepared, row: usize) -> u32 {
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
        if let Some(look) = input.look(row) {
            self.groups.looks.set(slot, look);
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

    /// The sessions that closed before `watermark`, in the order in which they come out.
    fn ended(&mut self, lane: Option<u32>, watermark: Instant) -> Vec<(i64, u32, u64, u32)> {
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
                    self.close(slot); // what goes on from a cut is on the agenda, and may come up in this very loop
                }
                ended.push((end, lane, session.born, slot));
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

    /// Writes the rows of sessions that have ended, a run of one lane at a time.
    fn emit(&self, ended: &[(i64, u32, u64, u32)], out: &mut RowsOut, notes: &mut Notes<'_>) {
        let (mut times, mut slots) = (Vec::new(), Vec::new());
        let named = Named {
            groups: &self.groups,
            keys: &self.keys,
        };
        for run in ended.chunk_by(|a, b| a.1 == b.1) {
            times.clear();
            slots.clear();
            for &(end, _, _, slot) in run {
                for group in self.groups_of(&self.sessions[slot as usize]) {
                    times.push(end);
                    slots.push(group);
                }
            }
            out.lane = run[0].1;
            let accumulators = &self.groups.accumulators;
            let parts = times.chunks(CHUNK_ROWS).zip(slots.chunks(CHUNK_ROWS));
            for (times, slots) in parts {
                let (spec, errors) = (&self.spec, &mut *notes.errors);
                groups::emit(spec, times, slots, &named, accumulators, out, errors);
            }
        }
    }

    fn trace(&self, ended: &[(i64, u32, u64, u32)], notes: &mut Notes<'_>) {
        let Some(trace) = &mut notes.trace else {
            return;
        };
        for &(end, _, _, slot) in ended {
            let start = self.sessions[slot as usize].start;
            let origins = self.origins.get(&slot).into_iter().flatten();
            trace.extend(origins.map(|&origin| WindowEntry {
                origin,
                start: Instant::from_ticks(start),
                end: Instant::from_ticks(end),
            }));
        }
    }

    /// The number of each row's session key, each held once for the row.
    fn hold_keys(&mut self, input: &Prepared, lane: u32, rows: Range<usize>) {
        self.ids.clear();
        let over = (!self.single).then(|| {
            let over = self.over.iter().map(|&key| &input.compared()[key]);
            Encoded::new(over, input.chunk.rows())
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

    fn rows(&mut self, input: &Prepared, lane: u32, rows: Range<usize>, notes: &mut Notes<'_>) {
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
            if let (true, Some(origins)) = (notes.tracing(), &input.chunk.origins) {
                self.origins.entry(session).or_default().push(origins[row]);
            }
        }
        self.groups.grow();
        let accumulators = &mut self.groups.accumulators;
        self.spec
            .update(accumulators, input, rows, &self.slots, notes.errors);
    }

    fn advance(
        &mut self,
        lane: Option<u32>,
        watermark: Instant,
        out: &mut RowsOut,
        notes: &mut Notes<'_>,
    ) {
        let ended = self.ended(lane, watermark);
        self.emit(&ended, out, notes);
        self.trace(&ended, notes);
        let free = self.groups.free.len();
        for (_, _, _, slot) in ended {
            self.remove(slot);
        }
        self.groups.forget(self.groups.free.len() - free);
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        out.u64(self.born);
        let sessions = || self.sessions.iter().filter(|session| session.key != NONE);
        out.count(sessions().count());
        for session in sessions() {
            out.u32(session.lane);
            out.blob(self.keys.key(session.key));
            out.u64(session.born);
            out.i64(session.start);
            out.i64(session.last);
            out.u8(session.closed.is_some().into());
            out.i64(session.closed.unwrap_or_default());
            let groups: Vec<u32> = self.groups_of(session).collect();
            out.count(groups.len());
            for &slot in &groups {
                out.blob(self.keys.key(self.groups.all[slot as usize].key));
                groups::snapshot_look(self.groups.looks.get(slot), out);
            }
        }
        let order: Vec<u32> = sessions().flat_map(|s| self.groups_of(s)).collect();
        for accumulator in &self.groups.accumulators {
            accumulator.pick(&order).snapshot(out);
        }
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        let mut fresh = Sessions::new(self.spec.clone(), self.rule, self.over.clone());
        fresh.born = from.u64()?;
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
        let (born, start, last) = (from.u64()?, from.i64()?, from.i64()?);
        let (is_closed, closed) = (from.u8()? != 0, from.i64()?);
        let slot = self.insert(Session {
            key,
            lane,
            born,
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
            if let Some(look) = groups::restore_look(from)? {
                self.groups.looks.set(group, look);
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
