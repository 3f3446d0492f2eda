//! The load of `bench http`: one thread that sends what is due and looks at what has come.
//!
//! It shares the machine with what it measures, so it has no tasks, no timers and no locks: a loop
//! over the sockets that are ready, requests that are bytes made once, and answers that are looked at
//! only as far as their status and length. Connections take turns, and each has one request under
//! way, as with most clients.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use hdrhistogram::Histogram;
use highwater_env::{Clock, RealClock};
use mio::{Events, Poll, Token};

use super::link::Link;
use super::schedule::Schedule;

pub struct Load {
    pub schedule: Schedule,
    pub address: SocketAddr,
    pub request: Vec<u8>,
    pub connections: usize,
    /// An answer that takes longer, from when its request left, is an error.
    pub timeout: Duration,
}

/// What became of the requests. Latencies in microseconds.
pub struct Seen {
    pub calm: Histogram<u64>,
    pub spike: Histogram<u64>,
    pub errors: u64,
    /// The first error in words.
    pub first: Option<String>,
}

/// How often late answers are looked for; also the longest sleep.
const LOOK: Duration = Duration::from_millis(100);

/// Sends the whole load; its time begins with the clock.
pub fn run(load: &Load, clock: &RealClock) -> anyhow::Result<Seen> {
    let mut generator = Generator::new(load, clock)?;
    let mut events = Events::with_capacity(1024);
    let mut looked = Duration::ZERO;
    loop {
        let now = clock.elapsed();
        generator.send_due(now);
        if generator.is_done() {
            return Ok(generator.seen);
        }
        match generator.poll.poll(&mut events, Some(generator.pause(now))) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            polled => polled?,
        }
        for event in &events {
            generator.hear(event.token().0);
        }
        if now - looked > LOOK {
            looked = now;
            generator.give_up(now);
        }
    }
}

struct Generator<'a> {
    load: &'a Load,
    clock: &'a RealClock,
    poll: Poll,
    connections: Vec<Connection>,
    idle: VecDeque<usize>,
    /// The number of the next request, and when it is due.
    number: u64,
    next: Option<Due>,
    seen: Seen,
}

#[derive(Clone, Copy)]
struct Due {
    at: Duration,
    in_spike: bool,
}

/// A request under way.
struct Request {
    due: Due,
    left: Duration,
}

#[derive(Default)]
struct Connection {
    link: Option<Link>,
    request: Option<Request>,
}

