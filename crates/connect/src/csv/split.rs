//! Finds the fields of one record.

use std::borrow::Cow;

/// A field as a range of the bytes, without surrounding quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub start: usize,
    pub end: usize,
    /// Contains doubled quotes.
    pub doubled: bool,
}

/// The record at the start of the bytes, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    /// A record; holds the start of the next one.
    Record(usize),
    Blank(usize),
    /// The record does not end; `quoted` if a quote is still open.
    Unfinished {
        quoted: bool,
    },
    /// Text follows a closing quote; holds its position and the start of the next line.
    AfterQuote(usize, usize),
}

/// Splits the record that starts at `start`. At the end of the file (`last`) it may lack its newline.
pub(crate) fn split(
    bytes: &[u8],
    start: usize,
    delimiter: u8,
    last: bool,
    fields: &mut Vec<Field>,
) -> Split {
    fields.clear();
    let mut at = start;
    loop {
        let end = match bytes.get(at) {
            Some(b'"') => match quoted(bytes, at) {
                Some((field, end)) => {
                    fields.push(field);
                    end
                }
                None => return Split::Unfinished { quoted: true },
            },
            _ => {
                let rest = &bytes[at..];
                let length = memchr::memchr2(delimiter, b'\n', rest);
                let end = at + length.unwrap_or(rest.len());
                let at_line_end = bytes.get(end).is_none_or(|b| *b == b'\n');
                let has_return = at_line_end && end > at && bytes[end - 1] == b'\r';
                fields.push(Field {
                    start: at,
                    end: end - usize::from(has_return),
                    doubled: false,
                });
                end
            }
        };
        match (bytes.get(end), bytes.get(end + 1)) {
            (Some(&byte), _) if byte == delimiter => at = end + 1,
            (Some(b'\n'), _) => return ended(start, end + 1, fields),
            (Some(b'\r'), Some(b'\n')) => return ended(start, end + 2, fields),
            (None, _) | (Some(b'\r'), None) if last => return ended(start, bytes.len(), fields),
            (None, _) | (Some(b'\r'), None) => return Split::Unfinished { quoted: false },
            _ => {
                let line = memchr::memchr(b'\n', &bytes[end..]).map(|at| end + at + 1);
                return match line {
                    Some(next) => Split::AfterQuote(end, next),
                    None if last => Split::AfterQuote(end, bytes.len()),
                    None => Split::Unfinished { quoted: false },
                };
            }
        }
    }
}

fn ended(start: usize, next: usize, fields: &[Field]) -> Split {
    match fields {
        // A quoted empty field is a record, an empty line is not.
        [only] if only.start == only.end && only.start == start => Split::Blank(next),
        _ => Split::Record(next),
    }
}

/// The field whose opening quote is at `at`, and the position after its closing quote.
fn quoted(bytes: &[u8], at: usize) -> Option<(Field, usize)> {
    let mut doubled = false;
    let mut from = at + 1;
    loop {
        let quote = from + memchr::memchr(b'"', bytes.get(from..)?)?;
        if bytes.get(quote + 1) == Some(&b'"') {
            doubled = true;
            from = quote + 2;
            continue;
        }
        let field = Field {
            start: at + 1,
            end: quote,
            doubled,
        };
        return Some((field, quote + 1));
    }
}

impl Field {
    pub(crate) fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let raw = &text[self.start..self.end];
        match self.doubled {
            true => raw.replace("\"\"", "\"").into(),
            false => raw.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Vec<String> {
        let mut found = Vec::new();
        let end = split(text.as_bytes(), 0, b',', true, &mut found);
        assert_eq!(end, Split::Record(text.len()), "{text:?}");
        found.iter().map(|f| f.text(text).into_owned()).collect()
    }

    #[test]
    fn fields_are_split_at_delimiters_outside_of_quotes() {
        assert_eq!(fields("a,b\n"), ["a", "b"]);
        assert_eq!(fields("a,b\r\n"), ["a", "b"]);
        assert_eq!(fields("a,"), ["a", ""]);
        assert_eq!(fields(",\n"), ["", ""]);
        assert_eq!(fields("\"a,\"\"b\"\"\n c\",d\r\n"), ["a,\"b\"\n c", "d"]);
        assert_eq!(fields("\"\"\n"), [""]);
        assert_eq!(fields("x\"y,z\r"), ["x\"y", "z"]);
    }

    #[test]
    fn what_is_no_record_is_told_apart() {
        let split = |text: &str, last| split(text.as_bytes(), 0, b',', last, &mut Vec::new());
        assert_eq!(split("\r\n", false), Split::Blank(2));
        assert_eq!(split("a,b", false), Split::Unfinished { quoted: false });
        assert_eq!(split("a,\"b\n", true), Split::Unfinished { quoted: true });
        assert_eq!(split("\"a\"b\nc", false), Split::AfterQuote(3, 5));
        assert_eq!(split("\"a\"\r", false), Split::Unfinished { quoted: false });
    }
}
