//! Responses of a service and their wire format.

use bytes::Bytes;
use hyper::StatusCode;
use serde::Serialize;
use serde_json::json;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: StatusCode,
    pub body: Bytes,
    pub kind: &'static str,
    pub location: Option<String>,
}

impl Answer {
    pub fn empty(status: StatusCode) -> Answer {
        Answer {
            status,
            body: Bytes::new(),
            kind: "",
            location: None,
        }
    }

    pub fn text(status: StatusCode, text: impl Into<String>) -> Answer {
        Answer {
            body: Bytes::from(text.into()),
            kind: "text/plain",
            ..Answer::empty(status)
        }
    }

    pub fn json(status: StatusCode, value: &impl Serialize) -> Answer {
        const USUAL_BYTES: usize = 512;
        let mut body = Vec::with_capacity(USUAL_BYTES);
        match serde_json::to_writer(&mut body, value) {
            Ok(()) => Answer {
                body: body.into(),
                kind: "application/json",
                ..Answer::empty(status)
            },
            Err(error) => Answer::problem(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }

    pub fn problem(status: StatusCode, message: impl Into<String>) -> Answer {
        Answer::json(status, &json!({"message": message.into()}))
    }

    pub fn not_found() -> Answer {
        Answer::problem(StatusCode::NOT_FOUND, "there is no such thing here")
    }

    /// `location` consists of ids and addresses, so all its characters are valid in a header.
    pub fn at(self, location: String) -> Answer {
        Answer {
            location: Some(location),
            ..self
        }
    }

    /// Writes the response; `to_head` omits the body. `last` adds `Connection: close`.
    pub(super) fn write(&self, out: &mut Vec<u8>, to_head: bool, last: bool) {
        let reason = self.status.canonical_reason().unwrap_or_default();
        put(out, ["HTTP/1.1 ", self.status.as_str(), " ", reason]);
        if !self.kind.is_empty() {
            put(out, ["\r\ncontent-type: ", self.kind]);
        }
        if let Some(location) = &self.location {
            put(out, ["\r\nlocation: ", location]);
        }
        if last {
            put(out, ["\r\nconnection: close"]);
        }
        if self.status != StatusCode::NO_CONTENT {
            let mut digits = itoa::Buffer::new();
            put(
                out,
                ["\r\ncontent-length: ", digits.format(self.body.len())],
            );
        }
        put(out, ["\r\n\r\n"]);
        if !to_head {
            out.extend_from_slice(&self.body);
        }
    }
}

fn put<const N: usize>(out: &mut Vec<u8>, texts: [&str; N]) {
    for text in texts {
        out.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(answer: &Answer, to_head: bool, last: bool) -> String {
        let mut out = Vec::new();
        answer.write(&mut out, to_head, last);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_answer_says_how_long_it_is() {
        let answer = Answer::json(StatusCode::ACCEPTED, &json!({"a": 1})).at("/b".into());
        let head = "HTTP/1.1 202 Accepted\r\ncontent-type: application/json\r\nlocation: /b\r\n";
        assert_eq!(
            written(&answer, false, false),
            format!("{head}content-length: 7\r\n\r\n{{\"a\":1}}")
        );
        assert_eq!(
            written(&answer, true, true),
            format!("{head}connection: close\r\ncontent-length: 7\r\n\r\n")
        );
    }

    #[test]
    fn what_has_no_content_has_no_length_either() {
        let answer = Answer::empty(StatusCode::NO_CONTENT);
        assert_eq!(
            written(&answer, false, false),
            "HTTP/1.1 204 No Content\r\n\r\n"
        );
    }
}
