//! Members of the classic protocol in a group of the consumer protocol, while its consumers are exchanged one by one.
//!
//! The group assigns partitions to them, too. Its heartbeats tell such a member to rejoin; it revokes partitions by
//! joining without them. Its generation is its member epoch, and it never leads.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use highwater_log::{
    GroupError, HubId, HubPartitions, JoinRequest, JoinResponse, MemberIdentity, Membership,
    SyncRequest, SyncResponse,
};

use super::heartbeat::Heartbeat;
use super::member::{AWAY, Member, MemberRecord, Progress};
use super::partitions::PartitionSet;
use super::{ConsumerGroup, FindHub, unknown};
use crate::groups::machine::Elapsed;
use crate::groups::subscription::{self, CONSUMER, NamedPartitions, Subscription};

/// The additional state of a member of the classic protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::groups) struct ClassicMember {
    pub(in crate::groups) session_timeout: Duration,
    /// Name and metadata, in order of preference.
    pub(in crate::groups) protocols: Vec<(String, Bytes)>,
}

impl ClassicMember {
    pub(super) fn bytes(&self) -> usize {
        let bytes = |(name, metadata): &(String, Bytes)| name.len() + metadata.len() + 48;
        self.protocols.iter().map(bytes).sum()
    }

    /// The metadata of its preferred protocol, which is never empty.
    pub(super) fn metadata(&self) -> Bytes {
        (self.protocols.first()).map_or_else(Bytes::new, |(_, metadata)| metadata.clone())
    }

    fn supports(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|(name, _)| name == protocol)
    }

    fn protocol(&self) -> &str {
        (self.protocols.first()).map_or("", |(name, _)| name.as_str())
    }

    /// The assignment, in a version that the member knows.
    pub(in crate::groups) fn assignment(&self, partitions: &NamedPartitions) -> Bytes {
        let subscription = Subscription::read(&self.metadata());
        let version = subscription.map_or(0, |subscription| subscription.version);
        subscription::put_assignment(version, partitions)
    }
}

/// The partitions of those hubs that exist.
pub(in crate::groups) fn find_partitions(
    named: &NamedPartitions,
    find: FindHub<'_>,
) -> PartitionSet {
    let hubs = named.iter().filter_map(|(name, partitions)| {
        let hub = find(name)?;
        let known = partitions.iter().copied();
        let known = known.filter(|number| *number < hub.partitions);
        Some((hub.id, known.collect()))
    });
    PartitionSet::from_list(hubs.collect::<HubPartitions>())
}

impl ConsumerGroup {
    /// `new_id` is an unused member id, in case one is needed.
    pub(in crate::groups) fn join_classic(
        &mut self,
        request: JoinRequest,
        new_id: String,
        find: FindHub<'_>,
        now: Elapsed,
    ) -> Result<JoinResponse, GroupError> {
        self.check_session(request.session_timeout)?;
        let replaced = self.identify_classic(&request)?;
        let known = replaced.as_ref().unwrap_or(&request.member);
        let subscription = self.compatible_subscription(known, &request)?;
        if request.member.is_empty() && request.expects_member_id && request.instance.is_none() {
            return Err(GroupError::MemberIdRequired { member: new_id });
        }
        let before = (self.members.get(known)).map(|member| member.record.clone());
        let id = match request.member.is_empty() {
            true => new_id,
            false => request.member.clone(),
        };
        let owned = find_partitions(&subscription.owned, find);
        let heartbeat = classic_heartbeat(id.clone(), request, subscription);
        self.update(&heartbeat, replaced, before, find, now)?;
        self.refresh_hubs(find, now);
        self.update_target();
        self.reconcile(&id, Some(&owned), now);
        let member = self.members.get_mut(&id).ok_or_else(|| unknown(&id))?;
        member.rejoin_by = Some(now + member.record.rebalance_timeout);
        self.deadline_changed = true;
        let protocol = member.record.classic.as_ref().map(ClassicMember::protocol);
        Ok(JoinResponse {
            generation: member.record.epoch,
            protocol_type: CONSUMER.to_owned(),
            protocol: protocol.unwrap_or_default().to_owned(),
            leader: String::new(),
            member: id,
            led_as: None,
            members: Vec::new(),
        })
    }

