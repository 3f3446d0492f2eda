//! One member of a group: its record, and its deadlines.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use highwater_log::{ConsumerMemberInfo, MemberInfo};

use super::assignor::Assignor;
use super::classic::ClassicMember;
use super::partitions::PartitionSet;
use crate::groups::machine::Elapsed;
use crate::groups::member_memory::MemberShare;

/// The epoch of a static member that left for a short time.
pub(super) const AWAY: i32 = -2;

/// The progress of a member towards its target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::groups) enum Progress {
    /// It has its target, as far as it knows.
    #[default]
    Stable,
    /// It must revoke partitions first.
    Unrevoked,
    /// It waits for partitions that other members have not revoked.
    Unreleased,
}

/// The part of a member that is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::groups) struct MemberRecord {
    pub(super) instance: Option<String>,
    pub(super) rack: Option<String>,
    pub(super) client_id: String,
    pub(super) client_host: String,
    pub(super) rebalance_timeout: Duration,
    /// The hubs subscribed to by name.
    pub(super) names: BTreeSet<String>,
    /// The regular expression of a subscription, and the hubs that it matched when it was last evaluated.
    pub(super) pattern: Option<String>,
    pub(super) matched: BTreeSet<String>,
    /// The assignor that it prefers.
    pub(super) assignor: Option<Assignor>,
    pub(super) epoch: i32,
    /// The epoch before, which the member may still be in if a response was lost.
    pub(super) previous_epoch: i32,
    pub(super) progress: Progress,
    pub(super) assigned: PartitionSet,
    /// Partitions that it must revoke.
    pub(super) pending: PartitionSet,
    pub(super) target: PartitionSet,
    /// Set for a member of the classic protocol.
    pub(super) classic: Option<ClassicMember>,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) record: MemberRecord,
    pub(super) expires: Elapsed,
    /// When a classic member must have joined again, or have fetched its assignment.
    pub(super) rejoin_by: Option<Elapsed>,
    /// The deadline for revoking its pending partitions.
    pub(super) revoke_by: Option<Elapsed>,
    pub(super) pattern_evaluated: Elapsed,
    /// Its texts, in the memory of all members.
    pub(super) share: MemberShare,
}

impl Member {
    /// A new member, or one after a restart: it has a whole session from now on. `session` is that of the members of
    /// its group that use the consumer protocol.
    pub(super) fn new(
        record: MemberRecord,
        share: MemberShare,
        now: Elapsed,
        session: Duration,
    ) -> Member {
        let revokes = record.progress == Progress::Unrevoked;
        Member {
            expires: now + record.session(session),
            rejoin_by: None,
            revoke_by: revokes.then(|| now + record.rebalance_timeout),
            pattern_evaluated: now,
            record,
            share,
        }
    }

    pub(super) fn deadline(&self) -> Elapsed {
        let by = [self.revoke_by, self.rejoin_by].into_iter().flatten();
        by.fold(self.expires, Elapsed::min)
    }

    /// It is alive. Returns whether its session ends earlier than before, as after a change of the group's timeouts.
    pub(super) fn touch(&mut self, now: Elapsed, session: Duration) -> bool {
        let expires = now + self.record.session(session);
        let is_earlier = expires < self.expires;
        self.expires = expires;
        is_earlier
    }

    /// It has its target of this assignment epoch.
    pub(super) fn is_settled(&self, assignment_epoch: i32) -> bool {
        self.record.progress == Progress::Stable && self.record.epoch == assignment_epoch
    }
}

impl MemberRecord {
    /// A classic member brings its own.
    fn session(&self, of_group: Duration) -> Duration {
        (self.classic.as_ref()).map_or(of_group, |classic| classic.session_timeout)
    }

    /// Size of the texts, which come from the client. The id is kept in several maps.
    pub(in crate::groups) fn bytes(&self, id: &str) -> usize {
        let optional = [&self.instance, &self.rack, &self.pattern];
        let optional = optional
            .into_iter()
            .flatten()
            .map(String::len)
            .sum::<usize>();
        let names = self.names.iter().chain(&self.matched);
        let names = names.map(|name| name.len() + 48).sum::<usize>();
        let classic = self.classic.as_ref().map_or(0, ClassicMember::bytes);
        let texts = 4 * id.len() + self.client_id.len() + self.client_host.len();
        texts + optional + names + classic + 512
    }

    pub(super) fn is_subscribed(&self, hub: &str) -> bool {
        self.names.contains(hub) || self.matched.contains(hub)
    }

    /// All hubs that it is subscribed to; some need not exist.
    pub(super) fn subscription(&self) -> impl Iterator<Item = &String> {
        self.names.union(&self.matched)
    }

    pub(super) fn set_epoch(&mut self, epoch: i32) {
        if self.epoch != epoch {
            self.previous_epoch = self.epoch;
            self.epoch = epoch;
        }
    }

    pub(super) fn info(&self, id: &str) -> MemberInfo {
        MemberInfo {
            member: id.to_owned(),
            instance: self.instance.clone(),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            metadata: (self.classic.as_ref()).map_or_else(Bytes::new, ClassicMember::metadata),
            assignment: Bytes::new(),
        }
    }

    /// An upper bound of the memory of `info` and `consumer_info`.
    pub(super) fn info_bytes(&self, id: &str) -> usize {
        let partitions = self.assigned.list_bytes() + self.target.list_bytes();
        let infos = size_of::<MemberInfo>() + size_of::<ConsumerMemberInfo>();
        self.bytes(id) + partitions + infos
    }

    pub(super) fn consumer_info(&self) -> ConsumerMemberInfo {
        ConsumerMemberInfo {
            epoch: self.epoch,
            rack: self.rack.clone(),
            names: self.names.iter().cloned().collect(),
            pattern: self.pattern.clone(),
            assigned: self.assigned.to_list(),
            target: self.target.to_list(),
        }
    }
}
