//! One connection: requests are answered in order, each response with one write.
//!
//! There is no timer per request. Every [`PATIENCE`] the connection checks whether a request has arrived since the last
//! check, and is closed if none has.

use std::io;
use std::time::Duration;

use hyper::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Interval;

use super::parse::{Parsed, parse};
use super::{Answer, Request};

const PATIENCE: Duration = Duration::from_secs(30);
const GO_ON: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Answers the requests of a connection.
pub(super) trait Handler: Sync {
    /// `None` closes the connection without a response.
    fn handle(&self, request: Request<'_>) -> impl Future<Output = Option<Answer>> + Send;
}

pub(super) struct Connection {
    stream: TcpStream,
    /// Received bytes that are not answered yet.
    received: Vec<u8>,
    /// The response being sent.
    answer: Vec<u8>,
    patience: Interval,
    /// Whether a request has arrived since the last check.
    received_request: bool,
}

/// The next action.
enum Next {
    Read { expects_continue: bool },
    Answered { bytes: usize, last: bool },
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Connection {
        const USUAL_BYTES: usize = 2048;
        // Responses are small and complete; Nagle's algorithm would only delay them.
        let _ = stream.set_nodelay(true);
        Connection {
            stream,
            received: Vec::with_capacity(USUAL_BYTES),
            answer: Vec::with_capacity(USUAL_BYTES),
            patience: tokio::time::interval(PATIENCE),
            received_request: true,
        }
    }

    /// Serves requests until the connection ends or stays idle.
    pub(super) async fn serve(mut self, handler: &impl Handler) -> io::Result<()> {
        let mut continue_sent = false;
        loop {
            match self.next(handler).await {
                None => return Ok(()),
                Some(Next::Read { expects_continue }) => {
                    if expects_continue && !continue_sent {
                        self.stream.write_all(GO_ON).await?;
                        continue_sent = true;
                    }
                    self.read().await?;
                }
                Some(Next::Answered { bytes, last }) => {
                    self.stream.write_all(&self.answer).await?;
                    self.answer.clear();
                    self.received.drain(..bytes);
                    self.received_request = true;
                    continue_sent = false;
                    if last {
                        return self.stream.shutdown().await;
                    }
                }
            }
        }
    }

    /// Handles the first request, if it is complete.
    async fn next(&mut self, handler: &impl Handler) -> Option<Next> {
        match parse(&mut self.received) {
            Ok(Parsed::Incomplete { expects_continue }) => Some(Next::Read { expects_continue }),
            Ok(Parsed::Complete {
                request,
                bytes,
                last,
            }) => {
                let to_head = request.method == Method::HEAD;
                let answer = handler.handle(request).await?;
                answer.write(&mut self.answer, to_head, last);
                Some(Next::Answered { bytes, last })
            }
            Err(problem) => {
                problem.write(&mut self.answer, false, true);
                Some(Next::Answered {
                    bytes: 0,
                    last: true,
                })
            }
        }
    }

    async fn read(&mut self) -> io::Result<()> {
        loop {
            tokio::select! {
                biased;
                read = self.stream.read_buf(&mut self.received) => return match read? {
                    0 => Err(io::ErrorKind::UnexpectedEof.into()),
                    _ => Ok(()),
                },
                _ = self.patience.tick() => if !std::mem::take(&mut self.received_request) {
                    return Err(io::ErrorKind::TimedOut.into());
                },
            }
        }
    }
}
