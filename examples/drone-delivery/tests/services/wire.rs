//! The HTTP server, tested with raw requests.

use drone_delivery::chaos::Faults;
use drone_delivery::http::{Answer, Request, Service};
use hyper::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::*;

/// Echoes the request.
struct Echo;

impl Service for Echo {
    async fn answer(&self, request: Request<'_>) -> Answer {
        let body = String::from_utf8_lossy(request.body);
        let text = format!("{} {} {body}", request.method, request.path);
        Answer::text(StatusCode::OK, text)
    }
}

/// Sends each piece after its expected response, then reads to the end.
async fn talk(pieces: &[(&str, &str)]) -> String {
    let server = run(Echo, Faults::default()).await;
    let mut stream = TcpStream::connect(&server.address).await.unwrap();
    for (before, piece) in pieces {
        let mut heard = vec![0; before.len()];
        stream.read_exact(&mut heard).await.unwrap();
        assert_eq!(String::from_utf8(heard).unwrap(), *before);
        stream.write_all(piece.as_bytes()).await.unwrap();
    }
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    rest
}

const LAST: &str = "GET /last HTTP/1.1\r\nconnection: close\r\n\r\n";
const TO_LAST: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\ncontent-length: 10\r\n\r\nGET /last ";

#[tokio::test]
async fn requests_that_come_together_are_answered_in_their_order() {
    let two = "PUT /a HTTP/1.1\r\ncontent-length: 1\r\n\r\nx";
    let answer = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 8\r\n\r\nPUT /a x";
    let heard = talk(&[("", &format!("{two}{two}{LAST}"))]).await;
    assert_eq!(heard, format!("{answer}{answer}{TO_LAST}"));
}

#[tokio::test]
async fn a_body_in_pieces_is_waited_for_and_welcome() {
    let go_on = "HTTP/1.1 100 Continue\r\n\r\n";
    let heard = talk(&[
        (
            "",
            "PUT /a HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n",
        ),
        (go_on, "ab"),
        ("", "cd"),
        ("", LAST),
    ])
    .await;
    let answer =
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 11\r\n\r\nPUT /a abcd";
    assert_eq!(heard, format!("{answer}{TO_LAST}"));
}

#[tokio::test]
async fn a_head_is_answered_with_a_head() {
    let heard = talk(&[("", &format!("HEAD /a HTTP/1.1\r\n\r\n{LAST}"))]).await;
    let answer = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 8\r\n\r\n";
    assert_eq!(heard, format!("{answer}{TO_LAST}"));
}

#[tokio::test]
async fn what_is_no_request_is_told_so_and_ends_the_connection() {
    let heard = talk(&[("", "nonsense\r\n\r\n")]).await;
    assert!(heard.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{heard}");
    assert!(heard.contains("connection: close"), "{heard}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_never_ends_is_not_waited_for() {
    assert_eq!(talk(&[("", "GET / HTTP/1.1\r\n")]).await, "");
}
