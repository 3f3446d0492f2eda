//! The load of `bench http`: one thread that sends the due requests and reads the responses.
//!
//! It shares the machine with the node it measures, so it has no tasks, timers or locks: a loop over the ready sockets, one
//! prebuilt request, and responses parsed for status and length only. Connections take turns, and each has one request in
//! flight, as with most clients.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use hdrhistogram::Histogram;
use highwater_devtools::LoadConnection;
use highwater_env::{Clock, RealClock};
use mio::{Events, Poll, Token};

use super::schedule::Schedule;

pub(super) struct Load {
    pub schedule: Schedule,
    pub address: SocketAddr,
    pub request: Vec<u8>,
    pub connections: usize,
    /// A response that takes longer, from the time its request was sent, is an error.
    pub timeout: Duration,
}

/// Latencies in microseconds, and errors.
pub(super) struct LoadResult {
    pub calm: Histogram<u64>,
    pub spike: Histogram<u64>,
    pub errors: u64,
    pub first_error: Option<String>,
}

/// How often timeouts are checked; also the longest sleep.
const TIMEOUT_CHECK: Duration = Duration::from_millis(100);

/// Runs the whole load from the start of the clock.
pub(super) fn run(load: &Load, clock: &RealClock) -> anyhow::Result<LoadResult> {
    let mut generator = Generator::new(load, clock)?;
    let mut events = Events::with_capacity(1024);
    let mut checked = Duration::ZERO;
    loop {
        let now = clock.elapsed();
        generator.send_due(now);
        if generator.is_done() {
            return Ok(generator.result);
        }
        match generator.poll.poll(&mut events, Some(generator.pause(now))) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            polled => polled?,
        }
        for event in &events {
            generator.on_ready(event.token().0);
        }
        if now - checked > TIMEOUT_CHECK {
            checked = now;
            generator.expire(now);
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
    next: Option<DueTime>,
    result: LoadResult,
}

#[derive(Clone, Copy)]
struct DueTime {
    at: Duration,
    in_spike: bool,
}

/// A request in flight.
struct Request {
    due: DueTime,
    sent: Duration,
}

#[derive(Default)]
struct Connection {
    socket: Option<LoadConnection>,
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
            result: LoadResult::new()?,
        };
        generator.schedule_next();
        Ok(generator)
    }

    fn schedule_next(&mut self) {
        let due = self.load.schedule.due(self.number);
        self.next = due.map(|(at, in_spike)| DueTime { at, in_spike });
    }

    fn is_done(&self) -> bool {
        self.next.is_none() && self.idle.len() == self.connections.len()
    }

    /// A request that is due while every connection is busy is sent late; its latency counts from the due time all
    /// the same.
    fn send_due(&mut self, now: Duration) {
        while let Some(due) = self.next
            && due.at <= now
            && let Some(index) = self.idle.pop_front()
        {
            self.number += 1;
            self.schedule_next();
            self.connections[index].request = Some(Request { due, sent: now });
            if let Err(error) = self.start_request(index) {
                self.fail(index, error.to_string());
            }
        }
    }

    /// The time until the next request is due, if a connection is idle.
    fn pause(&self, now: Duration) -> Duration {
        match self.next {
            Some(due) if !self.idle.is_empty() => due.at.saturating_sub(now).min(TIMEOUT_CHECK),
            _ => TIMEOUT_CHECK,
        }
    }

    fn start_request(&mut self, index: usize) -> io::Result<()> {
        let socket = match &mut self.connections[index].socket {
            Some(socket) => socket,
            none => {
                let (address, registry) = (self.load.address, self.poll.registry());
                none.insert(LoadConnection::open(address, registry, Token(index))?)
            }
        };
        socket.start_request(&self.load.request)
    }

    fn on_ready(&mut self, index: usize) {
        match self.poll_response(index) {
            Ok(Some(200..300)) => self.succeed(index),
            Ok(Some(status)) => {
                self.result.failed(format!("status {status}"));
                self.release(index);
            }
            Ok(None) => {}
            Err(error) => self.fail(index, error.to_string()),
        }
    }

    /// The status of the response, once it is complete.
    fn poll_response(&mut self, index: usize) -> io::Result<Option<u16>> {
        let Some(socket) = &mut self.connections[index].socket else {
            return Ok(None);
        };
        socket.send(&self.load.request)?;
        Ok(socket.receive()?.map(|(status, _)| status))
    }

    fn succeed(&mut self, index: usize) {
        if let Some(Request { due, .. }) = self.connections[index].request {
            let took = self.clock.elapsed().saturating_sub(due.at).as_micros() as u64;
            let latencies = match due.in_spike {
                true => &mut self.result.spike,
                false => &mut self.result.calm,
            };
            latencies.saturating_record(took.max(1));
        }
        self.release(index);
    }

    /// Drops the connection; the next request opens another.
    fn fail(&mut self, index: usize, why: String) {
        let connection = &mut self.connections[index];
        connection.socket = None;
        // A connection that closes between two requests is not an error.
        if connection.request.is_some() {
            self.result.failed(why);
            self.release(index);
        }
    }

    fn release(&mut self, index: usize) {
        if self.connections[index].request.take().is_some() {
            self.idle.push_back(index);
        }
    }

    fn expire(&mut self, now: Duration) {
        let timeout = self.load.timeout;
        for index in 0..self.connections.len() {
            let request = self.connections[index].request.as_ref();
            if request.is_some_and(|request| now.saturating_sub(request.sent) > timeout) {
                self.fail(index, format!("no answer within {timeout:?}"));
            }
        }
    }
}

impl LoadResult {
    fn new() -> anyhow::Result<LoadResult> {
        Ok(LoadResult {
            calm: Histogram::new_with_bounds(1, 3_600_000_000, 3)?,
            spike: Histogram::new_with_bounds(1, 3_600_000_000, 3)?,
            errors: 0,
            first_error: None,
        })
    }

    fn failed(&mut self, why: String) {
        self.errors += 1;
        self.first_error.get_or_insert(why);
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
        assert_eq!(seen.first_error.as_deref(), Some("status 503"));
    }
}