impl<'a> Generator<'a> {
    fn new(load: &'a Load, clock: &'a RealClock) -> anyhow::Result<Generator<'a>> {
        let connections = load.connections;
        let mut generator = Generator {
            load,
            clock,
            poll: Poll::new()?,
            connections: (0..connections).map(|_| Connection::default()).collect(),
            idle: (0..connections).collect(),
            number: 0,
            next: None,
            seen: Seen::new()?,
        };
        generator.look_ahead();
        Ok(generator)
    }

    fn look_ahead(&mut self) {
        let due = self.load.schedule.due(self.number);
        self.next = due.map(|(at, in_spike)| Due { at, in_spike });
    }

    fn is_done(&self) -> bool {
        self.next.is_none() && self.idle.len() == self.connections.len()
    }

    /// Requests that are due while every connection is busy leave late; their latency counts from
    /// when they were due all the same.
    fn send_due(&mut self, now: Duration) {
        while let Some(due) = self.next
            && due.at <= now
            && let Some(turn) = self.idle.pop_front()
        {
            self.number += 1;
            self.look_ahead();
            self.connections[turn].request = Some(Request { due, left: now });
            if let Err(error) = self.begin(turn) {
                self.fail(turn, error.to_string());
            }
        }
    }

    /// Until the next request is due, if there is a connection for it.
    fn pause(&self, now: Duration) -> Duration {
        match self.next {
            Some(due) if !self.idle.is_empty() => due.at.saturating_sub(now).min(LOOK),
            _ => LOOK,
        }
    }

    fn begin(&mut self, turn: usize) -> io::Result<()> {
        let link = match &mut self.connections[turn].link {
            Some(link) => link,
            none => {
                let (address, registry) = (self.load.address, self.poll.registry());
                none.insert(Link::open(address, registry, Token(turn))?)
            }
        };
        link.begin(&self.load.request)
    }

    fn hear(&mut self, turn: usize) {
        match self.go_on(turn) {
            Ok(Some(200..300)) => self.succeed(turn),
            Ok(Some(status)) => {
                self.seen.failed(format!("status {status}"));
                self.release(turn);
            }
            Ok(None) => {}
            Err(error) => self.fail(turn, error.to_string()),
        }
    }

    /// The status of the answer, once it is whole.
    fn go_on(&mut self, turn: usize) -> io::Result<Option<u16>> {
        let Some(link) = &mut self.connections[turn].link else {
            return Ok(None);
        };
        link.go_on(&self.load.request)?;
        Ok(link.receive()?.map(|(status, _)| status))
    }

    fn succeed(&mut self, turn: usize) {
        if let Some(Request { due, .. }) = self.connections[turn].request {
            let took = self.clock.elapsed().saturating_sub(due.at).as_micros() as u64;
            let latencies = match due.in_spike {
                true => &mut self.seen.spike,
                false => &mut self.seen.calm,
            };
            latencies.saturating_record(took.max(1));
        }
        self.release(turn);
    }

    /// The connection is of no use any more; the next request opens another.
    fn fail(&mut self, turn: usize, why: String) {
        let connection = &mut self.connections[turn];
        connection.link = None;
        // A connection that ends between two requests is no error.
        if connection.request.is_some() {
            self.seen.failed(why);
            self.release(turn);
        }
    }

    fn release(&mut self, turn: usize) {
        if self.connections[turn].request.take().is_some() {
            self.idle.push_back(turn);
        }
    }

    fn give_up(&mut self, now: Duration) {
        let timeout = self.load.timeout;
        for turn in 0..self.connections.len() {
            let request = self.connections[turn].request.as_ref();
            if request.is_some_and(|request| now.saturating_sub(request.left) > timeout) {
                self.fail(turn, format!("no answer within {timeout:?}"));
            }
        }
    }
}

impl Seen {
    fn new() -> anyhow::Result<Seen> {
        Ok(Seen {
            calm: Histogram::new_with_bounds(1, 3_600_000_000, 3)?,
            spike: Histogram::new_with_bounds(1, 3_600_000_000, 3)?,
            errors: 0,
            first: None,
        })
    }

    fn failed(&mut self, why: String) {
        self.errors += 1;
        self.first.get_or_insert(why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// Answers every tenth request badly, every eleventh in two pieces, and closes after the twelfth.
    fn serve(mut stream: std::net::TcpStream, request: usize) -> io::Result<()> {
        let mut bytes = vec![0; request];
        for number in 1.. {
            stream.read_exact(&mut bytes)?;
            match number {
                10 => stream.write_all(b"HTTP/1.1 503 Full\r\ncontent-length: 0\r\n\r\n")?,
                11 => {
                    stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-le")?;
                    stream.flush()?;
                    stream.write_all(b"ngth: 2\r\n\r\nok")?;
                }
                12 => return Ok(()),
                _ => stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok")?,
            }
        }
        Ok(())
    }

    #[test]
    fn every_request_is_counted_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let load = Load {
            schedule: Schedule::new(2400, 0, 1, 0),
            address: listener.local_addr().unwrap(),
            request: vec![b'x'; 300],
            connections: 5,
            timeout: Duration::from_secs(60),
        };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || serve(stream, 300));
            }
        });
        let seen = run(&load, &RealClock::new()).unwrap();
        assert_eq!(seen.calm.len() + seen.errors, 2400);
        // Two of twelve requests of a connection fail, and no connection has more than the five last
        // ones short of that.
        assert!((360..=400).contains(&seen.errors), "{}", seen.errors);
        assert_eq!(seen.first.as_deref(), Some("status 503"));
    }
}
