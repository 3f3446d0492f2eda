//! Event time as a pure function.
//!
//! Events happen in one order and arrive in another. Given the event time and the arrival time of
//! each event, this crate decides its timestamp, advances the watermark, and releases events in
//! order. It knows no clock, no thread and no file, so equal input gives equal results.
//!
//! The terms, in the order in which an event meets them:
//!
//! - An [`Instant`] is a point in time and a [`Duration`] a span, in ticks of 100 ns.
//! - A [`TimePolicy`] bounds how late, early and out of order an event may be, and says whether
//!   events beyond a bound are adjusted or dropped.
//! - `TimePolicy::judge_event` (`lateness.rs`) applies the bounds to one event. The result is a
//!   [`Verdict`]: on time, adjusted or dropped. A [`VerdictObserver`] receives each [`JudgedEvent`].
//! - A [`Timeline`] judges the events of one partition. It keeps the **watermark**, a promise that
//!   no earlier timestamp will follow, and buffers each event until the watermark has reached it.
//! - [`Substreams`] does the same with one watermark for each key.
//! - [`CombinedWatermark`] is the minimum watermark of several timelines that are read as one.
//!
//! Here a phone sends positions. Events may be ten minutes late and three minutes out of order:
//!
//! ```
//! use highwater_time::*;
//!
//! let policy = TimePolicy {
//!     late_arrival: Duration::from_minutes(10),
//!     out_of_order: Duration::from_minutes(3),
//!     ..TimePolicy::default()
//! };
//! let at = |clock: &str| {
//!     let text = format!("2026-01-01T{clock}Z");
//!     Instant::parse_iso(text.as_bytes()).expect("a valid time")
//! };
//!
//! let happened = ["00:00:00", "00:00:01", "00:10:00", "00:09:00", "00:06:00"].map(at);
//! let arrived = ["00:10:01", "00:10:01", "00:10:02", "00:10:03", "00:10:04"].map(at);
//!
//! let mut timeline = Timeline::new(policy, TimeDomain::EventTime);
//! let events = EventBatch { first_row: 0, times: &happened, arrivals: Arrivals::Each(&arrived) };
//! timeline.push(events, &mut ());
//!
//! // The third event happened at 10:00, so the watermark stands three minutes before it.
//! assert_eq!(timeline.watermark(), at("00:07:00"));
//!
//! // Row 0 was late and row 4 out of order; both were adjusted. Rows 2 and 3 are still held.
//! let mut released = ReleasedEvents::default();
//! timeline.release(&mut released);
//! assert_eq!(released.rows, [0, 1, 4]);
//! assert_eq!(released.times, ["00:00:01", "00:00:01", "00:07:00"].map(at));
//!
//! // When the input ends, time runs to infinity and the rest follows, sorted.
//! timeline.end();
//! timeline.release(&mut released);
//! assert_eq!(released.rows, [0, 1, 4, 3, 2]);
//! ```

mod combined_watermark;
mod duration;
mod instant;
mod iso;
mod lane_buffer;
mod lanes;
mod lateness;
mod policy;
mod released_lanes;
mod reorder_buffer;
mod snapshot;
mod substreams;
mod timeline;
mod verdict;

pub use combined_watermark::CombinedWatermark;
pub use duration::{Duration, DurationError};
pub use instant::{
    Instant, TICKS_PER_DAY, TICKS_PER_HOUR, TICKS_PER_MICRO, TICKS_PER_MILLI, TICKS_PER_MINUTE,
    TICKS_PER_SECOND,
};
pub use policy::{TimePolicy, ViolationAction};
pub use released_lanes::{FloorRise, KeyList, LaneWatermark, ReleasedLaneEvents};
pub use substreams::{EventKeys, Substreams};
pub use timeline::{Arrivals, EventBatch, ReleasedEvents, TimeDomain, Timeline};
pub use verdict::{JudgedEvent, Verdict, VerdictCounts, VerdictObserver, Violation};
