//! Skips over JSON without keeping any of it, but validating all of it.
//!
//! A position points into a block of complete lines that is known to be UTF-8. A newline always ends the line, so it is
//! never a blank here, and the end of the block reads as one: no scan can leave its line. Texts are searched 16 bytes
//! at a time, because they are short and a search without a loop does not branch.

use super::DEPTH_MAX;
use super::fault::{Fault, FaultKind};
use super::number;
use wide::u8x16;

/// The byte at a position, or a newline past the end.
#[inline(always)]
pub(crate) fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(b'\n')
}

/// The next 8 bytes as one little-endian word, filled up with newlines past the end.
#[inline(always)]
pub(crate) fn load8(bytes: &[u8], at: usize) -> u64 {
    match bytes
        .get(at..at.wrapping_add(8))
        .and_then(|chunk| chunk.first_chunk())
    {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => load_tail(bytes, at),
    }
}

/// The next 16 bytes as two words. Words, because an array would travel through memory.
#[inline(always)]
pub(crate) fn load16(bytes: &[u8], at: usize) -> (u64, u64) {
    match bytes
        .get(at..at.wrapping_add(16))
        .and_then(|chunk| chunk.first_chunk::<16>())
    {
        Some(chunk) => {
            let word = u128::from_le_bytes(*chunk);
            (word as u64, (word >> 64) as u64)
        }
        None => (load_tail(bytes, at), load_tail(bytes, at + 8)),
    }
}

#[cold]
#[inline(never)]
fn load_tail(bytes: &[u8], at: usize) -> u64 {
    let mut chunk = [b'\n'; 8];
    let rest = bytes.get(at..).unwrap_or_default();
    let len = rest.len().min(8);
    chunk[..len].copy_from_slice(&rest[..len]);
    u64::from_le_bytes(chunk)
}

/// The first position without a blank; a newline is not one.
#[inline(always)]
pub(crate) fn skip_blanks(bytes: &[u8], mut at: usize) -> usize {
    while matches!(byte(bytes, at), b' ' | b'\t' | b'\r') {
        at += 1;
    }
    at
}

/// The length of the plain text: the position of the first quote, backslash or control character, or 16.
///
/// Eight bytes are looked at as one word. Flipping bit 1 moves the quote next to the control
/// characters and everything else away from them, so one subtraction finds both. It sets the high
/// bit of each byte below 0x21; a borrow can only disturb bytes behind the first such byte, and
/// bytes above 0x7f are masked out.
#[inline(always)]
fn plain((first, second): (u64, u64)) -> usize {
    let (first, second) = (special(first), special(second));
    let (word, before) = if first != 0 { (first, 0) } else { (second, 8) };
    before + (word.trailing_zeros() / 8) as usize
}

#[inline(always)]
fn special(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let quote_or_control = (word ^ (0x02 * EACH)).wrapping_sub(0x21 * EACH);
    let backslash = (word ^ (0x5c * EACH)).wrapping_sub(EACH);
    (quote_or_control | backslash) & !word & (0x80 * EACH)
}

/// How many bytes at the start need no escape inside quotes.
#[inline]
pub(crate) fn plain_len(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let Some((chunk, after)) = rest.split_first_chunk::<8>() {
        let special = special(u64::from_le_bytes(*chunk));
        if special != 0 {
            return bytes.len() - rest.len() + (special.trailing_zeros() / 8) as usize;
        }
        rest = after;
    }
    let plain = rest
        .iter()
        .position(|&b| b == b'"' || b == b'\\' || b < 0x20);
    bytes.len() - rest.len() + plain.unwrap_or(rest.len())
}

/// A text between its quotes; `end` is the position of the closing quote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    pub end: usize,
    pub escaped: bool,
}

/// Scans a text from the byte after its opening quote.
#[inline(always)]
pub(crate) fn text(bytes: &[u8], mut at: usize) -> Result<Text, Fault> {
    loop {
        let plain = plain(load16(bytes, at));
        at += plain;
        if plain < 16 {
            break;
        }
    }
    match byte(bytes, at) {
        b'"' => Ok(Text {
            end: at,
            escaped: false,
        }),
        _ => text_with_escapes(bytes, at),
    }
}

