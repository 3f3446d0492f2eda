//! Reads rows by long poll and compares the time in each with the clock.

use anyhow::Context;
use hdrhistogram::Histogram;
use highwater_env::RealClock;
use highwater_time::Instant;

use super::sender::micros_since;
use crate::client::{Client, Server};

pub(super) struct Reader {
    pub server: Server,
    pub hub: String,
    pub last: LastRow,
}

/// The last row to read.
pub(super) enum LastRow {
    Count(u64),
    /// The last rows have this time.
    Time(Instant),
}

/// Precedes the time of a row.
const AT: &str = "\"At\":\"";

impl Reader {
    /// The age of each row when it is read, in microseconds.
    pub(super) async fn run(self) -> anyhow::Result<Histogram<u64>> {
        let clock = RealClock::new();
        let mut client = Client::new(&self.server)?;
        let mut latencies = Histogram::new(3)?;
        let mut next = 0;
        loop {
            let path = format!(
                "/hubs/{}/partitions/0/messages?from={next}&max=10000&wait=1s",
                self.hub
            );
            let page = client.get(&path).await?.success()?;
            let page = std::str::from_utf8(&page.body)?;
            let mut latest = Instant::BEFORE_ALL;
            for (found, _) in page.match_indices(AT) {
                let time = page[found + AT.len()..].split('"').next().unwrap_or("");
                let time = Instant::parse_iso(time.as_bytes()).context("a row has no time")?;
                latest = latest.max(time);
                let is_due = !matches!(self.last, LastRow::Time(last) if time > last);
                if is_due {
                    latencies.record(micros_since(&clock, time.to_unix_millis()))?;
                }
            }
            next = next_offset(page).context("a page has no next offset")?;
            let is_complete = match self.last {
                LastRow::Count(rows) => latencies.len() >= rows,
                LastRow::Time(last) => latest >= last,
            };
            if is_complete {
                return Ok(latencies);
            }
        }
    }
}

/// The offset of the next page.
fn next_offset(page: &str) -> Option<i64> {
    let (_, rest) = page.rsplit_once("\"next\":")?;
    let digits = rest.split(|letter: char| !letter.is_ascii_digit()).next()?;
    digits.parse().ok()
}
