//! The text of a file from some byte on, held a block at a time.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use highwater_env::disk;

use super::{CUT_BYTES, Cutting};
use crate::ReadError;
use crate::bytes::by_name;
use crate::source::Compression;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

pub(super) struct Text {
    file: PathBuf,
    source: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// What is left of the buffer is from here on.
    start: usize,
    /// The place of `start` in the text, after unpacking.
    pub at: u64,
    pub ended: bool,
    /// Why nothing follows, if that is not the end; told when everything before has been handed out.
    failure: Option<io::Error>,
}

impl Text {
    pub fn open(path: &Path, cutting: &Cutting, from: u64) -> Result<Text, ReadError> {
        let mut text = Text {
            file: path.to_owned(),
            source: Box::new(io::empty()),
            buffer: Vec::new(),
            start: 0,
            at: from,
            ended: false,
            failure: None,
        };
        text.source = match by_name(cutting.compression, path) {
            // Read as a whole, the first bytes are held against the name; what follows belongs to them.
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
                let mut bytes = cutting.bytes(path)?.bytes;
                let skipped = io::copy(&mut (&mut bytes).take(from), &mut io::sink());
                skipped.map_err(|error| text.failed(error))?;
                bytes
            }
        };
        if from == 0 {
            text.fill();
            if text.rest().starts_with(BYTE_ORDER_MARK) {
                text.pass(BYTE_ORDER_MARK.len());
            }
        }
        Ok(text)
    }

    pub fn rest(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// So many bytes have been dealt with.
    pub fn pass(&mut self, bytes: usize) {
        self.start += bytes;
        self.at += bytes as u64;
    }

    /// Reads on behind what is left.
    pub fn fill(&mut self) {
        self.buffer.drain(..self.start);
        self.start = 0;
        let mut block = (&mut self.source).take(CUT_BYTES as u64);
        match block.read_to_end(&mut self.buffer) {
            Ok(count) => self.ended = count < CUT_BYTES,
            Err(error) => (self.ended, self.failure) = (true, Some(error)),
        }
    }

    /// Whether what is left is all there will ever be, if `last` says so of the file.
    pub fn is_complete(&self, last: bool) -> bool {
        last && self.ended && self.failure.is_none()
    }

    /// There is nothing more to hand out, which may be no end but a failure.
    pub fn at_end<T>(&mut self) -> Result<Option<T>, ReadError> {
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
