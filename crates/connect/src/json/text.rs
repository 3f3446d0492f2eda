//! Unescapes a text that the scanner has validated.

use super::scan::{byte, hex4, low_surrogate};

/// Appends the text that `raw`, the inside of a quoted text, stands for.
pub(crate) fn unescape(raw: &str, out: &mut String) {
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        out.push_str(&rest[..at]);
        let (character, length) = escaped(&rest.as_bytes()[at..]);
        out.push(character);
        rest = &rest[at + length..];
    }
    out.push_str(rest);
}

/// The character of an escape, and the length of the escape in bytes.
fn escaped(bytes: &[u8]) -> (char, usize) {
    let plain = match byte(bytes, 1) {
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return unicode(bytes),
        other => char::from(other),
    };
    (plain, 2)
}

fn unicode(bytes: &[u8]) -> (char, usize) {
    let high = hex4(bytes, 2).unwrap_or_default();
    let (code, length) = match low_surrogate(bytes, 6) {
        Some(low) if (0xd800..=0xdbff).contains(&high) => {
            (0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00), 12)
        }
        _ => (high, 6),
    };
    // The scanner rejects half pairs, so this never replaces anything.
    (
        char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER),
        length,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_escape_stands_for_its_character() {
        let mut out = String::new();
        unescape(r#"a\"\\\/\b\f\n\r\t\u00e4\ud83d\ude00\u0000z"#, &mut out);
        assert_eq!(out, "a\"\\/\u{8}\u{c}\n\r\tä😀\0z");
    }
}
