//! JSON: a value for every line, or for every object where the file is no sequence of lines.

use std::path::{Path, PathBuf};

use super::text::Text;
use super::{CUT_BYTES, Cut, CutKind, Cuts, Cutting, LINE_BYTES_MAX};
use crate::ReadError;
use crate::json::{Objects, PEEK_BYTES, is_lines};
use crate::source::{BadEvent, BadKind, SAMPLE_BYTES_MAX, sample};

/// As its first bytes look.
pub(super) fn open(path: &Path, cutting: &Cutting, from: u64) -> Result<Box<dyn Cuts>, ReadError> {
    let mut bytes = cutting.bytes(path)?;
    if is_lines(&bytes.peek(PEEK_BYTES)) {
        return Ok(Box::new(Lines::open(path, cutting, from)?));
    }
    Ok(Box::new(Values {
        file: path.to_owned(),
        objects: Objects::new(bytes.bytes, CUT_BYTES, LINE_BYTES_MAX),
        passed: 0,
        from,
    }))
}

/// Counts bytes.
pub(super) struct Lines(Text);

impl Lines {
    pub fn open(path: &Path, cutting: &Cutting, from: u64) -> Result<Lines, ReadError> {
        Text::open(path, cutting, from).map(Lines)
    }

    /// Where the last whole line ends.
    fn end(&mut self, last: bool) -> End {
        let mut searched = 0;
        loop {
            let rest = self.0.rest();
            if let Some(newline) = memchr::memrchr(b'\n', &rest[searched..]) {
                return End::At(searched + newline + 1);
            }
            searched = rest.len();
            if searched > LINE_BYTES_MAX {
                return End::TooFar;
            }
            if self.0.ended {
                return match self.0.is_complete(last) && searched > 0 {
                    true => End::At(searched),
                    false => End::None,
                };
            }
            self.0.fill();
        }
    }

    /// Passes over a line that is too long, if it ends.
    fn too_long(&mut self, last: bool) -> Option<Cut> {
        let text = sample(self.0.rest(), SAMPLE_BYTES_MAX);
        loop {
            let rest = self.0.rest();
            let end = memchr::memchr(b'\n', rest).map(|newline| newline + 1);
            let whole = rest.len();
            self.0.pass(end.unwrap_or(whole));
            if end.is_some() || self.0.ended {
                let bad = BadEvent {
                    line: 0,
                    kind: BadKind::InvalidData,
                    reason: format!("the line is longer than {LINE_BYTES_MAX} bytes"),
                    text,
                };
                let is_whole = end.is_some() || self.0.is_complete(last);
                return is_whole.then(|| Cut::of_bad(bad, self.0.at));
            }
            self.0.fill();
        }
    }
}

enum End {
    At(usize),
    None,
    TooFar,
}

impl Cuts for Lines {
    fn next(&mut self, last: bool) -> Result<Option<Cut>, ReadError> {
        let end = match self.end(last) {
            End::At(end) => end,
            End::None => return self.0.at_end(),
            End::TooFar => match self.too_long(last) {
                Some(cut) => return Ok(Some(cut)),
                None => return self.0.at_end(),
            },
        };
        let mut cut = Cut::new(CutKind::Json, self.0.at + end as u64);
        for line in self.0.rest()[..end].split(|byte| *byte == b'\n') {
            let line = line.trim_ascii_end();
            if !line.is_empty() {
                cut.push(&[line]);
            }
        }
        self.0.pass(end);
        Ok(Some(cut))
    }

    fn at(&self) -> u64 {
        self.0.at
    }
}

/// Counts values.
struct Values {
    file: PathBuf,
    objects: Objects,
    passed: u64,
    from: u64,
}

impl Cuts for Values {
    fn next(&mut self, _: bool) -> Result<Option<Cut>, ReadError> {
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
            let mut cut = Cut::new(CutKind::Json, self.passed);
            let lines = block.bytes.split(|byte| *byte == b'\n');
            for line in lines.take(count as usize).skip(skipped as usize) {
                cut.push(&[line]);
            }
            return Ok(Some(cut));
        }
    }

    fn at(&self) -> u64 {
        self.passed.max(self.from)
    }
}
