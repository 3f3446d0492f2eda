//! Writes a record or array that is still text, without building it.
//!
//! The result is what building and writing it would give, to the byte: blanks go, numbers and escapes get their usual form.
//! What that takes more for (an object in which a name is repeated, or written with escapes, or with very many names) is
//! left to the usual way.

use super::number::{Number, number};
use super::scan::{byte, key, skip_blanks, text, word};
use super::text::unescape;
use super::write::{write_float, write_text};
use crate::source::Level;

/// With more fields, comparing each name with all others costs more than building the record.
const FIELDS_MAX: usize = 32;

/// Rewrites the texts of one level.
pub(super) struct Rewriter<'a> {
    level: Level,
    all: &'a str,
    out: &'a mut Vec<u8>,
    /// The names of the objects that are open, as ranges of the text.
    names: Vec<(usize, usize)>,
}

impl<'a> Rewriter<'a> {
    pub(super) fn new(level: Level, text: &'a str, out: &'a mut Vec<u8>) -> Rewriter<'a> {
        Rewriter {
            level,
            all: text,
            out,
            names: Vec::new(),
        }
    }

    /// Appends the whole text; `false` if it must be built, and then nothing is appended.
    pub(super) fn value(mut self) -> bool {
        let start = self.out.len();
        let written = self.any(0).is_some();
        if !written {
            self.out.truncate(start);
        }
        written
    }

    /// Appends the fields of a record, each with a comma before it and none around them; `false` as above.
    pub(super) fn fields(mut self) -> bool {
        let start = self.out.len();
        let written = byte(self.all.as_bytes(), 0) == b'{' && self.object_fields(0).is_some();
        if !written {
            self.out.truncate(start);
        }
        written
    }

    /// Writes the value at `at` and returns the position after it.
    fn any(&mut self, at: usize) -> Option<usize> {
        let bytes = self.all.as_bytes();
        match byte(bytes, at) {
            b'"' => {
                let found = text(bytes, at + 1).ok()?;
                match found.escaped {
                    false => self.out.extend_from_slice(&bytes[at..found.end + 1]),
                    true => {
                        let mut plain = String::new();
                        unescape(&self.all[at + 1..found.end], &mut plain);
                        write_text(&plain, self.out);
                    }
                }
                Some(found.end + 1)
            }
            b'-'..=b'9' => {
                let (value, end) = number(bytes, at).ok()?;
                match value {
                    // No other integer has two forms.
                    Number::Int(0) => self.out.push(b'0'),
                    Number::Int(_) => self.out.extend_from_slice(&bytes[at..end]),
                    Number::Float(value) => write_float(value, self.out),
                }
                Some(end)
            }
            b'{' => {
                let start = self.out.len();
                let end = self.object_fields(at)?;
                match self.out.get_mut(start) {
                    Some(comma) => *comma = b'{',
                    None => self.out.push(b'{'),
                }
                self.out.push(b'}');
                Some(end)
            }
            b'[' => self.array(at),
            _ => {
                let word = word(bytes, at).ok()?;
                let shown = match word {
                    "true" if self.level < Level::V1_2 => "1",
                    "false" if self.level < Level::V1_2 => "0",
                    word => word,
                };
                self.out.extend_from_slice(shown.as_bytes());
                Some(at + word.len())
            }
        }
    }

    fn object_fields(&mut self, at: usize) -> Option<usize> {
        let bytes = self.all.as_bytes();
        let outer = self.names.len();
        let mut at = skip_blanks(bytes, at + 1);
        while byte(bytes, at) == b'"' {
            let name = key(bytes, at, super::fault::FaultKind::Key).ok()?;
            let shown = &bytes[name.start..name.end];
            let same = |&(start, end): &(usize, usize)| bytes[start..end] == *shown;
            let known = &self.names[outer..];
            if name.escaped || known.len() == FIELDS_MAX || known.iter().any(same) {
                return None;
            }
            self.names.push((name.start, name.end));
            self.out.push(b',');
            self.out
                .extend_from_slice(&bytes[name.start - 1..name.end + 1]);
            self.out.push(b':');
            at = skip_blanks(bytes, self.any(name.value)?);
            if byte(bytes, at) == b',' {
                at = skip_blanks(bytes, at + 1);
            }
        }
        self.names.truncate(outer);
        (byte(bytes, at) == b'}').then_some(at + 1)
    }

    fn array(&mut self, at: usize) -> Option<usize> {
        let bytes = self.all.as_bytes();
        self.out.push(b'[');
        let mut at = skip_blanks(bytes, at + 1);
        while byte(bytes, at) != b']' {
            at = skip_blanks(bytes, self.any(at)?);
            if byte(bytes, at) == b',' {
                self.out.push(b',');
                at = skip_blanks(bytes, at + 1);
            }
        }
        self.out.push(b']');
        Some(at + 1)
    }
}
