//! Removal of members: they leave, their session expires, or their client hangs up.

use highwater_log::{GroupError, MemberIdentity};

use super::member::Member;
use super::{Elapsed, Group, Phase, RequestId};

impl Group {
    /// One result for each of `leaving`, in order.
    pub(crate) fn leave(
        &mut self,
        leaving: &[MemberIdentity],
        now: Elapsed,
    ) -> Vec<Result<(), GroupError>> {
        self.deadline_changed = true;
        let answers = leaving.iter().map(|one| self.leave_one(one)).collect();
        self.regroup(now);
        answers
    }

    fn leave_one(&mut self, one: &MemberIdentity) -> Result<(), GroupError> {
        if one.instance.is_none() && self.promised.remove(&one.member).is_some() {
            return Ok(());
        }
        let holder = (one.instance.as_ref()).and_then(|instance| self.instances.get(instance));
        let id = match holder {
            Some(holder) if one.member.is_empty() => holder.clone(),
            _ => one.member.clone(),
        };
        self.check_identity(&id, one.instance.as_deref())?;
        self.remove(&id);
        Ok(())
    }

    /// Ends sessions, promised member ids and rebalances whose time is up.
    pub(crate) fn tick(&mut self, now: Elapsed) {
        self.deadline_changed = true;
        self.promised.retain(|_, until| *until > now);
        let expired = |member: &Member| member.expiry().is_some_and(|at| at <= now);
        self.remove_where(expired);
        if self.take_sync_timeout(now) {
            self.remove_where(|member| !member.synced);
        }
        match &self.phase {
            Phase::Preparing(rebalance) if rebalance.until <= now => {
                let rebalance = rebalance.clone();
                self.end_rebalance(rebalance, now);
            }
            _ => {}
        }
        self.regroup(now);
    }

    /// True once, when the time to sync is up.
    fn take_sync_timeout(&mut self, now: Elapsed) -> bool {
        match &mut self.phase {
            Phase::Completing { until, .. } | Phase::Stable { until } => {
                until.take_if(|at| *at <= now).is_some()
            }
            Phase::Empty | Phase::Preparing(_) => false,
        }
    }

    /// The client of this request has hung up. A member of a generation may join again until its session ends. Others
    /// are removed with their metadata; one that knows its id may still join with it.
    pub(crate) fn abandon(&mut self, request_id: RequestId, now: Elapsed) {
        self.deadline_changed = true;
        let request_id = Some(request_id);
        let waits =
            |member: &&mut Member| member.joining == request_id || member.syncing == request_id;
        let Some(member) = self.members.values_mut().find(waits) else {
            return;
        };
        member
            .joining
            .take_if(|waiting| Some(*waiting) == request_id);
        member
            .syncing
            .take_if(|waiting| Some(*waiting) == request_id);
        member.touch(now);
        if !member.in_generation {
            let (id, expires) = (member.record.id.clone(), member.expires);
            let may_return = member.knows_id && member.record.instance.is_none();
            self.remove(&id);
            if may_return {
                self.promised.insert(id, expires);
            }
            self.regroup(now);
        }
    }

    fn remove_where(&mut self, which: impl Fn(&Member) -> bool) {
        let removed = self.members.values().filter(|member| which(member));
        let removed: Vec<String> = removed.map(|member| member.record.id.clone()).collect();
        removed.iter().for_each(|id| self.remove(id));
    }

    /// Removes a member; [`Group::regroup`] must follow.
    fn remove(&mut self, id: &str) {
        let Some(member) = self.members.remove(id) else {
            return;
        };
        if let Some(instance) = &member.record.instance {
            self.instances.remove(instance);
        }
        let unknown = || GroupError::UnknownMember(id.to_owned());
        if let Some(request_id) = member.joining {
            self.answer_join(request_id, Err(unknown()));
        }
        if let Some(request_id) = member.syncing {
            self.answer_sync(request_id, Err(unknown()));
        }
        self.member_removed = true;
    }

    /// The loss of a member ends a generation; a rebalance may have waited for this member alone.
    fn regroup(&mut self, now: Elapsed) {
        let removed = std::mem::take(&mut self.member_removed);
        match self.phase {
            Phase::Empty => {}
            Phase::Preparing(_) => self.complete_if_all_joined(now),
            Phase::Completing { .. } | Phase::Stable { .. } if removed => self.rebalance(now),
            Phase::Completing { .. } | Phase::Stable { .. } => {}
        }
    }
}
