//! How much freed memory stays with the process.
//!
//! A job takes and frees about a megabyte for each block of events. The allocator of glibc gives memory at the end of
//! its heap back to the system as soon as 128 KiB of it are free, so every block would pay for its pages again.

/// Twice as much freed memory stays.
const PIECE_BYTES: usize = 1 << 20;

/// Keeps freed memory for the next allocations: once a large piece was freed, glibc waits for twice its size (mallopt(3),
/// `M_MMAP_THRESHOLD`). Other allocators do as they like.
pub(crate) fn keep_freed_memory() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(PIECE_BYTES)));
}
