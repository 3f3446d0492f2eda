//! A file as blocks of complete lines.
//!
//! One buffer serves the whole file; it grows only for a line longer than itself, and a line beyond the limit is
//! skipped without being buffered. Reading continues to the end of the file, even if it grows meanwhile.

use std::fmt;
use std::io::{self, Read};
use std::path::PathBuf;

use thiserror::Error;

use crate::json::{BadJson, BadLine};
use crate::source::SAMPLE_BYTES_MAX;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// A buffer must at least hold a byte order mark.
const BUFFER_BYTES_MIN: usize = 4;

#[derive(Clone, Copy, Debug)]
pub(crate) struct LineOptions {
    /// How much is read at once: it shall be in the cache from the read to the end of its decoding.
    pub block_bytes: usize,
    /// A longer line is a bad line.
    pub line_bytes_max: usize,
}

impl Default for LineOptions {
    fn default() -> LineOptions {
        LineOptions {
            block_bytes: 1 << 17,
            line_bytes_max: 64 << 20,
        }
    }
}

/// Complete lines; only the last line of a file may lack its newline.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    pub bytes: &'a [u8],
    /// The number of the first line in `bytes`, counted from 1.
    pub first_line: u64,
    /// A line before `bytes` that was too long to be read.
    pub bad: Option<BadLine>,
}

#[derive(Debug, Error)]
pub enum ReadError {
    #[error("cannot open {}: {source}", file.display())]
    Open { file: PathBuf, source: io::Error },
    #[error("cannot read {} at byte {offset}: {source}", file.display())]
    Read {
        file: PathBuf,
        offset: u64,
        source: io::Error,
    },
    #[error("{} cannot be read: {reason}", file.display())]
    Format { file: PathBuf, reason: String },
    #[error("the header of {} is invalid: {reason}", file.display())]
    Header { file: PathBuf, reason: String },
    #[error("{} does not have the declared compression: {reason}", file.display())]
    Compression { file: PathBuf, reason: &'static str },
}

/// The size of a file changed between its opening and its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceNote {
    pub file: PathBuf,
    pub bytes_at_open: u64,
    pub bytes_read: u64,
}

impl SourceNote {
    /// Whether the file ended before the size it had when it was opened, so that events are missing. A file that grew
    /// was read to its end.
    pub fn is_cut_short(&self) -> bool {
        self.bytes_read < self.bytes_at_open
    }
}

pub(crate) struct LineReader {
    file: PathBuf,
    source: Box<dyn Read + Send>,
    options: LineOptions,
    /// Bytes read and not yet returned are `buffer[start..end]`.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Number of the line at `start`.
    line: u64,
    bytes_read: u64,
    state: State,
}

enum State {
    Reading,
    Ended,
    /// Returned once the lines before it have been returned.
    Failed(io::Error),
    /// The failure has been returned.
    Stopped,
}

impl LineReader {
    /// Reads lines from any reader; `file` names it in errors and notes.
    pub(crate) fn new(
        file: PathBuf,
        source: Box<dyn Read + Send>,
        options: LineOptions,
    ) -> LineReader {
        let options = LineOptions {
            block_bytes: options.block_bytes.clamp(
                BUFFER_BYTES_MIN,
                options.line_bytes_max.max(BUFFER_BYTES_MIN),
            ),
            line_bytes_max: options.line_bytes_max.max(BUFFER_BYTES_MIN),
        };
        let buffer = vec![0; options.block_bytes];
        LineReader {
            file,
            source,
            options,
            buffer,
            start: 0,
            end: 0,
            line: 1,
            bytes_read: 0,
            state: State::Reading,
        }
    }

    pub(crate) fn block_bytes(&self) -> usize {
        self.options.block_bytes
    }

