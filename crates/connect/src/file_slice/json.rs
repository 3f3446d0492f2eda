//! JSON: one value per line, or per object where the file is not a sequence of lines.

use std::path::{Path, PathBuf};

use super::text_reader::TextReader;
use super::{FileSlice, LINE_BYTES_MAX, SLICE_BYTES, SliceKind, SliceOptions, SliceReader};
use crate::ReadError;
use crate::json::{Objects, PEEK_BYTES, is_lines};
use crate::source::{BadEvent, BadKind, SAMPLE_BYTES_MAX, sample};

/// The layout is decided by the first bytes.
pub(super) fn open(
    path: &Path,
    options: &SliceOptions,
    from: u64,
) -> Result<Box<dyn SliceReader>, ReadError> {
    let mut bytes = options.bytes(path)?;
    if is_lines(&bytes.peek(PEEK_BYTES)) {
        return Ok(Box::new(LineReader::open(path, options, from)?));
    }
    Ok(Box::new(ObjectReader {
        file: path.to_owned(),
        objects: Objects::new(bytes.bytes, SLICE_BYTES, LINE_BYTES_MAX),
        passed: 0,
        from,
    }))
}

/// Positions are bytes.
pub(super) struct LineReader(TextReader);

impl LineReader {
    pub(super) fn open(
        path: &Path,
        options: &SliceOptions,
        from: u64,
    ) -> Result<LineReader, ReadError> {
        TextReader::open(path, options, from).map(LineReader)
    }

    /// The end of the last complete line.
    fn end(&mut self, last: bool) -> LineEnd {
        let mut searched = 0;
        loop {
            let rest = self.0.unread();
            if let Some(newline) = memchr::memrchr(b'\n', &rest[searched..]) {
                return LineEnd::At(searched + newline + 1);
            }
            searched = rest.len();
            if searched > LINE_BYTES_MAX {
                return LineEnd::TooFar;
            }
            if self.0.ended {
                return match self.0.is_complete(last) && searched > 0 {
                    true => LineEnd::At(searched),
                    false => LineEnd::None,
                };
            }
            self.0.fill();
        }
    }

    /// Skips a line that is too long, if it ends.
    fn too_long(&mut self, last: bool) -> Option<FileSlice> {
        let text = sample(self.0.unread(), SAMPLE_BYTES_MAX);
        loop {
            let rest = self.0.unread();
            let end = memchr::memchr(b'\n', rest).map(|newline| newline + 1);
            let whole = rest.len();
            self.0.consume(end.unwrap_or(whole));
            if end.is_some() || self.0.ended {
                let bad = BadEvent {
                    line: 0,
                    kind: BadKind::InvalidData,
                    reason: format!("the line is longer than {LINE_BYTES_MAX} bytes"),
                    text,
                };
                let is_whole = end.is_some() || self.0.is_complete(last);
                return is_whole.then(|| FileSlice::of_bad(bad, self.0.at));
            }
            self.0.fill();
        }
    }
}

enum LineEnd {
    At(usize),
    None,
    TooFar,
}

impl SliceReader for LineReader {
    fn next(&mut self, last: bool) -> Result<Option<FileSlice>, ReadError> {
        let end = match self.end(last) {
            LineEnd::At(end) => end,
            LineEnd::None => return self.0.at_end(),
            LineEnd::TooFar => match self.too_long(last) {
                Some(slice) => return Ok(Some(slice)),
                None => return self.0.at_end(),
            },
        };
        let mut slice = FileSlice::new(SliceKind::Json, self.0.at + end as u64);
        for line in self.0.unread()[..end].split(|byte| *byte == b'\n') {
            let line = line.trim_ascii_end();
            if !line.is_empty() {
                slice.push(&[line]);
            }
        }
        self.0.consume(end);
        Ok(Some(slice))
    }

    fn at(&self) -> u64 {
        self.0.at
    }
}

/// Positions are numbers of values.
struct ObjectReader {
    file: PathBuf,
    objects: Objects,
    passed: u64,
    from: u64,
}

impl SliceReader for ObjectReader {
    fn next(&mut self, _: bool) -> Result<Option<FileSlice>, ReadError> {
        loop {
            let block = self.objects.next_block();
            let block = block.map_err(|error| ReadError::Format {
                file: self.file.clone(),
                reason: error.to_string(),
            })?;
            let Some(block) = block else {
                return Ok(None);
            };
            let count = block.starts.len() as u64;
            let skipped = self.from.saturating_sub(self.passed).min(count);
            self.passed += count;
            if skipped == count {
                continue;
            }
            let mut slice = FileSlice::new(SliceKind::Json, self.passed);
            let lines = block.bytes.split(|byte| *byte == b'\n');
            for line in lines.take(count as usize).skip(skipped as usize) {
                slice.push(&[line]);
            }
            return Ok(Some(slice));
        }
    }

    fn at(&self) -> u64 {
        self.passed.max(self.from)
    }
}
