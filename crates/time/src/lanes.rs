//! The table of lanes: one numbered lane for each key of a substream.
//!
//! The number of keys is unbounded, so a key expires as soon as its expiry is unobservable: when
//! the common floor has passed its latest timestamp by `retention`, its lane buffers no event, its
//! watermark is below the floor, and no operator keeps state for it. New keys take the smallest
//! free lane number, so lane numbers depend on the events alone.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use highwater_codec::{DecodeError, Reader, Writer};

use crate::lane_buffer::LaneBuffer;
use crate::snapshot;
use crate::{Duration, Instant};

/// Collections of at most this capacity are not shrunk.
const SHRINK_CAPACITY_MIN: usize = 64;

/// One cache line, so that an event costs one cache miss for its lane.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Lane {
    key: Key,
    /// The latest timestamp so far, which determines the lane's watermark.
    pub latest: Instant,
    pub buffer: LaneBuffer,
    /// The time of this lane's valid entry in `Substreams::lane_heads`, never after its first
    /// buffered event; [`Instant::BEFORE_ALL`] if it has none.
    pub scheduled: Instant,
}

const _: () = assert!(size_of::<Option<Lane>>() == 64);

impl Lane {
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.key.bytes()
    }

    #[inline]
    pub(crate) fn buffer_and_key(&mut self) -> (&mut LaneBuffer, &[u8]) {
        (&mut self.buffer, self.key.bytes())
    }
}

