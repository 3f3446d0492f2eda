//! Compaction: keeps the last record of every key.
//!
//! Closed segments are rewritten without records that a later record of the same key replaces; small neighbours are
//! merged. Offsets stay: batches without records replace removed ones. Punctuations are removed after the tombstone
//! age, tombstones after they were compacted that long ago (`compaction_progress.rs`). Records of aborted transactions
//! are removed, markers stay, and batches that may belong to an open transaction are unchanged.
//!
//! The new file then takes the place of the old ones (`swap.rs`).
//!
//! Segments with records younger than the hub's minimum lag are left out, with all after them. Compaction runs when the
//! share of bytes that it has not seen reaches the hub's ratio, or when a record has waited for the maximum lag.

use std::io;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use highwater_env::disk::{Access, DiskFile};
use highwater_log::batch::{
    Batch, BatchError, BatchHeader, Decompressor, Record, RetainResult, StoredBatch,
};
use highwater_log::producer_states::AbortedRange;
use highwater_log::{CompactionSettings, EnqueueTime, Offset};

use super::index::Index;
use super::names;
use super::retain::before;
use super::scan::scan;
use super::segment::Segment;
use super::store::Store;
use super::swap::{Swap, SwapStep};

/// Maximum unpacked size of a batch.
const UNPACKED_MAX: usize = 256 << 20;

/// Ratios are in millionths.
const MILLION: u128 = 1_000_000;

/// Maximum number of offsets of one batch without records.
const GAP_MAX: i64 = i32::MAX as i64;

impl Store {
    /// Compacts if segments were closed since the last compaction, and if it is time for the hub.
    pub(super) fn compact(
        &self,
        settings: &CompactionSettings,
        now: EnqueueTime,
    ) -> io::Result<()> {
        let closed = self.cleanable(before(now, settings.lag_min))?;
        if !self.is_compaction_due(&closed, settings, now)? {
            return Ok(());
        }
        let tombstone_age = settings.tombstone_age;
        let tombstone_age = tombstone_age.unwrap_or(self.shared.options.tombstone_age);
        let rules = {
            let view = self.view.read();
            CompactionRules {
                latest: HashMap::with_hasher(FixedState::default()),
                stable: view.stable,
                aborted: view.producers.aborted_ranges().to_vec(),
                tombstones_before: before(now, tombstone_age),
                tombstones_end: view.compacted.end_at(before(now, tombstone_age)),
                end: closed
                    .last()
                    .map_or(view.start, |last| view.base_after(last.base)),
            }
        };
        let rules = self.learn(&closed, rules)?;
        for run in self.runs(&closed) {
            self.compact_run(run, &rules, now)?;
        }
        self.note_progress(rules.end, now, rules.tombstones_before);
        Ok(())
    }

    fn note_progress(&self, end: Offset, now: EnqueueTime, oldest: EnqueueTime) {
        let progress = {
            let view = &mut *self.view.write();
            view.compacted.push(end, now, oldest);
            view.tail.set_compacted_end(end);
            view.compacted.clone()
        };
        if let Err(error) = progress.write(&*self.shared.disk, &self.folder) {
            tracing::warn!(topic_partition = %self.topic_partition, %error, "the progress of compaction was not written");
        }
    }

    /// The closed segments before the first one with a record that is not older than `oldest`.
    fn cleanable(&self, oldest: EnqueueTime) -> io::Result<Vec<Arc<Segment>>> {
        let mut closed = self.view.read().closed.clone();
        for (number, segment) in closed.iter().enumerate() {
            if segment
                .last_time(&self.shared)?
                .is_some_and(|last| last > oldest)
            {
                closed.truncate(number);
                break;
            }
        }
        Ok(closed)
    }

