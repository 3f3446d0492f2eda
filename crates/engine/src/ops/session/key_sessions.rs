//! Sessions per key with one group each: `SessionWindow(..) OVER (PARTITION BY k)` grouped by `k`, without substreams.
//!
//! There may be a million open sessions, and most are accessed twice: at their start and at their end. So that ending
//! them is a sequential scan, sessions that end at about the same time are stored side by side: time is divided into
//! slices, a slice owns blocks of slots, and a new session gets a slot in the slice of its end. An event that extends a
//! session does not move it. When its slice is due, it moves to the slice of its new end, at most once per timeout.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_time::Instant;

use super::SessionRule;
use crate::chunk::CHUNK_ROWS;
use crate::ops::accumulate::Accumulator;
use crate::ops::groups::{self, GroupInput, GroupKeys, GroupSpec, OriginalKeys, hash_key};
use crate::ops::key_bytes::{KeyBytes, KeyRef};
use crate::ops::key_table::{half, spread};
use crate::ops::window_operator::{LaneWindow, RowWriter, WindowReport};
use crate::ops::{WindowEntry, vec_growth};

/// The slots of a block.
const BLOCK: u32 = 32;

pub(crate) struct KeySessions {
    spec: Arc<GroupSpec>,
    rule: SessionRule,
    /// The open session of each key.
    table: HashTable<u32>,
    list: SessionList,
    accumulators: Vec<Accumulator>,
    slices: BTreeMap<i64, Slice>,
    /// The slice of the newest sessions, kept apart because most sessions get a slot here.
    newest: (i64, Slice),
    /// The first slots of free blocks.
    free: Vec<u32>,
    sequence: u64,
    /// The events of each session, if window entries are traced.
    origins: HashMap<u32, Vec<u64>, FixedState>,
    slots: Vec<u32>,
}

/// All sessions by slot, with their keys.
#[derive(Default)]
struct SessionList {
    all: Vec<Session>,
    keys: KeyBytes,
    original_keys: OriginalKeys,
}

#[derive(Clone, Copy)]
struct Session {
    key: KeyRef,
    /// Sessions that end at one time are emitted in the order of their first events. The continuation after a cut gets
    /// its number with its own first event: a job that starts later does not know the earlier events.
    sequence: u64,
    start: i64,
    last: i64,
    hash: u32,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// A free slot.
    Vacant,
    Open,
    /// Takes no more events; stays until the watermark has passed its end.
    Closed,
    /// The continuation of a cut session: has no event yet, and expires a timeout after `last`.
    Continuation,
}

const VACANT_SESSION: Session = Session {
    key: KeyRef::NONE,
    sequence: 0,
    start: 0,
    last: 0,
    hash: 0,
    state: State::Vacant,
};

impl State {
    fn restore(from: &mut Reader<'_>) -> Result<State, DecodeError> {
        match from.u8()? {
            1 => Ok(State::Open),
            2 => Ok(State::Closed),
            3 => Ok(State::Continuation),
            _ => Err(DecodeError::Invalid("a session is in an unknown state")),
        }
    }
}

/// The slots of sessions whose end is, or was before later events, in a slice of time.
#[derive(Default)]
struct Slice {
    blocks: Vec<u32>,
    /// The used slots of the last block.
    used: u32,
}

impl Slice {
    fn slots(&self) -> impl Iterator<Item = u32> {
        let blocks = self.blocks.iter();
        blocks.flat_map(|&first| first..first + BLOCK)
    }
}

impl GroupKeys for SessionList {
    fn key(&self, slot: u32) -> &[u8] {
        self.keys.get(self.all[slot as usize].key)
    }

    fn original_key(&self, slot: u32) -> Option<&[u8]> {
        self.original_keys.get(slot)
    }
}

impl SessionList {
    /// A session is emitted with the key of its first event.
    fn set_original_key(&mut self, slot: u32, input: &GroupInput, row: usize) {
        if let Some(look) = input.original_key(row) {
            self.original_keys.set(slot, look);
        }
    }
}

/// A session that closed; the order is that of the output.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct EndedSession {
    end: i64,
    sequence: u64,
    slot: u32,
}

