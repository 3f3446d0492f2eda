//! The assignors: they decide the target of each member.
//!
//! `range` assigns every member a run of neighbouring partitions of each hub, the same run for hubs with the same
//! number of partitions. `uniform` balances the number of partitions, and moves as few as possible: a member keeps what
//! it had before, and applying it twice changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use highwater_log::HubId;

use super::partitions::PartitionSet;

/// An assignor by its name on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::groups) enum Assignor {
    #[default]
    Uniform,
    Range,
}

impl Assignor {
    pub(in crate::groups) const ALL: [Assignor; 2] = [Assignor::Uniform, Assignor::Range];

    pub(in crate::groups) fn name(self) -> &'static str {
        match self {
            Assignor::Uniform => "uniform",
            Assignor::Range => "range",
        }
    }

    pub(in crate::groups) fn by_name(name: &str) -> Option<Assignor> {
        Assignor::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// A hub that can be assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::groups) struct HubShape {
    pub(in crate::groups) id: HubId,
    pub(in crate::groups) partitions: u32,
}

/// A member as an assignor sees it.
pub(super) struct Candidate<'a> {
    /// Members are ordered by it: the instance of a static member, the id of another one.
    pub(super) order: &'a str,
    /// Its previous target.
    pub(super) previous: &'a PartitionSet,
    /// The hubs that it is subscribed to.
    pub(super) hubs: BTreeSet<HubId>,
}

