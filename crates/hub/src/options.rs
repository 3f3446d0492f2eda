//! The options of a hub; the defaults suit one machine.

use std::time::Duration;

/// When an append is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// After the sync: it survives a power cut.
    #[default]
    Fsync,
    /// After the write: it survives the end of the process, not a power cut.
    Os,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub durability: Durability,
    /// Maximum size of a segment.
    pub segment_bytes: u64,
    /// A segment whose first batch is older is closed, so that retention by age can delete it.
    pub segment_age: Duration,
    /// Bytes of the log for each entry of the sparse index.
    pub index_bytes: u64,
    /// Bytes between two checkpoints, which shorten the scan of a restart.
    pub checkpoint_bytes: u64,
    /// Maximum space allocated ahead of the end of a segment. A sync that does not change the length of the file is
    /// cheaper: 90 us instead of 125 us for 180 bytes on ext4.
    pub reserve_bytes: u64,
    /// Recent batches in memory for readers at the end, for all partitions together.
    pub tail_bytes: usize,
    /// Maximum bytes waiting for the disk in one partition, and in all.
    pub queue_bytes: usize,
    pub queue_bytes_all: usize,
    /// Maximum size of a batch that combines records of several callers.
    pub shared_batch_bytes: usize,
    /// Threads that write and sync, and threads that read.
    pub committers: usize,
    pub readers: usize,
    /// Maximum number of open files.
    pub files_open: usize,
    /// Hubs and partitions at which clients create no more hubs automatically; internal hubs do not count.
    pub auto_create_hubs_max: usize,
    pub auto_create_partitions_max: usize,
    /// How long a tombstone of a compacted hub is kept.
    pub tombstone_age: Duration,
    /// A producer that is idle for longer is forgotten, with its sequence numbers.
    pub producer_age: Duration,
    /// Interval of maintenance: retention and compaction.
    pub maintenance: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            durability: Durability::Fsync,
            segment_bytes: 64 << 20,
            segment_age: Duration::from_secs(24 * 3600),
            index_bytes: 64 << 10,
            checkpoint_bytes: 1 << 20,
            reserve_bytes: 4 << 20,
            tail_bytes: 16 << 20,
            queue_bytes: 32 << 20,
            queue_bytes_all: 128 << 20,
            shared_batch_bytes: 256 << 10,
            committers: 4,
            readers: 4,
            files_open: 512,
            auto_create_hubs_max: 1000,
            auto_create_partitions_max: 4000,
            tombstone_age: Duration::from_secs(24 * 3600),
            producer_age: Duration::from_secs(7 * 24 * 3600),
            maintenance: Duration::from_secs(10),
        }
    }
}
