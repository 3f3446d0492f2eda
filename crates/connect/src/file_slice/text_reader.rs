//! The text of a file from a byte position on, one block at a time.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use highwater_env::disk;

use super::{SLICE_BYTES, SliceOptions};
use crate::ReadError;
use crate::bytes::by_name;
use crate::source::Compression;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

pub(super) struct TextReader {
    file: PathBuf,
    source: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// The unread part of the buffer starts here.
    start: usize,
    /// The position of `start` in the decompressed text.
    pub at: u64,
    pub ended: bool,
    /// The error that ends the text, if it is not the end of the file; returned after everything before it.
    failure: Option<io::Error>,
}

impl TextReader {
    pub(super) fn open(
        path: &Path,
        options: &SliceOptions,
        from: u64,
    ) -> Result<TextReader, ReadError> {
        let mut text = TextReader {
            file: path.to_owned(),
            source: Box::new(io::empty()),
            buffer: Vec::new(),
            start: 0,
            at: from,
            ended: false,
            failure: None,
        };
        text.source = match by_name(options.compression, path) {
            // Opening the file at 0 checks its first bytes against its name; the rest of the file needs no check.
            Compression::None if from > 0 => {
                let open = |source| ReadError::Open {
                    file: path.to_owned(),
                    source,
                };
                let mut file = disk::open(path).map_err(open)?;
                file.seek(SeekFrom::Start(from)).map_err(open)?;
                Box::new(file)
            }
            _ => {
                let mut bytes = options.bytes(path)?.bytes;
                let skipped = io::copy(&mut (&mut bytes).take(from), &mut io::sink());
                skipped.map_err(|error| text.failed(error))?;
                bytes
            }
        };
        if from == 0 {
            text.fill();
            if text.unread().starts_with(BYTE_ORDER_MARK) {
                text.consume(BYTE_ORDER_MARK.len());
            }
        }
        Ok(text)
    }

    pub(super) fn unread(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Consumes bytes.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        self.at += bytes as u64;
    }

    /// Reads more, appending to the buffer.
    pub(super) fn fill(&mut self) {
        self.buffer.drain(..self.start);
        self.start = 0;
        let mut block = (&mut self.source).take(SLICE_BYTES as u64);
        match block.read_to_end(&mut self.buffer) {
            Ok(count) => self.ended = count < SLICE_BYTES,
            Err(error) => (self.ended, self.failure) = (true, Some(error)),
        }
    }

    /// Whether the buffer holds the rest of the file, if `last` says that the file is complete.
    pub(super) fn is_complete(&self, last: bool) -> bool {
        last && self.ended && self.failure.is_none()
    }

    /// The end of the text: the end of the file, or an error.
    pub(super) fn at_end<T>(&mut self) -> Result<Option<T>, ReadError> {
        match self.failure.take() {
            Some(error) => Err(self.failed(error)),
            None => Ok(None),
        }
    }

    fn failed(&self, source: io::Error) -> ReadError {
        ReadError::Read {
            file: self.file.clone(),
            offset: self.at,
            source,
        }
    }
}
