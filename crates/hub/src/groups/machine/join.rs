//! Who may come in, and what that changes.

use highwater_log::{GroupError, JoinRequest, JoinResponse};

use super::member::Member;
use super::{AfterStore, Effect, Elapsed, Group, Phase, Ticket};

/// How a join was met.
enum JoinResult {
    /// There is nothing to wait for.
    Ready(JoinResponse),
    /// Answered when the group has gathered, or a snapshot is stored.
    Later,
}

impl Group {
    /// `fresh` is an id nobody has had, in case one is needed.
    pub fn join(&mut self, request: JoinRequest, fresh: String, ticket: Ticket, now: Elapsed) {
        self.stirred = true;
        match self.admit(request, fresh, ticket, now) {
            Ok(JoinResult::Later) => {}
            Ok(JoinResult::Ready(joined)) => self.answer_join(ticket, Ok(joined)),
            Err(error) => self.answer_join(ticket, Err(error)),
        }
    }

    fn admit(
        &mut self,
        request: JoinRequest,
        fresh: String,
        ticket: Ticket,
        now: Elapsed,
    ) -> Result<JoinResult, GroupError> {
        self.check_session(&request)?;
        let returning = match &request.instance {
            Some(instance) if request.member.is_empty() => self.instances.get(instance).cloned(),
            _ => None,
        };
        let known = returning.as_deref().unwrap_or(&request.member);
        self.check_capacity(known)?;
        if !self.speaks(known, &request.protocol_type, &request.protocols) {
            return Err(GroupError::InconsistentProtocol);
        }
        match returning {
            Some(old) => Ok(self.replace(&old, request, fresh, ticket, now)),
            None if request.member.is_empty() => self.newcomer(request, fresh, ticket, now),
            None => self.known_member(request, ticket, now),
        }
    }

    fn check_session(&self, request: &JoinRequest) -> Result<(), GroupError> {
        let (requested, limits) = (request.session_timeout, &self.limits);
        let (min, max) = (limits.session_min, limits.session_max);
        match (min..=max).contains(&requested) {
            true => Ok(()),
            false => Err(GroupError::SessionTimeout {
                requested,
                min,
                max,
            }),
        }
    }

    /// While the group gathers, room is for those who are here: members that do not come back lose
    /// their place to others.
    fn check_capacity(&mut self, member: &str) -> Result<(), GroupError> {
        let max = self.limits.members_max;
        let known = self.members.get(member);
        let room = match self.phase {
            Phase::Preparing(_) => {
                let here = (self.members.values()).filter(|other| other.joining.is_some());
                known.is_some_and(|member| member.joining.is_some()) || here.count() < max
            }
            _ => known.is_some() || self.members.len() < max,
        };
        if !room {
            self.promised.remove(member);
            return Err(GroupError::Full(max));
        }
        Ok(())
    }

    fn newcomer(
        &mut self,
        request: JoinRequest,
        fresh: String,
        ticket: Ticket,
        now: Elapsed,
    ) -> Result<JoinResult, GroupError> {
        if request.expects_member_id && request.instance.is_none() {
            let max = self.limits.members_max;
            if self.promised.len() >= max {
                return Err(GroupError::Full(max));
            }
            let until = now + request.session_timeout;
            self.promised.insert(fresh.clone(), until);
            return Err(GroupError::MemberIdRequired { member: fresh });
        }
        Ok(self.add(fresh, request, ticket, now))
    }

    fn known_member(
        &mut self,
        request: JoinRequest,
        ticket: Ticket,
        now: Elapsed,
    ) -> Result<JoinResult, GroupError> {
        if request.instance.is_none() && self.promised.remove(&request.member).is_some() {
            let id = request.member.clone();
            return Ok(self.add(id, request, ticket, now));
        }
        self.check_identity(&request.member, request.instance.as_deref())?;
        let id = request.member.clone();
        let unchanged =
            (self.members.get(&id)).is_some_and(|member| member.protocols == request.protocols);
        let settled = match self.phase {
            Phase::Empty | Phase::Preparing(_) => false,
            // Its answer was lost on the way.
            Phase::Completing { .. } => unchanged,
            // A leader that comes again wants to hand the work out anew.
            Phase::Stable { .. } => unchanged && id != self.leader,
        };
        self.update(&id, request, now);
        if settled {
            return Ok(JoinResult::Ready(self.joined(&id)));
        }
        self.wait_to_join(&id, ticket);
        self.rebalance(now);
        Ok(JoinResult::Later)
    }

