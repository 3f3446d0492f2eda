//! Compression of the records of a batch: the five codecs of Kafka, with limits on the unpacked size and on the memory
//! that unpacking takes.

use std::io::{self, Read, Write};

use super::BatchError;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Codec {
    #[default]
    None = 0,
    Gzip = 1,
    Snappy = 2,
    Lz4 = 3,
    Zstd = 4,
}

impl Codec {
    pub const ALL: [Codec; 5] = [
        Codec::None,
        Codec::Gzip,
        Codec::Snappy,
        Codec::Lz4,
        Codec::Zstd,
    ];
}

impl TryFrom<u8> for Codec {
    type Error = BatchError;

    fn try_from(number: u8) -> Result<Codec, BatchError> {
        let codec = Codec::ALL.get(usize::from(number)).copied();
        codec.ok_or(BatchError::Codec(number))
    }
}

/// The prefix of Java's snappy stream; librdkafka's snappy has none.
const XERIAL_MAGIC: &[u8; 8] = b"\x82SNAPPY\0";
const XERIAL_HEADER: usize = 16;
const XERIAL_BLOCK: usize = 32 * 1024;
/// The shortest code of the format has three bytes and copies 64.
const SNAPPY_RATIO_MAX: usize = 22;

/// Limits the memory that a batch is unpacked into.
pub(super) struct UnpackLimit<'a> {
    /// More unpacked bytes are an error: kilobytes can unpack to gigabytes.
    pub(super) bytes_max: usize,
    /// Asked for all bytes that the unpacking needs, before they are allocated. False refuses them.
    pub(super) grant: &'a mut dyn FnMut(usize) -> bool,
}

impl UnpackLimit<'_> {
    /// Makes room for `needed` bytes in all. False if the limit forbids it.
    fn reserve(&mut self, codec_bytes: usize, into: &mut Vec<u8>, needed: usize) -> bool {
        if needed > self.bytes_max {
            return false;
        }
        if needed <= into.capacity() {
            return true;
        }
        let capacity = needed.max(2 * into.capacity()).min(self.bytes_max);
        if !(self.grant)(codec_bytes + capacity) {
            return false;
        }
        into.reserve_exact(capacity - into.len());
        true
    }
}

/// Unpacks bytes that are no batch to at most `bytes_max`, with at most `memory_max` bytes for it and the decoder.
pub fn unpack(
    codec: Codec,
    compressed: &[u8],
    bytes_max: usize,
    memory_max: usize,
) -> Result<Vec<u8>, BatchError> {
    let mut unpacked = Vec::new();
    let mut grant = |bytes| bytes <= memory_max;
    let limit = UnpackLimit {
        bytes_max,
        grant: &mut grant,
    };
    decompress(codec, compressed, &mut unpacked, limit)?;
    Ok(unpacked)
}

/// Unpacks into `into`, which is cleared first.
pub(super) fn decompress(
    codec: Codec,
    compressed: &[u8],
    into: &mut Vec<u8>,
    mut limit: UnpackLimit<'_>,
) -> Result<(), BatchError> {
    into.clear();
    let bytes_max = limit.bytes_max;
    let codec_bytes = decoder_bytes(codec, compressed);
    if !(limit.grant)(codec_bytes + into.capacity()) {
        return Err(BatchError::DecompressedTooLarge { max: 0 });
    }
    let read = match codec {
        Codec::Snappy => decompress_snappy(compressed, into, &mut limit),
        codec => reader(codec, compressed)
            .and_then(|reader| read_all(reader, codec_bytes, into, &mut limit)),
    };
    match read {
        Ok(true) => Ok(()),
        Ok(false) => Err(BatchError::DecompressedTooLarge { max: bytes_max }),
        Err(error) => Err(failure(codec, &error)),
    }
}

const GZIP_BYTES: usize = 256 << 10;
/// Largest blocks of LZ4, and how many of them a decoder holds.
const LZ4_BLOCK_BYTES_MAX: usize = 8 << 20;
const LZ4_BLOCKS: usize = 4;
/// Of a decoder, beside its window.
const ZSTD_BYTES: usize = 512 << 10;
/// The largest window that the library decodes.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// An upper bound of the memory of a decoder, without the unpacked bytes.
pub(super) fn decoder_bytes(codec: Codec, compressed: &[u8]) -> usize {
    match codec {
        Codec::None | Codec::Snappy => 0,
        Codec::Gzip => GZIP_BYTES,
        Codec::Lz4 => LZ4_BLOCKS * lz4_block_bytes(compressed),
        Codec::Zstd => ZSTD_BYTES + (1 << zstd_window_log(compressed)),
    }
}

