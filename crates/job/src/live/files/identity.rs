//! Tells a file from another one of the same name.

use std::io::{self, Read};
use std::path::Path;

use highwater_env::disk;

/// So much of a file that grows is held against what was known of it.
pub(super) const HEAD_BYTES: u64 = 4096;

/// The checksum of the first bytes; `None` if there are not so many. Blocks.
pub(super) fn sum_of(path: &Path, bytes: u64) -> io::Result<Option<u32>> {
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
