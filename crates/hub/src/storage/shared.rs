//! Shared by all partitions of a node: disk, options, open files, cached indexes and the budget of the tails.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use highwater_env::disk::{Access, DiskFile};
use highwater_env::{Clock, Disk};

use super::cache::Cache;
use super::segment::SegmentMetadata;
use super::tail::Budget;
use crate::Options;

pub(crate) struct Shared {
    pub disk: Arc<dyn Disk>,
    pub clock: Arc<dyn Clock>,
    pub options: Options,
    pub counters: Counters,
    pub metadata: Cache<Arc<SegmentMetadata>>,
    pub tails: Budget,
    /// Bytes that wait for the disk, in all partitions.
    pub waiting: AtomicUsize,
    files: Cache<Arc<dyn DiskFile>>,
    ids: AtomicU64,
}

/// Counters since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub batches: AtomicU64,
    pub records: AtomicU64,
    pub bytes: AtomicU64,
    pub groups: AtomicU64,
    pub rejected: AtomicU64,
    pub syncs: AtomicU64,
    pub sync_nanos: AtomicU64,
    pub reads_tail: AtomicU64,
    pub reads_disk: AtomicU64,
    pub read_bytes: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}

impl Shared {
    pub(crate) fn new(disk: Arc<dyn Disk>, clock: Arc<dyn Clock>, options: Options) -> Shared {
        Shared {
            disk,
            clock,
            counters: Counters::default(),
            metadata: Cache::new(options.files_open / 2),
            tails: Budget::new(options.tail_bytes),
            waiting: AtomicUsize::new(0),
            files: Cache::new(options.files_open),
            ids: AtomicU64::new(0),
            options,
        }
    }

    /// An id for a file in the caches.
    pub(crate) fn new_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn open(
        &self,
        id: u64,
        path: &Path,
        access: Access,
    ) -> io::Result<Arc<dyn DiskFile>> {
        self.files.get(id, || self.disk.open(path, access))
    }

    pub(crate) fn close(&self, id: u64) {
        self.files.remove(id);
        self.metadata.remove(id);
    }

    /// Syncs a file and measures the time.
    pub(crate) fn sync(&self, file: &dyn DiskFile) -> io::Result<()> {
        let before = self.clock.elapsed();
        file.sync_data()?;
        let took = self.clock.elapsed().saturating_sub(before);
        Counters::add(&self.counters.syncs, 1);
        Counters::add(&self.counters.sync_nanos, took.as_nanos() as u64);
        Ok(())
    }
}
