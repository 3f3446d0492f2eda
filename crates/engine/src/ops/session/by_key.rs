//! Sessions of which every key has its own, with one group: `SessionWindow(..) OVER (PARTITION BY k)` grouped by `k`, over one
//! clock.
//!
//! There may be a million of them open, and most are looked at twice: when they begin and when they end. So that ending
//! them is a walk through memory and not a jump for each, what ends at about the same time lies side by side: time is cut
//! into slices, a slice owns blocks of places, and a session that begins is given a place in the slice of its end. An event
//! that makes it go on leaves it where it is. Only when its slice comes up is it moved to the slice of its new end, once a
//! timeout at most.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_time::Instant;

use super::Rule;
use crate::chunk::CHUNK_ROWS;
use crate::ops::accumulate::Accumulator;
use crate::ops::groups::{self, GroupSpec, Keyed, Looks, Prepared, hash_key};
use crate::ops::interned::{half, spread};
use crate::ops::key_bytes::{KeyBytes, Place};
use crate::ops::lanes::{LaneWindow, Notes, RowsOut};
use crate::ops::{WindowEntry, room};

/// How many places a block has.
const BLOCK: u32 = 32;

pub(crate) struct KeySessions {
    spec: Arc<GroupSpec>,
    rule: Rule,
    /// The open session of each key.
    table: HashTable<u32>,
    list: List,
    accumulators: Vec<Accumulator>,
    slices: BTreeMap<i64, Slice>,
    /// The slice that sessions begin in now, kept out of the others: most are given a place here.
    newest: (i64, Slice),
    /// The first places of blocks that no slice owns.
    free: Vec<u32>,
    born: u64,
    /// The events of each session, when somebody asks for their fate.
    origins: HashMap<u32, Vec<u64>, FixedState>,
    slots: Vec<u32>,
}

/// All sessions by their places, with their keys.
#[derive(Default)]
struct List {
    all: Vec<Session>,
    keys: KeyBytes,
    looks: Looks,
}

#[derive(Clone, Copy)]
struct Session {
    key: Place,
    /// Sessions of one instant come out in the order in which they began; what is left of one after a cut keeps its
    /// place.
    born: u64,
    start: i64,
    last: i64,
    hash: u32,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing is here.
    Vacant,
    Open,
    /// No event can join it any more; it stays until the watermark has passed its end.
    Closed,
    /// What is left of a session that was cut: it has no event yet, and will be gone when `last` is a timeout ago.
    Rest,
}

const VACANT: Session = Session {
    key: Place::NOWHERE,
    born: 0,
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
            3 => Ok(State::Rest),
            _ => Err(DecodeError::Invalid("a session is in an unknown state")),
        }
    }
}

/// The places of sessions that end in a slice of time, or ended there before an event made them go on.
#[derive(Default)]
struct Slice {
    blocks: Vec<u32>,
    /// How many places of the last block are given away.
    used: u32,
}

impl Slice {
    fn places(&self) -> impl Iterator<Item = u32> {
        let blocks = self.blocks.iter();
        blocks.flat_map(|&first| first..first + BLOCK)
    }
}

impl Keyed for List {
    fn key(&self, slot: u32) -> &[u8] {
        self.keys.get(self.all[slot as usize].key)
    }

    fn look(&self, slot: u32) -> Option<&[u8]> {
        self.looks.get(slot)
    }
}

impl List {
    /// A session shows its key as the first of its events has it.
    fn show(&mut self, slot: u32, input: &Prepared, row: usize) {
        if let Some(look) = input.look(row) {
            self.looks.set(slot, look);
        }
    }
}

/// A session that has ended: when, what decides among those of one instant, and its place.
type Ended = (i64, u64, u32);

impl KeySessions {
    pub fn new(spec: Arc<GroupSpec>, rule: Rule) -> KeySessions {
        KeySessions {
            rule,
            table: HashTable::new(),
            list: List::default(),
            accumulators: spec.accumulators(),
            slices: BTreeMap::new(),
            newest: Default::default(),
            free: Vec::new(),
            born: 0,
            origins: HashMap::default(),
            slots: Vec::new(),
            spec,
        }
    }

    /// When a session leaves its place if no further event comes.
    fn due(&self, session: &Session) -> i64 {
        match session.state {
            State::Rest => self.rule.timeout(session.last),
            _ => self.rule.close(session.start, session.last),
        }
    }

    fn slice_of(&self, due: i64) -> i64 {
        due.div_euclid(self.rule.slice())
    }

