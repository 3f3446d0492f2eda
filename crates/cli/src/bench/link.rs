//! A connection of a load generator: one request under way, and answers that are looked at only as far as
//! their status and length.
//!
//! A generator shares the machine with what it measures, so a link has no task, no timer and no lock:
//! whoever owns it is told by the system when it may go on.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::ops::Range;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use crate::client::Server;
use crate::exit::BadRequest;

pub struct Link {
    stream: TcpStream,
    /// How many bytes of the request.
    sent: usize,
    /// Room for an answer, and how much of it has come.
    answer: Vec<u8>,
    filled: usize,
    /// A request is under way.
    busy: bool,
}

/// Room for an answer to begin with.
const ANSWER_BYTES: usize = 4 << 10;

impl Link {
    pub fn open(address: SocketAddr, registry: &Registry, token: Token) -> io::Result<Link> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let both = Interest::READABLE | Interest::WRITABLE;
        registry.register(&mut stream, token, both)?;
        Ok(Link {
            stream,
            sent: 0,
            answer: vec![0; ANSWER_BYTES],
            filled: 0,
            busy: false,
        })
    }

    pub fn begin(&mut self, request: &[u8]) -> io::Result<()> {
        (self.sent, self.filled, self.busy) = (0, 0, true);
        self.go_on(request)
    }

    /// Sends as much of the request under way as the socket takes.
    pub fn go_on(&mut self, request: &[u8]) -> io::Result<()> {
        if !self.busy {
            return Ok(());
        }
        while self.sent < request.len() {
            match self.stream.write(&request[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if is_for_later(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The status and the body, once the answer is whole. Nothing follows it before the next request.
    pub fn receive(&mut self) -> io::Result<Option<(u16, &[u8])>> {
        loop {
            if self.filled == self.answer.len() {
                self.answer.resize(2 * self.filled, 0);
            }
            match self.stream.read(&mut self.answer[self.filled..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.filled += count,
                Err(error) if is_for_later(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
            if let Some((status, body)) = whole(&self.answer[..self.filled]) {
                self.busy = false;
                return Ok(Some((status, &self.answer[body])));
            }
        }
    }
}

/// The head of requests that differ in their bodies only.
pub struct Head(Vec<u8>);

impl Head {
    pub fn post(server: &Server, path: &str) -> Result<Head, BadRequest> {
        let mut head = format!(
            "POST {}{path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n",
            server.base(),
            server.authority(),
        );
        if let Some(key) = server.authorization()? {
            head.push_str(&format!("authorization: {key}\r\n"));
        }
        head.push_str("content-length: ");
        Ok(Head(head.into_bytes()))
    }

    pub fn with(&self, body: &[u8]) -> Vec<u8> {
        let length = body.len().to_string();
        [&self.0, length.as_bytes(), b"\r\n\r\n", body].concat()
    }
}

/// Not yet connected, or nothing there yet.
fn is_for_later(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::NotConnected
    )
}

/// The status of an answer and where its body is, if it is all there.
fn whole(bytes: &[u8]) -> Option<(u16, Range<usize>)> {
    let head = bytes.windows(4).position(|end| end == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&bytes[..head]).ok()?;
    let status = text.get(9..12)?.parse().ok()?;
    let length = text.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let named = name.eq_ignore_ascii_case("content-length");
        named.then(|| value.trim().parse::<usize>().ok()).flatten()
    });
    let body = head + 4..head + 4 + length.unwrap_or(0);
    (bytes.len() >= body.end).then_some((status, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_when_its_body_is() {
        let text = b"HTTP/1.1 201 Created\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(whole(text), Some((201, text.len() - 3..text.len())));
        assert_eq!(whole(&text[..text.len() - 1]), None);
        assert_eq!(whole(b"HTTP/1.1 201 Created\r\n"), None);
    }
}
