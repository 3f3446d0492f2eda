//! The client's side of HTTP, as little of it as it takes: requests are bytes, answers are looked at as far as their
//! status and length, and the room for both serves again and again.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::ops::Range;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

/// A connection that has one request under way at most.
#[derive(Default)]
pub struct Connection {
    stream: Option<TcpStream>,
    request: Vec<u8>,
    /// How many bytes of the request have left.
    sent: usize,
    /// What has come of the answer.
    answer: Vec<u8>,
}

impl Connection {
    /// Room for the next request.
    pub fn request(&mut self) -> &mut Vec<u8> {
        self.request.clear();
        &mut self.request
    }

    /// Sends the request from its beginning, over a new connection if there is none.
    pub fn begin(&mut self, address: SocketAddr, poll: &Registry, turn: usize) -> io::Result<()> {
        if self.stream.is_none() {
            let mut stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            let both = Interest::READABLE | Interest::WRITABLE;
            poll.register(&mut stream, Token(turn), both)?;
            self.stream = Some(stream);
        }
        self.sent = 0;
        self.answer.clear();
        self.send()
    }

    /// As much as the socket takes; the rest when it takes more.
    pub fn send(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        while self.sent < self.request.len() {
            match stream.write(&self.request[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if is_for_later(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Status and body, once the answer is whole. As there is one under way, nothing follows it.
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<(u16, &[u8])>> {
        let Some(stream) = &mut self.stream else {
            return Ok(None);
        };
        loop {
            match stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.answer.extend_from_slice(&buffer[..count]),
                Err(error) if is_for_later(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
            if let Some((status, body)) = whole(&self.answer) {
                return Ok(Some((status, &self.answer[body])));
            }
        }
    }

    /// Of no use any more; the next request opens another.
    pub fn close(&mut self) {
        self.stream = None;
    }
}

/// Not yet connected, or nothing there yet: the socket says when to go on.
fn is_for_later(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::NotConnected
    )
}

/// Status of an answer and the place of its body, if all of it is there.
fn whole(bytes: &[u8]) -> Option<(u16, Range<usize>)> {
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
        let (status, body) = whole(text).unwrap();
        assert_eq!((status, &text[body]), (202, &b"abc"[..]));
        assert_eq!(whole(&text[..text.len() - 1]), None);
        assert_eq!(whole(b"HTTP/1.1 202 Accepted\r\n"), None);
        let empty = b"HTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(whole(empty), Some((204, 27..27)));
    }

    #[test]
    fn a_length_that_cannot_be_is_no_answer() {
        let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", usize::MAX);
        assert_eq!(whole(text.as_bytes()), None);
    }
}
