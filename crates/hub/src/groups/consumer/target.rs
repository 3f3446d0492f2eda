//! The subscribed hubs, and the target of every member.

use std::collections::{BTreeMap, BTreeSet};

use highwater_log::GroupError;

use super::assignor::{Assignor, Candidate, HubShape, assign};
use super::member::MemberRecord;
use super::{ConsumerGroup, FindHub, HUBS_INTERVAL};
use crate::groups::machine::Elapsed;

/// Memory of one partition in the sets of a group: it is assigned, a target, and held.
const PARTITION_BYTES: usize = 64;

/// The memory of the assignments of these hubs.
pub(super) fn hub_bytes(hubs: &BTreeMap<String, HubShape>) -> usize {
    let partitions = hubs.values().map(|hub| hub.partitions as usize);
    partitions.sum::<usize>() * PARTITION_BYTES
}

impl ConsumerGroup {
    /// The hubs that the members are subscribed to, if `changed` has this record.
    fn subscribed_hubs(
        &self,
        changed: Option<(&str, &MemberRecord)>,
        find: FindHub<'_>,
    ) -> BTreeMap<String, HubShape> {
        let others = self.members.iter();
        let others = others.filter(|(id, _)| changed.is_none_or(|(changed, _)| *id != changed));
        let records = others.map(|(_, member)| &member.record);
        let records = records.chain(changed.map(|(_, record)| record));
        let names: BTreeSet<&String> = records.flat_map(MemberRecord::subscription).collect();
        let hubs = names.into_iter();
        hubs.filter_map(|name| Some((name.clone(), find(name)?)))
            .collect()
    }

    /// Looks at the hubs as if `changed` had this record, and takes the memory for them.
    pub(super) fn look_up_hubs(
        &mut self,
        changed: (&str, &MemberRecord),
        find: FindHub<'_>,
    ) -> Result<(), GroupError> {
        let hubs = self.subscribed_hubs(Some(changed), find);
        self.set_hubs(hubs)
    }

    /// Checks at intervals for hubs that were created, deleted or extended.
    pub(super) fn refresh_hubs(&mut self, find: FindHub<'_>, now: Elapsed) {
        if self.hubs_checked.is_some_and(|at| now < at + HUBS_INTERVAL) {
            return;
        }
        self.hubs_checked = Some(now);
        let hubs = self.subscribed_hubs(None, find);
        // Without memory for more partitions the group keeps its current ones.
        let _ = self.set_hubs(hubs);
    }

    fn set_hubs(&mut self, hubs: BTreeMap<String, HubShape>) -> Result<(), GroupError> {
        if hubs == self.state.hubs {
            return Ok(());
        }
        let share = self.memory.charge_more(hub_bytes(&hubs), &self.hub_share)?;
        self.hub_share = share;
        self.state.hubs = hubs;
        self.raise_epoch();
        Ok(())
    }

    /// Computes the target of every member, unless it is that of the group epoch.
    pub(super) fn update_target(&mut self) {
        if self.state.assignment_epoch == self.state.epoch {
            return;
        }
        let assignor = self.preferred_assignor();
        let hubs: Vec<HubShape> = self.state.hubs.values().copied().collect();
        let candidates: Vec<Candidate<'_>> = (self.members.iter())
            .map(|(id, member)| Candidate {
                order: member.record.instance.as_deref().unwrap_or(id),
                previous: &member.record.target,
                hubs: (member.record.subscription())
                    .filter_map(|name| Some(self.state.hubs.get(name)?.id))
                    .collect(),
            })
            .collect();
        let targets = assign(assignor, &candidates, &hubs);
        for ((id, member), target) in self.members.iter_mut().zip(targets) {
            if member.record.target != target {
                member.record.target = target;
                self.changes.members.insert(id.clone());
            }
        }
        self.state.assignor = assignor;
        self.state.assignment_epoch = self.state.epoch;
        self.changes.group = true;
    }

    /// The assignor that most members prefer.
    fn preferred_assignor(&self) -> Assignor {
        let votes = |assignor: &Assignor| {
            let prefers = |assignor| {
                self.members
                    .values()
                    .filter(move |member| member.record.assignor == Some(assignor))
            };
            prefers(*assignor).count()
        };
        // `max_by_key` returns the last of equals.
        let all = Assignor::ALL.into_iter().rev();
        all.max_by_key(votes).unwrap_or_default()
    }
}
