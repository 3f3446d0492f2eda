//! The state of a follower between scans.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use highwater_env::disk::Stamp;
use highwater_log::Offset;

#[derive(Default)]
pub(super) struct FollowerState {
    /// The last observed stamp of each file, and since when it is unchanged.
    pub seen: BTreeMap<String, (Stamp, Duration)>,
    /// Since when files are missing.
    pub gone: BTreeMap<String, Duration>,
    pub backlog: Backlog,
}

/// Appended batches that the job has not read yet.
#[derive(Default)]
pub(super) struct Backlog {
    /// The end offset and size of each batch.
    batches: VecDeque<(Offset, u64)>,
    pub bytes: u64,
}

/// A file in a scan.
pub(super) struct ScannedFile<'a> {
    pub name: &'a str,
    pub stamp: Stamp,
    /// It is unchanged since the last scan.
    pub is_stable: bool,
    /// For how long it has been unchanged.
    pub unchanged: Duration,
}

impl FollowerState {
    pub(crate) fn observe<'a>(
        &mut self,
        name: &'a str,
        stamp: Stamp,
        now: Duration,
    ) -> ScannedFile<'a> {
        let before = self.seen.get(name).filter(|(seen, _)| *seen == stamp);
        let (is_stable, since) = before.map_or((false, now), |(_, since)| (true, *since));
        self.seen.insert(name.to_owned(), (stamp, since));
        ScannedFile {
            name,
            stamp,
            is_stable,
            unchanged: now.saturating_sub(since),
        }
    }
}

impl Backlog {
    pub(crate) fn add(&mut self, end: Offset, bytes: u64) {
        self.batches.push_back((end, bytes));
        self.bytes += bytes;
    }

    /// Removes the batches before `next`, which the job has read.
    pub(crate) fn advance(&mut self, next: Offset) {
        while let Some((_, bytes)) = self.batches.front().filter(|(end, _)| *end <= next) {
            self.bytes -= bytes;
            self.batches.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_stable_when_two_scans_find_it_unchanged() {
        let (mut state, second) = (FollowerState::default(), Duration::from_secs);
        let stamp = |len| Stamp { modified: 1, len };
        let mut look = |len, at| {
            let file = state.observe("a", stamp(len), second(at));
            (file.is_stable, file.unchanged)
        };
        assert_eq!(look(5, 0), (false, second(0)));
        assert_eq!(look(5, 3), (true, second(3)));
        assert_eq!(look(6, 4), (false, second(0)));
        assert_eq!(look(6, 9), (true, second(5)));
    }

    #[test]
    fn batches_that_the_job_has_read_leave_the_backlog() {
        let mut backlog = Backlog::default();
        (1..=3).for_each(|end| backlog.add(Offset(end * 10), 100));
        backlog.advance(Offset(9));
        assert_eq!(backlog.bytes, 300);
        backlog.advance(Offset(20));
        assert_eq!(backlog.bytes, 100);
    }
}
