//! One consumer group as a pure state machine: input are requests and the time, output are responses.
//!
//! ```text
//!            join                  all have joined, or timeout         the assignment is stored
//!  Empty ───────────▶ Preparing ─────────────────────────▶ Completing ─────────────────────────▶ Stable
//!    ▲                 │   ▲                                   │                                  │
//!    └── none joined ──┘   └───── a member joins, leaves or changes, or storing fails ────────────┘
//! ```
//!
//! It has no clock and never waits. A join or sync has a [`RequestId`]; the response is an [`Effect`] with that id, at
//! once or after a later call. `now` is the time since a fixed start; [`Group::deadline`] is the time of the next
//! [`Group::tick`].
//!
//! [`Snapshot`] is the state that survives a restart. An effect requests that it is stored; [`Group::stored`] reports
//! the result.

mod answer;
mod join;
mod leave;
mod member;
#[cfg(test)]
mod model;
mod protocols;
mod rebalance;
mod snapshot;
mod sync;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use highwater_log::{
    GroupError, GroupInfo, GroupState, GroupSummary, JoinResponse, MemberInfo, Membership,
    SyncResponse,
};

use super::Options;
use member::Member;
pub(crate) use member::MemberRecord;
pub(crate) use snapshot::Snapshot;

/// Time since a fixed start.
pub(crate) type Elapsed = Duration;

/// Identifies a pending request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RequestId(pub u64);

/// An action that the caller must carry out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    Joined(RequestId, Result<JoinResponse, GroupError>),
    Synced(RequestId, Result<SyncResponse, GroupError>),
    /// Store [`Group::snapshot`] as it is now, then call [`Group::stored`].
    Store(AfterStore),
}

/// The continuation after a snapshot is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AfterStore {
    Nothing,
    /// The members wait for the assignment of this generation.
    Assignment(i32),
    /// A returned static member waits for its response. If it is the leader, with its previous id.
    Join(RequestId, Option<String>),
}

#[derive(Debug)]
pub(crate) struct Group {
    name: String,
    phase: Phase,
    generation: i32,
    protocol_type: String,
    protocol: String,
    leader: String,
    members: BTreeMap<String, Member>,
    /// Static members: instance to member id.
    instances: BTreeMap<String, String>,
    /// Member ids given to clients that have not joined with them yet, and when they expire.
    promised: BTreeMap<String, Elapsed>,
    /// Number of members ever added; the earliest one becomes leader.
    arrivals: u64,
    /// A member was removed since the last [`Group::regroup`].
    member_removed: bool,
    /// The deadline may have moved forward.
    deadline_changed: bool,
    options: Options,
    effects: Vec<Effect>,
}

#[derive(Clone, Debug, PartialEq)]
enum Phase {
    Empty,
    Preparing(Rebalance),
    Completing {
        /// Members that have not synced by then are removed. `None` after that.
        until: Option<Elapsed>,
        /// The leader has sent the assignment, and it is being stored.
        storing: bool,
    },
    Stable {
        /// As for `Completing`.
        until: Option<Elapsed>,
    },
}

/// Waiting for members to join.
#[derive(Clone, Debug, PartialEq)]
struct Rebalance {
    until: Elapsed,
    /// Set while an empty group waits for its first members, even if all known ones have joined: the time that is left,
    /// and whether a member joined since `until` was set.
    initial: Option<(Duration, bool)>,
}

impl Group {
    pub(super) fn new(name: &str, options: Options) -> Group {
        Group {
            name: name.to_owned(),
            phase: Phase::Empty,
            generation: 0,
            protocol_type: String::new(),
            protocol: String::new(),
            leader: String::new(),
            members: BTreeMap::new(),
            instances: BTreeMap::new(),
            promised: BTreeMap::new(),
            arrivals: 0,
            member_removed: false,
            deadline_changed: false,
            options,
            effects: Vec::new(),
        }
    }

