//! The load of `bench queue`: one thread with sending and receiving connections, each with one request in flight.
//!
//! Senders pause while the receivers are behind: a message that is never received is not a cycle, but costs the node as
//! much as a third of one.

use std::net::SocketAddr;
use std::time::Duration;

use highwater_devtools::load::{LoadConnection, wait};
use highwater_env::{Clock, RealClock};
use mio::{Events, Poll, Token};
use serde::{Deserialize, Serialize};

use super::request_head::RequestHead;

pub(super) struct Load {
    pub address: SocketAddr,
    /// Number of senders, and of receivers.
    pub connections: usize,
    /// Messages in a request.
    pub batch: u64,
    pub send: Vec<u8>,
    pub receive: RequestHead,
    /// Present if messages are completed by separate requests.
    pub complete: Option<RequestHead>,
    pub duration: Duration,
}

/// How many requests a sender may be ahead of the receivers.
const REQUESTS_AHEAD_MAX: u64 = 4;

/// Runs the load from the start of the clock and returns the number of completed messages.
pub(super) fn run(load: &Load, clock: &RealClock) -> anyhow::Result<u64> {
    let connections = (0..2 * load.connections).map(|_| LoadConnection::default());
    let mut generator = QueueLoadGenerator {
        load,
        poll: Poll::new()?,
        connections: connections.collect(),
        paused: Vec::new(),
        sent: 0,
        completed: 0,
    };
    generator.run(clock)?;
    Ok(generator.completed)
}

struct QueueLoadGenerator<'a> {
    load: &'a Load,
    poll: Poll,
    /// Senders, then receivers.
    connections: Vec<LoadConnection>,
    /// Senders that wait for the receivers.
    paused: Vec<usize>,
    /// Messages sent, or being sent.
    sent: u64,
    completed: u64,
}

#[derive(Deserialize)]
struct Response<'a> {
    #[serde(borrow, default)]
    messages: Vec<ReceivedMessage<'a>>,
    #[serde(default)]
    settled: u64,
}

#[derive(Deserialize)]
struct ReceivedMessage<'a> {
    token: &'a str,
}

#[derive(Serialize)]
struct ReceiveBody<'a> {
    complete: &'a [&'a str],
}

#[derive(Serialize)]
struct CompleteBody<'a> {
    tokens: &'a [&'a str],
}

impl QueueLoadGenerator<'_> {
    fn run(&mut self, clock: &RealClock) -> anyhow::Result<()> {
        let mut events = Events::with_capacity(1024);
        for index in 0..self.load.connections {
            self.send_more(index)?;
            self.start(
                self.load.connections + index,
                &self.load.receive.with_body(b""),
            )?;
        }
        while let Some(left) = self.load.duration.checked_sub(clock.elapsed()) {
            wait(&mut self.poll, &mut events, left)?;
            for event in &events {
                self.on_ready(event.token().0)?;
            }
        }
        Ok(())
    }

    fn on_ready(&mut self, index: usize) -> anyhow::Result<()> {
        let Some((status, body)) = self.connections[index].receive()? else {
            return Ok(());
        };
        if !(200..300).contains(&status) {
            let body = String::from_utf8_lossy(body);
            anyhow::bail!("the server refused ({status}): {body}");
        }
        if index < self.load.connections {
            return self.send_more(index);
        }
        let response: Response<'_> = serde_json::from_slice(body)?;
        self.completed += response.settled;
        let request = next_request(self.load, &response)?;
        self.start(index, &request)?;
        while self.sent < self.ahead_max()
            && let Some(sender) = self.paused.pop()
        {
            self.send_more(sender)?;
        }
        Ok(())
    }

    fn start(&mut self, index: usize, request: &[u8]) -> anyhow::Result<()> {
        let connection = &mut self.connections[index];
        connection.request().extend_from_slice(request);
        Ok(connection.start(self.load.address, self.poll.registry(), Token(index))?)
    }

    fn ahead_max(&self) -> u64 {
        self.completed + REQUESTS_AHEAD_MAX * self.load.batch * self.load.connections as u64
    }

    fn send_more(&mut self, sender: usize) -> anyhow::Result<()> {
        if self.sent >= self.ahead_max() {
            self.paused.push(sender);
            return Ok(());
        }
        self.sent += self.load.batch;
        self.start(sender, &self.load.send)
    }
}

/// The request of a receiver after a response: complete the received messages, and receive more.
fn next_request(load: &Load, response: &Response<'_>) -> anyhow::Result<Vec<u8>> {
    let tokens: Vec<&str> = response
        .messages
        .iter()
        .map(|message| message.token)
        .collect();
    if tokens.is_empty() {
        return Ok(load.receive.with_body(b""));
    }
    Ok(match &load.complete {
        Some(complete) => {
            complete.with_body(&serde_json::to_vec(&CompleteBody { tokens: &tokens })?)
        }
        None => load
            .receive
            .with_body(&serde_json::to_vec(&ReceiveBody { complete: &tokens })?),
    })
}
