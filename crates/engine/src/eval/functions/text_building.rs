//! Functions that construct text from text or numbers. Characters are code points.
//!
//! Results are bounded: REPLICATE with a count from the data must not fill the memory.

use std::fmt::Write;

use crate::eval::fault::EvalError;
use crate::eval::fold::fold_text;
use crate::eval::operand::Datum;
use crate::eval::text::write_text;
use crate::work_limit::text_limit;

use super::cache::Cache;
use super::call::{Call, Row};
use super::text_parts::{count, offset};

/// The longest result of REPLICATE, SPACE and REPLACE; also the limit of an event.
const BYTES_MAX: usize = 1 << 20;

/// CONCAT(value, value, ..): NULL counts as empty text.
pub(super) fn concat(call: Call<'_, '_>) -> Datum {
    let mut result = String::new();
    call.each(|row, out| {
        result.clear();
        for value in row.values() {
            write_text(value, &mut result);
            if text_limit().is_some() {
                bounded(row, result.len())?;
            }
        }
        out.push_text(&result);
        Ok(())
    })
}

/// CONCAT_WS(separator, value, value, ..): a NULL is skipped with its separator.
pub(super) fn concat_ws(call: Call<'_, '_>) -> Datum {
    let (mut result, mut buffer) = (String::new(), String::new());
    call.each(|row, out| {
        let separator = match row.value(0).is_null() {
            true => "",
            false => row.text(0, &mut buffer)?,
        };
        result.clear();
        let mut first = true;
        for value in row.values().skip(1).filter(|value| !value.is_null()) {
            if !first {
                result.push_str(separator);
            }
            first = false;
            write_text(value, &mut result);
            if text_limit().is_some() {
                bounded(row, result.len())?;
            }
        }
        out.push_text(&result);
        Ok(())
    })
}

/// NCHAR(code): NULL if no character has that code.
pub(super) fn nchar(call: Call<'_, '_>) -> Datum {
    call.strict(|row, out| {
        let code = u32::try_from(row.integer(0)?);
        match code.ok().and_then(char::from_u32) {
            Some(c) => out.push_text(c.encode_utf8(&mut [0; 4])),
            None => out.push_null(),
        }
        Ok(())
    })
}

/// UNICODE(text): NULL for empty text.
pub(super) fn unicode(call: Call<'_, '_>) -> Datum {
    let mut buffer = String::new();
    call.strict(|row, out| {
        match row.text(0, &mut buffer)?.chars().next() {
            Some(c) => out.push_int(u32::from(c).into()),
            None => out.push_null(),
        }
        Ok(())
    })
}

/// REPLACE(text, what, with)
pub(super) fn replace(call: Call<'_, '_>) -> Datum {
    if call.args.len() > 3 {
        return replace_any_case(call);
    }
    let mut result = String::new();
    let [mut text, mut what, mut with] = [const { String::new() }; 3];
    call.strict(|row, out| {
        let text = row.text(0, &mut text)?;
        let (what, with) = (row.text(1, &mut what)?, row.text(2, &mut with)?);
        if what.is_empty() {
            out.push_text(text);
            return Ok(());
        }
        result.clear();
        let mut pieces = text.split(what);
        result.push_str(pieces.next().unwrap_or_default());
        for piece in pieces {
            bounded(row, result.len() + with.len() + piece.len())?;
            result.push_str(with);
            result.push_str(piece);
        }
        out.push_text(&result);
        Ok(())
    })
}

/// REPLACE ignoring case: the folded search text is the last argument.
fn replace_any_case(call: Call<'_, '_>) -> Datum {
    let mut result = String::new();
    let [mut text, mut with, mut what] = [const { String::new() }; 3];
    call.strict(|row, out| {
        let (text, with) = (row.text(0, &mut text)?, row.text(2, &mut with)?);
        let what = row.text(3, &mut what)?;
        if what.is_empty() {
            out.push_text(text);
            return Ok(());
        }
        // Folding keeps the number of characters, not that of bytes.
        let folded = fold_text(text);
        let (skipped, mut rest) = (count(what), text);
        result.clear();
        for (number, piece) in folded.split(what).enumerate() {
            if number > 0 {
                rest = &rest[offset(rest, skipped)..];
                bounded(row, result.len() + with.len() + rest.len())?;
                result.push_str(with);
            }
            let (kept, after) = rest.split_at(offset(rest, count(piece)));
            result.push_str(kept);
            rest = after;
        }
        out.push_text(&result);
        Ok(())
    })
}

