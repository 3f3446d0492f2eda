//! The checksum that distinguishes a file from another of the same name.

use std::io::{self, Read};
use std::path::Path;

use highwater_env::disk;

/// The number of leading bytes that identify a growing file.
pub(super) const HEAD_BYTES: u64 = 4096;

/// The checksum of the first bytes; `None` if the file is shorter. Blocks.
pub(super) fn head_checksum(path: &Path, bytes: u64) -> io::Result<Option<u32>> {
    let mut file = disk::open(path)?.take(bytes);
    let (mut sum, mut read) = (0, 0);
    let mut block = vec![0; (64 << 10).min(bytes.max(1)) as usize];
    loop {
        match file.read(&mut block)? {
            0 => return Ok((read == bytes).then_some(sum)),
            count => {
                sum = crc32c::crc32c_append(sum, &block[..count]);
                read += count as u64;
            }
        }
    }
}
