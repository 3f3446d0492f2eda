//! Members that go: by their own wish, because they fell silent, or because their client hung up.

use highwater_log::{GroupError, MemberIdentity};

use super::member::Member;
use super::{Elapsed, Group, Phase, Ticket};

impl Group {
    /// One answer for each, in order.
    pub fn leave(
        &mut self,
        leaving: &[MemberIdentity],
        now: Elapsed,
    ) -> Vec<Result<(), GroupError>> {
        self.stirred = true;
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

    /// Lets time do its work: sessions end, promises lapse, nobody is waited for any longer.
    pub fn tick(&mut self, now: Elapsed) {
        self.stirred = true;
        self.promised.retain(|_, until| *until > now);
        let silent = |member: &Member| member.expiry().is_some_and(|at| at <= now);
        self.remove_where(silent);
        if self.time_to_sync_is_up(now) {
            self.remove_where(|member| !member.synced);
        }
        match &self.phase {
            Phase::Preparing(gathering) if gathering.until <= now => {
                let gathering = gathering.clone();
                self.gathering_ends(gathering, now);
            }
            _ => {}
        }
        self.regroup(now);
    }

    /// True once.
    fn time_to_sync_is_up(&mut self, now: Elapsed) -> bool {
        match &mut self.phase {
            Phase::Completing { until, .. } | Phase::Stable { until } => {
                until.take_if(|at| *at <= now).is_some()
            }
            Phase::Empty | Phase::Preparing(_) => false,
        }
    }

    /// Whoever waited with this ticket has hung up. A member that knows its id may come again until
    /// its session ends; one that does not never will.
    pub fn abandon(&mut self, ticket: Ticket, now: Elapsed) {
        self.stirred = true;
        let ticket = Some(ticket);
        let waits = |member: &&mut Member| member.joining == ticket || member.syncing == ticket;
        let Some(member) = self.members.values_mut().find(waits) else {
            return;
        };
        member.joining.take_if(|waiting| Some(*waiting) == ticket);
        member.syncing.take_if(|waiting| Some(*waiting) == ticket);
        member.touch(now);
        if !member.knows_itself && member.instance.is_none() {
            let id = member.id.clone();
            self.remove(&id);
            self.regroup(now);
        }
    }

    fn remove_where(&mut self, which: impl Fn(&Member) -> bool) {
        let gone = self.members.values().filter(|member| which(member));
        let gone: Vec<String> = gone.map(|member| member.id.clone()).collect();
        gone.iter().for_each(|id| self.remove(id));
    }

    /// Takes a member out; [`Group::regroup`] must follow.
    fn remove(&mut self, id: &str) {
        let Some(member) = self.members.remove(id) else {
            return;
        };
        if let Some(instance) = &member.instance {
            self.instances.remove(instance);
        }
        let unknown = || GroupError::UnknownMember(id.to_owned());
        if let Some(ticket) = member.joining {
            self.answer_join(ticket, Err(unknown()));
        }
        if let Some(ticket) = member.syncing {
            self.answer_sync(ticket, Err(unknown()));
        }
        self.lost_a_member = true;
    }

    /// A generation that lost a member is over; one that gathers may have waited for it alone.
    fn regroup(&mut self, now: Elapsed) {
        let lost = std::mem::take(&mut self.lost_a_member);
        match self.phase {
            Phase::Empty => {}
            Phase::Preparing(_) => self.complete_if_all_are_here(now),
            Phase::Completing { .. } | Phase::Stable { .. } if lost => self.rebalance(now),
            Phase::Completing { .. } | Phase::Stable { .. } => {}
        }
    }
}
