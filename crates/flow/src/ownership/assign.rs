//! Assigns slots to nodes: balanced, with few moves, and never to a node while another one still has them.
//!
//! A moving slot is revoked in one rebalance and assigned in the next: its owner closes what is in it and joins again
//! without it. This is the order of Kafka's cooperative rebalancing, so the slots that stay are served throughout.

use super::slots::{SLOTS, SlotSet};

/// A resource counts as much as this many empty slots.
const RESOURCE_COST: u64 = 1000;

/// A member and its current slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub name: String,
    pub owned: SlotSet,
}

/// The slots of each candidate from now on. `resources` has the slot of every resource.
pub(super) fn assign(candidates: &[Candidate], resources: &[u16]) -> Vec<SlotSet> {
    let mut costs = vec![1; usize::from(SLOTS)];
    for slot in resources {
        if let Some(cost) = costs.get_mut(usize::from(*slot)) {
            *cost += RESOURCE_COST;
        }
    }
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by(|a, b| candidates[*a].name.cmp(&candidates[*b].name));
    let owner = |slot: u16| {
        let mut order = order.iter().copied();
        order.find(|at| candidates[*at].owned.contains(slot))
    };
    let owners: Vec<Option<usize>> = (0..SLOTS).map(owner).collect();
    let target = balance(&costs, &owners, &order);
    let mut given = vec![SlotSet::default(); candidates.len()];
    for (slot, target) in (0..SLOTS).zip(target) {
        let current = owners[usize::from(slot)];
        if let Some(target) = target
            && current.is_none_or(|current| current == target)
        {
            given[target].insert(slot);
        }
    }
    given
}

/// The owner of each slot when all moves are done.
fn balance(costs: &[u64], owners: &[Option<usize>], order: &[usize]) -> Vec<Option<usize>> {
    let mut target = owners.to_vec();
    if order.is_empty() {
        return target;
    }
    let mut loads = vec![0; order.len()];
    for (slot, owner) in owners.iter().enumerate() {
        if let Some(owner) = owner {
            loads[*owner] += costs[slot];
        }
    }
    let mut free: Vec<usize> = (0..costs.len())
        .filter(|slot| target[*slot].is_none())
        .collect();
    free.sort_by_key(|slot| std::cmp::Reverse(costs[*slot]));
    for slot in free {
        let Some(lightest) = order.iter().copied().min_by_key(|at| loads[*at]) else {
            return target;
        };
        target[slot] = Some(lightest);
        loads[lightest] += costs[slot];
    }
    // Every move lowers the sum of the squares of the loads, so this ends.
    while let Some((slot, to)) = next_move(costs, &target, &loads, order) {
        if let Some(from) = target[slot].replace(to) {
            loads[from] -= costs[slot];
        }
        loads[to] += costs[slot];
    }
    target
}

/// The most expensive slot whose move from the heaviest to the lightest node brings them closer.
fn next_move(
    costs: &[u64],
    target: &[Option<usize>],
    loads: &[u64],
    order: &[usize],
) -> Option<(usize, usize)> {
    let lightest = order.iter().copied().min_by_key(|at| loads[*at])?;
    let heaviest = order.iter().copied().max_by_key(|at| loads[*at])?;
    let difference = loads[heaviest] - loads[lightest];
    let slots = (0..costs.len()).filter(|slot| target[*slot] == Some(heaviest));
    let slot = slots
        .filter(|slot| costs[*slot] < difference)
        .max_by_key(|slot| costs[*slot])?;
    Some((slot, lightest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn candidates(owned: &[SlotSet]) -> Vec<Candidate> {
        let named = |(n, owned): (usize, &SlotSet)| Candidate {
            name: format!("node-{n}"),
            owned: *owned,
        };
        owned.iter().enumerate().map(named).collect()
    }

    /// Each slot has at most one owner.
    fn owners(owned: &[SlotSet]) -> Vec<Option<usize>> {
        let owner = |slot| {
            let mut having = (0..owned.len()).filter(|at| owned[*at].contains(slot));
            let first = having.next();
            assert_eq!(having.next(), None, "slot {slot} has two owners");
            first
        };
        (0..SLOTS).map(owner).collect()
    }

    /// Joins until nothing moves, as the members of a group do.
    fn settle(mut owned: Vec<SlotSet>, resources: &[u16]) -> Vec<SlotSet> {
        for _ in 0..8 {
            let before = owners(&owned);
            let next = assign(&candidates(&owned), resources);
            for (slot, (old, new)) in before.iter().zip(owners(&next)).enumerate() {
                let moved = old.is_some() && new.is_some() && *old != new;
                assert!(!moved, "slot {slot} went from {old:?} to {new:?} at once");
            }
            if next == owned {
                return owned;
            }
            owned = next;
        }
        panic!("the slots keep moving");
    }

    proptest! {
        // proves X1
        #[test]
        fn every_slot_gets_one_owner_and_moves_through_nobody(
            resources in vec(0..SLOTS, 0..300),
            places in vec(0_usize..7, usize::from(SLOTS)),
            nodes in 1_usize..6,
        ) {
            let mut owned = vec![SlotSet::default(); nodes];
            for (slot, place) in (0..SLOTS).zip(places) {
                if let Some(owned) = owned.get_mut(place) {
                    owned.insert(slot);
                }
            }
            let settled = settle(owned, &resources);
            prop_assert!(owners(&settled).iter().all(Option::is_some));
            let count = |slot: u16| resources.iter().filter(|of| **of == slot).count() as u64;
            let cost = |slot: u16| count(slot) * RESOURCE_COST + 1;
            let loads = settled.iter().map(|slots| slots.iter().map(cost).sum::<u64>());
            let loads: Vec<u64> = loads.collect();
            let most_expensive = (0..SLOTS).map(cost).max().unwrap();
            let spread = loads.iter().max().unwrap() - loads.iter().min().unwrap();
            prop_assert!(spread <= most_expensive, "{loads:?}");
        }

        #[test]
        fn when_a_node_leaves_only_its_slots_move(
            nodes in 2_usize..6, leaves in 0_usize..6,
        ) {
            let resources: Vec<u16> = (0..SLOTS).collect();
            let mut settled = settle(vec![SlotSet::default(); nodes], &resources);
            let left = settled.remove(leaves % nodes);
            let after = settle(settled.clone(), &resources);
            for (before, after) in settled.iter().zip(&after) {
                prop_assert!(before.without(after).is_empty(), "a slot of a node that stays moved");
            }
            let gained: usize = settled.iter().zip(&after).map(|(b, a)| a.without(b).len()).sum();
            prop_assert_eq!(gained, left.len());
        }
    }

    // proves X1
    #[test]
    fn two_resources_are_not_left_with_one_node() {
        let resources = [3, 4];
        let first = settle(vec![SlotSet::default()], &resources);
        let both = settle(vec![first[0], SlotSet::default()], &resources);
        assert!(both[0].contains(3) != both[0].contains(4), "{both:?}");
        assert_eq!(both[0].len() + both[1].len(), usize::from(SLOTS));
    }
}
