//! JSON that is not in lines: one array of objects over the whole file, or objects separated by blanks.
//!
//! Such a file is split at its outermost values, and each becomes a line for the decoder. A newline inside a value
//! turns into a carriage return: between tokens that is still a blank, inside a text it is still an error. Only one
//! value has to fit into memory at a time.

use std::io::{self, Read};

/// Blocks of lines, with the line of the file where each value started.
pub(crate) struct Objects {
    source: Box<dyn Read + Send>,
    block_bytes: usize,
    value_bytes_max: usize,
    raw: Vec<u8>,
    /// The unread part of `raw` starts here.
    at: usize,
    lines: Vec<u8>,
    starts: Vec<u64>,
    /// The line that is being read.
    line: u64,
    state: State,
    in_array: bool,
    started: bool,
    ended: bool,
    failed: Option<io::Error>,
}

#[derive(Clone, Copy)]
enum State {
    /// Between values.
    Between,
    /// In an object or array of this depth.
    Nested(u32),
    /// In a text at this depth.
    Text(u32),
    /// After a backslash in a text.
    Escape(u32),
    /// In a number or word in place of an object.
    Scalar,
}

pub(crate) struct ObjectBlock<'a> {
    /// One value on each line.
    pub bytes: &'a [u8],
    /// Per line, the line of the file where the value starts.
    pub starts: &'a [u64],
}

impl Objects {
    pub(crate) fn new(
        source: Box<dyn Read + Send>,
        block_bytes: usize,
        value_bytes_max: usize,
    ) -> Objects {
        Objects {
            source,
            block_bytes: block_bytes.max(1),
            value_bytes_max,
            raw: Vec::new(),
            at: 0,
            lines: Vec::new(),
            starts: Vec::new(),
            line: 1,
            state: State::Between,
            in_array: false,
            started: false,
            ended: false,
            failed: None,
        }
    }

