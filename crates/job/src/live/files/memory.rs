//! What a follower remembers from look to look.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use highwater_env::disk::Stamp;
use highwater_log::Offset;

#[derive(Default)]
pub(super) struct Memory {
    /// As each file was seen last, and since when it has been so.
    pub seen: BTreeMap<String, (Stamp, Duration)>,
    /// Since when files are gone.
    pub gone: BTreeMap<String, Duration>,
    pub ahead: Ahead,
}

/// What was taken and has not been worked off yet.
#[derive(Default)]
pub(super) struct Ahead {
    /// Where each piece ends, and how much it is.
    waiting: VecDeque<(Offset, u64)>,
    pub bytes: u64,
}

/// A file that was found.
pub(super) struct Candidate<'a> {
    pub name: &'a str,
    pub stamp: Stamp,
    /// It looked the same the last time.
    pub is_still: bool,
    /// For how long it has looked like this.
    pub unchanged: Duration,
}

impl Memory {
    pub fn see<'a>(&mut self, name: &'a str, stamp: Stamp, now: Duration) -> Candidate<'a> {
        let before = self.seen.get(name).filter(|(seen, _)| *seen == stamp);
        let (is_still, since) = before.map_or((false, now), |(_, since)| (true, *since));
        self.seen.insert(name.to_owned(), (stamp, since));
        Candidate {
            name,
            stamp,
            is_still,
            unchanged: now.saturating_sub(since),
        }
    }
}

impl Ahead {
    pub fn add(&mut self, end: Offset, bytes: u64) {
        self.waiting.push_back((end, bytes));
        self.bytes += bytes;
    }

    /// Everything before this has been worked off.
    pub fn pass(&mut self, next: Offset) {
        while let Some((_, bytes)) = self.waiting.front().filter(|(end, _)| *end <= next) {
            self.bytes -= bytes;
            self.waiting.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_still_when_two_looks_find_it_the_same() {
        let (mut memory, second) = (Memory::default(), Duration::from_secs);
        let stamp = |len| Stamp { modified: 1, len };
        let mut look = |len, at| {
            let file = memory.see("a", stamp(len), second(at));
            (file.is_still, file.unchanged)
        };
        assert_eq!(look(5, 0), (false, second(0)));
        assert_eq!(look(5, 3), (true, second(3)));
        assert_eq!(look(6, 4), (false, second(0)));
        assert_eq!(look(6, 9), (true, second(5)));
    }

    #[test]
    fn what_is_worked_off_is_not_ahead_any_more() {
        let mut ahead = Ahead::default();
        (1..=3).for_each(|end| ahead.add(Offset(end * 10), 100));
        ahead.pass(Offset(9));
        assert_eq!(ahead.bytes, 300);
        ahead.pass(Offset(20));
        assert_eq!(ahead.bytes, 100);
    }
}
