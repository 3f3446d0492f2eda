//! What can be set about a hub, with defaults that suit one machine.

use std::time::Duration;

/// When an append is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// When the disk has it: it survives a power cut.
    #[default]
    Fsync,
    /// When the operating system has it: it survives the end of the process, not that of the
    /// machine.
    Os,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub durability: Durability,
    /// A segment is closed when it would grow past this.
    pub segment_bytes: u64,
    /// A segment is closed when its first batch is older than this, so that retention by age can
    /// remove it.
    pub segment_age: Duration,
    /// One entry of the sparse index for so many bytes of the log.
    pub index_bytes: u64,
    /// After so many bytes a partition writes down what a restart would otherwise have to scan for.
    pub checkpoint_bytes: u64,
    /// The most that is reserved on the disk ahead of the end of a segment. A sync that need not
    /// change the length of the file is cheaper: 90 us instead of 125 us for 180 bytes on ext4.
    pub reserve_bytes: u64,
    /// Recent batches kept in memory for readers at the end, for all partitions together.
    pub tail_bytes: usize,
    /// What may wait for the disk in one partition, and in all.
    pub queue_bytes: usize,
    pub queue_bytes_all: usize,
    /// The largest batch that records of several callers are put together to.
    pub shared_batch_bytes: usize,
    /// Threads that write and sync, and threads that read.
    pub committers: usize,
    pub readers: usize,
    /// Files kept open.
    pub files_open: usize,
    /// How long a removed key of a compacted hub can still be seen to be removed.
    pub tombstone_age: Duration,
    /// A producer that has been silent for longer is forgotten, and with it the numbers of its
    /// batches.
    pub producer_age: Duration,
    /// How often old segments are looked for.
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
            tombstone_age: Duration::from_secs(24 * 3600),
            producer_age: Duration::from_secs(7 * 24 * 3600),
            maintenance: Duration::from_secs(10),
        }
    }
}