    fn check_session(&self, requested: Duration) -> Result<(), GroupError> {
        let (min, max) = (self.options.session_min, self.options.session_max);
        match (min..=max).contains(&requested) {
            true => Ok(()),
            false => Err(GroupError::SessionTimeout {
                requested,
                min,
                max,
            }),
        }
    }

    /// The static member that a join without a member id replaces, if any. A classic one is fenced by it.
    fn identify_classic(&self, request: &JoinRequest) -> Result<Option<String>, GroupError> {
        let Some(instance) = &request.instance else {
            return Ok(None);
        };
        let holder = self.instances.get(instance);
        match holder {
            None if request.member.is_empty() => Ok(None),
            None => Err(unknown(&request.member)),
            Some(holder) if *holder == request.member => Ok(None),
            Some(_) if !request.member.is_empty() => {
                Err(GroupError::FencedInstance(instance.clone()))
            }
            Some(holder) => {
                let record = self.members.get(holder).map(|member| &member.record);
                let is_free =
                    |record: &MemberRecord| record.classic.is_some() || record.epoch == AWAY;
                match record.is_none_or(is_free) {
                    true => Ok(Some(holder.clone())),
                    false => Err(GroupError::UnreleasedInstance(instance.clone())),
                }
            }
        }
    }

    /// The subscription of a consumer that has a protocol in common with all other classic members: the group may
    /// become theirs again.
    fn compatible_subscription(
        &self,
        member: &str,
        request: &JoinRequest,
    ) -> Result<Subscription, GroupError> {
        let others = || {
            let others = self.members.iter().filter(|(id, _)| *id != member);
            others.filter_map(|(_, other)| other.record.classic.as_ref())
        };
        let is_shared = |name: &str| others().all(|other| other.supports(name));
        let has_shared = request.protocols.iter().any(|(name, _)| is_shared(name));
        let metadata = request.protocols.first().map(|(_, metadata)| metadata);
        metadata
            .filter(|_| request.protocol_type == CONSUMER && has_shared)
            .and_then(|metadata| Subscription::read(metadata).ok())
            .ok_or(GroupError::InconsistentProtocol)
    }

    /// The assignment of a classic member that has joined.
    pub(in crate::groups) fn sync_classic(
        &mut self,
        request: &SyncRequest,
        find_name: &dyn Fn(HubId) -> Option<String>,
        now: Elapsed,
    ) -> Result<SyncResponse, GroupError> {
        let who = &request.member;
        let group_epoch = self.state.epoch;
        let session = self.session();
        let member = self.classic_member(who)?;
        let classic = member.record.classic.clone().unwrap_or_default();
        let differs =
            |theirs: &Option<String>, ours: &str| theirs.as_deref().is_some_and(|it| it != ours);
        if differs(&request.protocol_type, CONSUMER)
            || differs(&request.protocol, classic.protocol())
        {
            return Err(GroupError::InconsistentProtocol);
        }
        if member.record.epoch < group_epoch && member.record.progress != Progress::Unrevoked {
            return Err(GroupError::Rebalancing);
        }
        // One with partitions to revoke must rejoin by then.
        member.rejoin_by = None;
        member.touch(now, session);
        let assigned = named(&member.record.assigned, find_name);
        Ok(SyncResponse {
            protocol_type: CONSUMER.to_owned(),
            protocol: classic.protocol().to_owned(),
            assignment: classic.assignment(&assigned),
        })
    }