/// A key, inline if it is short.
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
    retention: Duration,
    slots: Vec<Option<Lane>>,
    free: BTreeSet<u32>,
    /// Lanes by key. The hash has no random seed, so runs are reproducible.
    ids: HashTable<u32>,
    /// One entry per lane, at or before the time when it may expire.
    expiries: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl Lanes {
    pub(crate) fn new(retention: Duration) -> Lanes {
        Lanes {
            retention: retention.max(Duration::ZERO),
            slots: Vec::new(),
            free: BTreeSet::new(),
            ids: HashTable::new(),
            expiries: BinaryHeap::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(crate) fn find(&self, key: &[u8]) -> Option<u32> {
        let ours = |&id: &u32| key_of(&self.slots, id) == key;
        self.ids.find(hash(key), ours).copied()
    }

    /// The lane that each key most likely has, by its hash; [`Lanes::has_key`] verifies it. Each step runs over
    /// all keys before the next, so that their cache misses overlap.
    pub(crate) fn find_candidates(
        &self,
        keys: impl Iterator<Item = impl AsRef<[u8]>>,
        candidates: &mut Vec<u32>,
    ) {
        candidates.clear();
        candidates.extend(keys.map(|key| {
            let candidate = self.ids.find(hash(key.as_ref()), |_| true);
            candidate.copied().unwrap_or(u32::MAX)
        }));
        self.touch(candidates.iter().copied());
    }

    /// Touches lanes, so that their cache misses overlap.
    pub(crate) fn touch(&self, ids: impl Iterator<Item = u32>) {
        let lanes = ids.filter_map(|id| self.slots.get(id as usize));
        let touched = lanes.flatten().map(|lane| lane.latest.ticks());
        std::hint::black_box(touched.fold(0, i64::wrapping_add));
    }

    #[inline]
    pub(crate) fn has_key(&self, id: u32, key: &[u8]) -> bool {
        match self.slots.get(id as usize) {
            Some(Some(lane)) => lane.key() == key,
            _ => false,
        }
    }

    /// Opens a lane for a new key whose first timestamp is `first`.
    pub(crate) fn open(&mut self, key: &[u8], first: Instant) -> u32 {
        let id = self.free.pop_first().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 keys fit into memory")
        });
        self.insert(id, key, first, LaneBuffer::default());
        id
    }

    pub(crate) fn get(&self, id: u32) -> &Lane {
        self.slots[id as usize]
            .as_ref()
            .expect("a lane in use has a key")
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> &mut Lane {
        self.slots[id as usize]
            .as_mut()
            .expect("a lane in use has a key")
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Lane)> {
        (0..)
            .zip(&self.slots)
            .filter_map(|(id, slot)| slot.as_ref().map(|lane| (id, lane)))
    }

    /// Removes every key that the floor has passed by more than `retention`.
    pub(crate) fn expire(&mut self, floor: Instant) {
        if floor.is_end_of_time()
            && self
                .iter()
                .all(|(_, lane)| lane.latest + self.retention < floor)
        {
            *self = Lanes::new(self.retention);
            return;
        }
        while let Some(&Reverse((expiry, id))) = self.expiries.peek()
            && expiry < floor
        {
            self.expiries.pop();
            let expiry = self.get(id).latest + self.retention;
            if expiry < floor {
                self.remove(id);
            } else {
                self.expiries.push(Reverse((expiry, id)));
            }
        }
        self.shrink();
    }

    fn insert(&mut self, id: u32, key: &[u8], latest: Instant, buffer: LaneBuffer) {
        self.expiries.push(Reverse((latest + self.retention, id)));
        self.slots[id as usize] = Some(Lane {
            key: Key::new(key),
            latest,
            buffer,
            scheduled: Instant::BEFORE_ALL,
        });
        let slots = &self.slots;
        self.ids
            .insert_unique(hash(key), id, |&id| hash(key_of(slots, id)));
    }

    fn remove(&mut self, id: u32) {
        if let Some(lane) = self.slots[id as usize].take() {
            debug_assert_eq!(
                lane.buffer.len(),
                0,
                "a key with buffered events does not expire"
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

    /// Frees memory after a peak in the number of keys.
    fn shrink(&mut self) {
        while let Some(None) = self.slots.last() {
            self.slots.pop();
            self.free.pop_last();
        }
        let oversized =
            |capacity: usize, used: usize| capacity > SHRINK_CAPACITY_MIN && capacity / 8 > used;
        if oversized(self.slots.capacity(), self.slots.len()) {
            self.slots.shrink_to(self.slots.len() * 2);
        }
        if oversized(self.ids.capacity(), self.ids.len()) {
            let slots = &self.slots;
            self.ids
                .shrink_to(self.ids.len() * 2, |&id| hash(key_of(slots, id)));
        }
        if oversized(self.expiries.capacity(), self.expiries.len()) {
            self.expiries.shrink_to(self.expiries.len() * 2);
        }
    }

    pub(crate) fn snapshot(&self, out: &mut Vec<u8>) {
        out.count(self.slots.len());
        for slot in &self.slots {
            out.bool(slot.is_some());
            if let Some(lane) = slot {
                out.blob(lane.key.bytes());
                snapshot::write_instant(out, lane.latest);
                lane.buffer.snapshot(out);
            }
        }
    }

    pub(crate) fn restore(
        retention: Duration,
        from: &mut Reader<'_>,
    ) -> Result<Lanes, DecodeError> {
        let mut lanes = Lanes::new(retention);
        let slots =
            u32::try_from(from.u64()?).map_err(|_| DecodeError::Invalid("too many lanes"))?;
        for id in 0..slots {
            lanes.slots.push(None);
            if from.u8()? == 0 {
                lanes.free.insert(id);
                continue;
            }
            let key = from.blob()?;
            if lanes.find(key).is_some() {
                return Err(DecodeError::Invalid("a key has two lanes"));
            }
            let latest = snapshot::read_instant(from)?;
            let buffer = LaneBuffer::restore(from, latest)?;
            lanes.insert(id, key, latest, buffer);
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
    fn a_key_retentions_and_is_then_forgotten() {
        let mut lanes = Lanes::new(Duration::from_secs(10));
        assert_eq!(lanes.open(b"a", at(0)), 0);
        assert_eq!(lanes.open(b"b", at(0)), 1);
        lanes.get_mut(1).latest = at(5);
        lanes.expire(at(10));
        assert_eq!(in_use(&lanes), [0, 1]);
        lanes.expire(at(11));
        assert_eq!(in_use(&lanes), [1]);
        assert_eq!(lanes.find(b"a"), None);
        assert_eq!(lanes.open(b"c", at(11)), 0);
        lanes.expire(at(16));
        assert_eq!(in_use(&lanes), [0]);
    }

    // proves T11
    #[test]
    fn a_million_keys_that_come_and_go_need_the_room_of_those_that_stay() {
        let mut lanes = Lanes::new(Duration::ZERO);
        for key in 0..1_000_000u32 {
            let second = i64::from(key / 1_000);
            lanes.open(&key.to_le_bytes(), at(second));
            lanes.expire(at(second));
            assert!(lanes.len() <= 1_000 && lanes.slots.len() <= 2_000);
        }
        let capacities = [
            lanes.slots.capacity(),
            lanes.ids.capacity(),
            lanes.expiries.capacity(),
        ];
        assert!(
            capacities.iter().all(|capacity| *capacity <= 4_096),
            "{capacities:?}"
        );
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
        lanes.expire(at(1));
        assert_eq!(lanes.len(), 1);
        assert!(lanes.slots.capacity() <= SHRINK_CAPACITY_MIN);
        assert!(lanes.ids.capacity() <= SHRINK_CAPACITY_MIN);
        assert!(lanes.expiries.capacity() <= SHRINK_CAPACITY_MIN);
        assert!(lanes.free.is_empty());
    }

    #[test]
    fn a_snapshot_that_would_lose_an_event_is_refused() {
        let mut lanes = Lanes::new(Duration::ZERO);
        lanes.open(b"a", at(0));
        let buffer = &mut lanes.get_mut(0).buffer;
        buffer.push_and_release(at(5), 0, at(0), |_, _| unreachable!("it waits"));
        let mut bytes = Vec::new();
        lanes.snapshot(&mut bytes);
        let restored = Lanes::restore(Duration::ZERO, &mut Reader::new(&bytes));
        let reason = "a held event lies past the latest one";
        assert_eq!(restored.err(), Some(DecodeError::Invalid(reason)));
    }
}
