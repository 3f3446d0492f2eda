//! JSON that scripts read from attributes. The crate writes two shapes of it, too few for a library.

/// A JSON string.
pub(crate) fn json_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A JSON object of the texts that are not empty.
pub(crate) fn json_object<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let fields = fields.into_iter().filter(|(_, value)| !value.is_empty());
    let fields: Vec<String> = fields
        .map(|(name, value)| format!("{}:{}", json_text(name), json_text(value)))
        .collect();
    format!("{{{}}}", fields.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_and_empty_fields_left_out() {
        assert_eq!(json_text("a\"\\\n"), r#""a\"\\\u000a""#);
        assert_eq!(json_object([("a", "1"), ("b", "")]), r#"{"a":"1"}"#);
    }
}