impl KeySessions {
    pub(crate) fn new(spec: Arc<GroupSpec>, rule: SessionRule) -> KeySessions {
        KeySessions {
            rule,
            table: HashTable::new(),
            list: SessionList::default(),
            accumulators: spec.accumulators(),
            slices: BTreeMap::new(),
            newest: Default::default(),
            free: Vec::new(),
            sequence: 0,
            origins: HashMap::default(),
            slots: Vec::new(),
            spec,
        }
    }

    /// When a session leaves its slot without further events.
    fn due(&self, session: &Session) -> i64 {
        match session.state {
            State::Continuation => self.rule.timeout(session.last),
            _ => self.rule.close(session.start, session.last),
        }
    }

    fn slice_of(&self, due: i64) -> i64 {
        due.div_euclid(self.rule.slice())
    }

    /// Adds a new session.
    fn begin(&mut self, session: Session) -> u32 {
        let number = self.slice_of(self.due(&session));
        if self.newest.0 != number {
            self.store_newest_slice();
            self.newest = (number, self.slices.remove(&number).unwrap_or_default());
        }
        let slot = take_slot(
            &mut self.newest.1,
            &mut self.free,
            &mut self.list.all,
            &mut self.accumulators,
        );
        self.list.all[slot as usize] = session;
        slot
    }

    /// A slot in the slice of `due`.
    fn slot_due_at(&mut self, due: i64) -> u32 {
        let slice = self.slices.entry(self.slice_of(due)).or_default();
        take_slot(
            slice,
            &mut self.free,
            &mut self.list.all,
            &mut self.accumulators,
        )
    }

    /// Moves the newest slice to the others.
    fn store_newest_slice(&mut self) {
        let (number, slice) = std::mem::take(&mut self.newest);
        if !slice.blocks.is_empty() {
            self.store_slice(number, slice);
        }
    }

    fn store_slice(&mut self, number: i64, mut slice: Slice) {
        let known = self.slices.entry(number).or_default();
        // The unused slots of the existing last block stay empty.
        known.blocks.append(&mut slice.blocks);
        known.used = slice.used;
    }

    /// The session of an event, after closing those that ended before it.
    fn session_at(&mut self, input: &GroupInput, row: usize) -> u32 {
        let (hash, key) = (half(input.hash(row)), input.key(row));
        let time = input.chunk.times[row];
        let list = &self.list;
        let same = |&slot: &u32| list.all[slot as usize].hash == hash && list.key(slot) == key;
        let found = self.table.find(spread(hash), same).copied();
        let mut fresh = Session {
            key: KeyRef::NONE,
            sequence: self.sequence + 1,
            start: time,
            last: time,
            hash,
            state: State::Open,
        };
        if let Some(slot) = found {
            let session = &mut self.list.all[slot as usize];
            let rest = self
                .rule
                .continuation_start(session.start, session.last, time);
            match (session.state, rest) {
                (State::Continuation, Some(start)) => {
                    self.sequence = fresh.sequence;
                    session.sequence = fresh.sequence;
                    session.start = start;
                    session.last = time;
                    session.state = State::Open;
                    self.list.set_original_key(slot, input, row);
                    return slot;
                }
                (State::Continuation, None) => self.vacate(slot),
                _ if self.rule.close(session.start, session.last) >= time => {
                    session.last = time;
                    return slot;
                }
                (_, rest) => {
                    session.state = State::Closed;
                    if let Some(start) = rest {
                        fresh.start = start;
                    }
                }
            }
        }
        self.sequence = fresh.sequence;
        fresh.key = self.list.keys.put(key);
        let slot = self.begin(fresh);
        self.list.set_original_key(slot, input, row);
        match found {
            Some(before) => self.lead(hash, before, slot),
            None => self.enter(slot),
        }
        slot
    }

    /// Makes the key that led to one session lead to another.
    fn lead(&mut self, hash: u32, from: u32, to: u32) {
        if let Some(found) = self.table.find_mut(spread(hash), |&slot| slot == from) {
            *found = to;
        }
    }

    fn enter(&mut self, slot: u32) {
        let all = &self.list.all;
        let hash = |slot: &u32| spread(all[*slot as usize].hash);
        self.table.insert_unique(hash(&slot), slot, hash);
    }

    fn leave(&mut self, hash: u32, slot: u32) {
        let found = self.table.find_entry(spread(hash), |&other| other == slot);
        if let Ok(entry) = found {
            entry.remove();
        }
    }

