//! The keys that rows were seen with, numbered, each forgotten once nothing can see its rows.
//!
//! A key is needed until the watermark has passed its last row by the longest LIMIT DURATION. That moment moves with
//! every row, so it is not kept up to date: each key stands once in a queue, by the moment that held when it was put
//! there, and is put back at the end if it turns out to have been heard of since. A key may therefore outstay its time,
//! by one more round of the queue at most, which no result shows.

use std::collections::VecDeque;

use hashbrown::HashTable;
use highwater_time::{Duration, Instant};

use crate::codec::{Reader, RestoreError, Writer};
use crate::ops::agenda::ONE_LANE;
use crate::ops::groups::Encoded;

#[derive(Default)]
pub(super) struct Keys {
    table: HashTable<u32>,
    /// By number; `last` is [`UNUSED`] where the number is free.
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// When to look at which key.
    queue: VecDeque<(i64, u32)>,
    /// How long after its last row a key is needed, in ticks.
    keep: i64,
}

struct Entry {
    hash: u64,
    /// The time of the last row.
    last: i64,
    lane: u32,
    key: KeyBytes,
}

const UNUSED: i64 = i64::MIN;

/// Short keys are stored in place: one look at memory instead of two.
enum KeyBytes {
    Short(u8, [u8; SHORT]),
    Long(Box<[u8]>),
}

const SHORT: usize = 22;

impl KeyBytes {
    fn new(key: &[u8]) -> KeyBytes {
        if key.len() > SHORT {
            return KeyBytes::Long(key.into());
        }
        let mut bytes = [0; SHORT];
        bytes[..key.len()].copy_from_slice(key);
        KeyBytes::Short(key.len() as u8, bytes)
    }

    fn bytes(&self) -> &[u8] {
        match self {
            KeyBytes::Short(len, bytes) => &bytes[..usize::from(*len)],
            KeyBytes::Long(bytes) => bytes,
        }
    }
}

/// Equal keys of different lanes would all collide otherwise.
fn with_lane(hash: u64, lane: u32) -> u64 {
    hash ^ u64::from(lane).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Keys {
    pub fn keep_for(&mut self, limit: Duration) {
        self.keep = self.keep.max(limit.ticks());
    }

    /// One more than the largest number in use.
    pub fn slots(&self) -> usize {
        self.entries.len()
    }

    pub fn used(&self) -> impl Iterator<Item = usize> {
        let entries = self.entries.iter().enumerate();
        entries
            .filter(|(_, entry)| entry.last != UNUSED)
            .map(|(slot, _)| slot)
    }

    /// The number of every row's key, in `slots`.
    pub fn find(
        &mut self,
        encoded: &Encoded,
        lanes: Option<&[u32]>,
        times: &[i64],
        slots: &mut Vec<u32>,
    ) {
        slots.clear();
        slots.reserve(times.len());
        for (row, &time) in times.iter().enumerate() {
            let lane = lanes.map_or(ONE_LANE, |lanes| lanes[row]);
            let (hash, key) = (with_lane(encoded.hash(row), lane), encoded.key(row));
            let time = time.max(UNUSED + 1);
            let entries = &mut self.entries;
            let found = self.table.find(hash, |&slot| {
                let entry = &entries[slot as usize];
                entry.hash == hash && entry.lane == lane && entry.key.bytes() == key
            });
            let slot = match found {
                Some(&slot) => {
                    entries[slot as usize].last = time;
                    slot
                }
                None => {
                    self.queue_at(time);
                    self.insert(Entry {
                        hash,
                        last: time,
                        lane,
                        key: KeyBytes::new(key),
                    })
                }
            };
            slots.push(slot);
        }
    }

    /// Queues the key that is about to be inserted.
    fn queue_at(&mut self, time: i64) {
        let slot = self.free.last().copied();
        let slot = slot.unwrap_or(self.entries.len() as u32);
        self.queue.push_back((time.saturating_add(self.keep), slot));
    }

    fn insert(&mut self, entry: Entry) -> u32 {
        let hash = entry.hash;
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                slot
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        let entries = &self.entries;
        self.table
            .insert_unique(hash, slot, |&slot| entries[slot as usize].hash);
        slot
    }

    /// Forgets what the watermark has passed, and says which numbers that were.
    pub fn forget(&mut self, watermark: Instant, mut forgotten: impl FnMut(usize)) {
        let watermark = watermark.ticks();
        // Each key is looked at once, even if it is put back as due already.
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
            entry.key = KeyBytes::new(&[]);
            let hash = entry.hash;
            if let Ok(found) = self.table.find_entry(hash, |&other| other == slot) {
                found.remove();
            }
            self.free.push(slot);
            forgotten(slot as usize);
        }
        self.trim();
    }

    /// Gives room in the table back after a flood of keys.
    fn trim(&mut self) {
        const SMALL: usize = 1024;
        if self.table.capacity() > SMALL && self.table.capacity() / 8 > self.table.len() {
            let entries = &self.entries;
            let room = self.table.len() * 2;
            self.table
                .shrink_to(room, |&slot| entries[slot as usize].hash);
        }
    }

    pub fn snapshot(&self, out: &mut Writer) {
        out.count(self.entries.len());
        for entry in &self.entries {
            out.i64(entry.last);
            if entry.last != UNUSED {
                out.u64(entry.hash);
                out.u32(entry.lane);
                out.blob(entry.key.bytes());
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

    pub fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), RestoreError> {
        let mut fresh = Keys {
            keep: self.keep,
            ..Keys::default()
        };
        let slots = from.count()?;
        for _ in 0..slots {
            let last = from.i64()?;
            if last == UNUSED {
                fresh.entries.push(Entry {
                    hash: 0,
                    last,
                    lane: ONE_LANE,
                    key: KeyBytes::new(&[]),
                });
                continue;
            }
            let (hash, lane) = (from.u64()?, from.u32()?);
            let key = KeyBytes::new(from.blob()?);
            fresh.insert(Entry {
                hash,
                last,
                lane,
                key,
            });
        }
        let known = |slot: u32, used: bool| match fresh.entries.get(slot as usize) {
            Some(entry) if (entry.last != UNUSED) == used => Ok(slot),
            _ => Err(RestoreError("an unknown key")),
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
        let mut keys = Keys::default();
        keys.keep_for(Duration::from_ticks(1_000));
        let (mut slots, mut forgotten) = (Vec::new(), 0);
        for chunk in 0..1_000_i64 {
            let times: Vec<i64> = (0..1_000).map(|row| chunk * 1_000 + row).collect();
            // Every row has a key of its own, but for one that comes in every chunk.
            let values = times.iter().map(|&t| if t % 1_000 == 7 { -1 } else { t });
            let column = Column::from_ints(values.collect());
            let encoded = Encoded::new([column].iter(), times.len());
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
