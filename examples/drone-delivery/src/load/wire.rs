//! The client's side of HTTP, as little of it as it takes: the load shares the machine with what it
//! measures, so requests are bytes and answers are looked at as far as their status and length.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub struct Wire {
    address: String,
    timeout: Duration,
    stream: Option<TcpStream>,
    buffer: Vec<u8>,
}

impl Wire {
    pub fn new(address: &str, timeout: Duration) -> Wire {
        Wire {
            address: address.to_owned(),
            timeout,
            stream: None,
            buffer: Vec::with_capacity(2048),
        }
    }

    /// Status and body of the answer. The connection is kept when all went well.
    pub async fn exchange(&mut self, request: &[u8]) -> io::Result<(u16, Vec<u8>)> {
        let timeout = self.timeout;
        let exchange = tokio::time::timeout(timeout, self.try_exchange(request));
        exchange
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    async fn try_exchange(&mut self, request: &[u8]) -> io::Result<(u16, Vec<u8>)> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(&self.address).await?;
                stream.set_nodelay(true)?;
                stream
            }
        };
        stream.write_all(request).await?;
        self.buffer.clear();
        loop {
            if stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some((status, head, length)) = answer(&self.buffer)
                && self.buffer.len() >= head + length
            {
                self.stream = Some(stream);
                return Ok((status, self.buffer[head..head + length].to_vec()));
            }
        }
    }
}

/// Status, length of the head and length of the body of an answer whose head is complete.
fn answer(bytes: &[u8]) -> Option<(u16, usize, usize)> {
    let head = bytes.windows(4).position(|end| end == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&bytes[..head]).ok()?;
    let status = text.get(9..12)?.parse().ok()?;
    let length = text.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let named = name.eq_ignore_ascii_case("content-length");
        named.then(|| value.trim().parse().ok()).flatten()
    });
    Some((status, head + 4, length.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_known_once_its_head_is_there() {
        let text = b"HTTP/1.1 202 Accepted\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(answer(text), Some((202, text.len() - 3, 3)));
        assert_eq!(answer(b"HTTP/1.1 202 Accepted\r\n"), None);
        assert_eq!(
            answer(b"HTTP/1.1 204 No Content\r\n\r\n"),
            Some((204, 27, 0))
        );
    }
}
