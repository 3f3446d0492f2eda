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

use crate::lines::{ReadError, SourceNote};
use crate::source::Compression;

const GZIP_MAGIC: &[u8] = b"\x1f\x8b";
const BUFFER_BYTES: usize = 256 << 10;

/// An open file with its bytes.
pub(crate) struct FileBytes {
    pub file: OpenFile,
    pub bytes: Box<dyn Read + Send>,
}

/// The file of a source, and the position in it.
#[derive(Clone, Debug, Default)]
pub struct OpenFile {
    pub(crate) path: PathBuf,
    /// In nanoseconds since 1970.
    pub(crate) modified: i128,
    /// `None` for a pipe and for bytes in memory.
    bytes_at_open: Option<u64>,
    progress: Arc<ReadProgress>,
}

/// Shared by the reader and its observers.
#[derive(Debug, Default)]
struct ReadProgress {
    bytes: AtomicU64,
    ended: AtomicBool,
}

struct CountingReader {
    file: disk::Reader,
    progress: Arc<ReadProgress>,
}

impl OpenFile {
    pub(crate) fn new(path: &Path, modified: i128) -> OpenFile {
        OpenFile {
            path: path.to_path_buf(),
            modified,
            ..OpenFile::default()
        }
    }

    pub(crate) fn bytes_read(&self) -> u64 {
        self.progress.bytes.load(Ordering::Relaxed)
    }

    #[cfg(feature = "parquet")]
    pub(crate) fn add_read(&self, bytes: u64) {
        self.progress.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// After the file was read: whether its size changed since opening.
    pub(crate) fn note(&self) -> Option<SourceNote> {
        let (bytes_at_open, bytes_read) = (self.bytes_at_open?, self.bytes_read());
        let has_changed = bytes_read != bytes_at_open;
        let is_read = self.progress.ended.load(Ordering::Relaxed);
        (is_read && has_changed).then(|| SourceNote {
            file: self.path.clone(),
            bytes_at_open,
            bytes_read,
        })
    }

    pub(crate) fn read_error(&self, source: io::Error) -> ReadError {
        ReadError::Read {
            file: self.path.clone(),
            offset: self.bytes_read(),
            source,
        }
    }

    #[cfg(any(feature = "avro", feature = "parquet"))]
    pub(crate) fn format_error(&self, reason: impl Into<String>) -> ReadError {
        ReadError::Format {
            file: self.path.clone(),
            reason: reason.into(),
        }
    }
}

impl FileBytes {
    pub(crate) fn open(path: &Path, compression: Compression) -> Result<FileBytes, ReadError> {
        let opened = disk::open(path).map_err(|source| ReadError::Open {
            file: path.to_path_buf(),
            source,
        })?;
        let file = OpenFile {
            bytes_at_open: opened.is_file().then_some(opened.len()),
            ..OpenFile::new(path, opened.modified())
        };
        let raw = CountingReader {
            file: opened,
            progress: file.progress.clone(),
        };
        FileBytes::new(file, Box::new(raw), compression)
    }

    /// Bytes in memory; `name` stands for the file in errors.
    pub(crate) fn of_value(
        name: &Path,
        value: Vec<u8>,
        compression: Compression,
    ) -> Result<FileBytes, ReadError> {
        let raw = Box::new(Cursor::new(value));
        FileBytes::new(OpenFile::new(name, 0), raw, compression)
    }

    fn new(
        file: OpenFile,
        mut raw: Box<dyn Read + Send>,
        compression: Compression,
    ) -> Result<FileBytes, ReadError> {
        let first = peek(&mut raw, GZIP_MAGIC.len());
        let first = first.map_err(|source| file.read_error(source))?;
        let is_gzip = first == GZIP_MAGIC;
        let raw = Cursor::new(first).chain(raw);
        let wrong = |reason| ReadError::Compression {
            file: file.path.clone(),
            reason,
        };
        let bytes: Box<dyn Read + Send> = match by_name(compression, &file.path) {
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
        Ok(FileBytes { file, bytes })
    }

    /// The first bytes, which remain to be read. An error before the end recurs when reading reaches it.
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
