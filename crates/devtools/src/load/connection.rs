//! A connection of a load generator: one request in flight, and responses parsed for status and length only.
//!
//! A load generator shares the machine with the node it measures, so a connection has no task, timer or lock: its owner
//! polls it when the socket is ready.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::ops::Range;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

/// Opened when it is needed, with buffers that are used again.
#[derive(Default)]
pub struct LoadConnection {
    /// `None`: closed, or not opened yet.
    stream: Option<TcpStream>,
    request: Vec<u8>,
    /// Bytes of the request sent.
    sent: usize,
    response: Vec<u8>,
    /// Bytes of the response received.
    filled: usize,
    /// A request is in flight.
    busy: bool,
}

/// The initial buffer for a response.
const RESPONSE_BYTES: usize = 4 << 10;

impl LoadConnection {
    /// The buffer for the next request, empty.
    pub fn request(&mut self) -> &mut Vec<u8> {
        self.request.clear();
        &mut self.request
    }

    /// Sends the request from its beginning, over a new connection if necessary.
    pub fn start(
        &mut self,
        address: SocketAddr,
        registry: &Registry,
        token: Token,
    ) -> io::Result<()> {
        (self.sent, self.filled, self.busy) = (0, 0, true);
        if self.stream.is_none() {
            let mut stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            let both = Interest::READABLE | Interest::WRITABLE;
            registry.register(&mut stream, token, both)?;
            self.stream = Some(stream);
            self.response.resize(RESPONSE_BYTES, 0);
        }
        self.send()
    }

    /// Sends as much of the request in flight as the socket takes.
    fn send(&mut self) -> io::Result<()> {
        let Some(stream) = self.stream.as_mut().filter(|_| self.busy) else {
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

    /// Continues the request in flight. The status and body, once the response is complete; nothing follows it before
    /// the next request.
    pub fn receive(&mut self) -> io::Result<Option<(u16, &[u8])>> {
        self.send()?;
        let Some(stream) = &mut self.stream else {
            return Ok(None);
        };
        loop {
            if self.filled == self.response.len() {
                self.response.resize(2 * self.filled, 0);
            }
            match stream.read(&mut self.response[self.filled..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.filled += count,
                Err(error) if would_block(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
            if let Some((status, body)) = complete_response(&self.response[..self.filled]) {
                self.busy = false;
                return Ok(Some((status, &self.response[body])));
            }
        }
    }

    /// Closes the connection; the next request opens another one.
    pub fn close(&mut self) {
        self.stream = None;
    }
}

/// Not yet connected, or not ready.
fn would_block(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::NotConnected
    )
}

/// The status of a response and the range of its body, if it is complete.
fn complete_response(bytes: &[u8]) -> Option<(u16, Range<usize>)> {
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
    fn a_response_is_complete_when_its_body_is() {
        let text = b"HTTP/1.1 201 Created\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(
            complete_response(text),
            Some((201, text.len() - 3..text.len()))
        );
        assert_eq!(complete_response(&text[..text.len() - 1]), None);
        assert_eq!(complete_response(b"HTTP/1.1 201 Created\r\n"), None);
        let empty = b"HTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(complete_response(empty), Some((204, 27..27)));
        let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", usize::MAX);
        assert_eq!(complete_response(text.as_bytes()), None);
    }
}
