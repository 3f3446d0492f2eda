//! Heartbeats: a member joins, reports its partitions, receives its assignment, and leaves.

use std::collections::BTreeSet;
use std::time::Duration;

use highwater_log::{ConsumerHeartbeatResponse, GroupError, HubPartitions};

use super::assignor::Assignor;
use super::classic::ClassicMember;
use super::member::{AWAY, Member, MemberRecord, Progress};
use super::partitions::PartitionSet;
use super::{ConsumerGroup, FindHub, unknown};
use crate::groups::machine::Elapsed;
use crate::groups::member_memory::MemberShare;

/// The epoch with which a member joins.
const JOINING: i32 = 0;
/// The epoch with which a member leaves.
const LEAVING: i32 = -1;

/// A heartbeat whose names are resolved. A field that is `None` is unchanged since the last heartbeat.
#[derive(Clone, Debug, Default)]
pub(in crate::groups) struct Heartbeat {
    pub(in crate::groups) member: String,
    pub(in crate::groups) epoch: i32,
    pub(in crate::groups) instance: Option<String>,
    pub(in crate::groups) rack: Option<String>,
    pub(in crate::groups) rebalance_timeout: Option<Duration>,
    pub(in crate::groups) names: Option<BTreeSet<String>>,
    /// Empty for none.
    pub(in crate::groups) pattern: Option<String>,
    /// The hubs that the pattern matches, if it was evaluated.
    pub(in crate::groups) matched: Option<BTreeSet<String>>,
    pub(in crate::groups) assignor: Option<Assignor>,
    pub(in crate::groups) owned: Option<PartitionSet>,
    pub(in crate::groups) client_id: String,
    pub(in crate::groups) client_host: String,
    /// Set if it stands for a join of the classic protocol.
    pub(in crate::groups) classic: Option<ClassicMember>,
}

impl Heartbeat {
    fn is_join(&self) -> bool {
        self.epoch == JOINING
    }

    /// It has all fields, as after a request that failed: the member may have missed a response.
    fn is_full(&self) -> bool {
        let subscribes = self.names.is_some() || self.pattern.is_some();
        self.rebalance_timeout.is_some() && subscribes && self.owned.is_some()
    }

    fn check(&self) -> Result<(), GroupError> {
        let is_empty = |text: &Option<String>| text.as_deref() == Some("");
        let subscribes = self.names.as_ref().is_some_and(|names| !names.is_empty())
            || self
                .pattern
                .as_ref()
                .is_some_and(|pattern| !pattern.is_empty());
        let owns_nothing = self.owned.as_ref().is_some_and(PartitionSet::is_empty);
        let invalid = match () {
            () if self.member.is_empty() => "a member needs an id",
            () if is_empty(&self.instance) => "an instance id must not be empty",
            () if is_empty(&self.rack) => "a rack id must not be empty",
            () if self.epoch < AWAY => "a member epoch is at least -2",
            () if self.epoch == AWAY && self.instance.is_none() => {
                "only a member with an instance id leaves for a short time"
            }
            () if !self.is_join() => return Ok(()),
            () if self.rebalance_timeout.is_none() => "a member joins with a rebalance timeout",
            () if !subscribes => "a member joins with a subscription",
            () if !owns_nothing => "a member that joins has no partitions",
            () => return Ok(()),
        };
        Err(GroupError::InvalidRequest(invalid))
    }

    /// The record of the member after this heartbeat.
    fn apply(&self, mut record: MemberRecord) -> MemberRecord {
        let replace = |field: &mut Option<String>, value: &Option<String>| {
            if value.is_some() {
                field.clone_from(value);
            }
        };
        replace(&mut record.instance, &self.instance);
        replace(&mut record.rack, &self.rack);
        record.client_id.clone_from(&self.client_id);
        record.client_host.clone_from(&self.client_host);
        record.rebalance_timeout = self.rebalance_timeout.unwrap_or(record.rebalance_timeout);
        record.assignor = self.assignor.or(record.assignor);
        record.classic.clone_from(&self.classic);
        if let Some(names) = &self.names {
            record.names.clone_from(names);
        }
        if let Some(pattern) = &self.pattern {
            record.pattern = Some(pattern.clone()).filter(|pattern| !pattern.is_empty());
        }
        match (&record.pattern, &self.matched) {
            (None, _) => record.matched.clear(),
            (Some(_), Some(matched)) => record.matched.clone_from(matched),
            (Some(_), None) => {}
        }
        record
    }
}

