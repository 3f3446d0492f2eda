//! Percent-encoding, as names have it in paths, queries and signed tokens.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// What RFC 3986 leaves unreserved stays as it is.
const RESERVED: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// Invalid UTF-8 becomes the replacement character; a lone `%` stays.
pub fn percent_decode(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
}

/// For use as one segment of a path or one value of a query.
pub fn percent_encode(text: &str) -> String {
    utf8_percent_encode(text, &RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_encoding_is_decoded_once() {
        assert_eq!(percent_decode("a%20b%2Bc%25zz%4"), "a b+c%zz%4");
        assert_eq!(percent_decode("%ff"), "\u{fffd}");
        assert_eq!(percent_decode("%é1"), "%é1");
    }

    #[test]
    fn a_name_is_one_segment_of_a_path() {
        assert_eq!(percent_encode("orders/0@17"), "orders%2F0%4017");
        assert_eq!(percent_encode("a-b_c.d~é"), "a-b_c.d~%C3%A9");
    }
}
