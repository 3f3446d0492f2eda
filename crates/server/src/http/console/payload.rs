//! Decodes the bytes of events and messages for display, by their content type and their first bytes.

use highwater_connect::json::Field;
use highwater_connect::{CsvFormat, Format, SourceOptions, ValueDecoder};
use highwater_console::payload::{Payload, PayloadForm};
use highwater_engine::eval::write_json;

use crate::http::json::is_json;

/// Bytes that are shown of each payload of a list, and of the payload of a page.
pub(super) const LIST_BYTES: usize = 8 << 10;
pub(super) const PAGE_BYTES: usize = 64 << 10;

/// Events that are shown of an Avro file or CSV text.
const EVENTS_SHOWN: usize = 20;

/// An object container file begins with this.
const AVRO_MAGIC: &[u8] = b"Obj\x01";

/// `start` is the beginning of a payload of `length` bytes. At most `shown_max` of them are shown.
pub(super) fn payload(
    start: &[u8],
    length: usize,
    content_type: Option<&str>,
    shown_max: usize,
) -> Payload {
    let is_whole = start.len() == length;
    let of = |form: PayloadForm, text: String| Payload {
        form,
        text,
        bytes: start[..start.len().min(shown_max)].to_vec(),
        length: length as u64,
    };
    if is_whole && start.starts_with(AVRO_MAGIC) {
        return match events(start, Format::Avro, shown_max) {
            Some(text) => of(PayloadForm::Avro, text),
            None => of(PayloadForm::Bytes, String::new()),
        };
    }
    let is_csv = content_type.is_some_and(|kind| kind.starts_with("text/csv"));
    if is_whole
        && is_csv
        && let Some(text) = events(start, Format::Csv(CsvFormat::COMMA), shown_max)
    {
        return of(PayloadForm::Csv, text);
    }
    if start.len() <= shown_max && is_whole && is_json(start) {
        return of(PayloadForm::Json, lossy(start));
    }
    match is_text(start) {
        true => of(
            PayloadForm::Text,
            lossy(&start[..start.len().min(shown_max)]),
        ),
        false => of(PayloadForm::Bytes, String::new()),
    }
}

/// A key or header value as text; bytes that are none as hexadecimal digits.
pub(super) fn short_text(bytes: &[u8]) -> String {
    match is_text(bytes) {
        true => lossy(bytes),
        false => {
            let hex = bytes.iter().take(64).map(|byte| format!("{byte:02x}"));
            hex.collect::<Vec<_>>().join(" ")
        }
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether bytes read as text, apart from a character that was cut at the end.
fn is_text(bytes: &[u8]) -> bool {
    let valid = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    let unprintable = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    !valid.contains(unprintable)
}

/// The events in a value as lines of JSON; `None` if it has none that can be read.
fn events(value: &[u8], format: Format, shown_max: usize) -> Option<String> {
    let mut options = SourceOptions::of(vec![Field::Whole]);
    options.format = Some(format);
    let mut decoder = ValueDecoder::new(options)?;
    decoder.push(value, 0);
    let events = decoder.finish();
    let column = events.columns.first()?;
    let mut out = String::new();
    for row in 0..events.rows.min(EVENTS_SHOWN) {
        if row > 0 {
            out.push('\n');
        }
        write_json(column.get(row), &mut out);
        if out.len() > shown_max * 4 {
            break;
        }
    }
    (events.rows > 0).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(value: &[u8], kind: Option<&str>) -> (PayloadForm, String) {
        let shown = payload(value, value.len(), kind, LIST_BYTES);
        (shown.form, shown.text)
    }

    #[test]
    fn payloads_are_told_apart_by_their_content() {
        assert_eq!(form(b"{\"a\":1}", None).0, PayloadForm::Json);
        assert_eq!(form("grüße\n".as_bytes(), None).0, PayloadForm::Text);
        assert_eq!(form(b"\xff\x00\x01", None).0, PayloadForm::Bytes);
        assert_eq!(form(b"Obj\x01broken", None).0, PayloadForm::Bytes);
        let (form, text) = form(b"a,b\n1,x\n2,y\n", Some("text/csv; charset=utf-8"));
        assert_eq!(form, PayloadForm::Csv);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("\"b\":\"y\""), "{text}");
    }

    #[test]
    fn what_is_shown_is_bounded() {
        let long = vec![b'x'; 1 << 20];
        let shown = payload(&long[..64 << 10], long.len(), None, LIST_BYTES);
        assert_eq!(shown.length, 1 << 20);
        assert!(shown.text.len() <= LIST_BYTES && shown.bytes.len() <= LIST_BYTES);
        let cut = "ü".repeat(100);
        assert_eq!(
            payload(&cut.as_bytes()[..99], 200, None, LIST_BYTES).form,
            PayloadForm::Text
        );
    }
}
