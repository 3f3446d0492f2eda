//! A group takes over the members of a classic one, and becomes one again (`groups/protocol_change.rs`).

use std::collections::BTreeSet;

use highwater_log::{GroupError, HubId};

use super::classic::{ClassicMember, named};
use super::member::MemberRecord;
use super::partitions::PartitionSet;
use super::{ConsumerGroup, FindHub};
use crate::groups::machine::{Elapsed, MemberRecord as ClassicRecord, Snapshot};
use crate::groups::subscription::{CONSUMER, Subscription};

impl ConsumerGroup {
    /// Adds a member of a classic group with the partitions that it has. A partition that another member has already is
    /// left out.
    pub(in crate::groups) fn take_over(
        &mut self,
        member: &ClassicRecord,
        subscription: &Subscription,
        assigned: PartitionSet,
        find: FindHub<'_>,
        now: Elapsed,
    ) -> Result<(), GroupError> {
        let (_, assigned) = assigned.split_by(&self.held);
        let epoch = self.state.epoch;
        let record = MemberRecord {
            instance: member.instance.clone(),
            rack: subscription.rack.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            rebalance_timeout: member.rebalance_timeout,
            names: subscription.names.iter().cloned().collect(),
            epoch,
            previous_epoch: epoch,
            target: assigned.clone(),
            assigned,
            classic: Some(ClassicMember {
                session_timeout: member.session_timeout,
                protocols: member.protocols.clone(),
            }),
            ..MemberRecord::default()
        };
        let share = self.memory.charge(record.bytes(&member.id))?;
        self.held.add(&record.assigned);
        self.look_up_hubs((&member.id, &record), find)?;
        // The epoch stays: nothing has changed for the members yet.
        (self.state.epoch, self.state.assignment_epoch) = (epoch, epoch);
        self.changes.group = true;
        self.insert(&member.id, record, share, false, now);
        Ok(())
    }

    /// The records of these members must be stored, or removed.
    pub(in crate::groups) fn store_members(&mut self, ids: BTreeSet<String>) {
        self.changes.members.extend(ids);
    }

    /// The classic group of the members, all of whom are classic ones.
    pub(in crate::groups) fn downgraded(
        &self,
        find_name: &dyn Fn(HubId) -> Option<String>,
    ) -> Snapshot {
        let members = self.members.iter().filter_map(|(id, member)| {
            let classic = member.record.classic.as_ref()?;
            Some(member.record.to_classic(id, classic, find_name))
        });
        let members: Vec<ClassicRecord> = members.collect();
        let epochs = self.members.values().map(|member| member.record.epoch);
        Snapshot {
            // The one that the members know: their heartbeats tell them to join again. No member is in a later epoch of
            // the group, so the next generation may use it.
            generation: epochs.max().unwrap_or(self.state.epoch),
            protocol_type: CONSUMER.to_owned(),
            // Elected when the members have joined.
            protocol: String::new(),
            leader: (members.first()).map_or_else(String::new, |first| first.id.clone()),
            members,
        }
    }
}

impl MemberRecord {
    fn to_classic(
        &self,
        id: &str,
        classic: &ClassicMember,
        find_name: &dyn Fn(HubId) -> Option<String>,
    ) -> ClassicRecord {
        ClassicRecord {
            id: id.to_owned(),
            instance: self.instance.clone(),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            session_timeout: classic.session_timeout,
            rebalance_timeout: self.rebalance_timeout,
            protocols: classic.protocols.clone(),
            assignment: classic.assignment(&named(&self.assigned, find_name)),
        }
    }
}
