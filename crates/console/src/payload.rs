//! The bytes of an event or message, decoded for people: indented JSON, text, or a dump.

use maud::{Markup, PreEscaped, html};

use crate::format;

/// Bytes with the form in which they are shown.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    pub form: PayloadForm,
    /// JSON of [`PayloadForm::Json`]; lines of JSON of Avro and CSV; the text itself.
    pub text: String,
    /// The first bytes.
    pub bytes: Vec<u8>,
    /// The size of the whole.
    pub length: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PayloadForm {
    /// There is no value.
    #[default]
    Absent,
    Json,
    Avro,
    Csv,
    Text,
    Bytes,
}

impl PayloadForm {
    fn name(self) -> &'static str {
        match self {
            PayloadForm::Absent => "no value",
            PayloadForm::Json => "JSON",
            PayloadForm::Avro => "Avro",
            PayloadForm::Csv => "CSV",
            PayloadForm::Text => "text",
            PayloadForm::Bytes => "bytes",
        }
    }
}

/// Characters of the one-line preview of a payload.
const PREVIEW_CHARS: usize = 200;

/// Bytes of a dump.
const DUMP_BYTES: usize = 512;

impl Payload {
    /// One line.
    pub fn preview(&self) -> String {
        let line = |text: &str| {
            let text = text.chars().map(|c| if c.is_control() { ' ' } else { c });
            text.take(PREVIEW_CHARS).collect()
        };
        match self.form {
            PayloadForm::Absent => "no value (a tombstone of its key)".to_owned(),
            PayloadForm::Bytes => {
                let bytes = self.bytes.iter().take(24);
                let hex: Vec<String> = bytes.map(|byte| format!("{byte:02x}")).collect();
                hex.join(" ")
            }
            _ => line(&self.text),
        }
    }

    /// `JSON, 1.2 kB`
    pub fn description(&self) -> String {
        match self.form {
            PayloadForm::Absent => "no value".to_owned(),
            form => format!("{}, {}", form.name(), format::bytes(self.length)),
        }
    }

    /// The value, and how much of it is shown.
    pub(crate) fn value(&self) -> Markup {
        html! {
            @match self.form {
                PayloadForm::Absent | PayloadForm::Bytes => {},
                PayloadForm::Text => { pre class="plain" { (self.text) } },
                PayloadForm::Json | PayloadForm::Avro | PayloadForm::Csv => {
                    pre class="plain" { (indented(&self.text)) }
                },
            }
            @if self.bytes.len() < self.length as usize && self.form != PayloadForm::Avro {
                p class="sub" { "The first " (format::bytes(self.bytes.len() as u64)) " of " (format::bytes(self.length)) "." }
            }
        }
    }

    /// The value, and its bytes.
    pub(crate) fn body(&self) -> Markup {
        html! {
            (self.value())
            @if !self.bytes.is_empty() {
                details class="raw" open[self.form == PayloadForm::Bytes] {
                    summary { "Bytes" }
                    pre class="plain dump" { (dump(&self.bytes)) }
                }
            }
        }
    }
}

/// JSON with a line per member, as it was written otherwise: the order of names and the digits of numbers stay.
fn indented(json: &str) -> Markup {
    let mut out = String::with_capacity(json.len() * 2);
    let mut depth = 0_usize;
    let mut chars = json.char_indices().peekable();
    let newline = |out: &mut String, depth: usize| {
        out.push('\n');
        (0..depth.min(40)).for_each(|_| out.push_str("  "));
    };
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => {
                let mut end = at + 1;
                let mut escaped = false;
                for (next, c) in chars.by_ref() {
                    end = next + c.len_utf8();
                    match c {
                        _ if escaped => escaped = false,
                        '\\' => escaped = true,
                        '"' => break,
                        _ => {}
                    }
                }
                let is_name = json[end..].trim_start().starts_with(':');
                let class = if is_name { "k" } else { "s" };
                let text = html! { span class=(class) { (json[at..end]) } };
                out.push_str(&text.into_string());
            }
            '{' | '[' => {
                let close = if c == '{' { '}' } else { ']' };
                out.push(c);
                while chars.next_if(|(_, c)| c.is_whitespace()).is_some() {}
                match chars.next_if(|(_, next)| *next == close) {
                    Some(_) => out.push(close),
                    None => {
                        depth += 1;
                        newline(&mut out, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                newline(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(',');
                newline(&mut out, depth);
            }
            ':' => out.push_str(": "),
            '\n' if depth == 0 => out.push('\n'),
            c if c.is_whitespace() => {}
            c => out.push_str(&html! { (c) }.into_string()),
        }
    }
    PreEscaped(out)
}

/// `0000  7b 22 61 22 3a 31 7d  {"a":1}`
fn dump(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (line, bytes) in bytes[..bytes.len().min(DUMP_BYTES)].chunks(16).enumerate() {
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: String = bytes
            .iter()
            .map(|byte| match byte {
                b' '..=b'~' => *byte as char,
                _ => '.',
            })
            .collect();
        out.push_str(&format!(
            "{:04x}  {:<47}  {text}\n",
            line * 16,
            hex.join(" ")
        ));
    }
    if bytes.len() > DUMP_BYTES {
        out.push_str("..\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_indented_and_escaped_and_keeps_its_digits() {
        let shown = indented(r#"{"b":{"x":[1.50,2],"e":{}},"a":"<b>,{\"q\""}"#).into_string();
        let plain = shown
            .replace("<span class=\"k\">", "")
            .replace("<span class=\"s\">", "")
            .replace("</span>", "")
            .replace("&quot;", "\"");
        assert_eq!(
            plain,
            "{\n  \"b\": {\n    \"x\": [\n      1.50,\n      2\n    ],\n    \"e\": {}\n  },\n  \
             \"a\": \"&lt;b&gt;,{\\\"q\\\"\"\n}"
        );
    }

    #[test]
    fn text_that_is_no_json_is_escaped_too() {
        for text in ["<script>", "\"<script>", "{<", "]]}}\"", "\u{1F600}\"\\"] {
            let shown = indented(text).into_string();
            assert!(
                !shown.contains("<script") && !shown.contains("{<"),
                "{shown}"
            );
        }
    }

    #[test]
    fn a_dump_is_bounded() {
        assert_eq!(
            dump(b"{\"a\":1}\x00"),
            format!(
                "0000  7b 22 61 22 3a 31 7d 00{}  {{\"a\":1}}.\n",
                " ".repeat(24)
            )
        );
        assert!(dump(&[0; 100_000]).len() < 4000);
    }
}
