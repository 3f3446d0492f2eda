//! Compression of the records of a batch: the five codecs of Kafka, with a limit on the unpacked size.

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

/// Unpacks into `into`, which is cleared first, at most `bytes_max` bytes.
pub(super) fn decompress(
    codec: Codec,
    compressed: &[u8],
    into: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<(), BatchError> {
    into.clear();
    let read = match codec {
        Codec::Snappy => decompress_snappy(compressed, into, bytes_max),
        codec => reader(codec, compressed).and_then(|reader| read_all(reader, into, bytes_max)),
    };
    match read {
        Ok(true) => Ok(()),
        Ok(false) => Err(BatchError::DecompressedTooLarge { max: bytes_max }),
        Err(error) => Err(failure(codec, &error)),
    }
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
        Codec::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(compressed)?),
    })
}

/// False if there are more than `bytes_max` bytes; the excess is dropped.
fn read_all(reader: impl Read, into: &mut Vec<u8>, bytes_max: usize) -> io::Result<bool> {
    reader.take(bytes_max as u64 + 1).read_to_end(into)?;
    Ok(into.len() <= bytes_max)
}

fn decompress_snappy(compressed: &[u8], into: &mut Vec<u8>, bytes_max: usize) -> io::Result<bool> {
    if !compressed.starts_with(XERIAL_MAGIC) {
        return decompress_block(compressed, into, bytes_max);
    }
    let cut = || io::Error::new(io::ErrorKind::UnexpectedEof, "a block is cut off");
    let mut rest = compressed.get(XERIAL_HEADER..).ok_or_else(cut)?;
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk().ok_or_else(cut)?;
        let length = u32::from_be_bytes(*length) as usize;
        let (block, after) = after.split_at_checked(length).ok_or_else(cut)?;
        if !decompress_block(block, into, bytes_max)? {
            return Ok(false);
        }
        rest = after;
    }
    Ok(true)
}

fn decompress_block(block: &[u8], into: &mut Vec<u8>, bytes_max: usize) -> io::Result<bool> {
    let start = into.len();
    let length = snap::raw::decompress_len(block)?;
    if length > block.len().saturating_mul(SNAPPY_RATIO_MAX) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a block claims more bytes than it can have",
        ));
    }
    if length > bytes_max - start {
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