/// The rest of a text from its first backslash, or the fault there.
#[inline(never)]
fn text_with_escapes(bytes: &[u8], mut at: usize) -> Result<Text, Fault> {
    loop {
        match byte(bytes, at) {
            b'"' => {
                return Ok(Text {
                    end: at,
                    escaped: true,
                });
            }
            b'\\' => at = escape(bytes, at)?,
            _ => return Err(Fault::new(at, FaultKind::InText)),
        }
        loop {
            let plain = plain(load16(bytes, at));
            at += plain;
            if plain < 16 {
                break;
            }
        }
    }
}

/// Checks one escape and returns the position after it. Half a surrogate pair is refused.
fn escape(bytes: &[u8], at: usize) -> Result<usize, Fault> {
    match byte(bytes, at + 1) {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(at + 2),
        b'u' => {
            let unit = hex4(bytes, at + 2).ok_or_else(|| Fault::new(at, FaultKind::Escape))?;
            match unit {
                0xd800..=0xdbff => low_surrogate(bytes, at + 6)
                    .map(|_| at + 12)
                    .ok_or_else(|| Fault::new(at, FaultKind::Surrogate)),
                0xdc00..=0xdfff => Err(Fault::new(at, FaultKind::Surrogate)),
                _ => Ok(at + 6),
            }
        }
        b'\n' => Err(Fault::new(at + 1, FaultKind::InText)),
        _ => Err(Fault::new(at, FaultKind::Escape)),
    }
}

pub(crate) fn low_surrogate(bytes: &[u8], at: usize) -> Option<u32> {
    if byte(bytes, at) != b'\\' || byte(bytes, at + 1) != b'u' {
        return None;
    }
    hex4(bytes, at + 2).filter(|unit| (0xdc00..=0xdfff).contains(unit))
}

pub(crate) fn hex4(bytes: &[u8], at: usize) -> Option<u32> {
    let mut unit = 0;
    for i in 0..4 {
        unit = unit << 4 | char::from(byte(bytes, at + i)).to_digit(16)?;
    }
    Some(unit)
}

/// Skips one value that starts at `at`; `open` objects and arrays surround it.
#[inline(always)]
pub(crate) fn skip_value(bytes: &[u8], at: usize, open: u32) -> Result<usize, Fault> {
    match byte(bytes, at) {
        b'"' => Ok(text(bytes, at + 1)?.end + 1),
        b'-'..=b'9' => number::skip(bytes, at),
        _ => skip_other(bytes, at, open),
    }
}

#[inline(never)]
fn skip_other(bytes: &[u8], at: usize, open: u32) -> Result<usize, Fault> {
    match byte(bytes, at) {
        b'{' | b'[' => skip_nested(bytes, at, open),
        b' ' | b'\t' | b'\r' => skip_value_boxed(bytes, skip_blanks(bytes, at), open),
        _ => word(bytes, at).map(|word| at + word.len()),
    }
}

/// Breaks the inlining cycle; after blanks there is always something else, so this nests once.
#[inline(never)]
fn skip_value_boxed(bytes: &[u8], at: usize, open: u32) -> Result<usize, Fault> {
    skip_value(bytes, at, open)
}

/// `true`, `false` or `null`.
pub(crate) fn word(bytes: &[u8], at: usize) -> Result<&'static str, Fault> {
    let rest = bytes.get(at..).unwrap_or_default();
    ["null", "true", "false"]
        .into_iter()
        .find(|word| rest.starts_with(word.as_bytes()))
        .ok_or_else(|| Fault::new(at, FaultKind::Value))
}

