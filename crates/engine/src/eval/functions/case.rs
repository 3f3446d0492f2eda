//! LOWER and UPPER, one character for one character.
//!
//! Casing is that of the invariant culture: a text keeps its length in characters, so a letter whose other case is
//! several letters stays as it is (`ß`), and so do the dotted and dotless i of Turkish and the long s, which have
//! another case in some languages only.

use arrow_array::{Array, StringArray};
use arrow_buffer::Buffer;

use crate::column::Column;
use crate::eval::datum::Datum;

use super::args::Call;

pub(super) fn lower(call: Call<'_, '_>) -> Datum {
    recase(call, |bytes| bytes.make_ascii_lowercase(), lower_char)
}

pub(super) fn upper(call: Call<'_, '_>) -> Datum {
    recase(call, |bytes| bytes.make_ascii_uppercase(), upper_char)
}

/// ASCII, which is nearly all text, is turned as a whole: a column that has nothing else in one go.
fn recase(call: Call<'_, '_>, ascii: fn(&mut [u8]), other: fn(char) -> char) -> Datum {
    if let [Datum::Column(Column::Text(texts))] = call.args
        && let Some(result) = recase_column(texts, ascii)
    {
        return result;
    }
    let (mut text, mut result) = (String::new(), String::new());
    call.strict(|row, out| {
        let text = row.text(0, &mut text)?;
        result.clear();
        result.extend(text.chars().map(other));
        out.push_text(&result);
        Ok(())
    })
}

fn recase_column(texts: &StringArray, ascii: fn(&mut [u8])) -> Option<Datum> {
    let whole = texts.value_data();
    let (first, last) = (texts.offsets().first(), texts.offsets().last());
    // A piece of a larger column would drag the rest of it along.
    if first != 0 || last as usize != whole.len() || !whole.is_ascii() {
        return None;
    }
    let mut bytes = whole.to_vec();
    ascii(&mut bytes);
    let (offsets, nulls) = (texts.offsets().clone(), texts.nulls().cloned());
    let texts = StringArray::try_new(offsets, Buffer::from_vec(bytes), nulls).ok()?;
    Some(Datum::Column(Column::Text(texts)))
}

fn lower_char(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_lowercase();
    }
    only(c, c.to_lowercase())
}

fn upper_char(c: char) -> char {
    const DOTLESS_I: char = '\u{131}';
    const LONG_S: char = '\u{17f}';
    match c {
        _ if c.is_ascii() => c.to_ascii_uppercase(),
        DOTLESS_I | LONG_S => c,
        _ => only(c, c.to_uppercase()),
    }
}

/// The other case, if it is one character.
fn only(c: char, mut other: impl Iterator<Item = char>) -> char {
    match (other.next(), other.next()) {
        (Some(other), None) => other,
        _ => c,
    }
}
