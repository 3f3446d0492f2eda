//! Complete, incomplete and invalid requests.

use hyper::{Method, StatusCode};
use proptest::prelude::*;

use super::*;

/// `METHOD path ?query body` of the first request and its length; or `part`, or the error.
fn read(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    match parse(&mut bytes) {
        Ok(Parsed::Incomplete { expects_continue }) => format!("part, asks={expects_continue}"),
        Ok(Parsed::Complete {
            request,
            bytes,
            last,
        }) => {
            let body = String::from_utf8_lossy(request.body);
            let Request {
                method,
                path,
                query,
                ..
            } = &request;
            format!("{method} {path} {query:?} {body} bytes={bytes} last={last}")
        }
        Err(answer) => format!("{}", answer.status),
    }
}

fn check(text: &str, expected: &str) {
    assert_eq!(read(text), expected, "{text}");
}

#[test]
fn a_request_is_taken_when_its_body_is_there_and_what_follows_is_left() {
    let text = "POST /api/x?a=1 HTTP/1.1\r\nContent-Length: 2\r\n\r\nokGET / HTTP/1.1";
    check(text, "POST /api/x Some(\"a=1\") ok bytes=49 last=false");
    check(&text[..48], "part, asks=false");
    check(&text[..10], "part, asks=false");
    check("", "part, asks=false");
}

#[test]
fn the_collection_is_read_in_any_case_and_the_id_is_not() {
    let text = "GET /API/Deliveries/Ab/Cd?E=F HTTP/1.1\r\n\r\n";
    check(
        text,
        "GET /api/deliveries/Ab/Cd Some(\"E=F\")  bytes=42 last=false",
    );
    let text = "GET /API?Q=/A/B HTTP/1.1\r\n\r\n";
    check(text, "GET /api Some(\"Q=/A/B\")  bytes=28 last=false");
}

#[test]
fn a_header_is_found_by_its_name_in_any_case() {
    let mut bytes = *b"GET /x:y HTTP/1.1\r\nIdempotency-Key:  a: b \r\nX:\r\n\r\nX: z";
    let Ok(Parsed::Complete { request, .. }) = parse(&mut bytes) else {
        panic!("this is a request");
    };
    assert_eq!(request.header("idempotency-key"), Some("a: b"));
    assert_eq!(request.header("x"), Some(""));
    assert_eq!(request.header("y"), None);
}

#[test]
fn chunks_are_pushed_together() {
    let text = "PUT /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n3;x\r\ncde\r\n0\r\n\r\nGET";
    let length = text.len() - 3;
    check(
        text,
        &format!("PUT /a None abcde bytes={length} last=false"),
    );
    for end in 50..length {
        check(&text[..end], "part, asks=false");
    }
}

#[test]
fn a_caller_says_that_it_waits_or_leaves() {
    check(
        "PUT /a HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\n",
        "part, asks=true",
    );
    let closing = "GET /a HTTP/1.1\r\nconnection: close\r\n\r\n";
    check(closing, "GET /a None  bytes=38 last=true");
    check("GET /a HTTP/1.0\r\n\r\n", "GET /a None  bytes=19 last=true");
}

#[test]
fn what_can_be_read_in_two_ways_is_not_read() {
    let with = |headers: &str| format!("PUT /a HTTP/1.1\r\n{headers}\r\n\r\n0\r\n\r\n");
    for headers in [
        "content-length: 5\r\ntransfer-encoding: chunked",
        "content-length: 5\r\ncontent-length: 0",
        "content-length: +5",
        "content-length: -1",
        "content-length:",
        "transfer-encoding: gzip, chunked",
        "content-length : 5",
    ] {
        check(&with(headers), "400 Bad Request");
    }
    check("nonsense\r\n\r\n", "400 Bad Request");
    check(
        "GET / HTTP/1.1\n\nGET / HTTP/1.1\r\n\r\n",
        "400 Bad Request",
    );
    check(
        "PUT /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nx\r\n",
        "400 Bad Request",
    );
}

#[test]
fn everything_has_a_bound() {
    let large = StatusCode::PAYLOAD_TOO_LARGE.to_string();
    check(&"x".repeat(HEAD_BYTES_MAX + 1), &large);
    let length = BODY_BYTES_MAX + 1;
    let head = format!("PUT /a HTTP/1.1\r\ncontent-length: {length}\r\n\r\n");
    check(&head, &large);
    let head = "PUT /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
    let body = "x".repeat(length);
    check(&format!("{head}{length:x}\r\n{body}\r\n0\r\n\r\n"), &large);
    let endless = "1\r\nx\r\n".repeat(CHUNKED_BYTES_MAX / 6 + 1);
    check(&format!("{head}{endless}"), &large);
    check(&format!("{head}ffffffffffffffff\r\n"), "400 Bad Request");
}

proptest! {
    /// Any bytes are a request, an incomplete one or an error; and a request borrows from its own bytes.
    #[test]
    fn no_bytes_are_too_strange(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
        begin in prop::sample::select(vec!["", "GET / HTTP/1.1\r\n", "PUT / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"]),
    ) {
        bytes.splice(0..0, begin.bytes());
        let length = bytes.len();
            if let Ok(Parsed::Complete { bytes, request, .. }) = parse(&mut bytes) {
            prop_assert!(bytes <= length && request.body.len() <= bytes);
        }
    }

    /// A body is independent of its chunking.
    #[test]
    fn chunks_say_the_same_as_a_length(pieces in proptest::collection::vec("[a-z\r\n]{1,20}", 0..6)) {
        let body: String = pieces.concat();
        let chunks: String = pieces.iter().map(|piece| format!("{:x}\r\n{piece}\r\n", piece.len())).collect();
        let text = format!("PUT / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n");
        let mut bytes = text.clone().into_bytes();
            let parsed = parse(&mut bytes);
        let Ok(Parsed::Complete { request, bytes, last }) = parsed else {
            return Err(TestCaseError::fail(format!("{parsed:?}")));
        };
        prop_assert_eq!((request.body, bytes, last), (body.as_bytes(), text.len(), false));
        prop_assert_eq!(request.method, Method::PUT);
    }
}
