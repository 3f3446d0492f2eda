//! The load of `bench queue`: one thread with sending and receiving connections, each with one request in flight.
//!
//! Senders pause while the receivers are behind: a message that is never received is not a cycle, but costs the node as
//! much as a third of one.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use highwater_devtools::LoadConnection;
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
    let poll = Poll::new()?;
    let open = |index| LoadConnection::open(load.address, poll.registry(), Token(index));
    let connections: Result<Vec<LoadConnection>, _> = (0..2 * load.connections).map(open).collect();
    let empty = load.receive.with_body(b"");
    let mut generator = QueueLoadGenerator {
        load,
        connections: connections?,
        receive_requests: vec![empty; load.connections],
        paused: Vec::new(),
        sent: 0,
        completed: 0,
    };
    generator.run(poll, clock)?;
    Ok(generator.completed)
}

struct QueueLoadGenerator<'a> {
    load: &'a Load,
    /// Senders, then receivers.
    connections: Vec<LoadConnection>,
    /// The next request of each receiver.
    receive_requests: Vec<Vec<u8>>,
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
    fn run(&mut self, mut poll: Poll, clock: &RealClock) -> anyhow::Result<()> {
        let mut events = Events::with_capacity(1024);
        for index in 0..self.load.connections {
            self.send_more(index)?;
            let receiver = &mut self.connections[self.load.connections + index];
            receiver.start_request(&self.receive_requests[index])?;
        }
        while let Some(left) = self.load.duration.checked_sub(clock.elapsed()) {
            match poll.poll(&mut events, Some(left)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            for event in &events {
                self.on_ready(event.token().0)?;
            }
        }
        Ok(())
    }

    fn on_ready(&mut self, index: usize) -> anyhow::Result<()> {
        let receiver = index.checked_sub(self.load.connections);
        let request = match receiver {
            Some(receiver) => &self.receive_requests[receiver],
            None => &self.load.send,
        };
        let connection = &mut self.connections[index];
        connection.send(request)?;
        let Some((status, body)) = connection.receive()? else {
            return Ok(());
        };
        if !(200..300).contains(&status) {
            let body = String::from_utf8_lossy(body);
            anyhow::bail!("the server refused ({status}): {body}");
        }
        let Some(receiver) = receiver else {
            return self.send_more(index);
        };
        let response: Response<'_> = serde_json::from_slice(body)?;
        self.completed += response.settled;
        self.receive_requests[receiver] = next_request(self.load, &response)?;
        connection.start_request(&self.receive_requests[receiver])?;
        while self.sent < self.ahead_max()
            && let Some(sender) = self.paused.pop()
        {
            self.send_more(sender)?;
        }
        Ok(())
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
        Ok(self.connections[sender].start_request(&self.load.send)?)
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
