//! What all partitions of a node share: the disk, the options, open files, indexes at hand, and the
//! room for recent batches.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use highwater_env::disk::{Access, DiskFile};
use highwater_env::{Clock, Disk};

use super::cache::Cache;
use super::segment::SegmentFacts;
use super::tail::Budget;
use crate::Options;

pub struct Shared {
    pub disk: Arc<dyn Disk>,
    pub clock: Arc<dyn Clock>,
    pub options: Options,
    pub counters: Counters,
    pub facts: Cache<Arc<SegmentFacts>>,
    pub tails: Budget,
    /// Bytes that wait for the disk, in all partitions.
    pub waiting: AtomicUsize,
    files: Cache<Arc<dyn DiskFile>>,
    ids: AtomicU64,
}

/// What a node has done since it started.
#[derive(Debug, Default)]
pub struct Counters {
    pub batches: AtomicU64,
    pub records: AtomicU64,
    pub bytes: AtomicU64,
    pub groups: AtomicU64,
    pub turned_away: AtomicU64,
    pub syncs: AtomicU64,
    pub sync_nanos: AtomicU64,
    pub reads_tail: AtomicU64,
    pub reads_disk: AtomicU64,
    pub read_bytes: AtomicU64,
}

impl Counters {
    pub fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}

impl Shared {
    pub fn new(disk: Arc<dyn Disk>, clock: Arc<dyn Clock>, options: Options) -> Shared {
        Shared {
            disk,
            clock,
            counters: Counters::default(),
            facts: Cache::new(options.files_open / 2),
            tails: Budget::new(options.tail_bytes),
            waiting: AtomicUsize::new(0),
            files: Cache::new(options.files_open),
            ids: AtomicU64::new(0),
            options,
        }
    }

    /// A number for a file, under which it is kept open.
    pub fn new_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    pub fn open(&self, id: u64, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        self.files.get(id, || self.disk.open(path, access))
    }

    pub fn close(&self, id: u64) {
        self.files.forget(id);
        self.facts.forget(id);
    }

    /// Syncs a file and counts how long it took.
    pub fn sync(&self, file: &dyn DiskFile) -> io::Result<()> {
        let before = self.clock.elapsed();
        file.sync_data()?;
        let took = self.clock.elapsed().saturating_sub(before);
        Counters::add(&self.counters.syncs, 1);
        Counters::add(&self.counters.sync_nanos, took.as_nanos() as u64);
        Ok(())
    }
}
