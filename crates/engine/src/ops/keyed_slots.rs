//! State per lane and key, in numbered slots that timers refer to.
//!
//! A slot that is free again is reused; results do not depend on numbers. There may be very many keys, so a slot with a
//! short key and a small state is one cache line.

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
use highwater_codec::{DecodeError, Reader, Writer};

use super::short_key::ShortKey;

#[derive(Debug)]
pub(crate) struct KeyedSlots<T> {
    table: HashTable<u32>,
    slots: Vec<KeyedState<T>>,
    free: Vec<u32>,
    /// The keys that are not short, by slot.
    long_keys: HashMap<u32, Box<[u8]>, FixedState>,
}

#[derive(Debug)]
#[repr(align(64))]
struct KeyedState<T> {
    key: ShortKey,
    hash: u64,
    lane: u32,
    /// `None` for a free slot.
    state: Option<T>,
}

/// How many lookups are prefetched together.
pub(super) const PREFETCH_SLOTS: usize = 32;

/// The lane and the encoded key of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneKey<'a> {
    pub lane: u32,
    pub hash: u64,
    pub key: &'a [u8],
}

impl<T> Default for KeyedSlots<T> {
    fn default() -> KeyedSlots<T> {
        KeyedSlots {
            table: HashTable::new(),
            slots: Vec::new(),
            free: Vec::new(),
            long_keys: HashMap::default(),
        }
    }
}

impl<T> KeyedSlots<T> {
    /// The size of a slot with its state.
    pub(super) const SLOT_BYTES: usize = size_of::<KeyedState<T>>();

    #[inline]
    pub(super) fn find(&self, wanted: LaneKey<'_>) -> Option<u32> {
        let short = ShortKey::new(wanted.key, wanted.hash);
        let same = |slot: &u32| {
            let known = &self.slots[*slot as usize];
            known.key == short
                && known.lane == wanted.lane
                && (!short.is_long() || self.key(*slot) == wanted.key)
        };
        self.table.find(wanted.hash, same).copied()
    }

    #[inline]
    fn key(&self, slot: u32) -> &[u8] {
        key_of(&self.slots[slot as usize].key, slot, &self.long_keys)
    }

    /// Touches the memory that lookups of these hashes will touch, for all hashes together, so that cache misses
    /// overlap.
    pub(super) fn prefetch(&self, hashes: impl Iterator<Item = u64>) {
        let mut guesses = [None; PREFETCH_SLOTS];
        for (guess, hash) in guesses.iter_mut().zip(hashes) {
            *guess = self.table.find(hash, |_| true).copied();
        }
        self.prefetch_slots(guesses.into_iter().flatten());
    }

    /// Touches the memory of slots, for all of them together.
    pub(super) fn prefetch_slots(&self, slots: impl Iterator<Item = u32>) {
        let bytes = slots.map(|slot| u32::from(self.slots[slot as usize].key.first_byte()));
        std::hint::black_box(bytes.sum::<u32>());
    }

