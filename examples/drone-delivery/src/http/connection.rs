//! One connection: requests are answered one after the other, each answer with one write.
//!
//! Waiting costs no timer for each request. Every [`PATIENCE`] somebody looks whether a request has come since the last
//! time, and a connection that brought none, or only a part of one, is closed.

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

/// Who answers the requests of a connection.
pub trait Handler: Sync {
    /// Nothing if there is to be no answer, nor another.
    fn handle(&self, request: Request<'_>) -> impl Future<Output = Option<Answer>> + Send;
}

pub struct Connection {
    stream: TcpStream,
    /// What has come and is not answered.
    received: Vec<u8>,
    /// The answer that is being sent.
    answer: Vec<u8>,
    patience: Interval,
    /// Whether a request has come since somebody looked.
    heard: bool,
}

/// What is to be done with the bytes that are there.
enum Next {
    Read { asks_to_go_on: bool },
    Answered { bytes: usize, last: bool },
}

impl Connection {
    pub fn new(stream: TcpStream) -> Connection {
        const USUAL_BYTES: usize = 2048;
        // Answers are small and complete: waiting to fill a packet would only delay them.
        let _ = stream.set_nodelay(true);
        Connection {
            stream,
            received: Vec::with_capacity(USUAL_BYTES),
            answer: Vec::with_capacity(USUAL_BYTES),
            patience: tokio::time::interval(PATIENCE),
            heard: true,
        }
    }

    /// Until the caller has enough, or is not answered and left alone.
    pub async fn serve(mut self, handler: &impl Handler) -> io::Result<()> {
        let mut was_told = false;
        loop {
            match self.next(handler).await {
                None => return Ok(()),
                Some(Next::Read { asks_to_go_on }) => {
                    if asks_to_go_on && !was_told {
                        self.stream.write_all(GO_ON).await?;
                        was_told = true;
                    }
                    self.read().await?;
                }
                Some(Next::Answered { bytes, last }) => {
                    self.stream.write_all(&self.answer).await?;
                    self.answer.clear();
                    self.received.drain(..bytes);
                    self.heard = true;
                    was_told = false;
                    if last {
                        return self.stream.shutdown().await;
                    }
                }
            }
        }
    }

    /// Has the first request answered, if it is all there.
    async fn next(&mut self, handler: &impl Handler) -> Option<Next> {
        match parse(&mut self.received) {
            Ok(Parsed::Part { asks_to_go_on }) => Some(Next::Read { asks_to_go_on }),
            Ok(Parsed::Whole {
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
                _ = self.patience.tick() => if !std::mem::take(&mut self.heard) {
                    return Err(io::ErrorKind::TimedOut.into());
                },
            }
        }
    }
}