    fn add(
        &mut self,
        id: String,
        request: JoinRequest,
        ticket: Ticket,
        now: Elapsed,
    ) -> JoinResult {
        if self.members.is_empty() {
            self.protocol_type = request.protocol_type.clone();
            self.leader.clone_from(&id);
        }
        if let Some(instance) = &request.instance {
            self.instances.insert(instance.clone(), id.clone());
        }
        if let Phase::Preparing(gathering) = &mut self.phase
            && let Some((_, came)) = &mut gathering.initial
        {
            *came = true;
        }
        self.arrivals += 1;
        let member = Member::new(id.clone(), self.arrivals, request, now);
        self.members.insert(id.clone(), member);
        self.wait_to_join(&id, ticket);
        self.rebalance(now);
        JoinResult::Later
    }

    /// A static member has come back without its old id. It takes the place of its former self,
    /// which is fenced; if the group goes on as before, nobody else notices.
    fn replace(
        &mut self,
        old: &str,
        request: JoinRequest,
        new: String,
        ticket: Ticket,
        now: Elapsed,
    ) -> JoinResult {
        let Some(mut member) = self.members.remove(old) else {
            return self.add(new, request, ticket, now);
        };
        let instance = member.instance.clone().unwrap_or_default();
        let fenced = || GroupError::FencedInstance(instance.clone());
        if let Some(before) = member.joining.take() {
            self.answer_join(before, Err(fenced()));
        }
        if let Some(before) = member.syncing.take() {
            self.answer_sync(before, Err(fenced()));
        }
        let leads = self.leader == old;
        if leads {
            self.leader.clone_from(&new);
        }
        self.instances.insert(instance, new.clone());
        member.id.clone_from(&new);
        member.knows_itself = false;
        member.update(request, now);
        member.joining = Some(ticket);
        self.members.insert(new, member);
        let goes_on = matches!(self.phase, Phase::Stable { .. });
        if goes_on && self.elect_protocol() == self.protocol {
            let led_as = leads.then(|| old.to_owned());
            self.effects
                .push(Effect::Store(AfterStore::Join(ticket, led_as)));
        } else {
            self.rebalance(now);
        }
        JoinResult::Later
    }

    /// The snapshot with the returned static member in it is stored, or could not be.
    pub(super) fn let_in(
        &mut self,
        ticket: Ticket,
        led_as: Option<String>,
        stored: Result<(), String>,
        now: Elapsed,
    ) {
        let waiting = |member: &&mut Member| member.joining == Some(ticket);
        let stable = matches!(self.phase, Phase::Stable { .. });
        let Some(member) = self.members.values_mut().find(waiting).filter(|_| stable) else {
            return;
        };
        member.joining = None;
        member.knows_itself = true;
        member.touch(now);
        let id = member.id.clone();
        let answer = stored.map_err(GroupError::Storage).map(|()| JoinResponse {
            led_as,
            ..self.joined(&id)
        });
        self.answer_join(ticket, answer);
    }

    fn update(&mut self, id: &str, request: JoinRequest, now: Elapsed) {
        if let Some(member) = self.members.get_mut(id) {
            member.update(request, now);
        }
    }

    /// A second join of the same member takes over from the first, whose connection must be gone.
    fn wait_to_join(&mut self, id: &str, ticket: Ticket) {
        let member = self.members.get_mut(id);
        if let Some(before) = member.and_then(|member| member.joining.replace(ticket)) {
            self.answer_join(before, Err(GroupError::Rebalancing));
        }
    }
}
