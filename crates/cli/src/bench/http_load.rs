//! The load of `bench http`: the same request again and again, each sent once, and responses counted by their status.

use std::time::Duration;

use hdrhistogram::Histogram;
use highwater_devtools::load::{AttemptError, DueTime, LoadClient, LoadOptions, generate};
use highwater_env::RealClock;

/// Latencies in microseconds, and errors.
pub(super) struct LoadResult {
    pub calm: Histogram<u64>,
    pub spike: Histogram<u64>,
    pub errors: u64,
    pub first_error: Option<String>,
}

/// Runs the whole load from the start of the clock.
pub(super) fn run(
    options: &LoadOptions,
    request: &[u8],
    clock: &RealClock,
) -> anyhow::Result<LoadResult> {
    let result = LoadResult {
        calm: Histogram::new_with_bounds(1, 3_600_000_000, 3)?,
        spike: Histogram::new_with_bounds(1, 3_600_000_000, 3)?,
        errors: 0,
        first_error: None,
    };
    let mut sender = Sender { request, result };
    generate(options, clock, &mut sender)?;
    Ok(sender.result)
}

struct Sender<'a> {
    request: &'a [u8],
    result: LoadResult,
}

impl LoadClient for Sender<'_> {
    type Task = DueTime;

    fn task(&mut self, _: u64, due: DueTime) -> DueTime {
        due
    }

    fn write(&mut self, _: &DueTime, request: &mut Vec<u8>) {
        request.extend_from_slice(self.request);
    }

    fn receive(
        &mut self,
        due: &DueTime,
        status: u16,
        _: &[u8],
        now: Duration,
    ) -> Result<Option<DueTime>, AttemptError> {
        if !(200..300).contains(&status) {
            return Err(AttemptError::Refused(status, String::new()));
        }
        let latencies = match due.in_spike {
            true => &mut self.result.spike,
            false => &mut self.result.calm,
        };
        let took = now.saturating_sub(due.at).as_micros() as u64;
        latencies.saturating_record(took.max(1));
        Ok(None)
    }

    fn fail(&mut self, error: AttemptError, _: bool) {
        self.result.errors += 1;
        let why = || match error {
            AttemptError::Refused(status, _) => format!("status {status}"),
            AttemptError::Late(timeout) => format!("no answer within {timeout:?}"),
            AttemptError::Broken(error) => error.to_string(),
        };
        self.result.first_error.get_or_insert_with(why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_devtools::load::Schedule;
    use std::io::{self, Read, Write};
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
        let options = LoadOptions {
            schedule: Schedule::of_time(2400, 0, Duration::from_secs(1), Duration::ZERO),
            address: listener.local_addr().unwrap(),
            connections: 5,
            timeout: Duration::from_secs(60),
            tries: 1,
            retry_delay: Duration::ZERO,
        };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || serve(stream, 300));
            }
        });
        let seen = run(&options, &[b'x'; 300], &RealClock::new()).unwrap();
        assert_eq!(seen.calm.len() + seen.errors, 2400);
        // Two of twelve requests of a connection fail, and no connection has more than the five last
        // ones short of that.
        assert!((360..=400).contains(&seen.errors), "{}", seen.errors);
        assert_eq!(seen.first_error.as_deref(), Some("status 503"));
    }
}
