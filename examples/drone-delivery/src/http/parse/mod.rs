//! Parses requests from the bytes of a connection.
//!
//! Nothing is copied: a [`Request`] borrows from the buffer. Two things are normalised in place first: the collection
//! name becomes lower case, because callers of the reference application write `/api/Deliveries` and `/api/deliveries`;
//! and a chunked body is joined.

#[cfg(test)]
mod tests;

use httparse::Header;
use hyper::{Method, StatusCode};
use memchr::memmem;
use serde::Deserialize;

use super::Answer;

const HEAD_BYTES_MAX: usize = 16 << 10;
const BODY_BYTES_MAX: usize = 256 << 10;
/// Maximum size of a chunked body with its chunk headers.
const CHUNKED_BYTES_MAX: usize = 2 * BODY_BYTES_MAX;

const HEADERS_MAX: usize = 64;

/// A complete request.
#[derive(Debug)]
pub struct Request<'a> {
    pub method: Method,
    pub path: &'a str,
    pub query: Option<&'a str>,
    /// The validated header lines. Most requests need one at most.
    head: &'a str,
    pub body: &'a [u8],
}

impl<'a> Request<'a> {
    /// The segments of the path.
    pub fn parts(&self) -> Vec<&'a str> {
        self.path
            .split('/')
            .filter(|part| !part.is_empty())
            .collect()
    }

    pub fn json<T: Deserialize<'a>>(&self) -> Result<T, Answer> {
        serde_json::from_slice(self.body).map_err(|error| bad(error.to_string()))
    }

    /// A parameter of the query; `%XX` is not decoded, because ids and numbers need none.
    pub fn parameter(&self, name: &str) -> Option<&'a str> {
        let pairs = self.query?.split('&');
        let mut pairs = pairs.filter_map(|pair| pair.split_once('='));
        pairs.find_map(|(key, value)| (key == name).then_some(value))
    }

    pub fn header(&self, name: &str) -> Option<&'a str> {
        let lines = self.head.split("\r\n").skip(1);
        let mut headers = lines.filter_map(|line| line.split_once(':'));
        headers.find_map(|(key, value)| key.eq_ignore_ascii_case(name).then_some(value.trim()))
    }
}

/// The result of parsing the bytes of a connection.
#[derive(Debug)]
pub(super) enum Parsed<'a> {
    /// An incomplete request; the caller may expect `100 Continue`.
    Incomplete { expects_continue: bool },
    Complete {
        request: Request<'a>,
        /// Its length in bytes.
        bytes: usize,
        /// The connection closes after it.
        last: bool,
    },
}

/// `Err` is the response to an invalid request; the rest of the connection is unreadable too.
pub(super) fn parse(bytes: &mut [u8]) -> Result<Parsed<'_>, Answer> {
    let Some(end) = memmem::find(bytes, b"\r\n\r\n") else {
        return match bytes.len() <= HEAD_BYTES_MAX {
            true => Ok(Parsed::Incomplete {
                expects_continue: false,
            }),
            false => Err(too_large("the head")),
        };
    };
    let (head, rest) = bytes.split_at_mut(end + 4);
    collection_to_lower_case(head);
    let head: &[u8] = head;
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut line = httparse::Request::new(&mut headers);
    // A head that could also end earlier is invalid.
    let complete = line.parse(head) == Ok(httparse::Status::Complete(head.len()));
    let (true, Ok(text)) = (complete, std::str::from_utf8(head)) else {
        return Err(bad("the head of the request cannot be read"));
    };
    let method = line.method.map(|name| Method::from_bytes(name.as_bytes()));
    let (Some(Ok(method)), Some(target)) = (method, line.path) else {
        return Err(bad("the first line of the request cannot be read"));
    };
    let framing = FramingHeaders::of(line.headers)?;
    let Some(body) = framing.body(rest)? else {
        return Ok(Parsed::Incomplete {
            expects_continue: framing.expects_continue,
        });
    };
    let last = framing.close || line.version == Some(0);
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let bytes = head.len() + body.taken;
    let request = Request {
        method,
        path,
        query,
        head: text,
        body: &rest[..body.length],
    };
    Ok(Parsed::Complete {
        request,
        bytes,
        last,
    })
}

