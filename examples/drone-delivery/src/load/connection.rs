//! A minimal HTTP/1.1 client: requests are bytes, responses are parsed up to status and length, and the buffers are reused.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::ops::Range;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

/// A connection with at most one request in flight.
#[derive(Default)]
pub(super) struct Connection {
    stream: Option<TcpStream>,
    request: Vec<u8>,
    /// Bytes of the request sent so far.
    sent: usize,
    /// Bytes of the response received so far.
    answer: Vec<u8>,
}

impl Connection {
    /// The buffer for the next request.
    pub(super) fn request(&mut self) -> &mut Vec<u8> {
        self.request.clear();
        &mut self.request
    }

    /// Sends the request from its beginning, over a new connection if necessary.
    pub(super) fn begin(
        &mut self,
        address: SocketAddr,
        poll: &Registry,
        slot: usize,
    ) -> io::Result<()> {
        if self.stream.is_none() {
            let mut stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            let both = Interest::READABLE | Interest::WRITABLE;
            poll.register(&mut stream, Token(slot), both)?;
            self.stream = Some(stream);
        }
        self.sent = 0;
        self.answer.clear();
        self.send()
    }

    /// Sends as much as the socket accepts; the rest when it is writable again.
    pub(super) fn send(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        while self.sent < self.request.len() {
            match stream.write(&self.request[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if would_block(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Status and body, once the response is complete. Nothing follows it, because only one request is in flight.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<(u16, &[u8])>> {
        let Some(stream) = &mut self.stream else {
            return Ok(None);
        };
        loop {
            match stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.answer.extend_from_slice(&buffer[..count]),
                Err(error) if would_block(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
            if let Some((status, body)) = parse_response(&self.answer) {
                return Ok(Some((status, &self.answer[body])));
            }
        }
    }

    /// Closes the connection; the next request opens another one.
    pub(super) fn close(&mut self) {
        self.stream = None;
    }
}

/// Not connected yet, or no data yet: the poll reports when to continue.
fn would_block(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::NotConnected
    )
}

/// Status and body range of a complete response.
fn parse_response(bytes: &[u8]) -> Option<(u16, Range<usize>)> {
    let head = bytes.windows(4).position(|end| end == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&bytes[..head]).ok()?;
    let status = text.get(9..12)?.parse().ok()?;
    let length = text.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let named = name.eq_ignore_ascii_case("content-length");
        named.then(|| value.trim().parse::<usize>().ok()).flatten()
    });
    let body = head + 4..(head + 4).checked_add(length.unwrap_or(0))?;
    (bytes.len() >= body.end).then_some((status, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_when_its_body_is() {
        let text = b"HTTP/1.1 202 Accepted\r\nContent-Length: 3\r\n\r\nabc";
        let (status, body) = parse_response(text).unwrap();
        assert_eq!((status, &text[body]), (202, &b"abc"[..]));
        assert_eq!(parse_response(&text[..text.len() - 1]), None);
        assert_eq!(parse_response(b"HTTP/1.1 202 Accepted\r\n"), None);
        let empty = b"HTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(parse_response(empty), Some((204, 27..27)));
    }

    #[test]
    fn a_length_that_cannot_be_is_no_answer() {
        let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", usize::MAX);
        assert_eq!(parse_response(text.as_bytes()), None);
    }
}