    /// Finds a place for a session that begins.
    fn begin(&mut self, session: Session) -> u32 {
        let number = self.slice_of(self.due(&session));
        if self.newest.0 != number {
            self.shelve();
            self.newest = (number, self.slices.remove(&number).unwrap_or_default());
        }
        let slot = take_place(
            &mut self.newest.1,
            &mut self.free,
            &mut self.list.all,
            &mut self.accumulators,
        );
        self.list.all[slot as usize] = session;
        slot
    }

    /// A place for a session that is due then, whenever it began.
    fn place(&mut self, due: i64) -> u32 {
        let slice = self.slices.entry(self.slice_of(due)).or_default();
        take_place(
            slice,
            &mut self.free,
            &mut self.list.all,
            &mut self.accumulators,
        )
    }

    /// Puts the newest slice to the others.
    fn shelve(&mut self) {
        let (number, slice) = std::mem::take(&mut self.newest);
        if !slice.blocks.is_empty() {
            self.give_back(number, slice);
        }
    }

    fn give_back(&mut self, number: i64, mut slice: Slice) {
        let known = self.slices.entry(number).or_default();
        // What is left of the last block of the one stays empty.
        known.blocks.append(&mut slice.blocks);
        known.used = slice.used;
    }

    /// The session that an event belongs to, after closing what ended before it.
    fn session_at(&mut self, input: &Prepared, row: usize) -> u32 {
        let (hash, key) = (half(input.hash(row)), input.key(row));
        let time = input.chunk.times[row];
        let list = &self.list;
        let same = |&slot: &u32| list.all[slot as usize].hash == hash && list.key(slot) == key;
        let found = self.table.find(spread(hash), same).copied();
        let mut fresh = Session {
            key: Place::NOWHERE,
            born: self.born + 1,
            start: time,
            last: time,
            hash,
            state: State::Open,
        };
        if let Some(slot) = found {
            let session = &mut self.list.all[slot as usize];
            let rest = self.rule.rest(session.start, session.last, time);
            match (session.state, rest) {
                (State::Rest, Some(start)) => {
                    session.start = start;
                    session.last = time;
                    session.state = State::Open;
                    self.list.show(slot, input, row);
                    return slot;
                }
                (State::Rest, None) => self.vacate(slot),
                _ if self.rule.close(session.start, session.last) >= time => {
                    session.last = time;
                    return slot;
                }
                (_, rest) => {
                    session.state = State::Closed;
                    if let Some(start) = rest {
                        (fresh.start, fresh.born) = (start, session.born);
                    }
                }
            }
        }
        self.born = self.born.max(fresh.born);
        fresh.key = self.list.keys.put(key);
        let slot = self.begin(fresh);
        self.list.show(slot, input, row);
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

    /// Empties a place whose aggregates are empty already.
    fn vacate(&mut self, slot: u32) {
        let session = &mut self.list.all[slot as usize];
        session.state = State::Vacant;
        self.list.looks.take(slot);
        if self.list.keys.forget(session.key) {
            let living = self.list.all.iter_mut();
            let living = living.filter(|session| session.state != State::Vacant);
            let places = living.map(|session| &mut session.key);
            self.list.keys.keep_only(places);
        }
    }

    /// The sessions that closed before `watermark`, in the order in which they come out, and the blocks that are empty
    /// without them.
    fn ended(&mut self, watermark: Instant) -> (Vec<Ended>, Vec<u32>) {
        self.shelve();
        let before = watermark.ticks();
        let first_later = self.slice_of(before.saturating_sub(1)).saturating_add(1);
        let later = self.slices.split_off(&first_later);
        let due = std::mem::replace(&mut self.slices, later);
        let (mut ended, mut empty) = (Vec::new(), Vec::new());
        for (number, slice) in due {
            let mut stays = false;
            for slot in slice.places() {
                let session = self.list.all[slot as usize];
                if session.state == State::Vacant {
                    continue;
                }
                let due = self.due(&session);
                if due < before {
                    self.end(slot, session, before);
                    if session.state != State::Rest {
                        ended.push((due, session.born, slot));
                    }
                } else if self.slice_of(due) == number {
                    stays = true;
                } else {
                    self.relocate(slot, due);
                }
            }
            match stays {
                true => self.give_back(number, slice),
                false => empty.extend(slice.blocks),
            }
        }
        ended.sort_unstable();
        (ended, empty)
    }

    /// Lets go of the key of a session that is over. One that is cut goes on, empty, from the cut.
    fn end(&mut self, slot: u32, session: Session, before: i64) {
        let Session { start, last, .. } = session;
        match session.state {
            State::Vacant | State::Closed => {}
            State::Rest => {
                self.leave(session.hash, slot);
                self.vacate(slot);
            }
            State::Open if self.rule.timeout(last) < before => {
                self.leave(session.hash, slot);
            }
            State::Open => {
                let rest = self.place(self.rule.timeout(last));
                self.list.all[rest as usize] = Session {
                    key: self.list.keys.put_again(session.key),
                    start: self.rule.cut(start),
                    state: State::Rest,
                    ..session
                };
                self.lead(session.hash, slot, rest);
            }
        }
    }

    /// Moves a session that has gone on to the slice in which it is due now.
    fn relocate(&mut self, from: u32, due: i64) {
        let to = self.place(due);
        self.list.all.swap(from as usize, to as usize);
        for accumulator in &mut self.accumulators {
            accumulator.swap(from, to);
        }
        if let Some(look) = self.list.looks.take(from) {
            self.list.looks.set(to, look);
        }
        if let Some(origins) = self.origins.remove(&from) {
            self.origins.insert(to, origins);
        }
        let session = self.list.all[to as usize];
        if session.state != State::Closed {
            self.lead(session.hash, from, to);
        }
    }

    fn emit(&self, ended: &[Ended], out: &mut RowsOut, notes: &mut Notes<'_>) {
        for part in ended.chunks(CHUNK_ROWS) {
            let times: Vec<i64> = part.iter().map(|(end, _, _)| *end).collect();
            let slots: Vec<u32> = part.iter().map(|(_, _, slot)| *slot).collect();
            let (spec, errors) = (&self.spec, &mut *notes.errors);
            let accumulators = &self.accumulators;
            groups::emit(spec, &times, &slots, &self.list, accumulators, out, errors);
        }
    }

    fn trace(&mut self, ended: &[Ended], notes: &mut Notes<'_>) {
        let Some(trace) = &mut notes.trace else {
            return;
        };
        for &(end, _, slot) in ended {
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

/// The next place of a slice.
fn take_place(
    slice: &mut Slice,
    free: &mut Vec<u32>,
    all: &mut Vec<Session>,
    accumulators: &mut [Accumulator],
) -> u32 {
    if slice.blocks.is_empty() || slice.used == BLOCK {
        let block = free.pop().unwrap_or_else(|| {
            let (first, len) = (all.len() as u32, all.len() + BLOCK as usize);
            room::resize(all, len, VACANT);
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

    fn rows(&mut self, input: &Prepared, _lane: u32, rows: Range<usize>, notes: &mut Notes<'_>) {
        if rows.is_empty() {
            return;
        }
        self.slots.clear();
        for row in rows.clone() {
            let slot = self.session_at(input, row);
            self.slots.push(slot);
            if let (true, Some(origins)) = (notes.tracing(), &input.chunk.origins) {
                self.origins.entry(slot).or_default().push(origins[row]);
            }
        }
        let accumulators = &mut self.accumulators;
        self.spec
            .update(accumulators, input, rows, &self.slots, notes.errors);
    }

    fn advance(
        &mut self,
        _lane: Option<u32>,
        watermark: Instant,
        out: &mut RowsOut,
        notes: &mut Notes<'_>,
    ) {
        let (ended, empty) = self.ended(watermark);
        self.emit(&ended, out, notes);
        self.trace(&ended, notes);
        self.slots.clear();
        self.slots.extend(ended.iter().map(|(_, _, slot)| *slot));
        let accumulators = self.accumulators.iter_mut();
        accumulators.for_each(|accumulator| accumulator.clear(&self.slots));
        for (_, _, slot) in ended {
            self.vacate(slot);
        }
        self.free.extend(empty);
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        out.u64(self.born);
        let all = self.list.all.iter().enumerate();
        let kept = all.filter(|(_, session)| session.state != State::Vacant);
        let order: Vec<u32> = kept.map(|(slot, _)| slot as u32).collect();
        out.count(order.len());
        for &slot in &order {
            let session = &self.list.all[slot as usize];
            out.blob(self.list.key(slot));
            groups::snapshot_look(self.list.look(slot), out);
            out.u64(session.born);
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
        fresh.born = from.u64()?;
        let sessions = from.count()?;
        for slot in 0..sessions {
            fresh.restore_session(slot as u32, from)?;
        }
        // They are moved to where they belong when the first of them is due.
        let due = fresh.list.all.iter().map(|session| fresh.due(session));
        let number = fresh.slice_of(due.min().unwrap_or(0));
        let len = sessions.next_multiple_of(BLOCK as usize);
        fresh.list.all.resize(len, VACANT);
        for accumulator in &mut fresh.accumulators {
            accumulator.restore(sessions, from)?;
            accumulator.grow(len);
        }
        let blocks = (0..len as u32).step_by(BLOCK as usize).collect();
        fresh.give_back(
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
        if let Some(look) = groups::restore_look(from)? {
            self.list.looks.set(slot, look);
        }
        let session = Session {
            key: self.list.keys.put(key),
            hash: half(hash_key(key)),
            born: from.u64()?,
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