/// The headers that determine the framing.
#[derive(Default)]
struct FramingHeaders {
    length: Option<usize>,
    chunked: bool,
    close: bool,
    expects_continue: bool,
}

/// The body is the first `length` bytes of the rest; on the wire it took `taken` bytes.
struct Body {
    length: usize,
    taken: usize,
}

impl FramingHeaders {
    fn of(headers: &[Header<'_>]) -> Result<FramingHeaders, Answer> {
        let mut framing = FramingHeaders::default();
        for Header { name, value } in headers {
            let is = |text: &str| value.eq_ignore_ascii_case(text.as_bytes());
            if name.eq_ignore_ascii_case("content-length") {
                let digits = std::str::from_utf8(value).ok();
                let digits = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
                let length = digits.and_then(|digits| digits.parse().ok());
                if length.is_none() || framing.length.is_some_and(|other| Some(other) != length) {
                    return Err(bad("content-length is not a number"));
                }
                framing.length = length;
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                if !is("chunked") {
                    return Err(bad("only the transfer encoding `chunked` is supported"));
                }
                framing.chunked = true;
            } else if name.eq_ignore_ascii_case("connection") {
                framing.close |= is("close");
            } else if name.eq_ignore_ascii_case("expect") {
                framing.expects_continue |= is("100-continue");
            }
        }
        // Ambiguous: two parsers could see different requests (request smuggling).
        match framing.chunked && framing.length.is_some() {
            true => Err(bad("a request has either content-length or chunks")),
            false => Ok(framing),
        }
    }

    /// `None` while it is incomplete.
    fn body(&self, rest: &mut [u8]) -> Result<Option<Body>, Answer> {
        if self.chunked {
            return match join(rest) {
                Err(()) => Err(bad("the chunks of the body cannot be read")),
                Ok(Some(body)) if body.length > BODY_BYTES_MAX => Err(too_large("the body")),
                Ok(None) if rest.len() > CHUNKED_BYTES_MAX => Err(too_large("the body")),
                Ok(body) => Ok(body),
            };
        }
        let length = self.length.unwrap_or(0);
        if length > BODY_BYTES_MAX {
            return Err(too_large("the body"));
        }
        let body = Body {
            length,
            taken: length,
        };
        Ok((rest.len() >= length).then_some(body))
    }
}

/// Joins the chunks, if all of them are there.
fn join(rest: &mut [u8]) -> Result<Option<Body>, ()> {
    let Some(chunks) = chunks(rest)? else {
        return Ok(None);
    };
    let (mut length, mut taken) = (0, 0);
    for (start, size) in chunks {
        rest.copy_within(start..start + size, length);
        length += size;
        taken = start + size + 2;
    }
    Ok(Some(Body { length, taken }))
}

/// Position and length of each chunk; the last is empty and marks the end of the body. Trailers are rejected.
fn chunks(rest: &[u8]) -> Result<Option<Vec<(usize, usize)>>, ()> {
    let mut chunks = Vec::new();
    let mut at = 0;
    loop {
        let (head, size) = match httparse::parse_chunk_size(&rest[at..]) {
            Ok(httparse::Status::Complete(found)) => found,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(()),
        };
        let size = usize::try_from(size).map_err(drop)?;
        let start = at + head;
        let end = start.checked_add(size).ok_or(())?;
        match rest.get(end..end.saturating_add(2)) {
            None => return Ok(None),
            Some(b"\r\n") => chunks.push((start, size)),
            Some(_) => return Err(()),
        }
        if size == 0 {
            return Ok(Some(chunks));
        }
        at = end + 2;
    }
}

/// Ids, which follow the third slash, are unchanged.
fn collection_to_lower_case(head: &mut [u8]) {
    let target = head.split_mut(|byte| *byte == b' ').nth(1);
    let path = target.and_then(|target| target.split_mut(|byte| *byte == b'?').next());
    let parts = path
        .into_iter()
        .flat_map(|path| path.split_mut(|byte| *byte == b'/'));
    parts.take(3).for_each(|part| part.make_ascii_lowercase());
}

fn bad(message: impl Into<String>) -> Answer {
    Answer::problem(StatusCode::BAD_REQUEST, message)
}

fn too_large(what: &str) -> Answer {
    Answer::problem(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("{what} of the request is too large"),
    )
}
