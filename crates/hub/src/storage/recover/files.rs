//! Lists the files of a partition after cleaning up: completes swaps of compacted segments and deletions, and removes
//! temporary files.

use std::io;
use std::path::Path;
use std::sync::Arc;

use highwater_env::Disk;
use highwater_log::Offset;

use crate::storage::names::{self, Kind};
use crate::storage::segment::Segment;
use crate::storage::view::Damage;
use crate::storage::{Shared, retain};

pub(crate) struct Files {
    pub start: Offset,
    /// By offset.
    pub segments: Vec<SegmentFile>,
    /// Whether there is a file with the progress of compaction.
    pub is_compacted: bool,
    /// Damage of the start file: the start is unknown.
    pub damage: Option<Damage>,
}

pub(crate) struct SegmentFile {
    pub segment: Arc<Segment>,
    /// Length of the file.
    pub bytes: u64,
}

impl Files {
    pub(crate) fn clean_up(shared: &Shared, folder: &Path) -> io::Result<Files> {
        let disk = &*shared.disk;
        let mut names = disk.list(folder)?;
        if finish_swaps(disk, folder, &names)? {
            names = disk.list(folder)?;
        }
        let is_started = contains(&names, names::START);
        let (start, damage) = match is_started.then(|| retain::read_start(disk, folder)) {
            None => (Offset(0), None),
            Some(start) => match start? {
                Ok(start) => (start, None),
                Err(damage) => (Offset(0), Some(damage)),
            },
        };
        let bases = kept(&names, start);
        let unwanted: Vec<&String> = (names.iter())
            .filter(|name| match names::kind(name) {
                Kind::Segment(base) | Kind::Index(base) | Kind::Checkpoint(base) => {
                    !bases.contains(&base)
                }
                Kind::Leftover => true,
                Kind::Swap { .. } | Kind::Other => false,
            })
            .collect();
        if !unwanted.is_empty() {
            // The start that makes these files obsolete may not be durable yet.
            disk.sync_folder(folder)?;
        }
        for name in unwanted {
            disk.remove_file(&folder.join(name))?;
        }
        let segment = |base| {
            let path = folder.join(names::segment(base));
            let bytes = disk.len(&path)?;
            let segment = Arc::new(Segment::new(shared, folder, base, bytes));
            Ok(SegmentFile { segment, bytes })
        };
        Ok(Files {
            start,
            segments: bases.into_iter().map(segment).collect::<io::Result<_>>()?,
            is_compacted: contains(&names, names::COMPACTED),
            damage,
        })
    }

    /// The first offset that is kept.
    pub(crate) fn first_offset(&self) -> Offset {
        let first = self.segments.first().map(|file| file.segment.base);
        first.map_or(self.start, |first| first.max(self.start))
    }
}

/// The segments with offsets from the start on; always includes the last one.
fn kept(names: &[String], start: Offset) -> Vec<Offset> {
    let base = |name: &String| match names::kind(name) {
        Kind::Segment(base) => Some(base),
        _ => None,
    };
    let bases: Vec<Offset> = names.iter().filter_map(base).collect();
    let first = bases.partition_point(|base| *base <= start);
    bases[first.saturating_sub(1)..].to_vec()
}

/// Whether there is a file of this name.
fn contains(names: &[String], file: &str) -> bool {
    names
        .binary_search_by(|name| name.as_str().cmp(file))
        .is_ok()
}

/// Completes swaps; returns whether there were any. The replaced files are removed before the new one takes their name,
/// so that no crash leaves both.
fn finish_swaps(disk: &dyn Disk, folder: &Path, names: &[String]) -> io::Result<bool> {
    let mut found = false;
    for name in names {
        if let Kind::Swap { base, next } = names::kind(name) {
            finish_swap(disk, folder, base, next)?;
            found = true;
        }
    }
    Ok(found)
}

fn finish_swap(disk: &dyn Disk, folder: &Path, base: Offset, next: Offset) -> io::Result<()> {
    remove_replaced(disk, folder, base, next)?;
    let swap = folder.join(names::swap(base, next));
    disk.rename(&swap, &folder.join(names::segment(base)))?;
    disk.sync_folder(folder)
}

/// Durably removes the segments from `base` to `next`, exclusive, with their files.
pub(crate) fn remove_replaced(
    disk: &dyn Disk,
    folder: &Path,
    base: Offset,
    next: Offset,
) -> io::Result<()> {
    for name in disk.list(folder)? {
        if let Kind::Segment(old) | Kind::Index(old) | Kind::Checkpoint(old) = names::kind(&name)
            && (base..next).contains(&old)
        {
            disk.remove_file(&folder.join(name))?;
        }
    }
    disk.sync_folder(folder)
}
