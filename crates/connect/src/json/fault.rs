//! Why a line is not an event, in words that help to fix it.
//!
//! Inside the decoder a fault is two words, a position and a kind, so that passing it up costs valid lines nothing.
//! Only a failed line makes a [`BadLine`], which looks at the bytes again to describe them.

use std::fmt;

use thiserror::Error;

use super::DEPTH_MAX;
use crate::source::{BadKind, sample};

/// A line that is not an event, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Counted from 1.
    pub line: u64,
    /// The byte where reading failed, counted from 1.
    pub column: u32,
    pub reason: BadJson,
    /// The start of the line: at most 200 bytes, unless the batch keeps more.
    pub sample: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadJson {
    #[error("expected {expected} but found {found}; each line must be one whole JSON object")]
    Unexpected {
        expected: &'static str,
        found: FoundByte,
    },
    #[error(
        "the line ends where {expected} should follow; it may be cut short, \
         or one object may be spread over several lines"
    )]
    EndsEarly { expected: &'static str },
    #[error("the line holds {found}, not an object; write each event as {{\"name\": value, ..}}")]
    NotAnObject { found: &'static str },
    #[error("{found} follows the object; put each event on a line of its own")]
    Trailing { found: FoundByte },
    #[error("text holds a raw control character, {found}; write it as an escape such as \\u0000")]
    ControlCharacter { found: FoundByte },
    #[error("unknown escape in text; only \\\" \\\\ \\/ \\b \\f \\n \\r \\t and \\uXXXX exist")]
    BadEscape,
    #[error(
        "half of a surrogate pair in text; characters beyond \\uFFFF need both \\uD8.. and \\uDC.."
    )]
    LoneSurrogate,
    #[error("malformed number; JSON wants digits, as in 0, -12, 3.5 or 1e9, without leading zeros")]
    BadNumber,
    #[error("integer out of range of 64 bits; send it as text or with a fraction")]
    IntegerRange,
    #[error("number out of range of a 64-bit float; send it as text")]
    FloatRange,
    #[error(
        "objects and arrays are nested more than {} levels deep; flatten the event",
        DEPTH_MAX
    )]
    TooDeep,
    #[error("the line is not valid UTF-8; convert the file, for example with iconv")]
    NotUtf8,
    #[error("the line is longer than {limit_bytes} bytes; split the event or raise the limit")]
    TooLong { limit_bytes: usize },
    #[error("two names in one object differ only in case, which level 1.0 does not allow")]
    SameNames,
    #[error("the event lacks {column}, which CREATE TABLE declares")]
    MissingColumn { column: String },
    #[error("{column} is declared as {declared}, but the event holds {found}")]
    WrongType {
        column: String,
        declared: &'static str,
        found: String,
    },
}

impl BadJson {
    pub fn kind(&self) -> BadKind {
        match self {
            BadJson::MissingColumn { .. } => BadKind::MissingColumns,
            BadJson::WrongType { .. } => BadKind::TypeConversion,
            _ => BadKind::InvalidData,
        }
    }
}

/// A byte, displayed for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundByte(pub u8);

impl fmt::Display for FoundByte {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            b'\t' => write!(f, "a tab"),
            0 => write!(f, "a NUL byte"),
            byte @ 0x20..=0x7e => write!(f, "{:?}", char::from(byte)),
            byte => write!(f, "byte 0x{byte:02x}"),
        }
    }
}

/// Where and how reading a line failed; `at` counts from the start of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub at: usize,
    pub kind: FaultKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    Value,
    FirstKey,
    Key,
    Colon,
    CommaOrBrace,
    CommaOrBracket,
    InText,
    Escape,
    Surrogate,
    Number,
    IntegerRange,
    FloatRange,
    TooDeep,
    Trailing,
    NotAnObject,
    SameNames,
}

impl Fault {
    #[cold]
    pub(super) fn new(at: usize, kind: FaultKind) -> Fault {
        Fault { at, kind }
    }

