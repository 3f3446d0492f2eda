//! The bytes of a file, decompressed.
//!
//! The job file or else the file name declares the compression, and the first bytes must agree: a file of another kind
//! is reported as such instead of being parsed as text.

use std::io::{self, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use flate2::read::{DeflateDecoder, MultiGzDecoder};
use highwater_env::disk;

use crate::ReadError;
use crate::source::Compression;

const GZIP_MAGIC: &[u8] = b"\x1f\x8b";
const BUFFER_BYTES: usize = 256 << 10;

/// An open file.
pub(crate) struct FileBytes {
    pub file: PathBuf,
    pub bytes: Box<dyn Read + Send>,
    pub progress: Arc<ReadProgress>,
    pub modified: i128,
}

/// How far a file has been read; shared with observers of the reader.
#[derive(Debug, Default)]
pub(crate) struct ReadProgress {
    bytes: AtomicU64,
    ended: AtomicBool,
    /// `None` for a pipe.
    pub bytes_at_open: Option<u64>,
}

struct CountingReader {
    file: disk::Reader,
    progress: Arc<ReadProgress>,
}

impl FileBytes {
    pub(crate) fn open(path: &Path, compression: Compression) -> Result<FileBytes, ReadError> {
        let file = path.to_path_buf();
        let opened = disk::open(path).map_err(|source| ReadError::Open {
            file: file.clone(),
            source,
        })?;
        let modified = opened.modified();
        let progress = Arc::new(ReadProgress {
            bytes_at_open: opened.is_file().then_some(opened.len()),
            ..ReadProgress::default()
        });
        let raw = CountingReader {
            file: opened,
            progress: progress.clone(),
        };
        FileBytes::new(file, Box::new(raw), progress, modified, compression)
    }

    /// Bytes in memory; `name` stands for the file in errors.
    pub(crate) fn of_value(
        name: &Path,
        value: Vec<u8>,
        compression: Compression,
    ) -> Result<FileBytes, ReadError> {
        let raw = Box::new(Cursor::new(value));
        FileBytes::new(name.to_path_buf(), raw, Arc::default(), 0, compression)
    }

    fn new(
        file: PathBuf,
        mut raw: Box<dyn Read + Send>,
        progress: Arc<ReadProgress>,
        modified: i128,
        compression: Compression,
    ) -> Result<FileBytes, ReadError> {
        let first = peek(&mut raw, GZIP_MAGIC.len()).map_err(|source| ReadError::Read {
            file: file.clone(),
            offset: 0,
            source,
        })?;
        let is_gzip = first == GZIP_MAGIC;
        let raw = Cursor::new(first).chain(raw);
        let wrong = |reason| ReadError::Compression {
            file: file.clone(),
            reason,
        };
        let bytes: Box<dyn Read + Send> = match by_name(compression, &file) {
            Compression::Gzip if !is_gzip => {
                return Err(wrong(
                    "it is declared as gzip, but does not start with a gzip header",
                ));
            }
            Compression::Gzip => Box::new(MultiGzDecoder::new(BufReader::with_capacity(
                BUFFER_BYTES,
                raw,
            ))),
            Compression::Deflate => Box::new(DeflateDecoder::new(BufReader::with_capacity(
                BUFFER_BYTES,
                raw,
            ))),
            Compression::None | Compression::ByName if is_gzip => {
                return Err(wrong(
                    "it is compressed with gzip; name it .gz or set compression = \"gzip\"",
                ));
            }
            Compression::None | Compression::ByName => Box::new(raw),
        };
        Ok(FileBytes {
            file,
            bytes,
            progress,
            modified,
        })
    }

    /// The first bytes, which remain to be read. An error on the way recurs when reading reaches it.
    pub(crate) fn peek(&mut self, most: usize) -> Vec<u8> {
        let mut first = Vec::new();
        let read = (&mut self.bytes).take(most as u64).read_to_end(&mut first);
        let rest = match read {
            Ok(_) => std::mem::replace(&mut self.bytes, Box::new(io::empty())),
            Err(error) => Box::new(FailingReader(Some(error))),
        };
        self.bytes = Box::new(Cursor::new(first.clone()).chain(rest));
        first
    }
}

pub(crate) fn by_name(compression: Compression, path: &Path) -> Compression {
    let named = path
        .extension()
        .is_some_and(|e| e.eq_ignore_ascii_case("gz"));
    match compression {
        Compression::ByName if named => Compression::Gzip,
        Compression::ByName => Compression::None,
        said => said,
    }
}

fn peek(from: &mut impl Read, most: usize) -> io::Result<Vec<u8>> {
    let mut first = Vec::new();
    from.take(most as u64).read_to_end(&mut first)?;
    Ok(first)
}

/// Fails once, then is empty.
struct FailingReader(Option<io::Error>);

impl Read for FailingReader {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

impl ReadProgress {
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

impl Read for CountingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.progress
            .bytes
            .fetch_add(count as u64, Ordering::Relaxed);
        if count == 0 && !buffer.is_empty() {
            self.progress.ended.store(true, Ordering::Relaxed);
        }
        Ok(count)
    }
}
