//! The keys of rows, numbered, each dropped once no call can read its rows.
//!
//! A key is needed until the watermark has passed its last row by the longest LIMIT DURATION. That expiry moves with
//! every row and is updated lazily: each key is in a queue once, by its expiry at that time, and is queued again if it
//! had rows since. So a key may stay for one more round of the queue, which no result shows.

use std::collections::VecDeque;

use hashbrown::HashTable;
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_time::{Duration, Instant};

use crate::ops::groups::EncodedKeys;
use crate::ops::short_key::ShortKey;
use crate::ops::timer_queue::ONE_LANE;

#[derive(Default)]
pub(super) struct PartitionKeys {
    table: HashTable<u32>,
    /// By number, the part that every row reads: small, since there may be very many keys.
    entries: Vec<Entry>,
    /// By number, the other details.
    colds: Vec<KeyDetails>,
    free: Vec<u32>,
    /// The expiry queue.
    queue: VecDeque<(i64, u32)>,
    /// How long after its last row a key is needed, in ticks.
    keep: i64,
}

struct Entry {
    short: ShortKey,
    /// The time of the last row; [`UNUSED`] for a free number.
    last: i64,
}

#[derive(Default)]
struct KeyDetails {
    hash: u64,
    lane: u32,
    /// The key, if it is long.
    long: Option<Box<[u8]>>,
}

const UNUSED: i64 = i64::MIN;

/// How many rows are prefetched together.
const PREFETCH_ROWS: usize = 32;

