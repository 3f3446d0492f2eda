//! What is wrong with a job file, shown as the lines that are wrong.

use std::fmt;
use std::ops::Range;

/// Everything that is wrong with one file, in the order of its lines; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    pub file: String,
    pub mistakes: Vec<Mistake>,
}

/// One mistake and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    pub message: String,
    /// The key with its tables, as in `time.late_arrival`; empty for what is not TOML at all.
    pub key: String,
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
    /// What to do about it, written beside the caret.
    pub label: String,
    /// Further facts, such as the list of known keys.
    pub notes: Vec<String>,
    excerpt: String,
    underlined: usize,
}

impl Mistake {
    pub(super) fn new(source: &str, span: Range<usize>, message: String, key: String) -> Mistake {
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
            line: source[..line_start].matches('\n').count() + 1,
            column: source[line_start..start].chars().count() + 1,
            label: String::new(),
            notes: Vec::new(),
            excerpt: excerpt.to_owned(),
            underlined: source[start..end].trim_end().chars().count().max(1),
        }
    }

    fn render(&self, file: &str, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        let gutter = " ".repeat(number.len());
        // Tabs stay tabs, so that the caret stands under its text however wide they are.
        let before = self.excerpt.chars().take(self.column - 1);
        let indent: String = before.map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let carets = "^".repeat(self.underlined);
        writeln!(out, "error: {}", self.message)?;
        writeln!(out, "{gutter}--> {file}:{}:{}", self.line, self.column)?;
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

impl fmt::Display for ConfigError {
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

impl std::error::Error for ConfigError {}

/// The parser counts bytes, and may point at the end of the text or past it.
fn floor_char(source: &str, at: usize) -> usize {
    let mut at = at.min(source.len());
    while !source.is_char_boundary(at) {
        at -= 1;
    }
    at
}