/// The block size in the descriptor of the frame.
fn lz4_block_bytes(compressed: &[u8]) -> usize {
    match compressed {
        [0x04, 0x22, 0x4D, 0x18, _, descriptor, ..] => match descriptor >> 4 & 7 {
            4 => 64 << 10,
            5 => 256 << 10,
            6 => 1 << 20,
            _ => 4 << 20,
        },
        _ => LZ4_BLOCK_BYTES_MAX,
    }
}

/// The window of the first frame as a power of two, which bounds that of further frames.
fn zstd_window_log(compressed: &[u8]) -> u32 {
    let window = zstd_window(compressed).unwrap_or(u64::MAX);
    let log = u64::BITS - window.saturating_sub(1).leading_zeros();
    log.clamp(10, ZSTD_WINDOW_LOG_MAX)
}

/// `None` if there is no frame header.
fn zstd_window(compressed: &[u8]) -> Option<u64> {
    let rest = compressed.strip_prefix(&[0x28, 0xB5, 0x2F, 0xFD])?;
    let (descriptor, rest) = rest.split_first()?;
    let is_single_segment = descriptor & 0x20 != 0;
    if !is_single_segment {
        let window = rest.first()?;
        let base = 1_u64 << (10 + (window >> 3));
        return Some(base + base / 8 * u64::from(window & 7));
    }
    // The window is the content, whose size follows the id of the dictionary.
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let length = 1_usize << (descriptor >> 6);
    let mut size = [0; 8];
    size[..length].copy_from_slice(rest.get(dictionary..dictionary + length)?);
    let size = u64::from_le_bytes(size);
    Some(if length == 2 { size + 256 } else { size })
}

/// An upper bound of the bytes that snappy unpacks to.
pub(super) fn snappy_bytes_max(compressed: &[u8]) -> usize {
    compressed.len().saturating_mul(SNAPPY_RATIO_MAX)
}

pub(super) fn failure(codec: Codec, error: &io::Error) -> BatchError {
    BatchError::Compression {
        codec,
        reason: error.to_string(),
    }
}

/// The decompressed bytes as a stream. Snappy has none: its blocks are decompressed whole.
pub(super) fn reader(codec: Codec, compressed: &[u8]) -> io::Result<Box<dyn Read + '_>> {
    Ok(match codec {
        Codec::None | Codec::Snappy => Box::new(compressed),
        Codec::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(compressed)),
        Codec::Lz4 => Box::new(lz4_flex::frame::FrameDecoder::new(compressed)),
        Codec::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(compressed)?;
            decoder.window_log_max(zstd_window_log(compressed))?;
            Box::new(decoder)
        }
    })
}

/// Bytes that are read at first.
const FIRST_BYTES: usize = 16 << 10;

/// False if the limit forbids more bytes.
fn read_all(
    mut reader: impl Read,
    codec_bytes: usize,
    into: &mut Vec<u8>,
    limit: &mut UnpackLimit<'_>,
) -> io::Result<bool> {
    loop {
        let room = into.capacity().min(limit.bytes_max);
        (&mut reader)
            .take((room - into.len()) as u64)
            .read_to_end(into)?;
        // The end is looked for before more memory is taken.
        let mut next = [0];
        if into.len() < room || reader.read(&mut next)? == 0 {
            return Ok(true);
        }
        let needed = (into.len() + 1).max(FIRST_BYTES.min(limit.bytes_max));
        if !limit.reserve(codec_bytes, into, needed) {
            return Ok(false);
        }
        into.extend_from_slice(&next);
    }
}

fn decompress_snappy(
    compressed: &[u8],
    into: &mut Vec<u8>,
    limit: &mut UnpackLimit<'_>,
) -> io::Result<bool> {
    if !compressed.starts_with(XERIAL_MAGIC) {
        return decompress_block(compressed, into, limit);
    }
    let cut = || io::Error::new(io::ErrorKind::UnexpectedEof, "a block is cut off");
    let mut rest = compressed.get(XERIAL_HEADER..).ok_or_else(cut)?;
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk().ok_or_else(cut)?;
        let length = u32::from_be_bytes(*length) as usize;
        let (block, after) = after.split_at_checked(length).ok_or_else(cut)?;
        if !decompress_block(block, into, limit)? {
            return Ok(false);
        }
        rest = after;
    }
    Ok(true)
}

fn decompress_block(
    block: &[u8],
    into: &mut Vec<u8>,
    limit: &mut UnpackLimit<'_>,
) -> io::Result<bool> {
    let start = into.len();
    let length = snap::raw::decompress_len(block)?;
    if length > snappy_bytes_max(block) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a block claims more bytes than it can have",
        ));
    }
    if !limit.reserve(0, into, start + length) {
        return Ok(false);
    }
    into.resize(start + length, 0);
    let written = snap::raw::Decoder::new().decompress(block, &mut into[start..])?;
    into.truncate(start + written);
    Ok(true)
}