    /// `rest` is the line from the fault on; empty if the line ends too early.
    fn reason(self, rest: &[u8]) -> BadJson {
        let found = rest.first().copied().unwrap_or(b'\n');
        let expected = match self.kind {
            FaultKind::Value => "a value",
            FaultKind::FirstKey => "a field name in quotes or '}'",
            FaultKind::Key => "a field name in quotes",
            FaultKind::Colon => "':'",
            FaultKind::CommaOrBrace => "',' or '}'",
            FaultKind::CommaOrBracket => "',' or ']'",
            FaultKind::InText if found != b'\n' => {
                return BadJson::ControlCharacter {
                    found: FoundByte(found),
                };
            }
            FaultKind::InText => "a closing quote",
            FaultKind::Escape => return BadJson::BadEscape,
            FaultKind::Surrogate => return BadJson::LoneSurrogate,
            FaultKind::Number => return BadJson::BadNumber,
            FaultKind::IntegerRange => return BadJson::IntegerRange,
            FaultKind::FloatRange => return BadJson::FloatRange,
            FaultKind::TooDeep => return BadJson::TooDeep,
            FaultKind::Trailing => {
                return BadJson::Trailing {
                    found: FoundByte(found),
                };
            }
            FaultKind::NotAnObject => return not_an_object(rest, found),
            FaultKind::SameNames => return BadJson::SameNames,
        };
        match found {
            b'\n' => BadJson::EndsEarly { expected },
            found => BadJson::Unexpected {
                expected,
                found: FoundByte(found),
            },
        }
    }

    /// The report on this fault in the line of `block` that starts at `start`.
    pub(super) fn report(
        self,
        block: &[u8],
        start: usize,
        end: usize,
        line: u64,
        sample_bytes: usize,
    ) -> BadLine {
        let at = self.at.saturating_sub(start);
        BadLine::new(
            line,
            at,
            self.reason(block.get(self.at..end).unwrap_or_default()),
            &block[start..end],
            sample_bytes,
        )
    }
}

impl BadLine {
    /// `at` counts from 0, `text` is the line or its start.
    pub(crate) fn new(
        line: u64,
        at: usize,
        reason: BadJson,
        text: &[u8],
        sample_bytes: usize,
    ) -> BadLine {
        let column = u32::try_from(at).unwrap_or(u32::MAX).saturating_add(1);
        BadLine {
            line,
            column,
            reason,
            sample: sample(text, sample_bytes),
        }
    }
}

/// Another JSON value, or no JSON at all: `null` is a value, `not json` merely starts like one.
fn not_an_object(rest: &[u8], found: u8) -> BadJson {
    let is = |word: &str| rest.trim_ascii() == word.as_bytes();
    let found = match found {
        b'[' => "an array",
        b'"' => "a text",
        b'-' | b'0'..=b'9' => "a number",
        b't' | b'f' if is("true") || is("false") => "a boolean",
        b'n' if is("null") => "null",
        found => {
            return BadJson::Unexpected {
                expected: "'{'",
                found: FoundByte(found),
            };
        }
    };
    BadJson::NotAnObject { found }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_say_what_was_found_and_how_to_mend_it() {
        let fault = Fault::new(1, FaultKind::FirstKey);
        let report = fault.report(b"{x}", 0, 3, 7, 200);
        assert_eq!((report.line, report.column), (7, 2));
        assert_eq!(
            report.reason.to_string(),
            "expected a field name in quotes or '}' but found 'x'; \
             each line must be one whole JSON object"
        );
    }

    #[test]
    fn what_only_starts_like_a_value_is_not_called_one() {
        let reason = |line: &[u8]| {
            let fault = Fault::new(0, FaultKind::NotAnObject);
            fault.report(line, 0, line.len(), 1, 200).reason.to_string()
        };
        assert!(reason(b"null\r\n").starts_with("the line holds null"));
        assert!(reason(b"true").starts_with("the line holds a boolean"));
        assert!(reason(b"not json").starts_with("expected '{' but found 'n'"));
    }
}
