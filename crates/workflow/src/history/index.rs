//! The index of the history: twelve bytes per instance.
//!
//! Ids are hashed and stored in sorted runs; the record at a found position tells whether the id matches. The
//! newest entries are in a hash table until they fill a run, which is then appended to the log, so that a start
//! reads the runs and the few records after the last one instead of the whole history.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use highwater_codec::Writer;
use highwater_log::Offset;

/// Entries per new run.
pub(crate) const RUN_LEN: usize = 32_768;

#[derive(Default)]
pub(crate) struct Index {
    recent: HashMap<u64, i64, FixedState>,
    /// Oldest first, each about twice as long as the next.
    runs: Vec<Run>,
    /// The offset where the recent entries begin.
    recent_from: i64,
}

/// A sorted part of the index. Offsets are relative to `from`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub from: i64,
    /// The offset after the last.
    pub next: i64,
    hashes: Box<[u64]>,
    offsets: Box<[u32]>,
}

impl Index {
    /// Adds the record of an id. A full table becomes a run, which the caller stores.
    pub(crate) fn add(&mut self, id: &str, offset: Offset) -> Option<&Run> {
        self.recent.insert(hash(id), offset.0);
        if self.recent.len() < RUN_LEN {
            return None;
        }
        let entries = self.recent.drain().collect();
        let run = Run::of(self.recent_from, offset.0 + 1, entries)?;
        self.add_run(run);
        self.runs.last()
    }

    pub(crate) fn add_run(&mut self, run: Run) {
        self.recent_from = run.next;
        self.runs.push(run);
    }

    /// Merges runs until each is about twice as long as the next, so that few have to be searched.
    pub(crate) fn tidy(&mut self, start: Offset) {
        self.runs.retain(|run| run.next > start.0);
        while let [.., before, last] = &self.runs[..]
            && before.hashes.len() < 2 * last.hashes.len()
            && let Some(joined) = before.join(last)
        {
            self.runs.truncate(self.runs.len() - 2);
            self.runs.push(joined);
        }
    }

    /// Possible offsets of the id, newest first.
    pub(crate) fn offsets(&self, id: &str) -> Vec<Offset> {
        let hash = hash(id);
        let recent = self.recent.get(&hash).copied();
        let runs = self.runs.iter().rev().filter_map(|run| run.find(hash));
        recent.into_iter().chain(runs).map(Offset).collect()
    }

    pub(crate) fn recent_from(&self) -> Offset {
        Offset(self.recent_from)
    }

    pub(crate) fn len(&self) -> usize {
        self.recent.len() + self.runs.iter().map(|run| run.hashes.len()).sum::<usize>()
    }
}

impl Run {
    fn of(from: i64, next: i64, mut entries: Vec<(u64, i64)>) -> Option<Run> {
        u32::try_from(next - from).ok()?;
        entries.sort_unstable();
        Some(Run {
            from,
            next,
            hashes: entries.iter().map(|(hash, _)| *hash).collect(),
            offsets: (entries.iter())
                .map(|(_, offset)| (offset - from) as u32)
                .collect(),
        })
    }

    /// Merges two runs. `None` if the offsets would not fit.
    fn join(&self, other: &Run) -> Option<Run> {
        u32::try_from(other.next - self.from).ok()?;
        let count = self.hashes.len() + other.hashes.len();
        let (mut hashes, mut offsets) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let (mut older, mut newer) = (self.entries().peekable(), other.entries().peekable());
        while let Some((hash, offset)) = match (older.peek(), newer.peek()) {
            (Some(a), Some(b)) if b.0 < a.0 => newer.next(),
            (Some(_), _) => older.next(),
            (None, _) => newer.next(),
        } {
            hashes.push(hash);
            offsets.push((offset - self.from) as u32);
        }
        Some(Run {
            from: self.from,
            next: other.next,
            hashes: hashes.into(),
            offsets: offsets.into(),
        })
    }

    fn entries(&self) -> impl Iterator<Item = (u64, i64)> {
        let offsets = self
            .offsets
            .iter()
            .map(|delta| self.from + i64::from(*delta));
        self.hashes.iter().copied().zip(offsets)
    }

