//! LOWER and UPPER, one character for one character.
//!
//! Casing is that of the invariant culture: a text keeps its length in characters, so a letter whose other case is
//! several letters stays as it is (`ß`), and so do the dotted and dotless i of Turkish and the long s, which have
//! another case in some languages only.

use highwater_query::upper as upper_char;

use crate::column::Column;
use crate::eval::fold;
use crate::eval::operand::Datum;

use super::call::Call;

pub(super) fn lower(call: Call<'_, '_>) -> Datum {
    recase(call, |bytes| bytes.make_ascii_lowercase(), lower_char)
}

pub(super) fn upper(call: Call<'_, '_>) -> Datum {
    recase(call, |bytes| bytes.make_ascii_uppercase(), upper_char)
}

/// ASCII, which is nearly all text, is changed as bytes; a column of ASCII alone in one pass.
fn recase(call: Call<'_, '_>, ascii: fn(&mut [u8]), other: fn(char) -> char) -> Datum {
    if let [Datum::Column(Column::Text(texts))] = call.args
        && let Some(result) = fold::recase(texts, ascii)
    {
        return Datum::Column(Column::Text(result));
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

fn lower_char(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_lowercase();
    }
    only(c, c.to_lowercase())
}

/// The other case, if it is one character.
fn only(c: char, mut other: impl Iterator<Item = char>) -> char {
    match (other.next(), other.next()) {
        (Some(other), None) => other,
        _ => c,
    }
}