    /// A classic member is alive. It must rejoin when it has not reached the group epoch, has partitions to revoke, or
    /// can have partitions that it waits for.
    pub(in crate::groups) fn heartbeat_classic(
        &mut self,
        who: &Membership,
        now: Elapsed,
    ) -> Result<(), GroupError> {
        let (group_epoch, held) = (self.state.epoch, self.held.clone());
        let session = self.session();
        let member = self.classic_member(who)?;
        member.touch(now, session);
        let record = &member.record;
        let (_, missing) = record.target.split_by(&record.assigned);
        let is_behind = match record.progress {
            Progress::Unrevoked => true,
            Progress::Unreleased => !missing.intersects(&held) || record.epoch < group_epoch,
            Progress::Stable => record.epoch < group_epoch,
        };
        if !is_behind {
            return Ok(());
        }
        let timeout = record.rebalance_timeout;
        member.rejoin_by.get_or_insert(now + timeout);
        self.deadline_changed = true;
        Err(GroupError::Rebalancing)
    }

    /// The classic member that a request of its generation comes from.
    fn classic_member(&mut self, who: &Membership) -> Result<&mut Member, GroupError> {
        self.check_holder(&who.member, who.instance.as_deref())?;
        let member = self.members.get_mut(&who.member);
        let member = member.filter(|member| member.record.classic.is_some());
        let member = member.ok_or_else(|| unknown(&who.member))?;
        match who.generation == member.record.epoch {
            true => Ok(member),
            false => Err(GroupError::IllegalGeneration {
                requested: who.generation,
                current: member.record.epoch,
            }),
        }
    }

    fn check_holder(&self, member: &str, instance: Option<&str>) -> Result<(), GroupError> {
        let Some(instance) = instance else {
            return Ok(());
        };
        match self.instances.get(instance) {
            None => Err(unknown(member)),
            Some(holder) if holder != member => {
                Err(GroupError::FencedInstance(instance.to_owned()))
            }
            Some(_) => Ok(()),
        }
    }

    /// One result for each of `leaving`, in order. An administrator removes members of both protocols in this way.
    pub(in crate::groups) fn leave_classic(
        &mut self,
        leaving: &[MemberIdentity],
    ) -> Vec<Result<(), GroupError>> {
        let leave = |one: &MemberIdentity| {
            let holder = (one.instance.as_ref()).and_then(|instance| self.instances.get(instance));
            let id = match holder {
                Some(holder) if one.member.is_empty() => holder.clone(),
                _ => one.member.clone(),
            };
            self.check_holder(&id, one.instance.as_deref())?;
            if !self.members.contains_key(&id) {
                return Err(unknown(&id));
            }
            self.deadline_changed = true;
            self.remove(&id);
            Ok(())
        };
        leaving.iter().map(leave).collect()
    }

    /// All members are classic ones, so that the group can become a classic one.
    pub(in crate::groups) fn is_all_classic(&self) -> bool {
        let mut members = self.members.values();
        !self.is_empty() && members.all(|member| member.record.classic.is_some())
    }
}

/// The request of a classic member as a heartbeat that joins.
fn classic_heartbeat(
    member: String,
    request: JoinRequest,
    subscription: Subscription,
) -> Heartbeat {
    Heartbeat {
        member,
        instance: request.instance,
        rack: subscription.rack,
        rebalance_timeout: Some(request.rebalance_timeout),
        names: Some(subscription.names.into_iter().collect::<BTreeSet<_>>()),
        pattern: Some(String::new()),
        client_id: request.client_id,
        client_host: request.client_host,
        classic: Some(ClassicMember {
            session_timeout: request.session_timeout,
            protocols: request.protocols,
        }),
        ..Heartbeat::default()
    }
}

/// Hubs that no longer exist are left out.
pub(super) fn named(
    set: &PartitionSet,
    find_name: &dyn Fn(HubId) -> Option<String>,
) -> NamedPartitions {
    let list = set.to_list().into_iter();
    list.filter_map(|(hub, partitions)| Some((find_name(hub)?, partitions)))
        .collect()
}
