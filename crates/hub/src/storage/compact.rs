//! Compaction: keeps the last record of every key.
//!
//! Closed segments are rewritten without records that a later record of the same key replaces; small neighbours are
//! merged. Offsets stay: batches without records replace removed ones. Tombstones and punctuations are removed after
//! the tombstone age. Records of aborted transactions are removed, markers stay, and batches that may belong to an open
//! transaction are unchanged.
//!
//! The new file is complete and durable before it is renamed to `.swap`. The old files are removed durably before it
//! takes their name. A restart completes an interrupted swap.

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

/// Maximum unpacked size of a batch.
const UNPACKED_MAX: usize = 256 << 20;

/// Maximum number of offsets of one batch without records.
const GAP_MAX: i64 = i32::MAX as i64;

impl Store {
    /// Compacts if segments were closed since the last compaction.
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

    /// Neighbours that fit into one segment.
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
            // Files may be gone that another attempt would read; only a restart can continue.
            self.view.write().compacted = Offset(i64::MAX);
        })
    }

    /// Replaces the old files with the new one.
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

/// Determines the records to keep.
struct CompactionRules {
    latest: HashMap<Box<[u8]>, Offset, FixedState>,
    /// Transactions from here on may be open.
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
