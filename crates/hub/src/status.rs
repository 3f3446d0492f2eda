//! Status and counters of a node.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use highwater_log::{Bounds, TopicPartition};

use crate::storage::Counters;

#[derive(Clone, Debug)]
pub struct Status {
    pub partitions: Vec<PartitionStatus>,
    pub totals: Totals,
    /// Bytes that wait for the disk.
    pub waiting_bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionStatus {
    pub topic_partition: TopicPartition,
    pub bounds: Bounds,
    pub segments: usize,
    pub waiting_bytes: usize,
    /// Why the partition accepts no writes; `None` if it does.
    pub stopped: Option<String>,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub batches: u64,
    pub records: u64,
    pub bytes: u64,
    /// Writes; batches written together count as one.
    pub groups: u64,
    /// Batches rejected because the disk was full.
    pub rejected: u64,
    pub syncs: u64,
    pub sync_time: Duration,
    pub reads_tail: u64,
    pub reads_disk: u64,
    pub read_bytes: u64,
}

impl Totals {
    pub(crate) fn of(counters: &Counters) -> Totals {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Totals {
            batches: get(&counters.batches),
            records: get(&counters.records),
            bytes: get(&counters.bytes),
            groups: get(&counters.groups),
            rejected: get(&counters.rejected),
            syncs: get(&counters.syncs),
            sync_time: Duration::from_nanos(get(&counters.sync_nanos)),
            reads_tail: get(&counters.reads_tail),
            reads_disk: get(&counters.reads_disk),
            read_bytes: get(&counters.read_bytes),
        }
    }
}
