//! Replaces old segments with a compacted one.
//!
//! The new file is complete and durable before it is renamed to `.swap`. The old files are removed durably before it
//! takes their name. A swap that fails between two steps is continued later, with growing pauses: published segments
//! may name deleted files, whose records cannot be read until then. A restart completes it as well.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use highwater_log::{EnqueueTime, Offset};

use super::index::Index;
use super::names;
use super::recover::files::remove_replaced;
use super::retain::before;
use super::segment::Segment;
use super::store::Store;

/// A compacted segment that takes the place of the segments from `base` to `next`, exclusive.
pub(super) struct Swap {
    pub run: Vec<Arc<Segment>>,
    pub base: Offset,
    pub next: Offset,
    pub index: Index,
    pub step: SwapStep,
}

/// The next step of a swap. Each can be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SwapStep {
    /// Name the new file so that a restart would complete the swap.
    Prepare,
    RemoveOld,
    /// Give the new file its final name.
    Rename,
}

/// A swap that failed.
pub(super) struct InterruptedSwap {
    swap: Swap,
    failures: u32,
    failed_at: EnqueueTime,
}

impl InterruptedSwap {
    const PAUSE_MIN: Duration = Duration::from_secs(1);
    const PAUSE_MAX: Duration = Duration::from_secs(300);

    fn is_due(&self, now: EnqueueTime) -> bool {
        let pause = InterruptedSwap::PAUSE_MIN * (1 << self.failures.min(10));
        // A clock that was set back delays nothing for long.
        self.failed_at > now || self.failed_at <= before(now, pause.min(InterruptedSwap::PAUSE_MAX))
    }
}

impl Store {
    /// Replaces the old files, or records the completed steps.
    pub(super) fn swap(&self, mut swap: Swap, now: EnqueueTime) -> io::Result<()> {
        let swapped = self.advance_swap(&mut swap);
        if swapped.is_err() {
            *self.interrupted_swap.lock() = Some(InterruptedSwap {
                swap,
                failures: 0,
                failed_at: now,
            });
        }
        swapped
    }

    /// Continues an interrupted swap, if it is time. `false` if one is still interrupted.
    pub(super) fn continue_swap(&self, now: EnqueueTime) -> io::Result<bool> {
        let mut interrupted = self.interrupted_swap.lock();
        let Some(waiting) = &mut *interrupted else {
            return Ok(true);
        };
        if !waiting.is_due(now) {
            return Ok(false);
        }
        waiting.failures += 1;
        waiting.failed_at = now;
        self.advance_swap(&mut waiting.swap)?;
        *interrupted = None;
        Ok(true)
    }

    fn advance_swap(&self, swap: &mut Swap) -> io::Result<()> {
        let disk = &*self.shared.disk;
        let _no_writer = self.writer.lock();
        let (base, next) = (swap.base, swap.next);
        let cleaned = self.folder.join(names::cleaned(base));
        let prepared = self.folder.join(names::swap(base, next));
        let exists = |name: String| Ok::<bool, io::Error>(disk.list(&self.folder)?.contains(&name));
        if swap.step == SwapStep::Prepare {
            let is_prepared = exists(names::swap(base, next))?;
            if !swap.run.iter().all(|old| self.view.read().holds(old.id)) {
                return disk.remove_file(if is_prepared { &prepared } else { &cleaned });
            }
            if !is_prepared {
                disk.rename(&cleaned, &prepared)?;
            }
            disk.sync_folder(&self.folder)?;
            swap.step = SwapStep::RemoveOld;
        }
        if swap.step == SwapStep::RemoveOld {
            remove_replaced(disk, &self.folder, base, next)?;
            swap.step = SwapStep::Rename;
        }
        if exists(names::swap(base, next))? {
            disk.rename(&prepared, &self.folder.join(names::segment(base)))?;
        }
        disk.sync_folder(&self.folder)?;
        self.publish_segment(swap);
        Ok(())
    }

    fn publish_segment(&self, swap: &Swap) {
        let segment = Segment::new(&self.shared, &self.folder, swap.base, swap.index.bytes);
        let segment = segment.closed(&swap.index);
        if let Err(error) = segment.write_index(&self.shared, &swap.index) {
            // The next start makes it anew.
            tracing::warn!(topic_partition = %self.topic_partition, %error, "an index cannot be written");
        }
        let replaced = swap.base..swap.next;
        let view = &mut *self.view.write();
        view.closed.retain(|old| !replaced.contains(&old.base));
        let at = view.closed.partition_point(|other| other.base < swap.base);
        view.closed.insert(at, Arc::new(segment));
        swap.run.iter().for_each(|old| self.shared.close(old.id));
    }
}
