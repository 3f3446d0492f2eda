//! A set of partitions of several hubs, by the ids of the hubs.

use std::collections::{BTreeMap, BTreeSet};

use highwater_log::{HubId, HubPartitions};

/// Hubs without partitions are never in the map, so equal sets are equal maps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::groups) struct PartitionSet(BTreeMap<HubId, BTreeSet<u32>>);

impl PartitionSet {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }

    /// The memory of `to_list`.
    pub(super) fn list_bytes(&self) -> usize {
        let hub = |partitions: &BTreeSet<u32>| {
            size_of::<(HubId, Vec<u32>)>() + partitions.len() * size_of::<u32>()
        };
        self.0.values().map(hub).sum()
    }

    pub(super) fn contains(&self, hub: HubId, partition: u32) -> bool {
        (self.0.get(&hub)).is_some_and(|partitions| partitions.contains(&partition))
    }

    pub(super) fn insert(&mut self, hub: HubId, partition: u32) -> bool {
        self.0.entry(hub).or_default().insert(partition)
    }

    pub(super) fn remove(&mut self, hub: HubId, partition: u32) {
        if let Some(partitions) = self.0.get_mut(&hub) {
            partitions.remove(&partition);
            if partitions.is_empty() {
                self.0.remove(&hub);
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (HubId, u32)> + '_ {
        let of_hub = |(hub, partitions): (&HubId, &'_ BTreeSet<u32>)| {
            let hub = *hub;
            let partitions: Vec<u32> = partitions.iter().copied().collect();
            partitions
                .into_iter()
                .map(move |partition| (hub, partition))
        };
        self.0.iter().flat_map(of_hub)
    }

    pub(super) fn add(&mut self, other: &PartitionSet) {
        for (hub, partitions) in &other.0 {
            self.0.entry(*hub).or_default().extend(partitions);
        }
    }

    pub(super) fn subtract(&mut self, other: &PartitionSet) {
        for (hub, partition) in other.iter() {
            self.remove(hub, partition);
        }
    }

    pub(super) fn is_subset(&self, of: &PartitionSet) -> bool {
        let has_all = |(hub, partitions): (&HubId, &BTreeSet<u32>)| {
            (of.0.get(hub)).is_some_and(|others| partitions.is_subset(others))
        };
        self.0.iter().all(has_all)
    }

    pub(super) fn intersects(&self, other: &PartitionSet) -> bool {
        let shares = |(hub, partitions): (&HubId, &BTreeSet<u32>)| {
            (other.0.get(hub)).is_some_and(|others| !partitions.is_disjoint(others))
        };
        self.0.iter().any(shares)
    }

    /// Splits into the partitions that `of` has and those that it has not.
    pub(super) fn split_by(&self, of: &PartitionSet) -> (PartitionSet, PartitionSet) {
        let (mut common, mut rest) = (PartitionSet::default(), PartitionSet::default());
        for (hub, partition) in self.iter() {
            match of.contains(hub, partition) {
                true => common.insert(hub, partition),
                false => rest.insert(hub, partition),
            };
        }
        (common, rest)
    }

    pub(in crate::groups) fn to_list(&self) -> HubPartitions {
        let list = |(hub, partitions): (&HubId, &BTreeSet<u32>)| {
            (*hub, partitions.iter().copied().collect())
        };
        self.0.iter().map(list).collect()
    }

    pub(in crate::groups) fn from_list(list: HubPartitions) -> PartitionSet {
        let mut set = PartitionSet::default();
        for (hub, partitions) in list {
            if !partitions.is_empty() {
                set.0.entry(hub).or_default().extend(partitions);
            }
        }
        set
    }
}