/// Skips an object or array without recursion: a bit per open level tells objects from arrays.
fn skip_nested(bytes: &[u8], mut at: usize, outer: u32) -> Result<usize, Fault> {
    let (mut levels, mut open) = (0u128, 0u32);
    loop {
        at = skip_blanks(bytes, at);
        let first = byte(bytes, at);
        if matches!(first, b'{' | b'[') {
            if outer + open >= DEPTH_MAX {
                return Err(Fault::new(at, FaultKind::TooDeep));
            }
            levels = levels << 1 | u128::from(first == b'{');
            open += 1;
            at = skip_blanks(bytes, at + 1);
            // The closing bracket is two after the opening one in ASCII.
            if byte(bytes, at) != first + 2 {
                if first == b'{' {
                    at = key(bytes, at, FaultKind::FirstKey)?.value;
                }
                continue;
            }
        } else {
            at = skip_scalar(bytes, at)?;
            if open == 0 {
                return Ok(at);
            }
        }
        // A value has ended, or an empty one is about to close.
        loop {
            at = skip_blanks(bytes, at);
            let object = levels & 1 == 1;
            match byte(bytes, at) {
                b',' if object => {
                    at = key(bytes, skip_blanks(bytes, at + 1), FaultKind::Key)?.value;
                    break;
                }
                b',' => {
                    at += 1;
                    break;
                }
                b'}' if object => {}
                b']' if !object => {}
                _ if object => return Err(Fault::new(at, FaultKind::CommaOrBrace)),
                _ => return Err(Fault::new(at, FaultKind::CommaOrBracket)),
            }
            at += 1;
            levels >>= 1;
            open -= 1;
            if open == 0 {
                return Ok(at);
            }
        }
    }
}

/// The end of the object or array at `at`, whose text was validated before.
///
/// Only brackets outside of texts count then. Sixteen bytes are looked at together: between an odd quote and the next
/// one everything is text, and a chunk with fewer closing brackets than are open cannot hold the end.
pub(crate) fn skip_validated(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut open, mut inside) = (start, 0, 0);
    // The text may end in the middle of a chunk, which is filled up with newlines.
    while at < bytes.len() {
        let marks = Marks::at(bytes, at);
        if marks.backslashes != 0 {
            break;
        }
        let texts = prefix_xor(marks.quotes) ^ inside;
        let (opening, closing) = (marks.opening & !texts, marks.closing & !texts);
        if closing.count_ones() < open {
            open = open + opening.count_ones() - closing.count_ones();
        } else {
            let mut brackets = opening | closing;
            while brackets != 0 {
                let place = brackets.trailing_zeros();
                open = match opening >> place & 1 {
                    1 => open + 1,
                    _ => open - 1,
                };
                if open == 0 {
                    return at + place as usize + 1;
                }
                brackets &= brackets - 1;
            }
        }
        inside = (texts >> 15 & 1).wrapping_neg() & 0xffff;
        at += 16;
    }
    // Escapes are rare, and the slow way knows them.
    skip_value(bytes, start, 0).unwrap_or(bytes.len())
}

/// Sets each bit that has an odd number of ones up to and including its own.
fn prefix_xor(bits: u32) -> u32 {
    [1, 2, 4, 8]
        .into_iter()
        .fold(bits, |bits, by| bits ^ bits << by)
        & 0xffff
}

/// What 16 bytes of JSON hold, a bit for each byte.
struct Marks {
    quotes: u32,
    backslashes: u32,
    opening: u32,
    closing: u32,
}

impl Marks {
    #[inline(always)]
    fn at(bytes: &[u8], at: usize) -> Marks {
        let (first, second) = load16(bytes, at);
        let text = u8x16::new((u128::from(second) << 64 | u128::from(first)).to_le_bytes());
        let equal = |bytes: u8x16, byte| bytes.simd_eq(u8x16::splat(byte)).to_bitmask();
        // Braces and square brackets differ in one bit.
        let brackets = text | u8x16::splat(0x20);
        Marks {
            quotes: equal(text, b'"'),
            backslashes: equal(text, b'\\'),
            opening: equal(brackets, b'{'),
            closing: equal(brackets, b'}'),
        }
    }
}

fn skip_scalar(bytes: &[u8], at: usize) -> Result<usize, Fault> {
    match byte(bytes, at) {
        b'"' => Ok(text(bytes, at + 1)?.end + 1),
        b'-'..=b'9' => number::skip(bytes, at),
        _ => word(bytes, at).map(|word| at + word.len()),
    }
}

/// A field name and the position of its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub start: usize,
    pub end: usize,
    pub escaped: bool,
    pub value: usize,
}