    pub(super) fn insert(&mut self, of: LaneKey<'_>, state: T) -> u32 {
        let key = ShortKey::new(of.key, of.hash);
        let new = KeyedState {
            key,
            hash: of.hash,
            lane: of.lane,
            state: Some(state),
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = new;
                slot
            }
            None => {
                self.slots.push(new);
                (self.slots.len() - 1) as u32
            }
        };
        if key.is_long() {
            self.long_keys.insert(slot, of.key.into());
        }
        let slots = &self.slots;
        self.table
            .insert_unique(of.hash, slot, |&slot| slots[slot as usize].hash);
        slot
    }

    /// `None` for a free slot.
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots[slot as usize].state.as_mut()
    }

    /// The key of a slot and its state; `None` for a free slot.
    #[inline]
    pub(super) fn entry_mut(&mut self, slot: u32) -> Option<(&[u8], &mut T)> {
        let known = &mut self.slots[slot as usize];
        let key = key_of(&known.key, slot, &self.long_keys);
        Some((key, known.state.as_mut()?))
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<T> {
        let known = &mut self.slots[slot as usize];
        let state = known.state.take()?;
        if known.key.is_long() {
            self.long_keys.remove(&slot);
        }
        if let Ok(entry) = self.table.find_entry(known.hash, |&other| other == slot) {
            entry.remove();
        }
        self.free.push(slot);
        Some(state)
    }

    /// About the size of all states, each of which has `bytes` beyond its slot.
    pub(super) fn state_bytes(&self, bytes: impl Fn(&T) -> usize) -> usize {
        let states = self.slots.iter().filter_map(|known| known.state.as_ref());
        let long_keys = self.long_keys.values().map(|key| key.len());
        states
            .map(|state| Self::SLOT_BYTES + bytes(state))
            .chain(long_keys)
            .sum()
    }

    pub(super) fn snapshot(&self, out: &mut Vec<u8>, mut put: impl FnMut(&T, &mut Vec<u8>)) {
        self.snapshot_slots(out, |_, _, state, out| put(state, out));
    }

    /// `put` gets the number and the key of a slot as well.
    pub(super) fn snapshot_slots(
        &self,
        out: &mut Vec<u8>,
        mut put: impl FnMut(u32, &[u8], &T, &mut Vec<u8>),
    ) {
        out.count(self.slots.len());
        for (slot, known) in (0..).zip(&self.slots) {
            out.u8(known.state.is_some().into());
            let Some(state) = &known.state else { continue };
            let key = self.key(slot);
            out.u32(known.lane);
            out.u64(known.hash);
            out.blob(key);
            put(slot, key, state, out);
        }
        snapshot_slots(&self.free, out);
    }

    pub(super) fn restore(
        from: &mut Reader<'_>,
        mut get: impl FnMut(&mut Reader<'_>) -> Result<T, DecodeError>,
    ) -> Result<KeyedSlots<T>, DecodeError> {
        KeyedSlots::restore_slot_states(from, |_, from| get(from))
    }

    /// `get` gets the number of a slot as well.
    pub(super) fn restore_slot_states(
        from: &mut Reader<'_>,
        mut get: impl FnMut(u32, &mut Reader<'_>) -> Result<T, DecodeError>,
    ) -> Result<KeyedSlots<T>, DecodeError> {
        let mut slots = KeyedSlots::default();
        for _ in 0..from.count()? {
            if from.u8()? == 0 {
                slots.slots.push(KeyedState {
                    key: ShortKey::default(),
                    hash: 0,
                    lane: 0,
                    state: None,
                });
                continue;
            }
            let (lane, hash, key) = (from.u32()?, from.u64()?, from.blob()?);
            let state = get(slots.slots.len() as u32, from)?;
            slots.insert(LaneKey { lane, hash, key }, state);
        }
        slots.free = slots.restore_slots(from)?;
        Ok(slots)
    }

    /// Reads a list of slots of this table.
    pub(super) fn restore_slots(&self, from: &mut Reader<'_>) -> Result<Vec<u32>, DecodeError> {
        let known = |slot: u32| match (slot as usize) < self.slots.len() {
            true => Ok(slot),
            false => Err(DecodeError::Invalid("an unknown key")),
        };
        (0..from.count()?).map(|_| known(from.u32()?)).collect()
    }
}

#[inline]
fn key_of<'a>(
    short: &'a ShortKey,
    slot: u32,
    long_keys: &'a HashMap<u32, Box<[u8]>, FixedState>,
) -> &'a [u8] {
    let long = || long_keys.get(&slot).map_or(&[][..], |key| key);
    short.bytes().unwrap_or_else(long)
}

pub(super) fn snapshot_slots(slots: &[u32], out: &mut Vec<u8>) {
    out.count(slots.len());
    slots.iter().for_each(|&slot| out.u32(slot));
}