impl ConsumerGroup {
    pub(in crate::groups) fn heartbeat(
        &mut self,
        request: &Heartbeat,
        find: FindHub<'_>,
        now: Elapsed,
    ) -> Result<ConsumerHeartbeatResponse, GroupError> {
        request.check()?;
        match request.epoch {
            LEAVING => self.leave(request),
            AWAY => self.step_away(request, now),
            _ => self.beat(request, find, now),
        }
    }

    fn beat(
        &mut self,
        request: &Heartbeat,
        find: FindHub<'_>,
        now: Elapsed,
    ) -> Result<ConsumerHeartbeatResponse, GroupError> {
        let id = &request.member;
        let replaced = self.identify(request)?;
        let known = replaced.as_ref().unwrap_or(id);
        let before = (self.members.get(known)).map(|member| member.record.clone());
        let (assigned, epoch) = (before.as_ref()).map_or_else(Default::default, |before| {
            (before.assigned.clone(), before.epoch)
        });
        self.update(request, replaced, before, find, now)?;
        self.refresh_hubs(find, now);
        self.update_target();
        self.reconcile(id, request.owned.as_ref(), now);
        let record = &self.members.get(id).ok_or_else(|| unknown(id))?.record;
        let is_news = request.is_join()
            || request.is_full()
            || request.epoch != epoch
            || record.assigned != assigned;
        let assignment = is_news.then(|| record.assigned.to_list());
        Ok(self.respond(request, record.epoch, assignment))
    }

    fn respond(
        &self,
        request: &Heartbeat,
        epoch: i32,
        assignment: Option<HubPartitions>,
    ) -> ConsumerHeartbeatResponse {
        ConsumerHeartbeatResponse {
            member: request.member.clone(),
            epoch,
            interval: self.heartbeat_interval(),
            assignment,
        }
    }

    /// Checks that the request may speak for its member. Returns the id of the static member that it replaces, if any.
    fn identify(&self, request: &Heartbeat) -> Result<Option<String>, GroupError> {
        let id = &request.member;
        let Some(instance) = &request.instance else {
            return self.check_received_epoch(request).map(|()| None);
        };
        let holder = self.instances.get(instance);
        match holder {
            None if request.is_join() => Ok(None),
            None => Err(unknown(id)),
            Some(holder) if holder == id => self.check_received_epoch(request).map(|()| None),
            Some(_) if !request.is_join() => Err(GroupError::FencedInstance(instance.clone())),
            Some(holder) => match self.members.get(holder) {
                Some(member) if member.record.epoch != AWAY => {
                    Err(GroupError::UnreleasedInstance(instance.clone()))
                }
                _ => Ok(Some(holder.clone())),
            },
        }
    }

    /// A member is in its epoch, or in the one before if the response with the new one was lost.
    fn check_received_epoch(&self, request: &Heartbeat) -> Result<(), GroupError> {
        let member = match self.members.get(&request.member) {
            None if request.is_join() => return Ok(()),
            None => return Err(unknown(&request.member)),
            Some(member) => &member.record,
        };
        let (received, current) = (request.epoch, member.epoch);
        let owned = request.owned.as_ref();
        let missed_response = received == member.previous_epoch
            && received < current
            && owned.is_some_and(|owned| owned.is_subset(&member.assigned));
        match request.is_join() || received == current || missed_response {
            true => Ok(()),
            false => Err(GroupError::FencedEpoch { received, current }),
        }
    }

