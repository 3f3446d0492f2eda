//! Mistakes in a file, shown with their lines.

use std::fmt;
use std::ops::Range;

use crate::redact::redact_line;

/// The mistakes of one file in the order of its lines: at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    pub file: String,
    pub mistakes: Vec<Mistake>,
}

/// A position in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
}

/// Where the lines of a text begin, for the positions of many of its bytes.
#[derive(Clone, Debug)]
pub struct LineIndex<'a> {
    source: &'a str,
    starts: Vec<usize>,
}

impl<'a> LineIndex<'a> {
    pub fn new(source: &'a str) -> LineIndex<'a> {
        let breaks = source.match_indices('\n').map(|(at, _)| at + 1);
        LineIndex {
            source,
            starts: std::iter::once(0).chain(breaks).collect(),
        }
    }

    /// The position of a byte. Parsers may point past the end.
    pub fn position(&self, byte: usize) -> Position {
        let byte = floor_char(self.source, byte);
        let line = self.starts.partition_point(|start| *start <= byte);
        let line_start = self.starts[line - 1];
        Position {
            line,
            column: self.source[line_start..byte].chars().count() + 1,
        }
    }
}

/// One mistake and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    pub message: String,
    /// The key with its tables, as in `time.late_arrival`; empty if the file is no TOML.
    pub key: String,
    pub position: Position,
    /// The remedy, written beside the caret.
    pub label: String,
    /// Further facts, such as the list of known keys.
    pub notes: Vec<String>,
    excerpt: String,
    underlined: usize,
}

impl Mistake {
    pub(crate) fn new(source: &str, span: Range<usize>, message: String, key: String) -> Mistake {
        let start = floor_char(source, span.start);
        let line_start = source[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = source[start..]
            .find('\n')
            .map_or(source.len(), |at| start + at);
        let excerpt = source[line_start..line_end].trim_end_matches('\r');
        let end = floor_char(source, span.end.clamp(start, line_end));
        Mistake {
            message,
            key,
            position: LineIndex::new(source).position(start),
            label: String::new(),
            notes: Vec::new(),
            excerpt: redact_line(excerpt),
            underlined: source[start..end].trim_end().chars().count().max(1),
        }
    }

    fn render(&self, file: &str, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { line, column } = self.position;
        let number = line.to_string();
        let gutter = " ".repeat(number.len());
        // Tabs stay tabs, so that the caret is below its text however wide they are.
        let before = self.excerpt.chars().take(column - 1);
        let indent: String = before.map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let carets = "^".repeat(self.underlined);
        writeln!(out, "error: {}", self.message)?;
        writeln!(out, "{gutter}--> {file}:{line}:{column}")?;
        writeln!(out, "{gutter} |")?;
        writeln!(out, "{number} | {}", self.excerpt)?;
        let caret_line = format!("{gutter} | {indent}{carets} {}", self.label);
        write!(out, "{}", caret_line.trim_end())?;
        for note in &self.notes {
            write!(out, "\n{gutter} = {note}")?;
        }
        Ok(())
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, mistake) in self.mistakes.iter().enumerate() {
            if i > 0 {
                out.write_str("\n\n")?;
            }
            mistake.render(&self.file, out)?;
        }
        Ok(())
    }
}

impl std::error::Error for FileError {}

/// The start of the character at a byte; the end of the text for a byte past it.
fn floor_char(source: &str, at: usize) -> usize {
    let mut at = at.min(source.len());
    while !source.is_char_boundary(at) {
        at -= 1;
    }
    at
}
