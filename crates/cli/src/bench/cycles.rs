//! The load of `bench queue`: one thread with connections that send and connections that receive, each
//! with one request under way.
//!
//! Senders stop while the receivers are behind. What is sent and never received is no cycle, but it costs
//! the node as much as a third of one.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use highwater_env::{Clock, RealClock};
use mio::{Events, Poll, Token};
use serde::{Deserialize, Serialize};

use super::link::{Head, Link};

pub struct Load {
    pub address: SocketAddr,
    /// Of senders, and as many of receivers.
    pub connections: usize,
    /// Messages in a request.
    pub batch: u64,
    pub send: Vec<u8>,
    pub receive: Head,
    /// Where messages are completed by requests of their own.
    pub complete: Option<Head>,
    pub time: Duration,
}

/// How many requests' worth of messages a sender may be ahead.
const AHEAD: u64 = 4;

/// How many messages were completed in the time of the load, which begins with the clock.
pub fn run(load: &Load, clock: &RealClock) -> anyhow::Result<u64> {
    let poll = Poll::new()?;
    let open = |turn| Link::open(load.address, poll.registry(), Token(turn));
    let links: Result<Vec<Link>, _> = (0..2 * load.connections).map(open).collect();
    let nothing = load.receive.with(b"");
    let mut cycles = Cycles {
        load,
        links: links?,
        receivers: vec![nothing; load.connections],
        idle: Vec::new(),
        sent: 0,
        completed: 0,
    };
    cycles.follow(poll, clock)?;
    Ok(cycles.completed)
}

struct Cycles<'a> {
    load: &'a Load,
    /// Senders, then receivers.
    links: Vec<Link>,
    /// What each receiver asks for.
    receivers: Vec<Vec<u8>>,
    /// Senders that wait for the receivers.
    idle: Vec<usize>,
    /// Messages sent, or being sent.
    sent: u64,
    completed: u64,
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow, default)]
    messages: Vec<Held<'a>>,
    #[serde(default)]
    settled: u64,
}

#[derive(Deserialize)]
struct Held<'a> {
    token: &'a str,
}

#[derive(Serialize)]
struct Done<'a> {
    complete: &'a [&'a str],
}

#[derive(Serialize)]
struct Tokens<'a> {
    tokens: &'a [&'a str],
}

impl Cycles<'_> {
    fn follow(&mut self, mut poll: Poll, clock: &RealClock) -> anyhow::Result<()> {
        let mut events = Events::with_capacity(1024);
        for turn in 0..self.load.connections {
            self.send_more(turn)?;
            self.links[self.load.connections + turn].begin(&self.receivers[turn])?;
        }
        while let Some(left) = self.load.time.checked_sub(clock.elapsed()) {
            match poll.poll(&mut events, Some(left)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            for event in &events {
                self.hear(event.token().0)?;
            }
        }
        Ok(())
    }

    fn hear(&mut self, turn: usize) -> anyhow::Result<()> {
        let receiver = turn.checked_sub(self.load.connections);
        let request = match receiver {
            Some(receiver) => &self.receivers[receiver],
            None => &self.load.send,
        };
        let link = &mut self.links[turn];
        link.go_on(request)?;
        let Some((status, body)) = link.receive()? else {
            return Ok(());
        };
        if !(200..300).contains(&status) {
            let body = String::from_utf8_lossy(body);
            anyhow::bail!("the server refused ({status}): {body}");
        }
        let Some(receiver) = receiver else {
            return self.send_more(turn);
        };
        let answer: Answer<'_> = serde_json::from_slice(body)?;
        self.completed += answer.settled;
        self.receivers[receiver] = next(self.load, &answer)?;
        link.begin(&self.receivers[receiver])?;
        while self.sent < self.ahead_max()
            && let Some(turn) = self.idle.pop()
        {
            self.send_more(turn)?;
        }
        Ok(())
    }

    fn ahead_max(&self) -> u64 {
        self.completed + AHEAD * self.load.batch * self.load.connections as u64
    }

    fn send_more(&mut self, sender: usize) -> anyhow::Result<()> {
        if self.sent >= self.ahead_max() {
            self.idle.push(sender);
            return Ok(());
        }
        self.sent += self.load.batch;
        Ok(self.links[sender].begin(&self.load.send)?)
    }
}

/// What a receiver asks for after an answer.
fn next(load: &Load, answer: &Answer<'_>) -> anyhow::Result<Vec<u8>> {
    let tokens: Vec<&str> = answer.messages.iter().map(|held| held.token).collect();
    if tokens.is_empty() {
        return Ok(load.receive.with(b""));
    }
    Ok(match &load.complete {
        Some(complete) => complete.with(&serde_json::to_vec(&Tokens { tokens: &tokens })?),
        None => load
            .receive
            .with(&serde_json::to_vec(&Done { complete: &tokens })?),
    })
}
