//! JSON lines and JSON arrays: each line or element is an event, stored byte for byte.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::Event;
use crate::http::error::{Code, Error};

/// One event a line; blank lines are skipped.
pub(super) fn lines(body: &[u8]) -> Result<Vec<Event<'_>>, Error> {
    let mut events = Vec::new();
    for (number, line) in body.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        if let Err(error) = serde_json::from_slice::<IgnoredAny>(line) {
            let message = format!("line {} is not JSON: {error}", number + 1);
            let hint =
                "nothing was stored: correct the line, or send events of other types one by one";
            return Err(Error::new(Code::BadEvent, message, hint));
        }
        events.push(plain(line));
    }
    Ok(events)
}

/// One event an element.
pub(super) fn array(body: &[u8]) -> Result<Vec<Event<'_>>, Error> {
    let elements: Vec<&RawValue> = serde_json::from_slice(body).map_err(|error| {
        let message = format!("the body is not a JSON array: {error}");
        let hint =
            "nothing was stored: correct it, or send it with another content type as one event";
        Error::new(Code::BadEvent, message, hint)
    })?;
    Ok(elements
        .iter()
        .map(|element| plain(element.get().as_bytes()))
        .collect())
}

fn plain(value: &[u8]) -> Event<'_> {
    Event {
        value: Cow::Borrowed(value),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(events: Result<Vec<Event<'_>>, Error>) -> Vec<String> {
        let text = |event: Event<'_>| String::from_utf8(event.value.into_owned()).unwrap();
        events.unwrap().into_iter().map(text).collect()
    }

    #[test]
    fn lines_are_kept_as_sent() {
        let body = b"{\"a\": 1.0}\r\n\n [1,  2] \n\"x\"";
        assert_eq!(values(lines(body)), ["{\"a\": 1.0}", "[1,  2]", "\"x\""]);
    }

    #[test]
    fn a_bad_line_is_named_and_nothing_is_taken() {
        let error = lines(b"{}\n\n{\"a\":}\n").unwrap_err();
        assert_eq!(error.code, Code::BadEvent);
        assert!(error.message.starts_with("line 3 is not JSON"), "{error}");
    }

    #[test]
    fn elements_are_kept_as_sent() {
        let body = b" [ {\"a\": 1.00} , 1e2,\"\\u00e9\" ]";
        assert_eq!(values(array(body)), ["{\"a\": 1.00}", "1e2", "\"\\u00e9\""]);
        assert!(array(b"[1,").is_err());
    }
}
