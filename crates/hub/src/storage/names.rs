//! File names of a partition. A segment and its files are named by the base offset of the segment, so names sort like
//! offsets.

use highwater_log::Offset;

pub(super) const START: &str = "start";
pub(super) const COMPACTED: &str = "compacted";

pub(super) fn segment(base: Offset) -> String {
    format!("{:020}.log", base.0)
}

pub(super) fn index(base: Offset) -> String {
    format!("{:020}.index", base.0)
}

pub(super) fn checkpoint(base: Offset) -> String {
    format!("{:020}.checkpoint", base.0)
}

/// A complete compacted segment that replaces those from `base` to `next`, exclusive.
pub(super) fn swap(base: Offset, next: Offset) -> String {
    format!("{:020}-{:020}.swap", base.0, next.0)
}

/// A compacted segment that is being written.
pub(super) fn cleaned(base: Offset) -> String {
    format!("{:020}.cleaned", base.0)
}

/// The kind of a file, by its name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Segment(Offset),
    Index(Offset),
    Checkpoint(Offset),
    Swap {
        base: Offset,
        next: Offset,
    },
    /// Not needed after a restart.
    Leftover,
    /// The sync marker, the start, the progress of compaction, and foreign files.
    Other,
}

pub(super) fn kind(name: &str) -> Kind {
    if name.ends_with(super::checked_file::TEMPORARY) || name.ends_with(".cleaned") {
        return Kind::Leftover;
    }
    let parsed = match name.rsplit_once('.') {
        Some((stem, "log")) => offset(stem).map(Kind::Segment),
        Some((stem, "index")) => offset(stem).map(Kind::Index),
        Some((stem, "checkpoint")) => offset(stem).map(Kind::Checkpoint),
        Some((stem, "swap")) => range(stem),
        _ => None,
    };
    parsed.unwrap_or(Kind::Other)
}

fn range(stem: &str) -> Option<Kind> {
    let (base, next) = stem.split_once('-')?;
    let (base, next) = (offset(base)?, offset(next)?);
    Some(Kind::Swap { base, next })
}

fn offset(digits: &str) -> Option<Offset> {
    let plain = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok().map(Offset)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        let (base, next) = (Offset(7), Offset(i64::MAX));
        assert_eq!(kind(&segment(base)), Kind::Segment(base));
        assert_eq!(kind(&index(next)), Kind::Index(next));
        assert_eq!(kind(&checkpoint(base)), Kind::Checkpoint(base));
        assert_eq!(kind(&swap(base, next)), Kind::Swap { base, next });
        assert_eq!(kind(&cleaned(base)), Kind::Leftover);
        assert_eq!(kind("00000000000000000007.index.tmp"), Kind::Leftover);
        for name in [
            "start",
            "synced",
            "7.log",
            "99999999999999999999.log",
            "notes.txt",
        ] {
            assert_eq!(kind(name), Kind::Other, "{name}");
        }
    }
}
