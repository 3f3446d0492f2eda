//! What a group remembers over a restart.

use std::time::Duration;

use bytes::Bytes;

use super::member::Member;
use super::{Elapsed, Group, Limits, Phase};

/// A group without members, or one whose members have their assignments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub generation: i32,
    pub protocol_type: String,
    pub protocol: String,
    pub leader: String,
    /// In the order they came.
    pub members: Vec<MemberSnapshot>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemberSnapshot {
    pub id: String,
    pub instance: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub session_timeout: Duration,
    pub rebalance_timeout: Duration,
    pub protocols: Vec<(String, Bytes)>,
    pub assignment: Bytes,
}

impl Group {
    pub fn snapshot(&self) -> Snapshot {
        let mut members: Vec<&Member> = self.members.values().collect();
        members.sort_by_key(|member| member.arrival);
        Snapshot {
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            members: members.into_iter().map(Member::snapshot).collect(),
        }
    }

    /// The group as it was. Its members have a whole session to say that they are still there.
    pub fn restore(name: &str, limits: Limits, snapshot: Snapshot, now: Elapsed) -> Group {
        let mut group = Group::new(name, limits);
        group.generation = snapshot.generation;
        group.protocol_type = snapshot.protocol_type;
        group.protocol = snapshot.protocol;
        group.leader = snapshot.leader;
        for member in snapshot.members {
            group.arrivals += 1;
            let member = Member::restore(member, group.arrivals, now);
            if let Some(instance) = &member.instance {
                group.instances.insert(instance.clone(), member.id.clone());
            }
            group.members.insert(member.id.clone(), member);
        }
        if !group.members.is_empty() {
            group.phase = Phase::Stable { until: None };
        }
        group
    }
}

impl Member {
    fn snapshot(&self) -> MemberSnapshot {
        MemberSnapshot {
            id: self.id.clone(),
            instance: self.instance.clone(),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            session_timeout: self.session_timeout,
            rebalance_timeout: self.rebalance_timeout,
            protocols: self.protocols.clone(),
            assignment: self.assignment.clone(),
        }
    }

    fn restore(snapshot: MemberSnapshot, arrival: u64, now: Elapsed) -> Member {
        Member {
            id: snapshot.id,
            instance: snapshot.instance,
            client_id: snapshot.client_id,
            client_host: snapshot.client_host,
            session_timeout: snapshot.session_timeout,
            rebalance_timeout: snapshot.rebalance_timeout,
            protocols: snapshot.protocols,
            assignment: snapshot.assignment,
            arrival,
            joining: None,
            syncing: None,
            synced: true,
            knows_itself: true,
            expires: now + snapshot.session_timeout,
        }
    }
}
