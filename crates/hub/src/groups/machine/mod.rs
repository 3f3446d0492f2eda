//! One consumer group as a pure state machine: requests and the time come in, answers go out.
//!
//! ```text
//!            join                  all are here, or time is up         the assignment is stored
//!  Empty ───────────▶ Preparing ─────────────────────────▶ Completing ─────────────────────────▶ Stable
//!    ▲                 │   ▲                                   │                                  │
//!    └── nobody came ──┘   └────────── somebody comes, goes or changes, or the store fails ───────┘
//! ```
//!
//! There is no clock and no waiting here. A join or a sync is handed in with a [`Ticket`]; its answer
//! is an [`Effect`] that names the ticket, at once or after some later call. `now` is the time since
//! some fixed start, [`Group::deadline`] says when the group next wants to be told the time.
//!
//! What the group must remember over a restart is its [`Snapshot`]. An effect asks for it to be
//! stored, and the group goes on when it is told that it was.

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

use highwater_log::{GroupError, GroupInfo, GroupState, JoinResponse, Membership, SyncResponse};

use super::Options;
use member::Member;
pub(crate) use snapshot::{MemberSnapshot, Snapshot};

/// Time since a fixed start.
pub(crate) type Elapsed = Duration;

/// Names a request that is waiting for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(pub u64);

/// What the group wants done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    Joined(Ticket, Result<JoinResponse, GroupError>),
    Synced(Ticket, Result<SyncResponse, GroupError>),
    /// Store [`Group::snapshot`] as it is now, then call [`Group::stored`].
    Store(AfterStore),
}

/// What waits for a snapshot to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AfterStore {
    Nothing,
    /// The members wait for the assignment of this generation.
    Assignment(i32),
    /// A static member that came back waits to be let in. If it leads, this was its id so far.
    Join(Ticket, Option<String>),
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
    /// Ids given out to newcomers who have not come back with them yet, and until when they may.
    promised: BTreeMap<String, Elapsed>,
    /// Counts the members ever taken in, so that the first of them can lead.
    arrivals: u64,
    /// Set while members are taken out, until the group has drawn the consequences.
    lost_a_member: bool,
    /// Something happened that may have brought the deadline nearer.
    stirred: bool,
    limits: Limits,
    effects: Vec<Effect>,
}

/// What of [`Options`] the machine obeys.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub members_max: usize,
    pub session_min: Duration,
    pub session_max: Duration,
    pub initial_delay: Duration,
}

impl From<&Options> for Limits {
    fn from(options: &Options) -> Limits {
        Limits {
            members_max: options.members_max,
            session_min: options.session_min,
            session_max: options.session_max,
            initial_delay: options.initial_delay,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Phase {
    Empty,
    Preparing(Rebalance),
    Completing {
        /// Who has not asked for its assignment by then is out. `None` once that was looked at.
        until: Option<Elapsed>,
        /// The leader has spoken, and what it said is being stored.
        storing: bool,
    },
    Stable {
        /// As for `Completing`.
        until: Option<Elapsed>,
    },
}

/// Waiting for the members to come (again).
#[derive(Clone, Debug, PartialEq)]
struct Rebalance {
    until: Elapsed,
    /// Set while an empty group lets the first ones gather, even when all known ones are here: how
    /// much longer that may go on, and whether anybody came since `until` was set.
    initial: Option<(Duration, bool)>,
}

impl Group {
    pub fn new(name: &str, limits: Limits) -> Group {
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
            lost_a_member: false,
            stirred: false,
            limits,
            effects: Vec::new(),
        }
    }

    /// What is to be done since the last time this was asked, in order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    pub fn state(&self) -> GroupState {
        match self.phase {
            Phase::Empty => GroupState::Empty,
            Phase::Preparing(_) => GroupState::PreparingRebalance,
            Phase::Completing { .. } => GroupState::CompletingRebalance,
            Phase::Stable { .. } => GroupState::Stable,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.phase == Phase::Empty
    }

    /// Nothing of the group is worth keeping but its positions.
    pub fn is_idle(&self) -> bool {
        self.is_empty() && self.promised.is_empty()
    }

    /// False as long as no generation was ever formed, so that nothing of it is stored either.
    pub fn was_formed(&self) -> bool {
        self.generation > 0
    }

    /// The deadline, if it may have come nearer since this was asked last. Heartbeats never do that,
    /// and they are most of what a group hears.
    pub fn take_deadline(&mut self) -> Option<Elapsed> {
        match std::mem::take(&mut self.stirred) {
            true => self.deadline(),
            false => None,
        }
    }

    /// When [`Group::tick`] has something to do at the latest.
    pub fn deadline(&self) -> Option<Elapsed> {
        let phase = match &self.phase {
            Phase::Empty => None,
            Phase::Preparing(gathering) => Some(gathering.until),
            Phase::Completing { until, .. } | Phase::Stable { until } => *until,
        };
        let sessions = self.members.values().filter_map(Member::expiry);
        let promises = self.promised.values().copied();
        phase.into_iter().chain(sessions).chain(promises).min()
    }

    pub fn info(&self) -> GroupInfo {
        GroupInfo {
            group: self.name.clone(),
            state: self.state(),
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            members: (self.members.values())
                .map(|member| member.info(&self.protocol))
                .collect(),
        }
    }

    pub fn heartbeat(&mut self, who: &Membership, now: Elapsed) -> Result<(), GroupError> {
        self.check(who)?;
        self.touch(&who.member, now);
        match self.phase {
            Phase::Preparing(_) => Err(GroupError::Rebalancing),
            _ => Ok(()),
        }
    }

    /// Whether `who` may store positions now. A transaction may do so without saying who it is,
    /// because clients too old for that exist.
    pub fn check_commit(
        &mut self,
        who: &Membership,
        transactional: bool,
        now: Elapsed,
    ) -> Result<(), GroupError> {
        let nobody = who.generation < 0 && who.member.is_empty() && who.instance.is_none();
        if who.generation < 0 && self.is_empty() || nobody && transactional {
            return Ok(());
        }
        if nobody {
            return Err(GroupError::UnknownMember(String::new()));
        }
        self.check(who)?;
        // The member has heard of this generation, but the work has not been handed out yet.
        if matches!(self.phase, Phase::Completing { .. }) && !transactional {
            return Err(GroupError::Rebalancing);
        }
        self.touch(&who.member, now);
        Ok(())
    }

    /// A member of the current generation, or why not.
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
