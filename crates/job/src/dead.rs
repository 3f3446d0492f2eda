//! Dead letters: events that were set aside, with what is known of them and why.
//!
//! A dead letter is a line of JSON. Its fields are those of Stream Analytics' data errors where these
//! have them (Source, Type, DataErrorType, ErrorCode, Message), and then what it takes to find and
//! repeat the event. Nothing in it depends on when or how fast the job ran.

use highwater_query::Span;
use highwater_time::Instant;
use serde_json::{Value, json};

use crate::report::TroubleKind;

#[derive(Clone, Debug)]
pub(crate) struct DeadLetter {
    /// The input that it came from; `None` where the query has mixed them.
    pub input: Option<String>,
    pub cause: Cause,
    pub reason: String,
    /// The event, as JSON or as it stood in the file.
    pub event: Option<String>,
    pub file: Option<String>,
    pub line: Option<u64>,
    /// The time that the event had got by then.
    pub time: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause {
    Input(TroubleKind),
    /// Where in the query it failed.
    Query(Span),
}

impl DeadLetter {
    pub fn write(&self, query_name: &str, query: &str, out: &mut Vec<u8>) {
        let (kind, code, place) = match self.cause {
            Cause::Input(kind) => (kind.name(), kind.code(), Value::Null),
            Cause::Query(span) => {
                let (line, column) = line_and_column(query, span.start as usize);
                let place = json!({"Name": query_name, "Line": line, "Column": column});
                ("QueryRuntimeError", "RuntimeError", place)
            }
        };
        let letter = json!({
            "Source": self.input,
            "Type": "DataError",
            "DataErrorType": kind,
            "ErrorCode": code,
            "Message": self.reason,
            "Event": self.event,
            "File": self.file,
            "Line": self.line,
            "Time": self.time.map(|time| time.to_string()),
            "Query": place,
        });
        out.extend_from_slice(letter.to_string().as_bytes());
        out.push(b'\n');
    }
}

pub(crate) fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = start_of(text, at);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (
        before.matches('\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}

/// The start of a text, at most that many bytes.
pub(crate) fn start_of(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