/// Equal keys of different lanes would all collide otherwise.
fn with_lane(hash: u64, lane: u32) -> u64 {
    hash ^ u64::from(lane).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl PartitionKeys {
    pub(super) fn keep_for(&mut self, limit: Duration) {
        self.keep = self.keep.max(limit.ticks());
    }

    /// One more than the largest number in use.
    pub(super) fn slots(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn state_bytes(&self) -> usize {
        (self.entries.len() - self.free.len()) * (size_of::<Entry>() + size_of::<KeyDetails>())
    }

    pub(super) fn used(&self) -> impl Iterator<Item = usize> {
        let entries = self.entries.iter().enumerate();
        entries
            .filter(|(_, entry)| entry.last != UNUSED)
            .map(|(slot, _)| slot)
    }

    /// The number of every row's key, in `slots`.
    pub(super) fn find(
        &mut self,
        encoded: &EncodedKeys,
        lanes: Option<&[u32]>,
        times: &[i64],
        slots: &mut Vec<u32>,
    ) {
        slots.clear();
        slots.reserve(times.len());
        for (row, &time) in times.iter().enumerate() {
            if row % PREFETCH_ROWS == 0 && lanes.is_none() {
                let end = times.len().min(row + PREFETCH_ROWS);
                self.prefetch((row..end).map(|row| with_lane(encoded.hash(row), ONE_LANE)));
            }
            let lane = lanes.map_or(ONE_LANE, |lanes| lanes[row]);
            let (hash, key) = (with_lane(encoded.hash(row), lane), encoded.key(row));
            let wanted = ShortKey::new(key, hash);
            let (entries, colds) = (&self.entries, &self.colds);
            let found = self.table.find(hash, |&slot| {
                let slot = slot as usize;
                entries[slot].short == wanted
                    && (lanes.is_none() || colds[slot].lane == lane)
                    && (!wanted.is_long() || colds[slot].long.as_deref() == Some(key))
            });
            let last = time.max(UNUSED + 1);
            let slot = match found {
                Some(&slot) => {
                    self.entries[slot as usize].last = last;
                    slot
                }
                None => {
                    let slot = self.insert(last, hash, lane, key);
                    self.queue.push_back((last.saturating_add(self.keep), slot));
                    slot
                }
            };
            slots.push(slot);
        }
    }

    /// Touches the memory that lookups of these hashes will touch, for all hashes together, so that cache misses
    /// overlap.
    fn prefetch(&self, hashes: impl Iterator<Item = u64>) {
        let mut guesses = [None; PREFETCH_ROWS];
        for (guess, hash) in guesses.iter_mut().zip(hashes) {
            *guess = self.table.find(hash, |_| true);
        }
        let entries = guesses.into_iter().flatten();
        let bytes = entries.map(|&slot| u32::from(self.entries[slot as usize].short.first_byte()));
        std::hint::black_box(bytes.sum::<u32>());
    }

    fn insert(&mut self, last: i64, hash: u64, lane: u32, key: &[u8]) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.push_unused();
            (self.entries.len() - 1) as u32
        });
        let short = ShortKey::new(key, hash);
        self.entries[slot as usize] = Entry { short, last };
        self.colds[slot as usize] = KeyDetails {
            hash,
            lane,
            long: short.is_long().then(|| key.into()),
        };
        let colds = &self.colds;
        self.table
            .insert_unique(hash, slot, |&slot| colds[slot as usize].hash);
        slot
    }

    fn push_unused(&mut self) {
        self.entries.push(Entry {
            short: ShortKey::default(),
            last: UNUSED,
        });
        self.colds.push(KeyDetails::default());
    }

    fn key(&self, slot: usize) -> &[u8] {
        let long = || self.colds[slot].long.as_deref().unwrap_or_default();
        self.entries[slot].short.bytes().unwrap_or_else(long)
    }

    /// Drops expired keys and reports their numbers.
    pub(super) fn forget(&mut self, watermark: Instant, mut forgotten: impl FnMut(usize)) {
        let watermark = watermark.ticks();
        // Each key is visited once, even if it is queued again as already due.
        for _ in 0..self.queue.len() {
            let Some(&(due, slot)) = self.queue.front() else {
                return;
            };
            if due > watermark {
                return;
            }
            self.queue.pop_front();
            let entry = &mut self.entries[slot as usize];
            let due = entry.last.saturating_add(self.keep);
            if due > watermark {
                self.queue.push_back((due, slot));
                continue;
            }
            entry.last = UNUSED;
            let cold = std::mem::take(&mut self.colds[slot as usize]);
            if let Ok(found) = self.table.find_entry(cold.hash, |&other| other == slot) {
                found.remove();
            }
            self.free.push(slot);
            forgotten(slot as usize);
        }
        self.shrink();
    }

    /// Frees memory after a peak in the number of keys.
    fn shrink(&mut self) {
        const SHRINK_CAPACITY_MIN: usize = 1024;
        if self.table.capacity() > SHRINK_CAPACITY_MIN
            && self.table.capacity() / 8 > self.table.len()
        {
            let colds = &self.colds;
            let capacity = self.table.len() * 2;
            self.table
                .shrink_to(capacity, |&slot| colds[slot as usize].hash);
        }
    }

    pub(super) fn snapshot(&self, out: &mut Vec<u8>) {
        out.count(self.entries.len());
        for (slot, entry) in self.entries.iter().enumerate() {
            out.i64(entry.last);
            if entry.last != UNUSED {
                out.u64(self.colds[slot].hash);
                out.u32(self.colds[slot].lane);
                out.blob(self.key(slot));
            }
        }
        out.count(self.free.len());
        self.free.iter().for_each(|&slot| out.u32(slot));
        out.count(self.queue.len());
        for &(due, slot) in &self.queue {
            out.i64(due);
            out.u32(slot);
        }
    }

    pub(super) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        let mut fresh = PartitionKeys {
            keep: self.keep,
            ..PartitionKeys::default()
        };
        let slots = from.count()?;
        for _ in 0..slots {
            let last = from.i64()?;
            if last == UNUSED {
                fresh.push_unused();
                continue;
            }
            let (hash, lane) = (from.u64()?, from.u32()?);
            fresh.insert(last, hash, lane, from.blob()?);
        }
        let known = |slot: u32, used: bool| match fresh.entries.get(slot as usize) {
            Some(entry) if (entry.last != UNUSED) == used => Ok(slot),
            _ => Err(DecodeError::Invalid("an unknown key")),
        };
        let mut free = Vec::new();
        for _ in 0..from.count()? {
            free.push(known(from.u32()?, false)?);
        }
        for _ in 0..from.count()? {
            let due = from.i64()?;
            fresh.queue.push_back((due, known(from.u32()?, true)?));
        }
        fresh.free = free;
        *self = fresh;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column::Column;

    // proves T11
    #[test]
    fn a_million_keys_leave_nothing_behind() {
        let mut keys = PartitionKeys::default();
        keys.keep_for(Duration::from_ticks(1_000));
        let (mut slots, mut forgotten) = (Vec::new(), 0);
        for chunk in 0..1_000_i64 {
            let times: Vec<i64> = (0..1_000).map(|row| chunk * 1_000 + row).collect();
            // Every row has a key of its own, but for one that comes in every chunk.
            let values = times.iter().map(|&t| if t % 1_000 == 7 { -1 } else { t });
            let column = Column::from_ints(values.collect());
            let encoded = EncodedKeys::new([column].iter(), times.len());
            keys.find(&encoded, None, &times, &mut slots);
            let watermark = Instant::from_ticks(chunk * 1_000 + 999);
            keys.forget(watermark, |_| forgotten += 1);
            assert!(keys.slots() < 3_100, "{} in chunk {chunk}", keys.slots());
        }
        assert!(forgotten > 995_000);
        keys.forget(Instant::AFTER_ALL, |_| {});
        assert_eq!(keys.used().count(), 0);
        assert!(keys.table.capacity() < 2_000 && keys.queue.is_empty());
    }
}
