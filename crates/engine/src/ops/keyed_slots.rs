//! State per lane and key, in numbered slots that timers refer to.
//!
//! A slot that is free again is reused; results do not depend on numbers.

use hashbrown::HashTable;
use highwater_codec::{DecodeError, Reader, Writer};

#[derive(Debug)]
pub(crate) struct KeyedSlots<T> {
    table: HashTable<u32>,
    slots: Vec<Option<KeyedState<T>>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct KeyedState<T> {
    lane: u32,
    hash: u64,
    key: Box<[u8]>,
    state: T,
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
        }
    }
}

impl<T> KeyedSlots<T> {
    /// The size of a slot without the state.
    pub(super) const OVERHEAD: usize = size_of::<KeyedState<T>>() - size_of::<T>();

    pub(super) fn find(&self, wanted: LaneKey<'_>) -> Option<u32> {
        let same = |slot: &u32| {
            let known = self.slots[*slot as usize].as_ref();
            known.is_some_and(|known| known.lane == wanted.lane && *known.key == *wanted.key)
        };
        self.table.find(wanted.hash, same).copied()
    }

    /// Touches the memory that lookups of these hashes will touch, for all hashes together, so that cache misses overlap.
    pub(super) fn prefetch(&self, hashes: impl Iterator<Item = u64>) {
        let mut guesses = [None; PREFETCH_SLOTS];
        for (guess, hash) in guesses.iter_mut().zip(hashes) {
            *guess = self.table.find(hash, |_| true);
        }
        let known = guesses
            .into_iter()
            .flatten()
            .map(|&slot| self.first_byte(slot));
        std::hint::black_box(known.sum::<u32>());
    }

    /// Touches the memory of slots, for all of them together.
    pub(super) fn prefetch_slots(&self, slots: impl Iterator<Item = u32>) {
        std::hint::black_box(slots.map(|slot| self.first_byte(slot)).sum::<u32>());
    }

    fn first_byte(&self, slot: u32) -> u32 {
        let known = self.slots[slot as usize].as_ref();
        let first = known.and_then(|known| known.key.first());
        first.map_or(0, |byte| u32::from(*byte))
    }

    pub(super) fn insert(&mut self, of: LaneKey<'_>, state: T) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize] = Some(KeyedState {
            lane: of.lane,
            hash: of.hash,
            key: of.key.into(),
            state,
        });
        let slots = &self.slots;
        self.table.insert_unique(of.hash, slot, |&slot| {
            slots[slot as usize].as_ref().map_or(0, |known| known.hash)
        });
        slot
    }

    /// `None` for a free slot.
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        let known = self.slots[slot as usize].as_mut();
        known.map(|known| &mut known.state)
    }

    /// The key of a slot and its state; `None` for a free slot.
    pub(super) fn entry_mut(&mut self, slot: u32) -> Option<(&[u8], &mut T)> {
        let known = self.slots[slot as usize].as_mut()?;
        Some((&known.key, &mut known.state))
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<T> {
        let known = self.slots[slot as usize].take()?;
        if let Ok(entry) = self.table.find_entry(known.hash, |&other| other == slot) {
            entry.remove();
        }
        self.free.push(slot);
        Some(known.state)
    }

    /// About the size of all states, each of which has `bytes`.
    pub(super) fn state_bytes(&self, bytes: impl Fn(&T) -> usize) -> usize {
        let known = self.slots.iter().flatten();
        known
            .map(|known| Self::OVERHEAD + known.key.len() + bytes(&known.state))
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
        for (slot, known) in self.slots.iter().enumerate() {
            out.u8(known.is_some().into());
            let Some(known) = known else { continue };
            out.u32(known.lane);
            out.u64(known.hash);
            out.blob(&known.key);
            put(slot as u32, &known.key, &known.state, out);
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
                slots.slots.push(None);
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

pub(super) fn snapshot_slots(slots: &[u32], out: &mut Vec<u8>) {
    out.count(slots.len());
    slots.iter().for_each(|&slot| out.u32(slot));
}