    /// Takes over the fields of the request. Nothing has changed if it fails.
    pub(super) fn update(
        &mut self,
        request: &Heartbeat,
        replaced: Option<String>,
        before: Option<MemberRecord>,
        find: FindHub<'_>,
        now: Elapsed,
    ) -> Result<(), GroupError> {
        let id = &request.member;
        let is_new = before.is_none();
        let max = self.options.members_max;
        if is_new && self.members.len() >= max {
            return Err(GroupError::Full(max));
        }
        let before = before.unwrap_or_default();
        let record = request.apply(before.clone());
        let is_replaced = replaced.is_some();
        if record == before && !is_replaced {
            self.touch(id, now);
            return Ok(());
        }
        let known = replaced.unwrap_or_else(|| id.clone());
        let bytes = record.bytes(id);
        self.check_bytes(&known, bytes)?;
        let share = match self.members.get(&known) {
            Some(member) => self.memory.charge_more(bytes, &member.share)?,
            None => self.memory.charge(bytes)?,
        };
        let epoch = self.state.epoch;
        let resubscribed = (&record.names, &record.pattern, &record.matched)
            != (&before.names, &before.pattern, &before.matched);
        if is_new || resubscribed {
            self.look_up_hubs((&known, &record), find)?;
            if self.state.epoch == epoch {
                self.raise_epoch();
            }
        }
        if is_replaced {
            self.members.remove(&known);
            self.changes.members.insert(known);
        }
        self.insert(id, record, share, is_replaced, now);
        Ok(())
    }

    pub(super) fn insert(
        &mut self,
        id: &str,
        mut record: MemberRecord,
        share: MemberShare,
        is_replaced: bool,
        now: Elapsed,
    ) {
        if is_replaced {
            (record.epoch, record.previous_epoch) = (JOINING, JOINING);
        }
        let previous = self.members.get(id);
        let old_instance = previous.and_then(|member| member.record.instance.clone());
        if let Some(old) = old_instance.filter(|old| record.instance.as_ref() != Some(old)) {
            self.instances.remove(&old);
        }
        if let Some(instance) = &record.instance {
            self.instances.insert(instance.clone(), id.to_owned());
        }
        let revoke_by = previous.and_then(|member| member.revoke_by);
        let mut member = Member::new(record, share, now, self.session());
        member.revoke_by = revoke_by;
        self.members.insert(id.to_owned(), member);
        self.changes.members.insert(id.to_owned());
        self.deadline_changed = true;
    }

    fn touch(&mut self, id: &str, now: Elapsed) {
        let session = self.session();
        if let Some(member) = self.members.get_mut(id) {
            self.deadline_changed |= member.touch(now, session);
        }
    }

    /// Checks the size of the group if `member` had so many bytes.
    fn check_bytes(&self, member: &str, bytes: usize) -> Result<(), GroupError> {
        let max = self.options.group_bytes_max;
        let others = self.members.iter().filter(|(id, _)| *id != member);
        let others: usize = others.map(|(_, other)| other.share.bytes()).sum();
        match others + bytes {
            bytes if bytes > max => Err(GroupError::TooLarge { bytes, max }),
            _ => Ok(()),
        }
    }

    /// The member that a leaving request is about.
    fn leaving(&self, request: &Heartbeat) -> Result<&Member, GroupError> {
        let id = &request.member;
        if let Some(instance) = &request.instance {
            let holder = self.instances.get(instance).ok_or_else(|| unknown(id))?;
            if holder != id {
                return Err(GroupError::FencedInstance(instance.clone()));
            }
        }
        self.members.get(id).ok_or_else(|| unknown(id))
    }

    fn leave(&mut self, request: &Heartbeat) -> Result<ConsumerHeartbeatResponse, GroupError> {
        self.leaving(request)?;
        self.remove(&request.member);
        Ok(self.respond(request, LEAVING, None))
    }

    /// A static member leaves for a short time. It keeps its partitions until its session ends.
    fn step_away(
        &mut self,
        request: &Heartbeat,
        now: Elapsed,
    ) -> Result<ConsumerHeartbeatResponse, GroupError> {
        self.leaving(request)?;
        self.touch(&request.member, now);
        if let Some(member) = self.members.get_mut(&request.member) {
            let record = &mut member.record;
            record.set_epoch(AWAY);
            record.progress = Progress::Stable;
            member.revoke_by = None;
            self.held.subtract(&std::mem::take(&mut record.pending));
        }
        self.changes.members.insert(request.member.clone());
        Ok(self.respond(request, AWAY, None))
    }
}
