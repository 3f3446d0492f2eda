//! JSON text as a value, for JSON_PARSE.
//!
//! Follows the rules of JSON inputs: integers must fit a bigint, other numbers are finite floats, of fields with the
//! same name the last one counts, nesting is limited. Anything else is invalid, without a reason, because the function
//! gives NULL for it.

use std::sync::Arc;

use crate::value::{Record, Value};

/// The maximum nesting, as in events.
const DEPTH_MAX: usize = 128;

/// Parses a text, blanks around it ignored.
pub(super) fn parse(text: &str) -> Option<Value> {
    let mut reader = Reader { text, at: 0 };
    let value = reader.value(DEPTH_MAX)?;
    reader.blanks();
    (reader.at == text.len()).then_some(value)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// `depth` is the number of remaining levels.
    fn value(&mut self, depth: usize) -> Option<Value> {
        self.blanks();
        match self.peek()? {
            b'{' => self.object(depth.checked_sub(1)?),
            b'[' => self.array(depth.checked_sub(1)?),
            b'"' => self.string().map(|text| Value::Text(text.into())),
            b't' => self.word("true", Value::Bit(true)),
            b'f' => self.word("false", Value::Bit(false)),
            b'n' => self.word("null", Value::Null),
            _ => self.number(),
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Option<Value> {
        let found = self.text.as_bytes()[self.at..].starts_with(word.as_bytes());
        self.at += word.len();
        found.then_some(value)
    }

    fn object(&mut self, depth: usize) -> Option<Value> {
        let mut fields: Vec<(Arc<str>, Value)> = Vec::new();
        self.list(b'{', b'}', |reader| {
            let name = reader.string()?;
            reader.blanks();
            reader.take(b':').then_some(())?;
            fields.push((name.into(), reader.value(depth)?));
            Some(())
        })?;
        Some(Value::Record(Arc::new(Record::from_fields(fields))))
    }

    fn array(&mut self, depth: usize) -> Option<Value> {
        let mut items = Vec::new();
        self.list(b'[', b']', |reader| {
            items.push(reader.value(depth)?);
            Some(())
        })?;
        Some(Value::Array(items.into()))
    }

    /// Entries with commas between them.
    fn list(
        &mut self,
        open: u8,
        close: u8,
        mut entry: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        self.take(open).then_some(())?;
        self.blanks();
        if self.take(close) {
            return Some(());
        }
        loop {
            self.blanks();
            entry(self)?;
            self.blanks();
            if self.take(close) {
                return Some(());
            }
            self.take(b',').then_some(())?;
        }
    }

    fn string(&mut self) -> Option<String> {
        self.take(b'"').then_some(())?;
        let mut result = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.find(|c| c < ' ' || c == '"' || c == '\\')?;
            result.push_str(&rest[..plain]);
            self.at += plain + 1;
            match rest.as_bytes()[plain] {
                b'"' => return Some(result),
                b'\\' => result.push(self.escape()?),
                _ => return None,
            }
        }
    }

    fn escape(&mut self) -> Option<char> {
        let escape = self.peek()?;
        self.at += 1;
        Some(match escape {
            b'"' | b'\\' | b'/' => char::from(escape),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(),
            _ => return None,
        })
    }

    /// Characters beyond the basic plane are surrogate pairs; a lone surrogate is invalid.
    fn unicode(&mut self) -> Option<char> {
        let high = self.hex()?;
        if !(0xd800..0xdc00).contains(&high) {
            return char::from_u32(high);
        }
        (self.take(b'\\') && self.take(b'u')).then_some(())?;
        let low = self.hex()?.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
        char::from_u32(0x10000 + ((high - 0xd800) << 10) + low)
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        self.at += 4;
        digits
            .chars()
            .try_fold(0, |value, c| Some(value * 16 + c.to_digit(16)?))
    }

    fn number(&mut self) -> Option<Value> {
        let start = self.at;
        self.take(b'-');
        let leading_zero = self.peek() == Some(b'0');
        let digits = self.digits()?;
        if leading_zero && digits > 1 {
            return None;
        }
        let mut whole = true;
        if self.take(b'.') {
            whole = false;
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            whole = false;
            let _ = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        let text = &self.text[start..self.at];
        if whole {
            return text.parse().ok().map(Value::Int);
        }
        let float = text.parse().ok().filter(|float: &f64| float.is_finite());
        float.map(Value::Float)
    }

    /// The number of digits, at least one.
    fn digits(&mut self) -> Option<usize> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        Some(self.at - start).filter(|digits| *digits > 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::eval::text::write_json;

    fn round(text: &str) -> Option<String> {
        parse(text).map(|value| {
            let mut out = String::new();
            write_json(value.view(), &mut out);
            out
        })
    }

    // proves S1
    #[test]
    fn json_is_read_as_an_input_would_read_it() {
        for (text, expected) in [
            (" {} ", "{}"),
            (
                r#"{"a":1,"b":[1.5,true,null,"x"]}"#,
                r#"{"a":1,"b":[1.5,true,null,"x"]}"#,
            ),
            (r#"{"a":1,"b":2,"a":3}"#, r#"{"a":3,"b":2}"#),
            (r#""\u00e9\ud83d\ude00\n\/""#, "\"é😀\\n/\""),
            ("-0", "0"),
            ("1e2", "100.0"),
            ("9223372036854775807", "9223372036854775807"),
        ] {
            assert_eq!(round(text).as_deref(), Some(expected), "{text}");
        }
        for text in [
            "",
            "{",
            "{\"a\"}",
            "{\"a\":1,}",
            "[1,]",
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "tru",
            "nul",
            "'a'",
            "\"\u{1}\"",
            "\"\\x\"",
            "\"\\ud800\"",
            "\"\\ud800\\u0041\"",
            "\"\\u+123\"",
            "9223372036854775808",
            "1e999",
            "{} {}",
            "\"",
            "\"\\",
            "\"\\u12",
            "NaN",
        ] {
            assert_eq!(round(text), None, "{text}");
        }
    }

    // proves S1
    #[test]
    fn nesting_has_a_limit() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(parse(&nested(DEPTH_MAX)).is_some());
        assert!(parse(&nested(DEPTH_MAX + 1)).is_none());
        assert!(parse(&nested(1_000_000)).is_none());
    }

    proptest! {
        // proves S1
        #[test]
        fn no_text_makes_the_reader_panic(text in r#"[\[\]{}":,\\u0-9a-fé.eE+ -]{0,40}"#) {
            if let Some(once) = round(&text) {
                prop_assert_eq!(round(&once), Some(once));
            }
        }
    }
}