    /// The next values, or `None` after the last; an error comes after every whole value before it.
    pub(crate) fn next_block(&mut self) -> io::Result<Option<ObjectBlock<'_>>> {
        self.lines.clear();
        self.starts.clear();
        loop {
            self.scan()?;
            let between = matches!(self.state, State::Between);
            if between && self.lines.len() >= self.block_bytes {
                break;
            }
            if self.at < self.raw.len() {
                continue;
            }
            if !self.read() {
                break;
            }
        }
        if !matches!(self.state, State::Between) {
            self.unfinished();
        }
        match self.failed.take() {
            Some(error) if self.starts.is_empty() => return Err(error),
            failed => self.failed = failed,
        }
        Ok((!self.starts.is_empty()).then_some(ObjectBlock {
            bytes: &self.lines,
            starts: &self.starts,
        }))
    }

    /// The file has ended inside a value: an error if reading failed there, else a value cut short.
    fn unfinished(&mut self) {
        self.state = State::Between;
        if self.failed.is_some() {
            self.starts.pop();
            let end = memchr::memrchr(b'\n', &self.lines).map_or(0, |at| at + 1);
            self.lines.truncate(end);
        } else {
            self.lines.push(b'\n');
        }
    }

    fn read(&mut self) -> bool {
        if self.ended {
            return false;
        }
        self.raw.resize(self.block_bytes, 0);
        self.at = 0;
        let count = loop {
            match self.source.read(&mut self.raw) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let count = count.unwrap_or_else(|error| {
            self.failed = Some(error);
            0
        });
        self.raw.truncate(count);
        if !self.started && self.raw.starts_with(b"\xef\xbb\xbf") {
            self.at = 3;
        }
        self.started = true;
        self.ended = count == 0;
        count > 0
    }

    /// Scans `raw` to its end, or to the end of a value that fills the block.
    fn scan(&mut self) -> io::Result<()> {
        while self.at < self.raw.len() {
            match self.state {
                State::Between if self.lines.len() >= self.block_bytes => return Ok(()),
                State::Between => self.between(),
                _ => self.inside()?,
            }
        }
        Ok(())
    }

    fn between(&mut self) {
        let byte = self.raw[self.at];
        match byte {
            b'\n' => self.line += 1,
            b' ' | b'\t' | b'\r' | b',' => {}
            b'[' if !self.in_array => self.in_array = true,
            b']' if self.in_array => self.in_array = false,
            _ => {
                self.starts.push(self.line);
                self.state = match byte {
                    b'{' | b'[' => State::Nested(1),
                    b'"' => State::Text(0),
                    _ => State::Scalar,
                };
                self.lines.push(byte);
            }
        }
        self.at += 1;
    }

    /// Takes bytes up to the end of the value or of the data.
    fn inside(&mut self) -> io::Result<()> {
        let start = self.at;
        let mut newlines = 0;
        let mut ended = false;
        while self.at < self.raw.len() && !ended {
            let byte = self.raw[self.at];
            newlines += u64::from(byte == b'\n');
            (self.state, ended) = match (self.state, byte) {
                (State::Nested(depth), b'{' | b'[') => (State::Nested(depth + 1), false),
                (State::Nested(1), b'}' | b']') => (State::Between, true),
                (State::Nested(depth), b'}' | b']') => (State::Nested(depth - 1), false),
                (State::Nested(depth), b'"') => (State::Text(depth), false),
                (State::Text(0), b'"') => (State::Between, true),
                (State::Text(depth), b'"') => (State::Nested(depth), false),
                (State::Text(depth), b'\\') => (State::Escape(depth), false),
                (State::Escape(depth), _) => (State::Text(depth), false),
                (State::Scalar, b',' | b']' | b'\n' | b' ' | b'\t' | b'\r') => {
                    // The byte that ends a scalar is not part of it.
                    self.take(start, self.at, newlines - u64::from(byte == b'\n'))?;
                    self.lines.push(b'\n');
                    self.state = State::Between;
                    return Ok(());
                }
                (state, _) => (state, false),
            };
            self.at += 1;
        }
        self.take(start, self.at, newlines)?;
        if ended {
            self.lines.push(b'\n');
        }
        Ok(())
    }

    fn take(&mut self, start: usize, end: usize, newlines: u64) -> io::Result<()> {
        let from = self.lines.len();
        self.lines.extend_from_slice(&self.raw[start..end]);
        if newlines > 0 {
            let taken = self.lines[from..].iter_mut();
            taken
                .filter(|byte| **byte == b'\n')
                .for_each(|byte| *byte = b'\r');
            self.line += newlines;
        }
        if self.lines.len() > self.value_bytes_max.saturating_add(self.block_bytes) {
            let message = format!(
                "the value that starts on line {} is longer than {} bytes; a bracket or quote may be missing",
                self.starts.last().copied().unwrap_or(1),
                self.value_bytes_max
            );
            self.ended = true;
            self.raw.clear();
            self.at = 0;
            self.state = State::Between;
            self.starts.clear();
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Ok(())
    }
}

/// Whether a file that starts like this has one object per line.
pub(crate) fn is_lines(first: &[u8]) -> bool {
    let first = first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(first);
    let Some(start) = first.iter().position(|b| !b.is_ascii_whitespace()) else {
        return true;
    };
    if first[start] != b'{' {
        return first[start] != b'[';
    }
    let (mut open, mut in_text, mut escaped) = (Vec::new(), false, false);
    for (at, &byte) in first.iter().enumerate().skip(start) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            // A text cannot contain a newline: the line is broken, and the next one may be fine.
            b'\n' if in_text => return true,
            _ if in_text => {}
            b'{' | b'[' => open.push(byte),
            b'}' | b']' => {
                open.pop();
            }
            b'\n' => {
                let next = first[at..].iter().find(|b| !b.is_ascii_whitespace());
                // No object can start directly inside an object: a line was cut short.
                return next == Some(&b'{') && open.last() == Some(&b'{');
            }
            _ => {}
        }
        if open.is_empty() {
            let rest = first[at + 1..].iter().take_while(|b| **b != b'\n');
            return rest.copied().all(|b| b.is_ascii_whitespace());
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str, block_bytes: usize) -> Vec<(u64, String)> {
        let source = Box::new(io::Cursor::new(text.as_bytes().to_vec()));
        let mut objects = Objects::new(source, block_bytes, 1 << 20);
        let mut found = Vec::new();
        while let Some(block) = objects.next_block().unwrap() {
            let text = String::from_utf8(block.bytes.to_vec()).unwrap();
            let shown = text.lines().map(str::to_owned);
            found.extend(block.starts.iter().copied().zip(shown));
        }
        found
    }

    #[test]
    fn an_array_and_loose_objects_become_lines() {
        let text = "[\n {\"a\": [1,\n {}], \"b\": \"]}\\\"\"},\n7, {\n}]\n{\"c\":1} {\"d\":2}";
        let expected = [
            (2, "{\"a\": [1,\r {}], \"b\": \"]}\\\"\"}"),
            (4, "7"),
            (4, "{\r}"),
            (6, "{\"c\":1}"),
            (6, "{\"d\":2}"),
        ]
        .map(|(line, text)| (line, text.to_owned()));
        for block_bytes in 1..40 {
            assert_eq!(lines(text, block_bytes), expected, "{block_bytes}");
        }
    }

    #[test]
    fn a_value_cut_short_is_handed_on_as_it_is() {
        assert_eq!(lines("[{\"a\":1},{\"a\":", 9).len(), 2);
        assert_eq!(lines("[{\"a\":1},{\"a\":", 9)[1].1, "{\"a\":");
    }

    #[test]
    fn a_value_without_end_is_given_up() {
        let source = Box::new(io::Cursor::new(vec![b'{'; 10_000]));
        let error = Objects::new(source, 100, 1000).next_block().err().unwrap();
        assert!(error.to_string().contains("line 1 is longer than 1000"));
    }

    #[test]
    fn the_layout_is_told_from_the_first_bytes() {
        for text in [
            "",
            "{}",
            " {\"a\":1}\n",
            "{\"a\":1}\r\n{",
            "{\"a\":\n{\"a\":1}",
            "x",
            "{\"a\n\"",
        ] {
            assert!(is_lines(text.as_bytes()), "{text:?}");
        }
        for text in [
            "[",
            "\n [{}]",
            "{\n\"a\":1}",
            "{\"a\":[\n{}]}",
            "{} {}",
            "\u{feff}[",
        ] {
            assert!(!is_lines(text.as_bytes()), "{text:?}");
        }
    }
}
