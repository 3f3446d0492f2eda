//! A group changes its protocol, with or without members (KIP-848).
//!
//! - A consumer of the consumer protocol joins classic ones: the group becomes one of the consumer protocol. Classic
//!   members stay with their partitions, under the rules of `consumer/classic.rs`.
//! - The last member of the consumer protocol leaves: the group of the remaining members is a classic one again, and
//!   rebalances.
//!
//! Records: the last record of the group decides its protocol. Records of members of the other
//! protocol are removed with the next one of the group.

use std::collections::BTreeSet;

use highwater_log::{GroupError, HubId};

use super::consumer::{ConsumerGroup, HubShape, find_partitions};
use super::coordinator::{Coordinator, LockedGroup};
use super::group_kind::GroupKind;
use super::machine::{Group, Snapshot};
use super::subscription::{self, CONSUMER, Subscription};

impl LockedGroup<'_> {
    /// The group as one of the consumer protocol, which it becomes if all its members are consumers.
    pub(super) fn consumer_group(&mut self) -> Result<&mut ConsumerGroup, GroupError> {
        if let GroupKind::Classic(group) = &self.entry.group {
            let upgraded = match group.is_idle() {
                true => {
                    self.check_quiet()?;
                    self.empty_consumer_group(group.generation())
                }
                false => {
                    if group.info().protocol_type != CONSUMER {
                        return Err(GroupError::NotConsumerGroup);
                    }
                    // Not in the middle of a rebalance: the client asks again.
                    let is_settled = group.is_stable() && !self.entry.has_pending_requests();
                    if !is_settled {
                        return Err(GroupError::Loading);
                    }
                    self.upgraded(&group.snapshot())?
                }
            };
            self.entry.group = GroupKind::Consumer(upgraded);
            let stale = std::mem::take(&mut self.entry.stale_members);
            if let Some(group) = self.entry.group.consumer() {
                group.store_members(stale);
            }
        }
        self.entry
            .group
            .consumer()
            .ok_or(GroupError::NotConsumerGroup)
    }

    fn empty_consumer_group(&self, epoch: i32) -> ConsumerGroup {
        let (options, memory) = (
            self.coordinator.options.clone(),
            self.coordinator.member_memory.clone(),
        );
        ConsumerGroup::new(&self.entry.name, epoch, options, memory)
    }

    /// The group of classic members in its epoch, before the member joins for which it changes.
    fn upgraded(&self, snapshot: &Snapshot) -> Result<ConsumerGroup, GroupError> {
        let find = |name: &str| self.coordinator.hub_shape(name);
        let mut group = self.empty_consumer_group(snapshot.generation);
        for member in &snapshot.members {
            let subscription = member.protocols.first();
            let subscription = subscription.and_then(|(_, it)| Subscription::read(it).ok());
            let assignment = subscription::read_assignment(&member.assignment).ok();
            let (Some(subscription), Some(assignment)) = (subscription, assignment) else {
                return Err(GroupError::NotConsumerGroup);
            };
            let assigned = find_partitions(&assignment, &find);
            group.take_over(member, &subscription, assigned, &find, self.now)?;
        }
        Ok(group)
    }

    /// The group as one of the classic protocol, which it becomes if it has no members.
    pub(super) fn classic_group(&mut self) -> Result<&mut Group, GroupError> {
        if let GroupKind::Consumer(group) = &self.entry.group {
            if !group.is_empty() {
                return Err(GroupError::InconsistentProtocol);
            }
            let epoch = group.epoch();
            self.check_quiet()?;
            let options = self.coordinator.options.clone();
            let group = Group::after(&self.entry.name, epoch, options);
            self.entry.group = GroupKind::Classic(group);
        }
        self.entry
            .group
            .classic()
            .ok_or(GroupError::InconsistentProtocol)
    }

    /// The protocol does not change while a change is being written: the client asks again.
    fn check_quiet(&self) -> Result<(), GroupError> {
        match self.entry.is_quiet() {
            true => Ok(()),
            false => Err(GroupError::Loading),
        }
    }

    /// Makes a group of classic members only a classic one, once everything of it is stored.
    pub(super) fn downgrade(&mut self) {
        if !self.entry.is_consumer_stored() {
            return;
        }
        let Some(group) = self.entry.group.consumer() else {
            return;
        };
        if !group.is_all_classic() {
            return;
        }
        let log = &self.coordinator.log;
        let find_name = |hub: HubId| Some(log.hub_by_id(hub)?.name.as_str().to_owned());
        let snapshot = group.downgraded(&find_name);
        let ids = snapshot.members.iter().map(|member| member.id.clone());
        let ids: BTreeSet<String> = ids.collect();
        let options = self.coordinator.options.clone();
        let name = &self.entry.name;
        let group = Group::restore_rebalancing(name, options, snapshot, self.now);
        self.entry.stale_members = ids;
        self.entry.group = GroupKind::Classic(group);
    }
}

impl Coordinator {
    pub(super) fn hub_shape(&self, name: &str) -> Option<HubShape> {
        let hub = self.log.hub(name)?;
        Some(HubShape {
            id: hub.id,
            partitions: hub.partitions,
        })
    }
}
