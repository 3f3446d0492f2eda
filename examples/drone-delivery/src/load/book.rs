//! What became of the requests: how long they took, what went wrong, and the ledger of what was promised.

use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::ledger::{Ledger, Wish};

/// Why a request was not accepted this time.
pub enum Trouble {
    /// An answer, but not the one that was wanted.
    Refused(u16, String),
    Late(Duration),
    /// No connection, or one that broke.
    Broken(io::Error),
}

impl Trouble {
    /// What the service does not understand it will not understand next time either.
    pub fn is_final(&self) -> bool {
        match self {
            Trouble::Refused(408 | 429, _) => false,
            Trouble::Refused(status, _) => (400..500).contains(status),
            Trouble::Late(_) | Trouble::Broken(_) => false,
        }
    }
}

pub struct Book {
    /// Microseconds from when a request was due until it was accepted; calm, and in the spike.
    pub latencies: [Histogram<u64>; 2],
    /// Nothing if nobody wants one.
    ledger: Option<Ledger>,
    pub accepted: u64,
    pub cancelled: u64,
    /// Attempts that came to nothing.
    pub refused: u64,
    pub timed_out: u64,
    pub broken: u64,
    /// Requests that had to be sent again, and such that were given up.
    pub repeated: u64,
    pub lost: u64,
    first_trouble: Option<String>,
}

impl Book {
    pub fn new(ledger: Option<Ledger>) -> anyhow::Result<Book> {
        let histogram = || Histogram::new_with_bounds(1, 3_600_000_000, 3);
        Ok(Book {
            latencies: [histogram()?, histogram()?],
            ledger,
            accepted: 0,
            cancelled: 0,
            refused: 0,
            timed_out: 0,
            broken: 0,
            repeated: 0,
            lost: 0,
            first_trouble: None,
        })
    }

    pub fn took(&mut self, time: Duration, in_spike: bool) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.latencies[usize::from(in_spike)].saturating_record(micros.max(1));
    }

    pub fn enter(&mut self, id: &str, wish: Wish) {
        match wish {
            Wish::Deliver => self.accepted += 1,
            Wish::Cancel => self.cancelled += 1,
        }
        if let Some(ledger) = &mut self.ledger {
            ledger.enter(id, wish);
        }
    }

    pub fn trouble(&mut self, trouble: Trouble) {
        let text = match trouble {
            Trouble::Refused(status, text) => {
                self.refused += 1;
                format!("status {status}: {text}")
            }
            Trouble::Late(timeout) => {
                self.timed_out += 1;
                format!("no answer within {timeout:?}")
            }
            Trouble::Broken(error) => {
                self.broken += 1;
                error.to_string()
            }
        };
        self.first_trouble.get_or_insert(text);
    }

    /// The ledger is written and takes its name.
    pub fn close(&mut self) -> io::Result<()> {
        self.ledger.take().map_or(Ok(()), Ledger::close)
    }

    pub fn tell(&self, took: Duration) {
        for (name, latencies) in ["calm", "spike"].iter().zip(&self.latencies) {
            if !latencies.is_empty() {
                let at = |quantile| Duration::from_micros(latencies.value_at_quantile(quantile));
                let (count, most) = (latencies.len(), Duration::from_micros(latencies.max()));
                println!(
                    "{name:<6} accepted={count} p50={:?} p99={:?} p99.9={:?} max={most:?}",
                    at(0.5),
                    at(0.99),
                    at(0.999),
                );
            }
        }
        println!(
            "total  accepted={} cancelled={} refused={} timed_out={} broken={} sent_again={} given_up={} elapsed={:.1}s",
            self.accepted,
            self.cancelled,
            self.refused,
            self.timed_out,
            self.broken,
            self.repeated,
            self.lost,
            took.as_secs_f64(),
        );
        if let Some(trouble) = &self.first_trouble {
            println!("the first trouble: {trouble}");
        }
    }
}
