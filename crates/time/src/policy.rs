//! The policy for early, late and out-of-order events.
//!
//! It has three bounds, each with an action. An event may happen long before it arrives (*late*),
//! after it arrives because a clock is wrong (*early*), or before the watermark (*out of order*).
//! [`TimePolicy::judge_event`] in `lateness.rs` checks them in the order early, late, out of order.

use crate::Duration;

/// The action for an event that violates a bound.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ViolationAction {
    /// Sets its timestamp to the nearest allowed one; the payload is unchanged.
    Adjust,
    /// Drops and counts the event.
    Drop,
}

/// The bounds on event times, and the actions for events that violate them. A negative tolerance
/// counts as zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TimePolicy {
    /// How long after its event time an event may arrive.
    pub late_arrival: Duration,
    /// How far an event time may be behind the latest event time so far. Delays output by as much.
    pub out_of_order: Duration,
    /// How far an event time may be ahead of the arrival. `None` disables the check.
    pub early_arrival: Option<Duration>,
    pub late_events: ViolationAction,
    pub out_of_order_events: ViolationAction,
    pub early_events: ViolationAction,
}

impl Default for TimePolicy {
    fn default() -> TimePolicy {
        TimePolicy {
            late_arrival: Duration::from_secs(5),
            out_of_order: Duration::ZERO,
            early_arrival: Some(Duration::from_minutes(5)),
            late_events: ViolationAction::Adjust,
            out_of_order_events: ViolationAction::Adjust,
            early_events: ViolationAction::Drop,
        }
    }
}
