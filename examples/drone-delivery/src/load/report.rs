//! The results of a load: latencies, errors, and the ledger of accepted requests.

use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;
use highwater_devtools::load::AttemptError;

use crate::ledger::{CustomerAction, Ledger};

pub struct LoadReport {
    /// Microseconds from the due time of a request to its acceptance; outside and inside the spike.
    pub latencies: [Histogram<u64>; 2],
    /// `None` if not requested.
    ledger: Option<Ledger>,
    pub accepted: u64,
    pub cancelled: u64,
    /// Failed attempts, by kind.
    pub refused: u64,
    pub timed_out: u64,
    pub broken: u64,
    /// Retried requests, and requests that failed for good.
    pub repeated: u64,
    pub lost: u64,
    first_error: Option<String>,
}

impl LoadReport {
    pub fn new(ledger: Option<Ledger>) -> anyhow::Result<LoadReport> {
        let histogram = || Histogram::new_with_bounds(1, 3_600_000_000, 3);
        Ok(LoadReport {
            latencies: [histogram()?, histogram()?],
            ledger,
            accepted: 0,
            cancelled: 0,
            refused: 0,
            timed_out: 0,
            broken: 0,
            repeated: 0,
            lost: 0,
            first_error: None,
        })
    }

    pub fn record_latency(&mut self, time: Duration, in_spike: bool) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.latencies[usize::from(in_spike)].saturating_record(micros.max(1));
    }

    pub fn record(&mut self, id: &str, wish: CustomerAction) {
        match wish {
            CustomerAction::Deliver => self.accepted += 1,
            CustomerAction::Cancel => self.cancelled += 1,
        }
        if let Some(ledger) = &mut self.ledger {
            ledger.record(id, wish);
        }
    }

    pub fn error(&mut self, error: AttemptError) {
        let text = match error {
            AttemptError::Refused(status, text) => {
                self.refused += 1;
                format!("status {status}: {text}")
            }
            AttemptError::Late(timeout) => {
                self.timed_out += 1;
                format!("no answer within {timeout:?}")
            }
            AttemptError::Broken(error) => {
                self.broken += 1;
                error.to_string()
            }
        };
        self.first_error.get_or_insert(text);
    }

    /// Writes the ledger.
    pub fn close(&mut self) -> io::Result<()> {
        self.ledger.take().map_or(Ok(()), Ledger::close)
    }

    pub fn print(&self, took: Duration) {
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
        if let Some(error) = &self.first_error {
            println!("the first error: {error}");
        }
    }
}