    /// Empties a slot whose aggregates are empty already.
    fn vacate(&mut self, slot: u32) {
        let session = &mut self.list.all[slot as usize];
        session.state = State::Vacant;
        self.list.original_keys.take(slot);
        if self.list.keys.forget(session.key) {
            let living = self.list.all.iter_mut();
            let living = living.filter(|session| session.state != State::Vacant);
            let places = living.map(|session| &mut session.key);
            self.list.keys.keep_only(places);
        }
    }

    /// The sessions that closed before `watermark`, in the order in which they come out, and the blocks that are empty
    /// without them.
    fn ended(&mut self, watermark: Instant) -> (Vec<EndedSession>, Vec<u32>) {
        self.store_newest_slice();
        let before = watermark.ticks();
        let first_later = self.slice_of(before.saturating_sub(1)).saturating_add(1);
        let later = self.slices.split_off(&first_later);
        let due = std::mem::replace(&mut self.slices, later);
        let (mut ended, mut empty) = (Vec::new(), Vec::new());
        for (number, slice) in due {
            let mut stays = false;
            for slot in slice.slots() {
                let session = self.list.all[slot as usize];
                if session.state == State::Vacant {
                    continue;
                }
                let due = self.due(&session);
                if due < before {
                    self.end(slot, session, before);
                    if session.state != State::Continuation {
                        let sequence = session.sequence;
                        ended.push(EndedSession {
                            end: due,
                            sequence,
                            slot,
                        });
                    }
                } else if self.slice_of(due) == number {
                    stays = true;
                } else {
                    self.relocate(slot, due);
                }
            }
            match stays {
                true => self.store_slice(number, slice),
                false => empty.extend(slice.blocks),
            }
        }
        ended.sort_unstable();
        (ended, empty)
    }

    /// Releases the key of an ended session. A cut session continues, empty, from the cut.
    fn end(&mut self, slot: u32, session: Session, before: i64) {
        let Session { start, last, .. } = session;
        match session.state {
            State::Vacant | State::Closed => {}
            State::Continuation => {
                self.leave(session.hash, slot);
                self.vacate(slot);
            }
            State::Open if self.rule.timeout(last) < before => {
                self.leave(session.hash, slot);
            }
            State::Open => {
                let rest = self.slot_due_at(self.rule.timeout(last));
                self.list.all[rest as usize] = Session {
                    key: self.list.keys.put_again(session.key),
                    start: self.rule.cut(start),
                    state: State::Continuation,
                    ..session
                };
                self.lead(session.hash, slot, rest);
            }
        }
    }

    /// Moves an extended session to the slice of its new deadline.
    fn relocate(&mut self, from: u32, due: i64) {
        let to = self.slot_due_at(due);
        self.list.all.swap(from as usize, to as usize);
        for accumulator in &mut self.accumulators {
            accumulator.swap(from, to);
        }
        if let Some(look) = self.list.original_keys.take(from) {
            self.list.original_keys.set(to, look);
        }
        if let Some(origins) = self.origins.remove(&from) {
            self.origins.insert(to, origins);
        }
        let session = self.list.all[to as usize];
        if session.state != State::Closed {
            self.lead(session.hash, from, to);
        }
    }

    fn emit(&self, ended: &[EndedSession], out: &mut RowWriter<'_>, report: &mut WindowReport<'_>) {
        for part in ended.chunks(CHUNK_ROWS) {
            let times: Vec<i64> = part.iter().map(|session| session.end).collect();
            let slots: Vec<u32> = part.iter().map(|session| session.slot).collect();
            let (spec, errors) = (&self.spec, &mut *report.errors);
            let accumulators = &self.accumulators;
            groups::emit(spec, &times, &slots, &self.list, accumulators, out, errors);
        }
    }

    fn trace(&mut self, ended: &[EndedSession], report: &mut WindowReport<'_>) {
        let Some(trace) = &mut report.trace else {
            return;
        };
        for &EndedSession { end, slot, .. } in ended {
            let start = self.list.all[slot as usize].start;
            let origins = self.origins.remove(&slot).into_iter().flatten();
            trace.extend(origins.map(|origin| WindowEntry {
                origin,
                start: Instant::from_ticks(start),
                end: Instant::from_ticks(end),
            }));
        }
    }
}

