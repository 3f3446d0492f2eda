//! Syncs: the leader sends the assignment, the members receive theirs.

use bytes::Bytes;
use highwater_log::{GroupError, SyncRequest, SyncResponse};

use super::member::named_bytes;
use super::{AfterStore, Effect, Elapsed, Group, Phase, RequestId};

impl Group {
    pub(crate) fn sync(&mut self, request: SyncRequest, request_id: RequestId, now: Elapsed) {
        self.deadline_changed = true;
        if let Some(answer) = self.try_sync(request, request_id, now).transpose() {
            self.answer_sync(request_id, answer);
        }
    }

    fn try_sync(
        &mut self,
        request: SyncRequest,
        request_id: RequestId,
        now: Elapsed,
    ) -> Result<Option<SyncResponse>, GroupError> {
        let SyncRequest { member: who, .. } = &request;
        self.check(who)?;
        let differs =
            |theirs: &Option<String>, ours: &str| theirs.as_deref().is_some_and(|it| it != ours);
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
                let assignment = member.record.assignment.clone();
                Ok(Some(self.sync_response(assignment)))
            }
            Phase::Completing { .. } => {
                let max = self.options.group_bytes_max;
                match named_bytes(&request.assignments) {
                    bytes if bytes > max => return Err(GroupError::TooLarge { bytes, max }),
                    _ => member.synced = true,
                }
                if let Some(previous) = member.syncing.replace(request_id) {
                    self.answer_sync(previous, Err(GroupError::Rebalancing));
                }
                if self.leader == request.member.member {
                    self.assign(request.assignments);
                }
                Ok(None)
            }
        }
    }

    /// Stores the leader's assignment; the members receive it when it is stored. Members that it omits get an empty
    /// one.
    fn assign(&mut self, assignments: Vec<(String, Bytes)>) {
        let Phase::Completing { storing, .. } = &mut self.phase else {
            return;
        };
        if std::mem::replace(storing, true) {
            return;
        }
        for (member, assignment) in assignments {
            if let Some(member) = self.members.get_mut(&member) {
                member.record.assignment = assignment;
            }
        }
        let after = AfterStore::Assignment(self.generation);
        self.effects.push(Effect::Store(after));
    }
}
