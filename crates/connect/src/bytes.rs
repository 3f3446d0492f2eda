//! The bytes of a file, decompressed on the way.
//!
//! Compression is what the job says, else what the name says, and the first bytes must agree: a file
//! that is not what it is said to be is named as such, instead of being torn apart as text.

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
    pub watch: Arc<Watch>,
    pub modified: i128,
}

/// How far a file has been read, seen from outside of whoever reads it.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    bytes: AtomicU64,
    ended: AtomicBool,
    /// `None` for a pipe.
    pub bytes_at_open: Option<u64>,
}

struct Watched {
    file: disk::Reader,
    watch: Arc<Watch>,
}

impl FileBytes {
    pub fn open(path: &Path, compression: Compression) -> Result<FileBytes, ReadError> {
        let file = path.to_path_buf();
        let opened = disk::open(path).map_err(|source| ReadError::Open {
            file: file.clone(),
            source,
        })?;
        let modified = opened.modified();
        let watch = Arc::new(Watch {
            bytes_at_open: opened.is_file().then_some(opened.len()),
            ..Watch::default()
        });
        let raw = Watched {
            file: opened,
            watch: watch.clone(),
        };
        FileBytes::new(file, Box::new(raw), watch, modified, compression)
    }

    /// Bytes that are in memory; `name` is what errors call them.
    pub fn of_value(
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
        watch: Arc<Watch>,
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
                    "it is said to be compressed with gzip, but does not start as such a file does",
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
                    "it is compressed with gzip; name it .gz or say compression = \"gzip\"",
                ));
            }
            Compression::None | Compression::ByName => Box::new(raw),
        };
        Ok(FileBytes {
            file,
            bytes,
            watch,
            modified,
        })
    }

    /// The first bytes, which are still to be read afterwards. An error on the way comes again when
    /// reading gets there.
    pub fn peek(&mut self, most: usize) -> Vec<u8> {
        let mut first = Vec::new();
        let read = (&mut self.bytes).take(most as u64).read_to_end(&mut first);
        let rest = match read {
            Ok(_) => std::mem::replace(&mut self.bytes, Box::new(io::empty())),
            Err(error) => Box::new(Failing(Some(error))),
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

/// Fails once, and has nothing else to give.
struct Failing(Option<io::Error>);

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

impl Watch {
    pub fn bytes_read(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.watch.bytes.fetch_add(count as u64, Ordering::Relaxed);
        if count == 0 && !buffer.is_empty() {
            self.watch.ended.store(true, Ordering::Relaxed);
        }
        Ok(count)
    }
}