/// The partitions of each candidate, in their order.
pub(super) fn assign(
    assignor: Assignor,
    candidates: &[Candidate<'_>],
    hubs: &[HubShape],
) -> Vec<PartitionSet> {
    match assignor {
        Assignor::Range => range(candidates, hubs),
        Assignor::Uniform => Uniform::new(candidates, hubs).assign(hubs),
    }
}

fn range(candidates: &[Candidate<'_>], hubs: &[HubShape]) -> Vec<PartitionSet> {
    let mut sets = vec![PartitionSet::default(); candidates.len()];
    for hub in hubs {
        let mut subscribers = subscribers(candidates, hub.id);
        subscribers.sort_by_key(|index| candidates[*index].order);
        let count = subscribers.len() as u32;
        if count == 0 {
            continue;
        }
        let (each, extra) = (hub.partitions / count, hub.partitions % count);
        let mut start = 0;
        for (position, index) in subscribers.into_iter().enumerate() {
            let end = start + each + u32::from((position as u32) < extra);
            for partition in start..end {
                sets[index].insert(hub.id, partition);
            }
            start = end;
        }
    }
    sets
}

fn subscribers(candidates: &[Candidate<'_>], hub: HubId) -> Vec<usize> {
    let subscribed = |index: &usize| candidates[*index].hubs.contains(&hub);
    (0..candidates.len()).filter(subscribed).collect()
}

/// Moves between members with different subscriptions are repeated at most this often. Every pass leaves a complete
/// assignment, and most groups need one or two.
const PASSES_MAX: usize = 16;

struct Uniform {
    sets: Vec<PartitionSet>,
    counts: Vec<usize>,
    /// Members by the hub that they are subscribed to.
    subscribers: BTreeMap<HubId, Vec<usize>>,
    is_homogeneous: bool,
    /// Member and number of its partitions, the fewest first. Only for members with equal subscriptions.
    by_count: BTreeSet<(usize, usize)>,
}

impl Uniform {
    fn new(candidates: &[Candidate<'_>], hubs: &[HubShape]) -> Uniform {
        let of_hub = |hub: &HubShape| (hub.id, subscribers(candidates, hub.id));
        let equal = |pair: &[Candidate<'_>]| pair[0].hubs == pair[1].hubs;
        let mut uniform = Uniform {
            sets: vec![PartitionSet::default(); candidates.len()],
            counts: vec![0; candidates.len()],
            subscribers: hubs.iter().map(of_hub).collect(),
            is_homogeneous: candidates.windows(2).all(equal),
            by_count: BTreeSet::new(),
        };
        uniform.keep_previous(candidates, hubs);
        uniform
    }

    /// Keeps each member's earlier partitions that still exist and that no member before it has claimed.
    fn keep_previous(&mut self, candidates: &[Candidate<'_>], hubs: &[HubShape]) {
        let counts: BTreeMap<HubId, u32> =
            hubs.iter().map(|hub| (hub.id, hub.partitions)).collect();
        let mut taken = PartitionSet::default();
        for (index, candidate) in candidates.iter().enumerate() {
            for (hub, partition) in candidate.previous.iter() {
                let exists = counts.get(&hub).is_some_and(|count| partition < *count);
                if exists && candidate.hubs.contains(&hub) && taken.insert(hub, partition) {
                    self.sets[index].insert(hub, partition);
                    self.counts[index] += 1;
                }
            }
        }
    }

    fn assign(mut self, hubs: &[HubShape]) -> Vec<PartitionSet> {
        self.trim(hubs);
        self.by_count = (self.counts.iter().copied().zip(0..)).collect();
        let mut free = self.free(hubs);
        // Partitions with few candidates are assigned first; the others fill up the differences.
        free.sort_by_key(|(hub, _)| self.subscribers.get(hub).map_or(0, Vec::len));
        for (hub, partition) in free {
            if let Some(index) = self.fewest(hub) {
                self.give(index, hub, partition);
            }
        }
        if !self.is_homogeneous {
            let _ = (0..PASSES_MAX).find(|_| !self.balance());
        }
        self.sets
    }

    /// With equal subscriptions: takes the surplus of each member.
    fn trim(&mut self, hubs: &[HubShape]) {
        if !self.is_homogeneous || self.sets.is_empty() {
            return;
        }
        let subscribed = |hub: &&HubShape| {
            self.subscribers
                .get(&hub.id)
                .is_some_and(|all| !all.is_empty())
        };
        let total: usize = (hubs.iter().filter(subscribed))
            .map(|hub| hub.partitions as usize)
            .sum();
        let (each, mut extra) = (total / self.sets.len(), total % self.sets.len());
        for (set, count) in self.sets.iter_mut().zip(&mut self.counts) {
            let mut share = each;
            if *count > each && extra > 0 {
                (share, extra) = (each + 1, extra - 1);
            }
            let surplus: Vec<_> = set.iter().skip(share).collect();
            for (hub, partition) in surplus {
                set.remove(hub, partition);
                *count -= 1;
            }
        }
    }

    fn free(&self, hubs: &[HubShape]) -> Vec<(HubId, u32)> {
        let mut taken = PartitionSet::default();
        self.sets.iter().for_each(|set| taken.add(set));
        let all = hubs
            .iter()
            .flat_map(|hub| (0..hub.partitions).map(|partition| (hub.id, partition)));
        all.filter(|(hub, partition)| !taken.contains(*hub, *partition))
            .collect()
    }

    /// The subscriber with the fewest partitions.
    fn fewest(&self, hub: HubId) -> Option<usize> {
        let subscribers = self.subscribers.get(&hub)?;
        match self.is_homogeneous {
            true if subscribers.is_empty() => None,
            true => self.by_count.first().map(|(_, index)| *index),
            false => (subscribers.iter().copied()).min_by_key(|index| self.counts[*index]),
        }
    }

    fn give(&mut self, index: usize, hub: HubId, partition: u32) {
        self.by_count.remove(&(self.counts[index], index));
        self.sets[index].insert(hub, partition);
        self.counts[index] += 1;
        self.by_count.insert((self.counts[index], index));
    }

    /// Moves partitions to members that have at least two fewer. False if there was none to move.
    fn balance(&mut self) -> bool {
        let mut order: Vec<usize> = (0..self.sets.len()).collect();
        order.sort_by_key(|index| std::cmp::Reverse(self.counts[*index]));
        let mut moved = false;
        for index in order {
            let mut fewest = BTreeMap::new();
            for (hub, partition) in self.sets[index].clone().iter() {
                let least = *fewest.entry(hub).or_insert_with(|| self.fewest(hub));
                let Some(least) =
                    least.filter(|least| self.counts[*least] + 1 < self.counts[index])
                else {
                    continue;
                };
                self.sets[index].remove(hub, partition);
                self.counts[index] -= 1;
                self.give(least, hub, partition);
                fewest.clear();
                moved = true;
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(number: u8) -> HubId {
        HubId([number; 16])
    }

    fn shapes(partitions: &[u32]) -> Vec<HubShape> {
        let shape = |(number, partitions): (usize, &u32)| HubShape {
            id: id(number as u8),
            partitions: *partitions,
        };
        partitions.iter().enumerate().map(shape).collect()
    }

    /// Assigns to members with these subscriptions.
    fn run(
        assignor: Assignor,
        hubs: &[HubShape],
        subscriptions: &[Vec<u8>],
        previous: &[PartitionSet],
    ) -> Vec<PartitionSet> {
        let names: Vec<String> = (0..subscriptions.len())
            .map(|at| format!("m{at:03}"))
            .collect();
        let candidates: Vec<Candidate<'_>> = (subscriptions.iter().enumerate())
            .map(|(at, hubs)| Candidate {
                order: &names[at],
                previous: &previous[at],
                hubs: hubs.iter().map(|number| id(*number)).collect(),
            })
            .collect();
        assign(assignor, &candidates, hubs)
    }

    fn nothing(count: usize) -> Vec<PartitionSet> {
        vec![PartitionSet::default(); count]
    }

    #[test]
    fn range_gives_neighbours_and_the_same_run_of_each_hub() {
        let hubs = shapes(&[5, 5]);
        let sets = run(
            Assignor::Range,
            &hubs,
            &[vec![0, 1], vec![0, 1]],
            &nothing(2),
        );
        assert_eq!(
            sets[0].to_list(),
            [(id(0), vec![0, 1, 2]), (id(1), vec![0, 1, 2])]
        );
        assert_eq!(
            sets[1].to_list(),
            [(id(0), vec![3, 4]), (id(1), vec![3, 4])]
        );
    }

    #[test]
    fn uniform_moves_only_the_share_of_a_new_member() {
        let hubs = shapes(&[6]);
        let two = run(Assignor::Uniform, &hubs, &[vec![0], vec![0]], &nothing(2));
        let previous = [two[0].clone(), two[1].clone(), PartitionSet::default()];
        let three = run(
            Assignor::Uniform,
            &hubs,
            &[vec![0], vec![0], vec![0]],
            &previous,
        );
        assert!(three[0].is_subset(&two[0]) && three[1].is_subset(&two[1]));
        assert!(three.iter().all(|set| set.len() == 2));
    }

    #[test]
    fn members_with_different_subscriptions_are_balanced_as_far_as_they_can_be() {
        let hubs = shapes(&[6, 2]);
        let mut previous = nothing(2);
        (0..6).for_each(|partition| assert!(previous[0].insert(id(0), partition)));
        let sets = run(Assignor::Uniform, &hubs, &[vec![0], vec![0, 1]], &previous);
        assert_eq!([sets[0].len(), sets[1].len()], [4, 4]);
    }

    proptest! {
        // proves K1
        #[test]
        fn every_partition_with_a_subscriber_goes_to_exactly_one_of_them(
            partitions in prop::collection::vec(0u32..9, 1..5),
            subscriptions in prop::collection::vec(prop::collection::vec(0u8..5, 0..5), 0..7),
            range in any::<bool>(),
        ) {
            let assignor = if range { Assignor::Range } else { Assignor::Uniform };
            let hubs = shapes(&partitions);
            let first = run(assignor, &hubs, &subscriptions, &nothing(subscriptions.len()));
            let mut taken = PartitionSet::default();
            for (set, hubs) in first.iter().zip(&subscriptions) {
                for (hub, partition) in set.iter() {
                    prop_assert!(hubs.iter().any(|number| id(*number) == hub));
                    prop_assert!(taken.insert(hub, partition), "two owners");
                }
            }
            for hub in &hubs {
                let wanted = subscriptions.iter().flatten().any(|number| id(*number) == hub.id);
                for partition in 0..hub.partitions {
                    prop_assert_eq!(taken.contains(hub.id, partition), wanted);
                }
            }
            let again = run(assignor, &hubs, &subscriptions, &first);
            prop_assert_eq!(again, first, "a second run changes nothing");
        }

        #[test]
        fn equal_subscriptions_get_equal_shares(
            partitions in prop::collection::vec(0u32..20, 1..4),
            members in 1usize..9,
            more in 0usize..4,
        ) {
            let hubs = shapes(&partitions);
            let all: Vec<u8> = (0..partitions.len() as u8).collect();
            let few = run(Assignor::Uniform, &hubs, &vec![all.clone(); members], &nothing(members));
            let mut previous = few.clone();
            previous.resize(members + more, PartitionSet::default());
            let many = run(Assignor::Uniform, &hubs, &vec![all; members + more], &previous);
            for sets in [&few, &many] {
                let counts = || sets.iter().map(PartitionSet::len);
                prop_assert!(counts().max() <= counts().min().map(|least| least + 1));
            }
            prop_assert!(few.iter().zip(&many).all(|(few, many)| many.is_subset(few)));
        }
    }
}