/// The next slot of a slice.
fn take_slot(
    slice: &mut Slice,
    free: &mut Vec<u32>,
    all: &mut Vec<Session>,
    accumulators: &mut [Accumulator],
) -> u32 {
    if slice.blocks.is_empty() || slice.used == BLOCK {
        let block = free.pop().unwrap_or_else(|| {
            let (first, len) = (all.len() as u32, all.len() + BLOCK as usize);
            vec_growth::resize(all, len, VACANT_SESSION);
            let accumulators = accumulators.iter_mut();
            accumulators.for_each(|accumulator| accumulator.grow(len));
            first
        });
        slice.blocks.push(block);
        slice.used = 0;
    }
    slice.used += 1;
    slice.blocks[slice.blocks.len() - 1] + slice.used - 1
}

impl LaneWindow for KeySessions {
    fn spec(&self) -> &GroupSpec {
        &self.spec
    }

    fn rows(
        &mut self,
        input: &GroupInput,
        _lane: u32,
        rows: Range<usize>,
        report: &mut WindowReport<'_>,
    ) {
        if rows.is_empty() {
            return;
        }
        self.slots.clear();
        for row in rows.clone() {
            let slot = self.session_at(input, row);
            self.slots.push(slot);
            if let (true, Some(origins)) = (report.tracing(), &input.chunk.origins) {
                self.origins.entry(slot).or_default().push(origins[row]);
            }
        }
        let accumulators = &mut self.accumulators;
        self.spec.update(accumulators, input, rows, &self.slots);
    }

    fn advance(
        &mut self,
        _lane: Option<u32>,
        watermark: Instant,
        out: &mut RowWriter<'_>,
        report: &mut WindowReport<'_>,
    ) {
        let (ended, empty) = self.ended(watermark);
        self.emit(&ended, out, report);
        self.trace(&ended, report);
        self.slots.clear();
        self.slots.extend(ended.iter().map(|session| session.slot));
        let accumulators = self.accumulators.iter_mut();
        accumulators.for_each(|accumulator| accumulator.clear(&self.slots));
        for session in ended {
            self.vacate(session.slot);
        }
        self.free.extend(empty);
    }

    fn state_bytes(&self) -> usize {
        let sessions = self.table.len();
        sessions * size_of::<Session>()
            + self.list.keys.len()
            + groups::aggregate_bytes(&self.accumulators, sessions)
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        out.u64(self.sequence);
        let all = self.list.all.iter().enumerate();
        let kept = all.filter(|(_, session)| session.state != State::Vacant);
        let order: Vec<u32> = kept.map(|(slot, _)| slot as u32).collect();
        out.count(order.len());
        for &slot in &order {
            let session = &self.list.all[slot as usize];
            out.blob(self.list.key(slot));
            groups::snapshot_original_key(self.list.original_key(slot), out);
            out.u64(session.sequence);
            out.i64(session.start);
            out.i64(session.last);
            out.u8(session.state as u8);
        }
        for accumulator in &self.accumulators {
            accumulator.pick(&order).snapshot(out);
        }
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        let mut fresh = KeySessions::new(self.spec.clone(), self.rule);
        fresh.sequence = from.u64()?;
        let sessions = from.count()?;
        for slot in 0..sessions {
            fresh.restore_session(slot as u32, from)?;
        }
        // They are moved to where they belong when the first of them is due.
        let due = fresh.list.all.iter().map(|session| fresh.due(session));
        let number = fresh.slice_of(due.min().unwrap_or(0));
        let len = sessions.next_multiple_of(BLOCK as usize);
        fresh.list.all.resize(len, VACANT_SESSION);
        for accumulator in &mut fresh.accumulators {
            accumulator.restore(sessions, from)?;
            accumulator.grow(len);
        }
        let blocks = (0..len as u32).step_by(BLOCK as usize).collect();
        fresh.store_slice(
            number,
            Slice {
                blocks,
                used: BLOCK,
            },
        );
        *self = fresh;
        Ok(())
    }
}

impl KeySessions {
    fn restore_session(&mut self, slot: u32, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        let key = from.blob()?;
        if let Some(look) = groups::restore_original_key(from)? {
            self.list.original_keys.set(slot, look);
        }
        let session = Session {
            key: self.list.keys.put(key),
            hash: half(hash_key(key)),
            sequence: from.u64()?,
            start: from.i64()?,
            last: from.i64()?,
            state: State::restore(from)?,
        };
        self.list.all.push(session);
        if session.state != State::Closed {
            self.enter(slot);
        }
        Ok(())
    }
}
