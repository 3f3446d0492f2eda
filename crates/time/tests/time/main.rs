//! The guarantees of the crate, tested through its public API.
//!
//! `worked_examples` are tables that can be checked by hand, `rules` has a test for each rule, and
//! the `laws` hold random streams against an oracle of a few lines.

mod rules;
mod streams;
mod substream_laws;
mod timeline_laws;
mod worked_examples;

use highwater_time::{Duration, Instant};

/// A time of day on the first day of 2026, as `HH:mm` or `HH:mm:ss`.
fn at(clock: &str) -> Instant {
    Instant::parse_iso(format!("2026-01-01T{clock}Z").as_bytes()).expect("a time of day")
}

fn long(text: &str) -> Duration {
    Duration::parse(text).expect("a duration")
}
