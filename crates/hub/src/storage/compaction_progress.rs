//! The progress of compaction over time.
//!
//! A tombstone must outlive the compaction that removes the values before it: a reader that has seen such a value must
//! find the tombstone for as long as the hub keeps tombstones. So a tombstone is removed only after its offset was
//! compacted that long ago. The progress is stored beside the segments, and a restart does not compact everything
//! again; without the file it does, and tombstones stay longer.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use highwater_codec::{Reader, Writer};
use highwater_env::Disk;
use highwater_log::{EnqueueTime, Offset};

use super::checked_file::{self, CheckedFile};
use super::names;

const KIND: &[u8; 8] = b"hwcompa1";

/// The time of a tombstone is divided into so many steps. Only the last compaction of a step is recorded, so tombstones
/// stay longer by a step at most.
const STEPS: i64 = 16;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CompactionProgress {
    /// The offset that a compaction reached, and when; oldest first.
    entries: VecDeque<(Offset, EnqueueTime)>,
}

impl CompactionProgress {
    /// The offsets before this one were compacted.
    pub(super) fn end(&self) -> Offset {
        self.entries.back().map_or(Offset(0), |(end, _)| *end)
    }

    /// The offsets before this one were compacted at this time or earlier.
    pub(super) fn end_at(&self, time: EnqueueTime) -> Offset {
        let entries = self.entries.iter().rev();
        let earlier = entries.into_iter().find(|(_, at)| *at <= time);
        earlier.map_or(Offset(0), |(end, _)| *end)
    }

    /// Adds a compaction. Tombstones from before `oldest` may be removed, so compactions before it are forgotten,
    /// except for the last of them.
    pub(super) fn push(&mut self, end: Offset, now: EnqueueTime, oldest: EnqueueTime) {
        let step = now.0.saturating_sub(oldest.0) / STEPS;
        let before_last = self.entries.iter().rev().nth(1);
        if let (Some((_, before)), Some((_, last))) = (before_last, self.entries.back())
            && last.0.saturating_sub(before.0) < step
        {
            self.entries.pop_back();
        }
        self.entries.push_back((end, now));
        while self.entries.get(1).is_some_and(|(_, at)| *at <= oldest) {
            self.entries.pop_front();
        }
    }

    /// Not synced: without the file more is compacted than necessary.
    pub(super) fn write(&self, disk: &dyn Disk, folder: &Path) -> io::Result<()> {
        let mut body = Vec::with_capacity(8 + 16 * self.entries.len());
        body.u64_be(self.entries.len() as u64);
        for (end, at) in &self.entries {
            body.i64_be(end.0);
            body.i64_be(at.0);
        }
        checked_file::replace(disk, &folder.join(names::COMPACTED), KIND, &body, false)
    }

    /// Empty without a valid file, or if it is about more than the log, which ends at `end`.
    pub(super) fn read(
        disk: &dyn Disk,
        folder: &Path,
        end: Offset,
    ) -> io::Result<CompactionProgress> {
        let path = folder.join(names::COMPACTED);
        let CheckedFile::Body(body) = checked_file::read(disk, &path, KIND)? else {
            return Ok(CompactionProgress::default());
        };
        let read = decode(&body).filter(|progress| progress.end() <= end);
        Ok(read.unwrap_or_default())
    }
}

fn decode(body: &[u8]) -> Option<CompactionProgress> {
    let mut from = Reader::new(body);
    let count = from.u64_be().ok()?;
    let mut entries = VecDeque::new();
    for _ in 0..count {
        let end = Offset(from.i64_be().ok()?);
        entries.push_back((end, EnqueueTime(from.i64_be().ok()?)));
    }
    Some(CompactionProgress { entries })
}

#[cfg(test)]
mod tests {
    use highwater_env::SimDisk;

    use super::*;

    fn progress(entries: &[(i64, i64)]) -> CompactionProgress {
        let mut progress = CompactionProgress::default();
        for (end, at) in entries {
            // In steps of 100.
            progress.push(Offset(*end), EnqueueTime(*at), EnqueueTime(*at - 1_600));
        }
        progress
    }

    #[test]
    fn an_offset_counts_from_the_compaction_that_reached_it() {
        let progress = progress(&[(10, 100), (30, 200), (30, 300)]);
        let at = [99, 100, 199, 200, 400].map(|time| progress.end_at(EnqueueTime(time)).0);
        assert_eq!(at, [0, 10, 10, 30, 30]);
        assert_eq!(progress.end(), Offset(30));
    }

    #[test]
    fn it_is_bounded_and_never_too_far() {
        let mut progress = CompactionProgress::default();
        for number in 0..1_000 {
            let (end, now) = (Offset(number), EnqueueTime(number));
            progress.push(end, now, EnqueueTime(number - 200));
            assert!(progress.entries.len() <= STEPS as usize + 3);
            assert_eq!(progress.end(), end);
            for time in [number - 300, number - 200, number - 50, number] {
                assert!(progress.end_at(EnqueueTime(time)).0 <= time.max(0));
            }
        }
        let reached = progress.end_at(EnqueueTime(800));
        assert!(reached >= Offset(800 - 2 * 200 / STEPS), "{reached}");
    }

    #[test]
    fn it_is_read_back_unless_it_is_damaged_or_of_another_log() {
        let disk = SimDisk::new(1);
        let folder = Path::new("data");
        disk.create_folder(folder).unwrap();
        let read = |end| CompactionProgress::read(&disk, folder, Offset(end)).unwrap();
        assert_eq!(read(100), CompactionProgress::default());
        let written = progress(&[(10, 100), (30, 200)]);
        written.write(&disk, folder).unwrap();
        assert_eq!(read(30), written);
        assert_eq!(read(29), CompactionProgress::default());
        disk.flip(&folder.join(names::COMPACTED), 14, 1).unwrap();
        assert_eq!(read(30), CompactionProgress::default());
    }
}