    /// The effects since the last call, in order.
    pub(super) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    pub(super) fn state(&self) -> GroupState {
        match self.phase {
            Phase::Empty => GroupState::Empty,
            Phase::Preparing(_) => GroupState::PreparingRebalance,
            Phase::Completing { .. } => GroupState::CompletingRebalance,
            Phase::Stable { .. } => GroupState::Stable,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.phase == Phase::Empty
    }

    /// All members have their assignments.
    pub(super) fn is_stable(&self) -> bool {
        matches!(self.phase, Phase::Stable { .. })
    }

    /// No members and no promised member ids.
    pub(super) fn is_idle(&self) -> bool {
        self.is_empty() && self.promised.is_empty()
    }

    /// A group without members that continues after this generation.
    pub(super) fn after(name: &str, generation: i32, options: Options) -> Group {
        Group {
            generation,
            ..Group::new(name, options)
        }
    }

    /// 0 if the group never had members.
    pub(super) fn generation(&self) -> i32 {
        self.generation
    }

    /// The deadline, if it may have moved forward since the last call. Heartbeats, the most frequent requests, never do
    /// that.
    pub(super) fn take_deadline(&mut self) -> Option<Elapsed> {
        match std::mem::take(&mut self.deadline_changed) {
            true => self.deadline(),
            false => None,
        }
    }

    /// Size of the members, which are stored as one record.
    fn bytes(&self) -> usize {
        let members = self.members.values();
        members.map(|member| member.record.bytes()).sum()
    }

    /// The latest time for the next [`Group::tick`].
    pub(super) fn deadline(&self) -> Option<Elapsed> {
        let phase = match &self.phase {
            Phase::Empty => None,
            Phase::Preparing(rebalance) => Some(rebalance.until),
            Phase::Completing { until, .. } | Phase::Stable { until } => *until,
        };
        let sessions = self.members.values().filter_map(Member::expiry);
        let promises = self.promised.values().copied();
        phase.into_iter().chain(sessions).chain(promises).min()
    }

    pub(super) fn info(&self) -> GroupInfo {
        GroupInfo {
            group: self.name.clone(),
            state: self.state(),
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            members: (self.members.values())
                .map(|member| member.record.info(&self.protocol))
                .collect(),
            consumer: None,
        }
    }

    pub(super) fn summary(&self) -> GroupSummary {
        let bytes = |member: &Member| size_of::<MemberInfo>() + member.record.bytes();
        GroupSummary {
            group: self.name.clone(),
            state: self.state(),
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            is_consumer: false,
            members: self.members.len(),
            info_bytes: self.members.values().map(bytes).sum(),
        }
    }

    pub(super) fn heartbeat(&mut self, who: &Membership, now: Elapsed) -> Result<(), GroupError> {
        self.check(who)?;
        self.touch(&who.member, now);
        match self.phase {
            Phase::Preparing(_) => Err(GroupError::Rebalancing),
            _ => Ok(()),
        }
    }

    /// Whether `who` may commit offsets now. A transaction may do so anonymously, because old clients do not send their
    /// membership.
    pub(super) fn check_commit(
        &mut self,
        who: &Membership,
        transactional: bool,
        now: Elapsed,
    ) -> Result<(), GroupError> {
        let anonymous = who.generation < 0 && who.member.is_empty() && who.instance.is_none();
        if who.generation < 0 && self.is_empty() || anonymous && transactional {
            return Ok(());
        }
        if anonymous {
            return Err(GroupError::UnknownMember(String::new()));
        }
        self.check(who)?;
        // The generation has no assignment yet.
        if matches!(self.phase, Phase::Completing { .. }) && !transactional {
            return Err(GroupError::Rebalancing);
        }
        self.touch(&who.member, now);
        Ok(())
    }

    /// Checks that `who` is a member of the current generation.
    fn check(&self, who: &Membership) -> Result<(), GroupError> {
        self.check_identity(&who.member, who.instance.as_deref())?;
        match who.generation == self.generation {
            true => Ok(()),
            false => Err(self.illegal_generation(who.generation)),
        }
    }

    fn check_identity(&self, member: &str, instance: Option<&str>) -> Result<(), GroupError> {
        let unknown = || GroupError::UnknownMember(member.to_owned());
        if let Some(instance) = instance {
            let holder = self.instances.get(instance).ok_or_else(unknown)?;
            if holder != member {
                return Err(GroupError::FencedInstance(instance.to_owned()));
            }
        }
        match self.members.contains_key(member) {
            true => Ok(()),
            false => Err(unknown()),
        }
    }

    fn illegal_generation(&self, requested: i32) -> GroupError {
        GroupError::IllegalGeneration {
            requested,
            current: self.generation,
        }
    }

    fn touch(&mut self, member: &str, now: Elapsed) {
        if let Some(member) = self.members.get_mut(member) {
            member.touch(now);
        }
    }
}
