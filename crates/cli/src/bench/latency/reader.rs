//! Reads rows by long poll as they come, and compares the time that each carries with that at which it is seen.

use anyhow::Context;
use hdrhistogram::Histogram;
use highwater_env::RealClock;
use highwater_time::Instant;

use super::sender::micros_since;
use crate::client::{Client, Server};

pub struct Reader {
    pub server: Server,
    pub hub: String,
    pub until: Until,
}

/// When everything has been seen.
pub enum Until {
    Count(u64),
    /// Rows of this time are the last.
    Time(Instant),
}

/// In front of the time of a row.
const AT: &str = "\"At\":\"";

impl Reader {
    /// How old each row was when it was seen, in microseconds.
    pub async fn run(self) -> anyhow::Result<Histogram<u64>> {
        let clock = RealClock::new();
        let mut client = Client::new(&self.server)?;
        let mut seen = Histogram::new(3)?;
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
                let is_due = !matches!(self.until, Until::Time(last) if time > last);
                if is_due {
                    seen.record(micros_since(&clock, time.to_unix_millis()))?;
                }
            }
            next = next_of(page).context("a page does not say where the next begins")?;
            let is_all = match self.until {
                Until::Count(rows) => seen.len() >= rows,
                Until::Time(last) => latest >= last,
            };
            if is_all {
                return Ok(seen);
            }
        }
    }
}

/// What stands behind the messages of a page.
fn next_of(page: &str) -> Option<i64> {
    let (_, rest) = page.rsplit_once("\"next\":")?;
    let digits = rest.split(|letter: char| !letter.is_ascii_digit()).next()?;
    digits.parse().ok()
}
