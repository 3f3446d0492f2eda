//! Joining a group.

use highwater_log::{GroupError, JoinRequest, JoinResponse};

use super::member::{Member, named_bytes};
use super::{AfterStore, Effect, Elapsed, Group, Phase, RequestId};

/// A join request and its context.
struct JoinAttempt {
    request: JoinRequest,
    /// An unused member id, in case one is needed.
    new_id: String,
    request_id: RequestId,
    now: Elapsed,
}

/// `None` if the response follows later: when the rebalance completes or a snapshot is stored.
type JoinResult = Result<Option<JoinResponse>, GroupError>;

impl Group {
    /// `new_id` is an unused member id, in case one is needed.
    pub(crate) fn join(
        &mut self,
        request: JoinRequest,
        new_id: String,
        request_id: RequestId,
        now: Elapsed,
    ) {
        self.deadline_changed = true;
        let attempt = JoinAttempt {
            request,
            new_id,
            request_id,
            now,
        };
        if let Some(answer) = self.try_join(attempt).transpose() {
            self.answer_join(request_id, answer);
        }
    }

    fn try_join(&mut self, attempt: JoinAttempt) -> JoinResult {
        let request = &attempt.request;
        self.check_session(request)?;
        let returning = match &request.instance {
            Some(instance) if request.member.is_empty() => self.instances.get(instance).cloned(),
            _ => None,
        };
        let known = returning.as_deref().unwrap_or(&request.member);
        self.check_capacity(known)?;
        self.check_bytes(known, named_bytes(&request.protocols))?;
        if !self.is_compatible(known, &request.protocol_type, &request.protocols) {
            return Err(GroupError::InconsistentProtocol);
        }
        match returning {
            Some(old) => Ok(self.replace(&old, attempt)),
            None if request.member.is_empty() => self.join_new(attempt),
            None => self.join_known(attempt),
        }
    }

