//! The keys that have a watermark of their own, each in a numbered lane.
//!
//! Keys come and go without end, so a key must be forgotten as soon as forgetting it cannot be
//! noticed: when the floor that all lanes share has passed its latest timestamp by `linger`, its
//! lane holds nothing, its own watermark counts for nothing, and no operator keeps state for it.
//! Its number goes to the next new key, the smallest free number first, so that which lane a key
//! gets depends on the events alone.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::snapshot::{self, RestoreError};
use crate::waiting::Waiting;
use crate::{Duration, Instant};

/// Below this many keys, room for them is not worth giving back.
const SMALL: usize = 64;

/// A lane is one line of a processor's cache: what an event asks of its lane costs one look at memory.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Lane {
    key: Key,
    /// The largest timestamp assigned so far; the lane's watermark follows from it.
    pub latest: Instant,
    pub held: Waiting,
    /// The time at which the schedule of heads will look at this lane, never after its first held
    /// event; [`Instant::BEFORE_ALL`] when it will not.
    pub scheduled: Instant,
}

const _: () = assert!(size_of::<Option<Lane>>() == 64);

impl Lane {
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.key.bytes()
    }

    #[inline]
    pub fn held_and_key(&mut self) -> (&mut Waiting, &[u8]) {
        (&mut self.held, self.key.bytes())
    }
}

/// A key in place, if it is short.
#[derive(Clone, Debug)]
enum Key {
    Short(u8, [u8; Key::SHORT]),
    Long(Box<[u8]>),
}

impl Key {
    const SHORT: usize = 22;