/// Reads `"name" :` from the quote on; `missing` is the fault if there is none.
pub(crate) fn key(bytes: &[u8], at: usize, missing: FaultKind) -> Result<Key, Fault> {
    if byte(bytes, at) != b'"' {
        return Err(Fault::new(at, missing));
    }
    let Text { end, escaped } = text(bytes, at + 1)?;
    let colon = skip_blanks(bytes, end + 1);
    if byte(bytes, colon) != b':' {
        return Err(Fault::new(colon, FaultKind::Colon));
    }
    Ok(Key {
        start: at + 1,
        end,
        escaped,
        value: skip_blanks(bytes, colon + 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skip(text: &str) -> Result<usize, FaultKind> {
        skip_value(text.as_bytes(), 0, 0).map_err(|fault| fault.kind)
    }

    #[test]
    fn every_byte_that_ends_plain_text_is_found_and_no_other() {
        let ends = |b: u8| b == b'"' || b == b'\\' || b < 0x20;
        for (byte, other) in (0..=255u8).flat_map(|a| (0..=255u8).map(move |b| (a, b))) {
            for place in [0, 3, 6, 7, 8, 14] {
                let mut chunk = [b'x'; 16];
                (chunk[place], chunk[place + 1]) = (byte, other);
                let expected = chunk.iter().position(|&b| ends(b)).unwrap_or(16);
                assert_eq!(
                    plain(load16(&chunk, 0)),
                    expected,
                    "bytes {byte} {other} at {place}"
                );
            }
        }
    }

    #[test]
    fn values_are_skipped_to_their_end() {
        for value in [
            "\"\"",
            "\"0123456789abcdef0123456789\"",
            r#""a\"b\\\u00e4\ud83d\ude00c""#,
            "true",
            "null",
            "-12.5e+3",
            "{}",
            "[]",
            r#"{"a":[1,{"b":[]}, "x" ] , "c" : { } }"#,
            "[[],[[]]]",
        ] {
            assert_eq!(skip(value), Ok(value.len()), "{value}");
            assert_eq!(skip(&format!("{value},")), Ok(value.len()), "{value}");
        }
    }

    #[test]
    fn validated_values_end_where_they_do_when_they_are_validated() {
        let pieces = [
            "{}",
            "[]",
            "{\"a\":1}",
            "[1,[2,{\"b\":[]}]]",
            "[\"]\",\"}\",\"[{\"]",
            "{\"long name of a field\":\"a text with ] and } in it\"}",
            "[\"\\\"]\"]",
            "[\"0123456789abc\\\\\",{\"x\":\"}\"}]",
            "[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]",
        ];
        for (first, second) in pieces
            .iter()
            .flat_map(|a| pieces.iter().map(move |b| (a, b)))
        {
            for value in [first.to_string(), format!("[{first},{second}]")] {
                for after in ["", ",", "]}", "                 "] {
                    let text = format!("{value}{after}");
                    assert_eq!(skip_validated(text.as_bytes(), 0), value.len(), "{text}");
                }
            }
        }
    }

    #[test]
    fn broken_values_are_not_skipped() {
        for (value, kind) in [
            ("", FaultKind::Value),
            ("nul", FaultKind::Value),
            ("\"abc", FaultKind::InText),
            ("\"a\u{1}b\"", FaultKind::InText),
            (r#""\x""#, FaultKind::Escape),
            (r#""\u12g4""#, FaultKind::Escape),
            (r#""\ud800""#, FaultKind::Surrogate),
            (r#""\ud800\u0041""#, FaultKind::Surrogate),
            (r#""\udc00""#, FaultKind::Surrogate),
            ("[1,]", FaultKind::Value),
            ("[1 2]", FaultKind::CommaOrBracket),
            ("{\"a\":1,}", FaultKind::Key),
            ("{\"a\" 1}", FaultKind::Colon),
            ("{\"a\":1]", FaultKind::CommaOrBrace),
            ("[}", FaultKind::Value),
            ("{\"a\":1\n}", FaultKind::CommaOrBrace),
        ] {
            assert_eq!(skip(value), Err(kind), "{value}");
        }
    }

    #[test]
    fn nesting_is_limited_and_needs_no_stack() {
        let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(skip(&nested(128)), Ok(256));
        assert_eq!(skip(&nested(129)), Err(FaultKind::TooDeep));
        assert_eq!(skip(&nested(10_000)), Err(FaultKind::TooDeep));
    }
}