    fn is_compaction_due(
        &self,
        closed: &[Arc<Segment>],
        settings: &CompactionSettings,
        now: EnqueueTime,
    ) -> io::Result<bool> {
        let compacted = self.view.read().compacted.end();
        let clean = closed.partition_point(|segment| segment.base < compacted);
        let (clean, dirty) = closed.split_at(clean);
        let Some(first) = dirty.first() else {
            return Ok(false);
        };
        let bytes = |segments: &[Arc<Segment>]| -> u128 {
            segments
                .iter()
                .map(|segment| u128::from(segment.bytes))
                .sum()
        };
        let (clean, dirty) = (bytes(clean), bytes(dirty));
        if dirty * MILLION >= (clean + dirty) * u128::from(settings.dirty_ratio_min) {
            return Ok(true);
        }
        let Some(lag_max) = settings.lag_max else {
            return Ok(false);
        };
        let oldest = first.metadata(&self.shared)?.index.first_time();
        Ok(oldest.is_some_and(|oldest| oldest <= before(now, lag_max)))
    }

    /// Neighbours that fit into one segment.
    fn runs<'a>(&self, closed: &'a [Arc<Segment>]) -> Vec<&'a [Arc<Segment>]> {
        let mut runs = Vec::new();
        let (mut first, mut bytes) = (0, 0);
        for (number, segment) in closed.iter().enumerate() {
            if number > first && bytes + segment.bytes > self.segment_bytes() {
                runs.push(&closed[first..number]);
                (first, bytes) = (number, 0);
            }
            bytes += segment.bytes;
        }
        runs.push(&closed[first..]);
        runs
    }

    /// Finds the last offset of every key.
    fn learn(
        &self,
        closed: &[Arc<Segment>],
        mut rules: CompactionRules,
    ) -> io::Result<CompactionRules> {
        let mut decompressor = Decompressor::new(UNPACKED_MAX);
        for segment in closed {
            self.each_batch(segment, |batch| rules.learn(batch, &mut decompressor))?;
        }
        Ok(rules)
    }

    fn each_batch(
        &self,
        segment: &Segment,
        mut each: impl FnMut(&StoredBatch<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let file = segment.file(&self.shared)?;
        let mut done = Ok(());
        let scanned = scan(&*file, 0, segment.bytes, segment.base, |_, batch| {
            if done.is_ok() {
                done = each(batch);
            }
        })?;
        match scanned.broken {
            Some(error) => Err(invalid(&error)),
            None => done,
        }
    }

    fn compact_run(
        &self,
        run: &[Arc<Segment>],
        rules: &CompactionRules,
        now: EnqueueTime,
    ) -> io::Result<()> {
        let disk = &*self.shared.disk;
        let base = run[0].base;
        let next = self.view.read().base_after(run[run.len() - 1].base);
        let path = self.folder.join(names::cleaned(base));
        let file = disk.open(&path, Access::Create)?;
        file.set_len(0)?;
        let mut output = CompactedSegment::new(&*file, base, self.shared.options.index_bytes);
        let mut decompressor = Decompressor::new(UNPACKED_MAX);
        for segment in run {
            self.each_batch(segment, |batch| {
                match rules.judge(batch, &mut decompressor)? {
                    RetainResult::All => {
                        let (parts, time) = (batch.stored_parts(), batch.enqueue_time());
                        output.put(&parts, &batch.header, time)
                    }
                    RetainResult::Some(shorter) => {
                        let (parts, time) = (shorter.stored_parts(), shorter.enqueue_time());
                        output.put(&parts, shorter.header(), time)
                    }
                    RetainResult::None => output.leave_out(batch),
                }
            })?;
        }
        output.fill_gap()?;
        output.flush()?;
        if run.len() == 1 && output.index.bytes == run[0].bytes {
            return disk.remove_file(&path);
        }
        let index = output.index;
        file.sync_all()?;
        let swap = Swap {
            run: run.to_vec(),
            base,
            next,
            index,
            step: SwapStep::Prepare,
        };
        self.swap(swap, now)
    }
}

/// Determines the records to keep.
struct CompactionRules {
    latest: HashMap<Box<[u8]>, Offset, FixedState>,
    /// Transactions from here on may be open.
    stable: Offset,
    aborted: Vec<AbortedRange>,
    tombstones_before: EnqueueTime,
    /// Tombstones from here on were not compacted before that time.
    tombstones_end: Offset,
    end: Offset,
}