    fn new(bytes: &[u8]) -> Key {
        if bytes.len() > Key::SHORT {
            return Key::Long(bytes.into());
        }
        let mut short = [0; Key::SHORT];
        short[..bytes.len()].copy_from_slice(bytes);
        Key::Short(bytes.len() as u8, short)
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Key::Short(len, bytes) => &bytes[..usize::from(*len)],
            Key::Long(bytes) => bytes,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    linger: Duration,
    slots: Vec<Option<Lane>>,
    free: BTreeSet<u32>,
    /// Lanes by key, hashed without a random seed: nothing here may differ between two runs.
    ids: HashTable<u32>,
    /// One entry for each lane, at or before the moment at which it may be forgotten.
    expiries: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl Lanes {
    pub fn new(linger: Duration) -> Lanes {
        Lanes {
            linger: linger.max(Duration::ZERO),
            slots: Vec::new(),
            free: BTreeSet::new(),
            ids: HashTable::new(),
            expiries: BinaryHeap::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn find(&self, key: &[u8]) -> Option<u32> {
        let ours = |&id: &u32| key_of(&self.slots, id) == key;
        self.ids.find(hash(key), ours).copied()
    }

    /// The lane that each key most likely has; [`Lanes::is_of`] tells for certain. Each step goes over all
    /// keys before the next, so that they wait for memory together and not one after the other.
    pub fn guess(&self, keys: impl Iterator<Item = impl AsRef<[u8]>>, found: &mut Vec<u32>) {
        found.clear();
        found.extend(keys.map(|key| {
            let candidate = self.ids.find(hash(key.as_ref()), |_| true);
            candidate.copied().unwrap_or(u32::MAX)
        }));
        let lanes = found.iter().filter_map(|&id| self.slots.get(id as usize));
        let touched = lanes.flatten().map(|lane| lane.latest.ticks());
        std::hint::black_box(touched.fold(0, i64::wrapping_add));
    }

    /// Whether that lane is the one of this key.
    #[inline]
    pub fn is_of(&self, id: u32, key: &[u8]) -> bool {
        match self.slots.get(id as usize) {
            Some(Some(lane)) => lane.key() == key,
            _ => false,
        }
    }

    /// A lane for a key that has none, and whose first timestamp is `first`.
    pub fn open(&mut self, key: &[u8], first: Instant) -> u32 {
        let id = self.free.pop_first().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 keys fit into memory")
        });
        self.occupy(id, key, first, Waiting::default());
        id
    }

    pub fn get(&self, id: u32) -> &Lane {
        self.slots[id as usize]
            .as_ref()
            .expect("a lane in use has a key")
    }

    pub fn get_mut(&mut self, id: u32) -> &mut Lane {
        self.slots[id as usize]
            .as_mut()
            .expect("a lane in use has a key")
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Lane)> {
        (0..)
            .zip(&self.slots)
            .filter_map(|(id, slot)| slot.as_ref().map(|lane| (id, lane)))
    }

    /// Forgets every key that the floor has passed by more than `linger`.
    pub fn forget(&mut self, floor: Instant) {
        if floor.is_end_of_time()
            && self
                .iter()
                .all(|(_, lane)| lane.latest + self.linger < floor)
        {
            *self = Lanes::new(self.linger);
            return;
        }
        while let Some(&Reverse((expiry, id))) = self.expiries.peek()
            && expiry < floor
        {
            self.expiries.pop();
            let expiry = self.get(id).latest + self.linger;
            if expiry < floor {
                self.vacate(id);
            } else {
                self.expiries.push(Reverse((expiry, id)));
            }
        }
        self.trim();
    }

    fn occupy(&mut self, id: u32, key: &[u8], latest: Instant, held: Waiting) {
        self.expiries.push(Reverse((latest + self.linger, id)));
        self.slots[id as usize] = Some(Lane {
            key: Key::new(key),
            latest,
            held,
            scheduled: Instant::BEFORE_ALL,
        });
        let slots = &self.slots;
        self.ids
            .insert_unique(hash(key), id, |&id| hash(key_of(slots, id)));
    }

    fn vacate(&mut self, id: u32) {
        if let Some(lane) = self.slots[id as usize].take() {
            debug_assert_eq!(
                lane.held.len(),
                0,
                "a key that holds events is not forgotten"
            );
            let entry = self
                .ids
                .find_entry(hash(lane.key.bytes()), |&other| other == id);
            if let Ok(entry) = entry {
                entry.remove();
            }
            self.free.insert(id);
        }
    }

    /// Gives room back after a flood of keys.
    fn trim(&mut self) {
        while let Some(None) = self.slots.last() {
            self.slots.pop();
            self.free.pop_last();
        }
        let roomy = |capacity: usize, used: usize| capacity > SMALL && capacity / 8 > used;
        if roomy(self.slots.capacity(), self.slots.len()) {
            self.slots.shrink_to(self.slots.len() * 2);
        }
        if roomy(self.ids.capacity(), self.ids.len()) {
            let slots = &self.slots;
            self.ids
                .shrink_to(self.ids.len() * 2, |&id| hash(key_of(slots, id)));
        }
        if roomy(self.expiries.capacity(), self.expiries.len()) {
            self.expiries.shrink_to(self.expiries.len() * 2);
        }
    }

    pub fn snapshot(&self, out: &mut Vec<u8>) {
        snapshot::put_u64(out, self.slots.len() as u64);
        for slot in &self.slots {
            out.push(slot.is_some().into());
            if let Some(lane) = slot {
                snapshot::put_bytes(out, lane.key.bytes());
                snapshot::put_instant(out, lane.latest);
                lane.held.snapshot(out);
            }
        }
    }

    pub fn restore(linger: Duration, from: &mut &[u8]) -> Result<Lanes, RestoreError> {
        let mut lanes = Lanes::new(linger);
        let slots = u32::try_from(snapshot::take_u64(from)?)
            .map_err(|_| RestoreError::Invalid("too many lanes"))?;
        for id in 0..slots {
            lanes.slots.push(None);
            if snapshot::take_u8(from)? == 0 {
                lanes.free.insert(id);
                continue;
            }
            let key = snapshot::take_bytes(from)?;
            if lanes.find(key).is_some() {
                return Err(RestoreError::Invalid("a key has two lanes"));
            }
            let latest = snapshot::take_instant(from)?;
            let held = Waiting::restore(from, latest)?;
            lanes.occupy(id, key, latest, held);
        }
        Ok(lanes)
    }
}

#[inline]
fn hash(key: &[u8]) -> u64 {
    FixedState::default().hash_one(key)
}

#[inline]
fn key_of(slots: &[Option<Lane>], id: u32) -> &[u8] {
    slots[id as usize]
        .as_ref()
        .map_or(&[], |lane| lane.key.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Instant {
        Instant::from_ticks(0) + Duration::from_secs(secs)
    }

    fn in_use(lanes: &Lanes) -> Vec<u32> {
        lanes.iter().map(|(id, _)| id).collect()
    }

    // proves T11
    #[test]
    fn a_key_lingers_and_is_then_forgotten() {
        let mut lanes = Lanes::new(Duration::from_secs(10));
        assert_eq!(lanes.open(b"a", at(0)), 0);
        assert_eq!(lanes.open(b"b", at(0)), 1);
        lanes.get_mut(1).latest = at(5);
        lanes.forget(at(10));
        assert_eq!(in_use(&lanes), [0, 1]);
        lanes.forget(at(11));
        assert_eq!(in_use(&lanes), [1]);
        assert_eq!(lanes.find(b"a"), None);
        assert_eq!(lanes.open(b"c", at(11)), 0);
        lanes.forget(at(16));
        assert_eq!(in_use(&lanes), [0]);
    }

    // proves T11
    #[test]
    fn a_million_keys_that_come_and_go_need_the_room_of_those_that_stay() {
        let mut lanes = Lanes::new(Duration::ZERO);
        for key in 0..1_000_000u32 {
            let second = i64::from(key / 1_000);
            lanes.open(&key.to_le_bytes(), at(second));
            lanes.forget(at(second));
            assert!(lanes.len() <= 1_000 && lanes.slots.len() <= 2_000);
        }
        let room = [
            lanes.slots.capacity(),
            lanes.ids.capacity(),
            lanes.expiries.capacity(),
        ];
        assert!(room.into_iter().all(|places| places <= 4_096), "{room:?}");
        assert!(lanes.free.len() <= 1_000);
    }

    // proves T11
    #[test]
    fn room_is_given_back_after_a_flood_of_keys() {
        let mut lanes = Lanes::new(Duration::ZERO);
        for key in 0..100_000u32 {
            lanes.open(&key.to_le_bytes(), at(0));
        }
        lanes.get_mut(0).latest = at(100);
        lanes.forget(at(1));
        assert_eq!(lanes.len(), 1);
        assert!(lanes.slots.capacity() <= SMALL);
        assert!(lanes.ids.capacity() <= SMALL);
        assert!(lanes.expiries.capacity() <= SMALL);
        assert!(lanes.free.is_empty());
    }

    #[test]
    fn a_snapshot_that_would_lose_an_event_is_refused() {
        let mut lanes = Lanes::new(Duration::ZERO);
        lanes.open(b"a", at(0));
        let held = &mut lanes.get_mut(0).held;
        held.admit(at(5), 0, at(0), |_, _| unreachable!("it waits"));
        let mut bytes = Vec::new();
        lanes.snapshot(&mut bytes);
        let restored = Lanes::restore(Duration::ZERO, &mut bytes.as_slice());
        let reason = "a held event lies past the latest one";
        assert_eq!(restored.err(), Some(RestoreError::Invalid(reason)));
    }
}
