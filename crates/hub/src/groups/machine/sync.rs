//! The leader hands the work out, the others ask for their share.

use bytes::Bytes;
use highwater_log::{GroupError, SyncRequest, SyncResponse};

use super::{AfterStore, Effect, Elapsed, Group, Phase, Ticket};

impl Group {
    pub fn sync(&mut self, request: SyncRequest, ticket: Ticket, now: Elapsed) {
        self.stirred = true;
        match self.ask_for_share(request, ticket, now) {
            Ok(None) => {}
            Ok(Some(synced)) => self.answer_sync(ticket, Ok(synced)),
            Err(error) => self.answer_sync(ticket, Err(error)),
        }
    }

    fn ask_for_share(
        &mut self,
        request: SyncRequest,
        ticket: Ticket,
        now: Elapsed,
    ) -> Result<Option<SyncResponse>, GroupError> {
        let SyncRequest { member: who, .. } = &request;
        self.check(who)?;
        let differs =
            |told: &Option<String>, ours: &str| told.as_deref().is_some_and(|it| it != ours);
        if differs(&request.protocol_type, &self.protocol_type)
            || differs(&request.protocol, &self.protocol)
        {
            return Err(GroupError::InconsistentProtocol);
        }
        let Some(member) = self.members.get_mut(&who.member) else {
            return Err(GroupError::UnknownMember(who.member.clone()));
        };
        match self.phase {
            Phase::Empty => Err(GroupError::UnknownMember(who.member.clone())),
            Phase::Preparing(_) => Err(GroupError::Rebalancing),
            Phase::Stable { .. } => {
                member.touch(now);
                member.synced = true;
                let assignment = member.assignment.clone();
                Ok(Some(self.synced(assignment)))
            }
            Phase::Completing { .. } => {
                member.synced = true;
                if let Some(before) = member.syncing.replace(ticket) {
                    self.answer_sync(before, Err(GroupError::Rebalancing));
                }
                if self.leader == request.member.member {
                    self.assign(request.assignments);
                }
                Ok(None)
            }
        }
    }

    /// Takes the leader's word; the members hear of it once it is stored. Who was forgotten gets
    /// nothing.
    fn assign(&mut self, assignments: Vec<(String, Bytes)>) {
        let Phase::Completing { storing, .. } = &mut self.phase else {
            return;
        };
        if std::mem::replace(storing, true) {
            return;
        }
        for (member, assignment) in assignments {
            if let Some(member) = self.members.get_mut(&member) {
                member.assignment = assignment;
            }
        }
        let after = AfterStore::Assignment(self.generation);
        self.effects.push(Effect::Store(after));
    }
}
