//! Functions that return a part of a text, or its length. Characters are code points.

use crate::eval::operand::Datum;

use super::call::Call;

/// LEN(text): blanks at the end do not count.
pub(super) fn len(call: Call<'_, '_>) -> Datum {
    let mut buffer = String::new();
    call.strict(|row, out| {
        let text = row.text(0, &mut buffer)?;
        out.push_int(count(text.trim_end_matches(' ')) as i64);
        Ok(())
    })
}

/// LTRIM, RTRIM, TRIM: all Unicode white space.
pub(super) fn trim(call: Call<'_, '_>, cut: fn(&str) -> &str) -> Datum {
    let mut buffer = String::new();
    call.strict(|row, out| {
        out.push_text(cut(row.text(0, &mut buffer)?));
        Ok(())
    })
}

/// LEFT(text, count)
pub(super) fn left(call: Call<'_, '_>) -> Datum {
    let mut buffer = String::new();
    call.strict(|row, out| {
        let (text, count) = (row.text(0, &mut buffer)?, row.length(1)?);
        out.push_text(&text[..offset(text, count)]);
        Ok(())
    })
}

/// RIGHT(text, count)
pub(super) fn right(call: Call<'_, '_>) -> Datum {
    let mut buffer = String::new();
    call.strict(|row, out| {
        let (text, wanted) = (row.text(0, &mut buffer)?, row.length(1)?);
        let skipped = count(text).saturating_sub(wanted);
        out.push_text(&text[offset(text, skipped)..]);
        Ok(())
    })
}

/// SUBSTRING(text, start, length): positions before the text count, but have no characters.
pub(super) fn substring(call: Call<'_, '_>) -> Datum {
    let mut buffer = String::new();
    call.strict(|row, out| {
        let text = row.text(0, &mut buffer)?;
        let (start, length) = (row.integer(1)?, row.length(2)?);
        let skipped = usize::try_from(start.saturating_sub(1));
        let end = start.saturating_sub(1).saturating_add(length as i64);
        let wanted = usize::try_from(end).unwrap_or(0);
        let skipped = skipped.unwrap_or(0);
        let rest = &text[offset(text, skipped)..];
        out.push_text(&rest[..offset(rest, wanted.saturating_sub(skipped))]);
        Ok(())
    })
}

/// The number of characters.
pub(super) fn count(text: &str) -> usize {
    text.chars().count()
}

/// The byte offset after `chars` characters; the end of a shorter text.
pub(super) fn offset(text: &str, chars: usize) -> usize {
    if chars >= text.len() {
        return text.len();
    }
    if text.as_bytes()[..chars].is_ascii() {
        // In ASCII a byte is a character, and the next one begins right after.
        return chars;
    }
    text.char_indices()
        .nth(chars)
        .map_or(text.len(), |(at, _)| at)
}
