//! The state of a group that survives a restart.

use super::super::Options;
use super::member::{Member, MemberRecord};
use super::{Elapsed, Group, Phase};

/// A group without members, or one whose members have their assignments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) generation: i32,
    pub(crate) protocol_type: String,
    pub(crate) protocol: String,
    pub(crate) leader: String,
    /// In the order of arrival.
    pub(crate) members: Vec<MemberRecord>,
}

impl Group {
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut members: Vec<&Member> = self.members.values().collect();
        members.sort_by_key(|member| member.arrival);
        Snapshot {
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            members: members.iter().map(|member| member.record.clone()).collect(),
        }
    }

    /// The group of a snapshot. Its members have a whole session from now on.
    pub(crate) fn restore(name: &str, options: Options, snapshot: Snapshot, now: Elapsed) -> Group {
        let mut group = Group::new(name, options);
        group.generation = snapshot.generation;
        group.protocol_type = snapshot.protocol_type;
        group.protocol = snapshot.protocol;
        group.leader = snapshot.leader;
        for record in snapshot.members {
            group.arrivals += 1;
            if let Some(instance) = &record.instance {
                group.instances.insert(instance.clone(), record.id.clone());
            }
            let id = record.id.clone();
            let member = Member::restore(record, group.arrivals, now);
            group.members.insert(id, member);
        }
        if !group.members.is_empty() {
            group.phase = Phase::Stable { until: None };
        }
        group
    }

    /// The group of a snapshot whose members are all to join again.
    pub(crate) fn restore_rebalancing(
        name: &str,
        options: Options,
        snapshot: Snapshot,
        now: Elapsed,
    ) -> Group {
        let mut group = Group::restore(name, options, snapshot, now);
        group.deadline_changed = true;
        group.rebalance(now);
        group
    }
}
