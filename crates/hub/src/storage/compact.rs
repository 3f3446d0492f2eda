//! Compaction: of every key the last record stays.
//!
//! Closed segments are written anew without the records that a later one of the same key has
//! replaced; small neighbours become one. Offsets stay, and batches without records stand for what
//! is gone. A record without a value removes its key and goes itself when it is old enough for
//! everybody to have seen it, and so does a punctuation. Records of aborted transactions go, markers
//! stay, and what may still be part of an open transaction is left as it is.
//!
//! The new file is complete and durable before its name says so (`.swap`), what it replaces is gone
//! for certain before it takes that name, and a start finishes a swap that a crash interrupted.

use std::io;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use highwater_env::disk::{Access, DiskFile};
use highwater_log::batch::{Batch, BatchError, Decompressor, Record, RetainResult, StoredBatch};
use highwater_log::producer_states::AbortedRange;
use highwater_log::{EnqueueTime, Offset};

use super::index::Index;
use super::names;
use super::recover::files::finish_swap;
use super::retain::before;
use super::scan::scan;
use super::segment::Segment;
use super::store::Store;

/// No batch unpacks to more than this.
const UNPACKED_MAX: usize = 256 << 20;

/// The most offsets that one batch without records stands for.
const GAP_MAX: i64 = i32::MAX as i64;

impl Store {
    /// Compacts if segments have been closed since the last time.
    pub(super) fn compact(&self, now: EnqueueTime) -> io::Result<()> {
        let (closed, rules) = {
            let view = self.view.read();
            let Some(last) = view.closed.last() else {
                return Ok(());
            };
            let end = view.base_after(last.base);
            if end <= view.compacted {
                return Ok(());
            }
            let rules = CompactionRules {
                latest: HashMap::with_hasher(FixedState::default()),
                stable: view.stable,
                aborted: view.producers.aborted_ranges().to_vec(),
                tombstones_before: before(now, self.shared.options.tombstone_age),
                end,
            };
            (view.closed.clone(), rules)
        };
        let rules = self.learn(&closed, rules)?;
        for run in self.runs(&closed) {
            self.compact_run(run, &rules)?;
        }
        self.view.write().compacted = rules.end;
        Ok(())
    }

    /// Neighbours that fit into one segment together.
    fn runs<'a>(&self, closed: &'a [Arc<Segment>]) -> Vec<&'a [Arc<Segment>]> {
        let mut runs = Vec::new();
        let (mut first, mut bytes) = (0, 0);
        for (number, segment) in closed.iter().enumerate() {
            if number > first && bytes + segment.bytes > self.shared.options.segment_bytes {
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

    fn compact_run(&self, run: &[Arc<Segment>], rules: &CompactionRules) -> io::Result<()> {
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
                    RetainResult::All => output.put(batch.bytes(), batch),
                    RetainResult::Some(shorter) => output.put(&shorter.to_bytes(), batch),
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
        self.swap(run, base, next, index).inspect_err(|_| {
            // Files may be gone that the next attempt would read; a start knows how to go on.
            self.view.write().compacted = Offset(i64::MAX);
        })
    }

    /// Puts the new file in the place of the old ones.
    fn swap(
        &self,
        run: &[Arc<Segment>],
        base: Offset,
        next: Offset,
        index: Index,
    ) -> io::Result<()> {
        let disk = &*self.shared.disk;
        let _no_writer = self.writer.lock();
        let cleaned = self.folder.join(names::cleaned(base));
        if !run.iter().all(|segment| self.view.read().holds(segment.id)) {
            return disk.remove_file(&cleaned);
        }
        disk.rename(&cleaned, &self.folder.join(names::swap(base, next)))?;
        disk.sync_folder(&self.folder)?;
        finish_swap(disk, &self.folder, base, next)?;
        let segment = Segment::new(&self.shared, &self.folder, base, index.bytes);
        let segment = segment.closed(&index);
        segment.write_index(&self.shared, &index)?;
        let view = &mut *self.view.write();
        view.closed.retain(|old| !(base..next).contains(&old.base));
        let at = view.closed.partition_point(|other| other.base < base);
        view.closed.insert(at, Arc::new(segment));
        run.iter().for_each(|old| self.shared.close(old.id));
        Ok(())
    }
}

/// What decides which records stay.
struct CompactionRules {
    latest: HashMap<Box<[u8]>, Offset, FixedState>,
    /// Transactions from here on may still be open.
    stable: Offset,
    aborted: Vec<AbortedRange>,
    tombstones_before: EnqueueTime,
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
        let old = batch.header.enqueue_time() < self.tombstones_before;
        if old && batch.is_punctuation() {
            return Ok(RetainResult::None);
        }
        if !self.is_settled(batch) {
            return Ok(RetainResult::All);
        }
        if self.is_aborted(batch) {
            return Ok(RetainResult::None);
        }
        let kept = batch.retain(decompressor, |record| self.keeps(record, old));
        kept.map_err(|error| invalid(&error))
    }

    fn keeps(&self, record: &Record<'_>, old: bool) -> bool {
        let Some(key) = record.key else {
            return true;
        };
        let is_latest = self
            .latest
            .get(key)
            .is_none_or(|latest| *latest == record.offset);
        is_latest && !(old && record.value.is_none())
    }

    /// Data of which it is known whether it counts.
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

/// The file that is being written, and the gap that the next batch will have before it.
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

    fn put(&mut self, bytes: &[u8], batch: &StoredBatch<'_>) -> io::Result<()> {
        self.fill_gap()?;
        self.write(bytes, &batch.header)?;
        self.gap_start = batch.header.next_offset();
        Ok(())
    }

    fn leave_out(&mut self, batch: &StoredBatch<'_>) -> io::Result<()> {
        let next = batch.header.next_offset();
        if next.0 - self.gap_start.0 > GAP_MAX {
            self.fill_gap()?;
        }
        self.gap = Some((next, batch.header.enqueue_time()));
        Ok(())
    }

    fn fill_gap(&mut self) -> io::Result<()> {
        if let Some((next, time)) = self.gap.take() {
            let gap = Batch::gap(self.gap_start, next, time);
            self.write(&gap.to_bytes(), gap.header())?;
            self.gap_start = next;
        }
        Ok(())
    }

    fn write(
        &mut self,
        bytes: &[u8],
        header: &highwater_log::batch::BatchHeader,
    ) -> io::Result<()> {
        self.buffer.extend_from_slice(bytes);
        self.index.push(header, bytes.len() as u64, self.interval);
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
