//! The partition of an event without a key.
//!
//! Partitions take turns, so all get the same share. When events arrive faster than one a millisecond, a turn lasts for
//! up to [`TURN_EVENTS`] of them, so that they share a write and a sync instead of waking every partition.

use std::sync::atomic::{AtomicU64, Ordering};

use highwater_log::HubId;

const TURN_EVENTS: u64 = 64;

/// Hubs share counters by their id: with a few counters, most hubs have one of their own.
const SLOTS: usize = 16;

/// Each slot: the millisecond of the last event (24 bits), events in this turn (8), turns (32). Two
/// concurrent events may count as one, which moves the share of a partition by next to nothing.
#[derive(Debug, Default)]
pub(crate) struct RoundRobin {
    slots: [AtomicU64; SLOTS],
}

impl RoundRobin {
    /// One of `partitions`, which are of this hub, or of this and others that share a name.
    pub(crate) fn next(&self, hub: HubId, partitions: u32, now_ms: u64) -> u32 {
        let slot = &self.slots[usize::from(hub.0[15]) % SLOTS];
        let was = slot.load(Ordering::Relaxed);
        let (moment, count, turn) = (was >> 40, was >> 32 & 0xff, was as u32);
        let now = now_ms & 0xff_ffff;
        let (count, turn) = match moment == now && count < TURN_EVENTS {
            true => (count + 1, turn),
            false => (1, turn.wrapping_add(1)),
        };
        slot.store(now << 40 | count << 32 | u64::from(turn), Ordering::Relaxed);
        turn % partitions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(step_ms: impl Fn(u64) -> u64) -> [u32; 4] {
        let round_robin = RoundRobin::default();
        let mut shares = [0; 4];
        for event in 0..4096 {
            shares[round_robin.next(HubId([7; 16]), 4, step_ms(event)) as usize] += 1;
        }
        shares
    }

    // proves L1
    #[test]
    fn every_partition_gets_its_share_at_any_rate() {
        assert_eq!(shares(|event| event), [1024; 4], "one a millisecond");
        assert_eq!(shares(|event| event * 1000), [1024; 4], "one a second");
        assert_eq!(shares(|_| 5), [1024; 4], "all at once");
    }
}
