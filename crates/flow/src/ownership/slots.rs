//! Slots: the unit of ownership.
//!
//! A resource belongs to the slot of its kind and name, so a new queue has an owner before any node knows it, and the
//! size of an assignment is independent of the number of resources.

use std::fmt;

/// The number of slots. All nodes of a prefix must agree on it, so it never changes.
pub const SLOTS: u16 = 256;

const BYTES: usize = SLOTS as usize / 8;

/// The slot of a resource, by FNV-1a over kind and name.
pub fn slot_of(kind: &str, name: &str) -> u16 {
    let bytes = kind.bytes().chain([b'/']).chain(name.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // The low bits of FNV are its weakest.
    ((hash ^ (hash >> 32)) % u64::from(SLOTS)) as u16
}

/// A set of slots.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct SlotSet([u8; BYTES]);

impl SlotSet {
    pub fn contains(&self, slot: u16) -> bool {
        let byte = self.0.get(usize::from(slot / 8));
        byte.is_some_and(|byte| byte & (1 << (slot % 8)) != 0)
    }

    pub fn insert(&mut self, slot: u16) {
        if let Some(byte) = self.0.get_mut(usize::from(slot / 8)) {
            *byte |= 1 << (slot % 8);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        (0..SLOTS).filter(|slot| self.contains(*slot))
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(|byte| byte.count_ones() as usize).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }

    /// The slots of this set that `other` lacks.
    pub fn without(&self, other: &SlotSet) -> SlotSet {
        SlotSet(std::array::from_fn(|at| self.0[at] & !other.0[at]))
    }

    pub(super) fn to_bytes(self) -> [u8; BYTES] {
        self.0
    }

    pub(super) fn from_bytes(bytes: [u8; BYTES]) -> SlotSet {
        SlotSet(bytes)
    }
}

impl FromIterator<u16> for SlotSet {
    fn from_iter<I: IntoIterator<Item = u16>>(slots: I) -> SlotSet {
        let mut set = SlotSet::default();
        slots.into_iter().for_each(|slot| set.insert(slot));
        set
    }
}

impl fmt::Debug for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves X1
    #[test]
    fn the_slot_of_a_resource_never_changes() {
        // Nodes of different versions must agree.
        assert_eq!(slot_of("queue", "jobs"), 6);
        assert_eq!(slot_of("workflow", "delivery"), 19);
        assert_eq!(slot_of("queue", ""), 1);
        assert_ne!(slot_of("queue", "order"), slot_of("workflow", "order"));
    }

    #[test]
    fn names_are_spread_over_all_slots() {
        let mut counts = [0; SLOTS as usize];
        for n in 0..25_600 {
            counts[usize::from(slot_of("queue", &format!("queue-{n}")))] += 1;
        }
        let (least, most) = (counts.iter().min(), counts.iter().max());
        assert!(least > Some(&50) && most < Some(&160), "{counts:?}");
    }
}