/// REPLICATE(text, count): NULL for a negative count.
pub(super) fn replicate(call: Call<'_, '_>) -> Datum {
    let (mut result, mut buffer) = (String::new(), String::new());
    call.strict(|row, out| {
        let text = row.text(0, &mut buffer)?;
        let Ok(count) = usize::try_from(row.integer(1)?) else {
            out.push_null();
            return Ok(());
        };
        bounded(row, text.len().saturating_mul(count))?;
        result.clear();
        if !text.is_empty() {
            (0..count).for_each(|_| result.push_str(text));
        }
        out.push_text(&result);
        Ok(())
    })
}

/// SPACE(count): NULL for a negative count.
pub(super) fn space(call: Call<'_, '_>) -> Datum {
    let mut blanks = String::new();
    call.strict(|row, out| {
        let Ok(count) = usize::try_from(row.integer(0)?) else {
            out.push_null();
            return Ok(());
        };
        bounded(row, count)?;
        (blanks.len()..count).for_each(|_| blanks.push(' '));
        out.push_text(&blanks[..count]);
        Ok(())
    })
}

fn bounded(row: Row<'_>, bytes: usize) -> Result<(), EvalError> {
    let bytes_max = text_limit().unwrap_or(BYTES_MAX);
    if bytes <= bytes_max {
        return Ok(());
    }
    Err(EvalError::TooLong {
        function: row.function(),
        bytes_max,
    })
}

/// REVERSE(text)
pub(super) fn reverse(call: Call<'_, '_>) -> Datum {
    let (mut result, mut buffer) = (String::new(), String::new());
    call.strict(|row, out| {
        result.clear();
        result.extend(row.text(0, &mut buffer)?.chars().rev());
        out.push_text(&result);
        Ok(())
    })
}

/// STUFF(text, start, length, insert): with a NULL insert it only deletes.
pub(super) fn stuff(call: Call<'_, '_>) -> Datum {
    let (mut text, mut insert, mut result) = (String::new(), String::new(), String::new());
    call.each(|row, out| {
        if row.values().take(3).any(|value| value.is_null()) {
            out.push_null();
            return Ok(());
        }
        let text = row.text(0, &mut text)?;
        let (start, length) = (row.integer(1)?.max(1), row.length(2)?);
        let insert = match row.value(3).is_null() {
            true => "",
            false => row.text(3, &mut insert)?,
        };
        result.clear();
        let from = offset(text, usize::try_from(start - 1).unwrap_or(usize::MAX));
        if from < text.len() {
            let (head, rest) = text.split_at(from);
            let parts = [head, insert, &rest[offset(rest, length)..]];
            parts.into_iter().for_each(|part| result.push_str(part));
        }
        out.push_text(&result);
        Ok(())
    })
}

/// TRANSLATE(text, from, to): each character is replaced once, by its first occurrence in `from`.
pub(super) fn translate(call: Call<'_, '_>) -> Datum {
    let mut tables = Cache::new();
    let (mut key, mut result) = (String::new(), String::new());
    let [mut text, mut from, mut to] = [const { String::new() }; 3];
    call.strict(|row, out| {
        let text = row.text(0, &mut text)?;
        let (from, to) = (row.text(1, &mut from)?, row.text(2, &mut to)?);
        key.clear();
        // The length of `from` is part of the key. Writing to a String cannot fail.
        let _ = write!(key, "{}:{from}{to}", from.len());
        let table = tables
            .get(&key, |_| Table::new(from, to))
            .as_ref()
            .ok_or_else(|| row.wrong_value(2, "it must have as many characters as argument 2"))?;
        result.clear();
        result.extend(text.chars().map(|c| table.get(c)));
        out.push_text(&result);
        Ok(())
    })
}

/// The replacement of each character.
struct Table {
    ascii: [char; 128],
    others: Vec<(char, char)>,
}

impl Table {
    fn new(from: &str, to: &str) -> Option<Table> {
        if count(from) != count(to) {
            return None;
        }
        let mut table = Table {
            ascii: std::array::from_fn(|code| char::from(code as u8)),
            others: Vec::new(),
        };
        // Backwards, so that the first of several counts.
        for (from, to) in from.chars().rev().zip(to.chars().rev()) {
            match table.ascii.get_mut(from as usize) {
                Some(entry) => *entry = to,
                None => {
                    table.others.retain(|(known, _)| *known != from);
                    table.others.push((from, to));
                }
            }
        }
        table.others.sort_unstable();
        Some(table)
    }

    fn get(&self, c: char) -> char {
        match self.ascii.get(c as usize) {
            Some(&to) => to,
            None => match self.others.binary_search_by_key(&c, |(from, _)| *from) {
                Ok(at) => self.others[at].1,
                Err(_) => c,
            },
        }
    }
}