    fn check_session(&self, request: &JoinRequest) -> Result<(), GroupError> {
        let requested = request.session_timeout;
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

    /// During a rebalance only members that have joined count: the others lose their capacity to new members.
    fn check_capacity(&mut self, member: &str) -> Result<(), GroupError> {
        let max = self.options.members_max;
        let known = self.members.get(member);
        let has_capacity = match self.phase {
            Phase::Preparing(_) => {
                let joined = (self.members.values()).filter(|other| other.joining.is_some());
                known.is_some_and(|member| member.joining.is_some()) || joined.count() < max
            }
            _ => known.is_some() || self.members.len() < max,
        };
        if !has_capacity {
            self.promised.remove(member);
            return Err(GroupError::Full(max));
        }
        Ok(())
    }

    /// Checks the size of the group if `member` had so many bytes of metadata.
    fn check_bytes(&self, member: &str, metadata_bytes: usize) -> Result<(), GroupError> {
        let max = self.options.group_bytes_max;
        let replaced = self.members.get(member);
        let others = self.bytes() - replaced.map_or(0, |member| member.record.bytes());
        match others + metadata_bytes {
            bytes if bytes > max => Err(GroupError::TooLarge { bytes, max }),
            _ => Ok(()),
        }
    }

    fn join_new(&mut self, attempt: JoinAttempt) -> JoinResult {
        let request = &attempt.request;
        if request.expects_member_id && request.instance.is_none() {
            let max = self.options.members_max;
            if self.promised.len() >= max {
                return Err(GroupError::Full(max));
            }
            let member = attempt.new_id;
            let until = attempt.now + request.session_timeout;
            self.promised.insert(member.clone(), until);
            return Err(GroupError::MemberIdRequired { member });
        }
        Ok(self.add(attempt))
    }

    fn join_known(&mut self, attempt: JoinAttempt) -> JoinResult {
        let id = attempt.request.member.clone();
        if attempt.request.instance.is_none() && self.promised.remove(&id).is_some() {
            return Ok(self.add(JoinAttempt {
                new_id: id,
                ..attempt
            }));
        }
        let JoinAttempt { request, now, .. } = attempt;
        self.check_identity(&id, request.instance.as_deref())?;
        let Some(member) = self.members.get_mut(&id) else {
            return Err(GroupError::UnknownMember(id));
        };
        let unchanged = member.record.protocols == request.protocols;
        let keeps_generation = match self.phase {
            Phase::Empty | Phase::Preparing(_) => false,
            // The first response was lost.
            Phase::Completing { .. } => unchanged,
            // A leader that joins again wants to assign again.
            Phase::Stable { .. } => unchanged && id != self.leader,
        };
        member.update(request, now);
        if keeps_generation {
            return Ok(Some(self.join_response(&id)));
        }
        self.await_rebalance(&id, attempt.request_id);
        self.rebalance(now);
        Ok(None)
    }

    fn add(&mut self, attempt: JoinAttempt) -> Option<JoinResponse> {
        let JoinAttempt {
            request,
            new_id: id,
            request_id,
            now,
        } = attempt;
        if self.members.is_empty() {
            self.protocol_type = request.protocol_type.clone();
            self.leader.clone_from(&id);
        }
        if let Some(instance) = &request.instance {
            self.instances.insert(instance.clone(), id.clone());
        }
        if let Phase::Preparing(rebalance) = &mut self.phase
            && let Some((_, joined)) = &mut rebalance.initial
        {
            *joined = true;
        }
        self.arrivals += 1;
        let member = Member::new(id.clone(), self.arrivals, request, now);
        self.members.insert(id.clone(), member);
        self.await_rebalance(&id, request_id);
        self.rebalance(now);
        None
    }

    /// A static member joins again without its old id: the new id replaces the old one, which is fenced. In a stable
    /// group the other members notice nothing.
    fn replace(&mut self, old: &str, attempt: JoinAttempt) -> Option<JoinResponse> {
        let Some(mut member) = self.members.remove(old) else {
            return self.add(attempt);
        };
        let JoinAttempt {
            request,
            new_id: new,
            request_id,
            now,
        } = attempt;
        let instance = member.record.instance.clone().unwrap_or_default();
        let fenced = || GroupError::FencedInstance(instance.clone());
        if let Some(previous) = member.joining.take() {
            self.answer_join(previous, Err(fenced()));
        }
        if let Some(previous) = member.syncing.take() {
            self.answer_sync(previous, Err(fenced()));
        }
        let leads = self.leader == old;
        if leads {
            self.leader.clone_from(&new);
        }
        self.instances.insert(instance, new.clone());
        member.record.id.clone_from(&new);
        member.knows_id = false;
        member.update(request, now);
        member.joining = Some(request_id);
        self.members.insert(new, member);
        let stable = matches!(self.phase, Phase::Stable { .. });
        if stable && self.elect_protocol() == self.protocol {
            let led_as = leads.then(|| old.to_owned());
            let after = AfterStore::Join(request_id, led_as);
            self.effects.push(Effect::Store(after));
        } else {
            self.rebalance(now);
        }
        None
    }

    /// The snapshot with the returned static member has been stored, or storing it failed.
    pub(super) fn complete_return(
        &mut self,
        request_id: RequestId,
        led_as: Option<String>,
        stored: Result<(), String>,
        now: Elapsed,
    ) {
        let waiting = |member: &&mut Member| member.joining == Some(request_id);
        let stable = matches!(self.phase, Phase::Stable { .. });
        let Some(member) = self.members.values_mut().find(waiting).filter(|_| stable) else {
            return;
        };
        member.joining = None;
        member.knows_id = true;
        member.touch(now);
        let id = member.record.id.clone();
        let answer = stored.map_err(GroupError::Storage).map(|()| JoinResponse {
            led_as,
            ..self.join_response(&id)
        });
        self.answer_join(request_id, answer);
    }

    /// A second join of a member replaces the first one, whose connection is gone.
    fn await_rebalance(&mut self, id: &str, request_id: RequestId) {
        let member = self.members.get_mut(id);
        if let Some(previous) = member.and_then(|member| member.joining.replace(request_id)) {
            self.answer_join(previous, Err(GroupError::Rebalancing));
        }
    }
}
