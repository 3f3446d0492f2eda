//! CHARINDEX and PATINDEX: the position of the first match, in characters from 1; 0 if there is none.
//!
//! PATINDEX is LIKE with a position. If a pattern begins with `%`, every position of the text is tried against the part
//! up to the next `%`. The first position where that part matches decides: if the rest does not match there, it cannot
//! match at a later position, which leaves less text.

use crate::eval::like::Pattern;
use crate::eval::operand::Datum;

use super::cache::Cache;
use super::call::Call;
use super::text_parts::{count, offset};

const PATTERN_CHARS_MAX: usize = 8000;

/// CHARINDEX(find, text [, start]): an empty `find` gives 0.
pub(super) fn char_index(call: Call<'_, '_>) -> Datum {
    let (mut find, mut text) = (String::new(), String::new());
    call.strict(|row, out| {
        let (find, text) = (row.text(0, &mut find)?, row.text(1, &mut text)?);
        let start = if row.len() > 2 { row.integer(2)? } else { 1 };
        let from = offset(text, usize::try_from(start.saturating_sub(1)).unwrap_or(0));
        let found = match find.is_empty() {
            true => None,
            false => text[from..].find(find),
        };
        out.push_int(found.map_or(0, |at| position(text, from + at)));
        Ok(())
    })
}

/// PATINDEX(pattern, text)
pub(super) fn pat_index(call: Call<'_, '_>) -> Datum {
    let (mut pattern, mut text) = (String::new(), String::new());
    let mut compiled = Cache::new();
    call.strict(|row, out| {
        let (pattern, text) = (row.text(0, &mut pattern)?, row.text(1, &mut text)?);
        let search = compiled
            .get(pattern, Search::new)
            .as_ref()
            .ok_or_else(|| row.wrong_value(0, "a pattern has at most 8000 characters"))?;
        out.push_int(search.find(text).map_or(0, |at| position(text, at)));
        Ok(())
    })
}

/// The number of the character that begins at a byte, counted from 1.
pub(super) fn position(text: &str, at: usize) -> i64 {
    count(&text[..at]) as i64 + 1
}

/// A compiled pattern of PATINDEX.
struct Search {
    /// Whether any text may precede the match.
    floats: bool,
    /// The pattern after that, up to and including the next `%`.
    head: Pattern,
    whole: Pattern,
}

impl Search {
    /// `None` if the pattern is too long.
    fn new(pattern: &str) -> Option<Search> {
        if pattern.len() > PATTERN_CHARS_MAX && count(pattern) > PATTERN_CHARS_MAX {
            return None;
        }
        let inner = match pattern.trim_start_matches('%') {
            // An empty pattern gives 0, as in CHARINDEX; an unclosed set matches nothing.
            "" if pattern.is_empty() => "[",
            "" => "%",
            inner => inner,
        };
        let head = first_run(inner).map_or(inner, |at| &inner[..=at]);
        Some(Search {
            floats: pattern.starts_with('%'),
            head: Pattern::new(head),
            whole: Pattern::new(inner),
        })
    }

    /// The byte at which the first match begins.
    fn find(&self, text: &str) -> Option<usize> {
        if !self.floats {
            return self.whole.matches(text).then_some(0);
        }
        let mut starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
        let start = starts.find(|&at| self.head.matches(&text[at..]))?;
        self.whole.matches(&text[start..]).then_some(start)
    }
}

/// The position of the first `%` outside of a set.
fn first_run(pattern: &str) -> Option<usize> {
    let mut in_set = false;
    pattern.find(|c| {
        match c {
            '[' => in_set = true,
            ']' => in_set = false,
            _ => {}
        }
        c == '%' && !in_set
    })
}