    /// The last entry with this hash.
    fn find(&self, hash: u64) -> Option<i64> {
        let after = self.after(hash);
        let found = after.checked_sub(1).filter(|at| self.hashes[*at] == hash)?;
        Some(self.from + i64::from(self.offsets[found]))
    }

    /// The number of hashes up to this one. Hashes are uniform, so the search starts at the estimated position: one or
    /// two memory accesses instead of twenty.
    fn after(&self, hash: u64) -> usize {
        let count = self.hashes.len();
        let guess = ((u128::from(hash) * count as u128) >> 64) as usize;
        let (mut low, mut high, mut reach) = (guess, guess, 16);
        while low > 0 && self.hashes[low - 1] > hash {
            low = low.saturating_sub(reach);
            reach *= 2;
        }
        while high < count && self.hashes[high] <= hash {
            high = (high + reach).min(count);
            reach *= 2;
        }
        low + self.hashes[low..high].partition_point(|other| *other <= hash)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + 12 * self.hashes.len());
        bytes.i64_be(self.from);
        bytes.i64_be(self.next);
        self.hashes.iter().for_each(|hash| bytes.u64_be(*hash));
        self.offsets.iter().for_each(|offset| bytes.u32_be(*offset));
        bytes
    }

    /// `None` if the bytes are not a run.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Run> {
        let (from, rest) = bytes.split_first_chunk()?;
        let (next, rest) = rest.split_first_chunk()?;
        let count = rest.len() / 12;
        let (hashes, offsets) = rest.split_at_checked(8 * count)?;
        let (hashes, none) = hashes.as_chunks();
        let (offsets, left) = offsets.as_chunks();
        let run = Run {
            from: i64::from_be_bytes(*from),
            next: i64::from_be_bytes(*next),
            hashes: hashes
                .iter()
                .map(|hash| u64::from_be_bytes(*hash))
                .collect(),
            offsets: (offsets.iter())
                .map(|offset| u32::from_be_bytes(*offset))
                .collect(),
        };
        let whole = none.is_empty() && left.is_empty() && run.hashes.is_sorted();
        whole.then_some(run)
    }
}

/// FNV-1a with a finaliser. It is part of the format on disk, so it never changes.
fn hash(id: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for byte in id.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_what_is_on_disk() {
        // Computed in Python from docs/formats/workflow.md: if one changes, ids are forgotten.
        let hashes = ["", "a", "d-4711"].map(hash);
        assert_eq!(
            hashes,
            [
                0xefd0_1f60_ba99_2926,
                0x82a2_a958_a9be_ce5b,
                0xbb81_25ed_0c6b_60ab
            ]
        );
    }

    #[test]
    fn every_id_is_found_where_it_stands_last() {
        let (mut index, mut kept) = (Index::default(), Vec::new());
        let count = 5 * RUN_LEN as i64 / 2;
        for offset in 0..count {
            let id = format!("d-{}", offset % (count - 10));
            let run = index.add(&id, Offset(offset)).cloned();
            if let Some(run) = run {
                kept.push(run.to_bytes());
                index.tidy(Offset(0));
            }
        }
        let mut again = Index::default();
        for bytes in &kept {
            again.add_run(Run::from_bytes(bytes).unwrap());
            again.tidy(Offset(0));
        }
        let from = again.recent_from().0;
        for offset in from..count {
            again.add(&format!("d-{}", offset % (count - 10)), Offset(offset));
        }
        for index in [&index, &again] {
            assert!(index.runs.len() <= 2, "{}", index.runs.len());
            assert!(index.offsets("d-x").is_empty());
            for number in 0..count - 10 {
                let expected = if number < 10 {
                    count - 10 + number
                } else {
                    number
                };
                let offsets = index.offsets(&format!("d-{number}"));
                assert_eq!(offsets.first(), Some(&Offset(expected)));
            }
        }
    }

    #[test]
    fn what_is_no_run_is_refused() {
        assert_eq!(Run::from_bytes(&[0; 15]), None);
        assert_eq!(Run::from_bytes(&[0; 17]), None);
        let run = Run::of(3, 9, vec![(7, 4), (5, 8)]).unwrap();
        assert_eq!(Run::from_bytes(&run.to_bytes()), Some(run));
    }
}