/// Compresses `records` and appends them to `into`.
pub(super) fn compress(codec: Codec, records: &[u8], into: &mut Vec<u8>) -> Result<(), BatchError> {
    let compressed = match codec {
        Codec::None => into.write_all(records),
        Codec::Gzip => compress_gzip(records, into),
        Codec::Snappy => compress_snappy(records, into),
        Codec::Lz4 => compress_lz4(records, into),
        Codec::Zstd => zstd::stream::copy_encode(records, into, 0),
    };
    compressed.map_err(|error| failure(codec, &error))
}

fn compress_gzip(records: &[u8], into: &mut Vec<u8>) -> io::Result<()> {
    let mut encoder = flate2::write::GzEncoder::new(into, flate2::Compression::default());
    encoder.write_all(records)?;
    encoder.finish().map(drop)
}

/// The form of the Java client, which every client reads.
fn compress_snappy(records: &[u8], into: &mut Vec<u8>) -> io::Result<()> {
    into.extend_from_slice(XERIAL_MAGIC);
    // The version, and the oldest version that can read it.
    into.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1]);
    let mut encoder = snap::raw::Encoder::new();
    for block in records.chunks(XERIAL_BLOCK) {
        let compressed = encoder.compress_vec(block)?;
        into.extend_from_slice(&(compressed.len() as u32).to_be_bytes());
        into.extend_from_slice(&compressed);
    }
    Ok(())
}

fn compress_lz4(records: &[u8], into: &mut Vec<u8>) -> io::Result<()> {
    let mut encoder = lz4_flex::frame::FrameEncoder::new(into);
    encoder.write_all(records)?;
    encoder.finish().map(drop).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compressed(codec: Codec, bytes: &[u8]) -> Vec<u8> {
        let mut compressed = Vec::new();
        compress(codec, bytes, &mut compressed).unwrap();
        compressed
    }

    #[test]
    fn memory_is_granted_before_it_is_allocated() {
        let bytes = vec![7; 1 << 20];
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let compressed = compressed(codec, &bytes);
            let (mut granted, mut into) = (0, Vec::new());
            let mut grant = |total| {
                granted = total;
                true
            };
            let limit = UnpackLimit {
                bytes_max: 1 << 20,
                grant: &mut grant,
            };
            decompress(codec, &compressed, &mut into, limit).unwrap();
            assert_eq!(into, bytes, "{codec:?}");
            let needed = into.capacity() + decoder_bytes(codec, &compressed);
            assert!(granted >= needed, "{codec:?}: {granted} of {needed}");

            let mut into = Vec::new();
            let enough = 100_000 + decoder_bytes(codec, &compressed);
            let limit = UnpackLimit {
                bytes_max: 1 << 20,
                grant: &mut |total| total <= enough,
            };
            let refused = decompress(codec, &compressed, &mut into, limit).unwrap_err();
            assert!(
                matches!(refused, BatchError::DecompressedTooLarge { .. }),
                "{codec:?}"
            );
            assert!(into.capacity() <= 100_000, "{codec:?}");
        }
    }

    #[test]
    fn the_limit_is_exact() {
        let bytes = vec![7; 100_000];
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let compressed = compressed(codec, &bytes);
            for (bytes_max, fits) in [(100_000, true), (99_999, false), (100_001, true)] {
                let limit = UnpackLimit {
                    bytes_max,
                    grant: &mut |_| true,
                };
                let unpacked = decompress(codec, &compressed, &mut Vec::new(), limit);
                assert_eq!(unpacked.is_ok(), fits, "{codec:?} {bytes_max}");
            }
        }
    }

    #[test]
    fn the_window_of_zstd_is_known_before_it_is_allocated() {
        let stream = |window_log: u32, known: bool| {
            let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
            encoder.window_log(window_log).unwrap();
            if known {
                encoder.set_pledged_src_size(Some(5_000)).unwrap();
            }
            encoder.write_all(&[7; 5_000]).unwrap();
            encoder.finish().unwrap()
        };
        assert_eq!(zstd_window_log(&stream(20, false)), 20);
        assert_eq!(zstd_window_log(&stream(24, false)), 24);
        assert_eq!(zstd_window_log(&stream(24, true)), 13);
        assert_eq!(zstd_window_log(b""), ZSTD_WINDOW_LOG_MAX);
        // A small frame before one with a large window does not hide it.
        let both = [stream(20, false), stream(24, false)].concat();
        let limit = UnpackLimit {
            bytes_max: 1 << 20,
            grant: &mut |_| true,
        };
        assert!(decompress(Codec::Zstd, &both, &mut Vec::new(), limit).is_err());
    }

    #[test]
    fn the_block_size_of_lz4_is_known_before_it_is_allocated() {
        assert_eq!(
            lz4_block_bytes(&compressed(Codec::Lz4, &[7; 5_000])),
            64 << 10
        );
        assert_eq!(lz4_block_bytes(b""), LZ4_BLOCK_BYTES_MAX);
    }
}