    /// The next block, or `None` after the last. An error comes after every complete line before it.
    pub(crate) fn next_block(&mut self) -> Result<Option<Block<'_>>, ReadError> {
        if self.bytes_read == 0 {
            self.pass_byte_order_mark();
        }
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let mut searched = 0;
        loop {
            if let Some(newline) = memchr::memrchr(b'\n', &self.buffer[searched..self.end]) {
                return Ok(Some(self.hand_out(searched + newline + 1)));
            }
            searched = self.end;
            if self.end > self.options.line_bytes_max {
                return Ok(Some(self.pass_over_line()));
            }
            match std::mem::replace(&mut self.state, State::Ended) {
                State::Reading => self.read_some(),
                State::Ended if self.end > 0 => return Ok(Some(self.hand_out(self.end))),
                State::Ended => return Ok(None),
                State::Failed(source) => return Err(self.fail(source)),
                State::Stopped => {
                    self.state = State::Stopped;
                    return Ok(None);
                }
            }
        }
    }

    fn pass_byte_order_mark(&mut self) {
        while self.end < BYTE_ORDER_MARK.len() && matches!(self.state, State::Reading) {
            self.read_some();
        }
        if self.buffer[..self.end].starts_with(BYTE_ORDER_MARK) {
            self.start = BYTE_ORDER_MARK.len();
        }
    }

    /// Reads once, into a larger buffer if this one is full, and remembers the result.
    fn read_some(&mut self) {
        if self.end == self.buffer.len() {
            let most = self.options.line_bytes_max.saturating_add(1);
            self.buffer.resize((2 * self.buffer.len()).min(most), 0);
        }
        self.state = match self.source.read(&mut self.buffer[self.end..]) {
            Ok(0) => State::Ended,
            Ok(count) => {
                self.end += count;
                self.bytes_read += count as u64;
                State::Reading
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => State::Reading,
            Err(error) => State::Failed(error),
        };
    }

    /// Everything before `end`, which is the end of a line.
    fn hand_out(&mut self, end: usize) -> Block<'_> {
        let start = std::mem::replace(&mut self.start, end);
        Block {
            bytes: &self.buffer[start..end],
            first_line: self.line,
            bad: None,
        }
    }

    /// The number of lines in the last block, which the caller has counted while it read them.
    pub(crate) fn count_lines(&mut self, lines: u64) {
        self.line += lines;
    }

    /// Skips to the next line without buffering this one.
    fn pass_over_line(&mut self) -> Block<'_> {
        let limit_bytes = self.options.line_bytes_max;
        let sample = &self.buffer[..self.end.min(SAMPLE_BYTES_MAX)];
        let bad = BadLine::new(
            self.line,
            limit_bytes,
            BadJson::TooLong { limit_bytes },
            sample,
            SAMPLE_BYTES_MAX,
        );
        self.line += 1;
        (self.start, self.end) = (0, 0);
        while matches!(self.state, State::Reading) {
            self.read_some();
            match memchr::memchr(b'\n', &self.buffer[..self.end]) {
                Some(newline) => {
                    self.start = newline + 1;
                    break;
                }
                None => self.end = 0,
            }
        }
        Block {
            bytes: &[],
            first_line: self.line,
            bad: Some(bad),
        }
    }

    fn fail(&mut self, source: io::Error) -> ReadError {
        self.state = State::Stopped;
        ReadError::Read {
            file: self.file.clone(),
            offset: self.bytes_read,
            source,
        }
    }
}

impl fmt::Display for SourceNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SourceNote {
            bytes_at_open,
            bytes_read,
            ..
        } = self;
        let file = self.file.display();
        match self.is_cut_short() {
            true => write!(
                f,
                "{file} ended at byte {bytes_read} but had {bytes_at_open} bytes when it was opened; \
                 it was cut short while being read"
            ),
            false => write!(
                f,
                "{file} grew from {bytes_at_open} to {bytes_read} bytes while being read; \
                 another run may see more"
            ),
        }
    }
}

#[cfg(test)]
mod tests;
