//! A group of one protocol or the other. A group without members becomes one of the protocol of the next member.

use highwater_log::{GroupError, GroupInfo, GroupSummary, Membership};

use super::consumer::ConsumerGroup;
use super::machine::{Effect, Elapsed, Group};
use super::subscription;

#[derive(Debug)]
pub(super) enum GroupKind {
    Classic(Group),
    Consumer(ConsumerGroup),
}

impl GroupKind {
    /// The group, if it is a classic one.
    pub(super) fn classic(&mut self) -> Option<&mut Group> {
        match self {
            GroupKind::Classic(group) => Some(group),
            GroupKind::Consumer(_) => None,
        }
    }

    pub(super) fn consumer(&mut self) -> Option<&mut ConsumerGroup> {
        match self {
            GroupKind::Consumer(group) => Some(group),
            GroupKind::Classic(_) => None,
        }
    }

    pub(super) fn info(&self) -> GroupInfo {
        match self {
            GroupKind::Classic(group) => group.info(),
            GroupKind::Consumer(group) => group.info(),
        }
    }

    pub(super) fn summary(&self) -> GroupSummary {
        match self {
            GroupKind::Classic(group) => group.summary(),
            GroupKind::Consumer(group) => group.summary(),
        }
    }

    /// No members, none that is about to join, and nothing to be stored.
    pub(super) fn is_idle(&self) -> bool {
        match self {
            GroupKind::Classic(group) => group.is_idle(),
            GroupKind::Consumer(group) => group.is_idle(),
        }
    }

    /// The generation or epoch; 0 if the group never had members, so that nothing of it is stored.
    pub(super) fn epoch(&self) -> i32 {
        match self {
            GroupKind::Classic(group) => group.generation(),
            GroupKind::Consumer(group) => group.epoch(),
        }
    }

    pub(super) fn check_commit(
        &mut self,
        who: &Membership,
        transactional: bool,
        now: Elapsed,
    ) -> Result<(), GroupError> {
        match self {
            GroupKind::Classic(group) => group.check_commit(who, transactional, now),
            GroupKind::Consumer(group) => group.check_commit(who, transactional),
        }
    }

    /// Whether a member may be subscribed to the hub.
    pub(super) fn may_use(&self, hub: &str) -> bool {
        match self {
            GroupKind::Classic(group) => (group.info().members.iter())
                .any(|member| subscription::may_include(&member.metadata, hub)),
            GroupKind::Consumer(group) => group.is_subscribed(hub),
        }
    }

    pub(super) fn tick(&mut self, now: Elapsed) {
        match self {
            GroupKind::Classic(group) => group.tick(now),
            GroupKind::Consumer(group) => group.tick(now),
        }
    }

    pub(super) fn take_effects(&mut self) -> Vec<Effect> {
        self.classic().map(Group::take_effects).unwrap_or_default()
    }

    pub(super) fn take_deadline(&mut self) -> Option<Elapsed> {
        match self {
            GroupKind::Classic(group) => group.take_deadline(),
            GroupKind::Consumer(group) => group.take_deadline(),
        }
    }
}
