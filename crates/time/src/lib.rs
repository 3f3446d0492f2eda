//! Event time as a pure function.
//!
//! Events happen in one order and arrive in another. This crate is told, for each event, when it
//! happened and when it arrived, and answers three questions: which timestamp does the event get,
//! how far has time certainly advanced, and which events may now be shown, in order. It knows no
//! clock, no thread and no file, so the same events always get the same answers.
//!
//! The words, in the order in which an event meets them:
//!
//! - An [`Instant`] is a point in time and a [`Duration`] a span, in ticks of 100 ns.
//! - A [`Policy`] says how far an event's own time may stray from its arrival and from its
//!   neighbours, and whether one that strays further is adjusted or dropped.
//! - A [`Timeline`] applies the policy to the events of one partition. It keeps the **watermark**,
//!   a promise that no earlier timestamp will follow, and holds each event back until the
//!   watermark has reached it.
//! - [`Substreams`] does the same with one watermark for each key.
//! - [`Combined`] is the watermark of several timelines that are read as one.
//! - A [`Verdict`] is what the policy decided, and a [`Witness`] hears the whole [`Fate`] of every
//!   event.
//!
//! Here a phone sends positions. Events may be ten minutes late and three minutes out of order:
//!
//! ```
//! use highwater_time::*;
//!
//! let policy = Policy {
//!     late_arrival: Duration::from_minutes(10),
//!     out_of_order: Duration::from_minutes(3),
//!     ..Policy::default()
//! };
//! let at = |clock: &str| {
//!     let text = format!("2026-01-01T{clock}Z");
//!     Instant::parse_iso(text.as_bytes()).expect("a valid time")
//! };
//!
//! let happened = ["00:00:00", "00:00:01", "00:10:00", "00:09:00", "00:06:00"].map(at);
//! let arrived = ["00:10:01", "00:10:01", "00:10:02", "00:10:03", "00:10:04"].map(at);
//!
//! let mut timeline = Timeline::new(policy, Clock::Application);
//! let events = Events { first: 0, times: &happened, arrivals: Arrivals::Each(&arrived) };
//! timeline.push(events, &mut ());
//!
//! // The third event happened at 10:00, so the watermark stands three minutes before it.
//! assert_eq!(timeline.watermark(), at("00:07:00"));
//!
//! // Row 0 was late and row 4 out of order; both were adjusted. Rows 2 and 3 are still held.
//! let mut released = Released::default();
//! timeline.release(&mut released);
//! assert_eq!(released.rows, [0, 1, 4]);
//! assert_eq!(released.times, ["00:00:01", "00:00:01", "00:07:00"].map(at));
//!
//! // When the input ends, time runs to infinity and the rest follows, sorted.
//! timeline.end();
//! timeline.release(&mut released);
//! assert_eq!(released.rows, [0, 1, 4, 3, 2]);
//! ```

mod combine;
mod duration;
mod instant;
mod iso;
mod judge;
mod lanes;
mod policy;
mod reorder;
mod snapshot;
mod substreams;
mod timeline;
mod verdict;
mod waiting;

pub use combine::Combined;
pub use duration::{Duration, DurationError};
pub use instant::{
    Instant, TICKS_PER_DAY, TICKS_PER_HOUR, TICKS_PER_MICRO, TICKS_PER_MILLI, TICKS_PER_MINUTE,
    TICKS_PER_SECOND,
};
pub use policy::{Action, Policy};
pub use snapshot::RestoreError;
pub use substreams::{KeyList, Keys, LaneMark, LaneReleased, Substreams};
pub use timeline::{Arrivals, Clock, Events, Released, Timeline};
pub use verdict::{Cause, Counts, Fate, Verdict, Witness};
