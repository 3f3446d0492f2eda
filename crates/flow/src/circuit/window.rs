//! A sliding window of outcomes, counted in time slots.

use std::collections::VecDeque;
use std::time::Duration;

use highwater_log::EnqueueTime;

/// Slots per window.
pub const SLOTS: u32 = 64;

/// Numbers of successful and failed deliveries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutcomeCounts {
    pub ok: u32,
    pub failed: u32,
}

impl OutcomeCounts {
    /// Adds outcomes.
    pub fn add(&mut self, other: OutcomeCounts) {
        self.ok = self.ok.saturating_add(other.ok);
        self.failed = self.failed.saturating_add(other.failed);
    }
}

/// The current slot and the [`SLOTS`] before it; empty slots are not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Window {
    slot_ms: i64,
    slots: VecDeque<SlotCounts>,
    ok: u64,
    failed: u64,
}

/// The outcomes of one slot of time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SlotCounts {
    slot: i64,
    ok: u64,
    failed: u64,
}

impl Window {
    pub(super) fn new(length: Duration) -> Window {
        Window {
            slot_ms: slot_ms(length),
            slots: VecDeque::new(),
            ok: 0,
            failed: 0,
        }
    }

    /// Adds outcomes at a time not before the last one. Returns the totals of the window.
    pub(super) fn add(&mut self, at: EnqueueTime, tally: OutcomeCounts) -> (u64, u64) {
        let slot = at.0.div_euclid(self.slot_ms);
        self.forget_before(slot.saturating_sub(i64::from(SLOTS)));
        let (ok, failed) = (u64::from(tally.ok), u64::from(tally.failed));
        match self.slots.back_mut() {
            Some(last) if last.slot == slot => {
                last.ok += ok;
                last.failed += failed;
            }
            _ => self.slots.push_back(SlotCounts { slot, ok, failed }),
        }
        self.ok += ok;
        self.failed += failed;
        (self.ok, self.failed)
    }

    fn forget_before(&mut self, first: i64) {
        while self.slots.front().is_some_and(|counts| counts.slot < first)
            && let Some(counts) = self.slots.pop_front()
        {
            self.ok -= counts.ok;
            self.failed -= counts.failed;
        }
    }
}

/// Rounded up, so that a window is never shorter than configured.
pub(super) fn slot_ms(length: Duration) -> i64 {
    let slot_ms = length.as_millis().div_ceil(u128::from(SLOTS));
    i64::try_from(slot_ms).unwrap_or(i64::MAX).max(1)
}