impl CompactionRules {
    fn learn(
        &mut self,
        batch: &StoredBatch<'_>,
        decompressor: &mut Decompressor,
    ) -> io::Result<()> {
        if !self.is_settled(batch) || self.is_aborted(batch) {
            return Ok(());
        }
        for record in batch
            .records(decompressor)
            .map_err(|error| invalid(&error))?
        {
            let record = record.map_err(|error| invalid(&error))?;
            let Some(key) = record.key else {
                continue;
            };
            match self.latest.get_mut(key) {
                Some(latest) => *latest = record.offset,
                None => {
                    self.latest.insert(key.into(), record.offset);
                }
            }
        }
        Ok(())
    }

    fn judge(
        &self,
        batch: &StoredBatch<'_>,
        decompressor: &mut Decompressor,
    ) -> io::Result<RetainResult> {
        if batch.header.count() == 0 {
            return Ok(RetainResult::None);
        }
        let old = batch.enqueue_time() < self.tombstones_before;
        if old && batch.is_punctuation() {
            return Ok(RetainResult::None);
        }
        if !self.is_settled(batch) {
            return Ok(RetainResult::All);
        }
        if self.is_aborted(batch) {
            return Ok(RetainResult::None);
        }
        let removable = old && batch.header.last_offset() < self.tombstones_end;
        let kept = batch.retain(decompressor, |record| self.keeps(record, removable));
        kept.map_err(|error| invalid(&error))
    }

    fn keeps(&self, record: &Record<'_>, tombstones_removable: bool) -> bool {
        let Some(key) = record.key else {
            return true;
        };
        let is_latest = self
            .latest
            .get(key)
            .is_none_or(|latest| *latest == record.offset);
        is_latest && !(tombstones_removable && record.value.is_none())
    }

    /// Data whose transaction, if any, has ended.
    fn is_settled(&self, batch: &StoredBatch<'_>) -> bool {
        let header = &batch.header;
        !header.is_control() && (!header.is_transactional() || header.last_offset() < self.stable)
    }

    fn is_aborted(&self, batch: &StoredBatch<'_>) -> bool {
        let header = &batch.header;
        header.is_transactional()
            && self.aborted.iter().any(|range| {
                range.producer_id == header.producer_id()
                    && (range.first..=range.last).contains(&header.base_offset())
            })
    }
}

/// The file being written, and the gap before its next batch.
struct CompactedSegment<'a> {
    file: &'a dyn DiskFile,
    index: Index,
    interval: u64,
    buffer: Vec<u8>,
    gap: Option<(Offset, EnqueueTime)>,
    gap_start: Offset,
}

const BUFFER: usize = 1 << 20;

impl CompactedSegment<'_> {
    fn new(file: &dyn DiskFile, base: Offset, interval: u64) -> CompactedSegment<'_> {
        CompactedSegment {
            file,
            index: Index::new(base, None),
            interval,
            buffer: Vec::new(),
            gap: None,
            gap_start: base,
        }
    }

    fn put(&mut self, parts: &[&[u8]], header: &BatchHeader, time: EnqueueTime) -> io::Result<()> {
        self.fill_gap()?;
        self.write(parts, header, time)?;
        self.gap_start = header.next_offset();
        Ok(())
    }

    fn leave_out(&mut self, batch: &StoredBatch<'_>) -> io::Result<()> {
        let next = batch.header.next_offset();
        if next.0 - self.gap_start.0 > GAP_MAX {
            self.fill_gap()?;
        }
        self.gap = Some((next, batch.enqueue_time()));
        Ok(())
    }

    fn fill_gap(&mut self) -> io::Result<()> {
        if let Some((next, time)) = self.gap.take() {
            let gap = Batch::gap(self.gap_start, next, time);
            self.write(&gap.stored_parts(), gap.header(), time)?;
            self.gap_start = next;
        }
        Ok(())
    }

    fn write(
        &mut self,
        parts: &[&[u8]],
        header: &BatchHeader,
        time: EnqueueTime,
    ) -> io::Result<()> {
        for part in parts {
            self.buffer.extend_from_slice(part);
        }
        let size: usize = parts.iter().map(|part| part.len()).sum();
        self.index.push(header, time, size as u64, self.interval);
        match self.buffer.len() >= BUFFER {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let at = self.index.bytes - self.buffer.len() as u64;
        self.file.write_all_at(&[&self.buffer], at)?;
        self.buffer.clear();
        Ok(())
    }
}

fn invalid(error: &BatchError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}
