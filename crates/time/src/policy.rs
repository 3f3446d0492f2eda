//! What to do with events whose own time strays.
//!
//! Three bounds, each with its own action. An event may happen long before it arrives (*late*),
//! after it arrives because a clock is wrong (*early*), or before events that have already passed
//! (*out of order*). The checks run in the order early, late, out of order.

use crate::Duration;

/// What happens to an event that strays too far.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Its timestamp is moved to the nearest one allowed; its payload stays as sent.
    Adjust,
    /// It is left out, and counted.
    Drop,
}

/// The bounds that an event's own time must keep. A negative tolerance is read as none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Policy {
    /// How long after it happened an event may arrive.
    pub late_arrival: Duration,
    /// How far an event may lie behind the latest one before it. Output waits for as long.
    pub out_of_order: Duration,
    /// How far an event may lie ahead of its own arrival. `None` turns the check off.
    pub early_arrival: Option<Duration>,
    pub late_events: Action,
    pub out_of_order_events: Action,
    pub early_events: Action,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            late_arrival: Duration::from_secs(5),
            out_of_order: Duration::ZERO,
            early_arrival: Some(Duration::from_minutes(5)),
            late_events: Action::Adjust,
            out_of_order_events: Action::Adjust,
            early_events: Action::Drop,
        }
    }
}
