//! One group of the consumer protocol (KIP-848) as a pure state machine: input are heartbeats and the time, output are
//! responses and the records to store.
//!
//! The members send their subscriptions, the group assigns the partitions. Three epochs order that:
//! - the *group epoch* rises when a member joins, leaves or changes its subscription, or when a hub changes;
//! - the *assignment epoch* is the group epoch for which the target of every member was last computed;
//! - the *member epoch* is the assignment epoch that a member has reached. A member reaches it by its own heartbeats:
//!
//! ```text
//!             something to give up                  given up, as its heartbeat says
//!   Stable ─────────────────────────▶ Unrevoked ─────────────────────────────────┐
//!     ▲ │                                                                         ▼
//!     │ └──── its target has changed, nothing to give up ──────────────▶ has all of its target that is free
//!     │                                                                           │
//!     └────────────── everything is free ◀── Unreleased ◀── another member still has something ──┘
//! ```
//!
//! *Invariants:*
//! - A partition is assigned to a member only if no other member has it or must still revoke it.
//! - Epochs never fall, also not over a restart: no response is sent before [`Changes`] are stored.
//! - A member that does not revoke its partitions within its rebalance timeout, or sends no heartbeat within the
//!   session timeout, is removed.

mod assignor;
mod classic;
mod heartbeat;
mod member;
#[cfg(test)]
mod model;
mod partitions;
mod pattern;
mod reconcile;
mod record;
mod take_over;
mod target;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use highwater_log::{
    ConsumerGroupInfo, GroupError, GroupInfo, GroupState, GroupSummary, Membership,
};

use super::Options;
use super::machine::Elapsed;
use super::member_memory::{MemberMemory, MemberShare};
pub(super) use assignor::{Assignor, HubShape};
pub(super) use classic::find_partitions;
pub(super) use heartbeat::Heartbeat;
use member::Member;
pub(super) use member::MemberRecord;
pub(super) use partitions::PartitionSet;
pub(super) use pattern::NamePattern;
pub(super) use record::{put_group, put_member, read_group, read_member};

/// How often the partitions of subscribed hubs are compared with the catalogue, at most.
const HUBS_INTERVAL: Duration = Duration::from_secs(1);

/// How often the pattern of a member is evaluated again.
pub(super) const PATTERN_INTERVAL: Duration = Duration::from_secs(10);

/// Looks up a hub by name.
pub(super) type FindHub<'a> = &'a dyn Fn(&str) -> Option<HubShape>;

#[derive(Debug)]
pub(super) struct ConsumerGroup {
    name: String,
    state: StateRecord,
    members: BTreeMap<String, Member>,
    /// Static members: instance to member id.
    instances: BTreeMap<String, String>,
    /// The partitions that a member has or must still revoke.
    held: PartitionSet,
    /// When the catalogue was last compared.
    hubs_checked: Option<Elapsed>,
    /// Changes that are not stored yet.
    changes: Changes,
    /// The deadline may have moved forward.
    deadline_changed: bool,
    memory: MemberMemory,
    /// The memory of the assignments of all members.
    hub_share: MemberShare,
    options: Options,
}

/// The part of the group that is stored apart from its members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StateRecord {
    pub(super) epoch: i32,
    pub(super) assignment_epoch: i32,
    /// The assignor of the target.
    pub(super) assignor: Assignor,
    /// The subscribed hubs that exist, as of the group epoch.
    pub(super) hubs: BTreeMap<String, HubShape>,
}

/// Changes that must be stored before the next response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    pub(super) group: bool,
    /// The records of these members; those that the group no longer has are removed.
    pub(super) members: BTreeSet<String>,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        !self.group && self.members.is_empty()
    }
}

impl ConsumerGroup {
    /// `epoch` is that of the group before it used this protocol, or 0.
    pub(super) fn new(
        name: &str,
        epoch: i32,
        options: Options,
        memory: MemberMemory,
    ) -> ConsumerGroup {
        let state = StateRecord {
            epoch,
            assignment_epoch: epoch,
            ..StateRecord::default()
        };
        ConsumerGroup {
            name: name.to_owned(),
            state,
            members: BTreeMap::new(),
            instances: BTreeMap::new(),
            held: PartitionSet::default(),
            hubs_checked: None,
            changes: Changes::default(),
            deadline_changed: false,
            hub_share: memory.charge_stored(0),
            memory,
            options,
        }
    }

    /// The group of stored records. Its members have a whole session from now on.
    pub(super) fn restore(
        name: &str,
        state: StateRecord,
        members: BTreeMap<String, MemberRecord>,
        options: Options,
        memory: MemberMemory,
        now: Elapsed,
    ) -> ConsumerGroup {
        let mut group = ConsumerGroup::new(name, 0, options, memory);
        group.hub_share = group.memory.charge_stored(target::hub_bytes(&state.hubs));
        group.state = state;
        for (id, record) in members {
            if let Some(instance) = &record.instance {
                group.instances.insert(instance.clone(), id.clone());
            }
            group.held.add(&record.assigned);
            group.held.add(&record.pending);
            let share = group.memory.charge_stored(record.bytes(&id));
            let member = Member::new(record, share, now, group.session());
            group.members.insert(id, member);
        }
        group.deadline_changed = true;
        group
    }

    /// The session of its members of the consumer protocol.
    fn session(&self) -> Duration {
        let own = self.options.own_timeouts.of(&self.name).session;
        own.unwrap_or(self.options.consumer_session)
    }

    fn heartbeat_interval(&self) -> Duration {
        let own = self.options.own_timeouts.of(&self.name).heartbeat;
        own.unwrap_or(self.options.consumer_heartbeat)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// No members, and nothing to be stored.
    pub(super) fn is_idle(&self) -> bool {
        self.is_empty() && self.changes.is_empty()
    }

    pub(super) fn epoch(&self) -> i32 {
        self.state.epoch
    }

    pub(super) fn group_state(&self) -> GroupState {
        let is_stable = |member: &Member| member.is_settled(self.state.assignment_epoch);
        match () {
            () if self.is_empty() => GroupState::Empty,
            () if self.state.epoch > self.state.assignment_epoch => GroupState::Assigning,
            () if self.members.values().all(is_stable) => GroupState::Stable,
            () => GroupState::Reconciling,
        }
    }

    pub(super) fn info(&self) -> GroupInfo {
        let members = || self.members.iter();
        GroupInfo {
            group: self.name.clone(),
            state: self.group_state(),
            protocol_type: "consumer".into(),
            protocol: self.state.assignor.name().into(),
            members: members()
                .map(|(id, member)| member.record.info(id))
                .collect(),
            consumer: Some(ConsumerGroupInfo {
                epoch: self.state.epoch,
                assignment_epoch: self.state.assignment_epoch,
                members: members()
                    .map(|(_, member)| member.record.consumer_info())
                    .collect(),
            }),
        }
    }

    pub(super) fn summary(&self) -> GroupSummary {
        let bytes = |(id, member): (&String, &Member)| member.record.info_bytes(id);
        GroupSummary {
            group: self.name.clone(),
            state: self.group_state(),
            protocol_type: "consumer".into(),
            protocol: self.state.assignor.name().into(),
            is_consumer: true,
            members: self.members.len(),
            info_bytes: self.members.iter().map(bytes).sum(),
        }
    }

    /// Whether a member is subscribed to the hub.
    pub(super) fn is_subscribed(&self, hub: &str) -> bool {
        let mut members = self.members.values();
        members.any(|member| member.record.is_subscribed(hub))
    }

    /// Whether `who` may commit offsets now. Without members, any client may; a transaction may do so anonymously,
    /// because old clients do not send their membership.
    pub(super) fn check_commit(
        &self,
        who: &Membership,
        transactional: bool,
    ) -> Result<(), GroupError> {
        let anonymous = who.generation < 0 && who.member.is_empty() && who.instance.is_none();
        if who.generation < 0 && self.is_empty() || anonymous && transactional {
            return Ok(());
        }
        self.check_epoch(&who.member, who.generation)
            .map_err(|error| match error {
                GroupError::StaleEpoch { received, current } if transactional => {
                    GroupError::IllegalGeneration {
                        requested: received,
                        current,
                    }
                }
                error => error,
            })
    }

    /// Checks that the member is in this epoch.
    pub(super) fn check_epoch(&self, member: &str, received: i32) -> Result<(), GroupError> {
        let found = self.members.get(member).ok_or_else(|| unknown(member))?;
        let current = found.record.epoch;
        match found.record.classic {
            _ if received == current => Ok(()),
            None => Err(GroupError::StaleEpoch { received, current }),
            Some(_) => Err(GroupError::IllegalGeneration {
                requested: received,
                current,
            }),
        }
    }

    /// The pattern of a member, if it was not evaluated for this long.
    pub(super) fn take_due_pattern(
        &mut self,
        member: &str,
        now: Elapsed,
        interval: Duration,
    ) -> Option<String> {
        let member = self.members.get_mut(member)?;
        let pattern = member.record.pattern.clone()?;
        let is_due = member.pattern_evaluated + interval <= now;
        is_due.then(|| {
            member.pattern_evaluated = now;
            pattern
        })
    }

    /// The changes to store, returned once. [`ConsumerGroup::store_failed`] restores them.
    pub(super) fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    pub(super) fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    pub(super) fn store_failed(&mut self, changes: Changes) {
        self.changes.group |= changes.group;
        self.changes.members.extend(changes.members);
    }

    pub(super) fn state_record(&self) -> &StateRecord {
        &self.state
    }

    pub(super) fn member_record(&self, id: &str) -> Option<&MemberRecord> {
        self.members.get(id).map(|member| &member.record)
    }

    /// The deadline, if it may have moved forward since the last call. Heartbeats of members without partitions to
    /// revoke never do that.
    pub(super) fn take_deadline(&mut self) -> Option<Elapsed> {
        match std::mem::take(&mut self.deadline_changed) {
            true => self.deadline(),
            false => None,
        }
    }

    /// The latest time for the next [`ConsumerGroup::tick`].
    pub(super) fn deadline(&self) -> Option<Elapsed> {
        self.members.values().map(Member::deadline).min()
    }

    /// Removes members whose session or rebalance timeout has passed.
    pub(super) fn tick(&mut self, now: Elapsed) {
        self.deadline_changed = true;
        let expired = |member: &&Member| member.deadline() <= now;
        let expired = (self.members.iter()).filter(|(_, member)| expired(member));
        let expired: Vec<String> = expired.map(|(id, _)| id.clone()).collect();
        expired.iter().for_each(|id| self.remove(id));
    }

    /// Removes a member; its partitions are free.
    fn remove(&mut self, id: &str) {
        let Some(member) = self.members.remove(id) else {
            return;
        };
        if let Some(instance) = &member.record.instance {
            self.instances.remove(instance);
        }
        self.held.subtract(&member.record.assigned);
        self.held.subtract(&member.record.pending);
        self.changes.members.insert(id.to_owned());
        self.raise_epoch();
        if self.is_empty() {
            // No member has a target.
            self.state.assignment_epoch = self.state.epoch;
            self.state.hubs.clear();
            self.hub_share = self.memory.charge_stored(0);
        }
    }

    fn raise_epoch(&mut self) {
        self.state.epoch += 1;
        self.changes.group = true;
    }
}

fn unknown(member: &str) -> GroupError {
    GroupError::UnknownMember(member.to_owned())
}
