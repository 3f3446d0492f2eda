//! Responses to joins and syncs.

use bytes::Bytes;
use highwater_log::{GroupError, JoinResponse, SyncResponse};

use super::{Effect, Elapsed, Group, RequestId};

impl Group {
    pub(super) fn answer_join(
        &mut self,
        request_id: RequestId,
        answer: Result<JoinResponse, GroupError>,
    ) {
        self.effects.push(Effect::Joined(request_id, answer));
    }

    pub(super) fn answer_sync(
        &mut self,
        request_id: RequestId,
        answer: Result<SyncResponse, GroupError>,
    ) {
        self.effects.push(Effect::Synced(request_id, answer));
    }

    /// The current generation as `member` sees it: only the leader gets the list of members.
    pub(super) fn join_response(&self, member: &str) -> JoinResponse {
        let members = match self.leader == member {
            true => (self.members.values())
                .map(|each| each.record.join_response_member(&self.protocol))
                .collect(),
            false => Vec::new(),
        };
        JoinResponse {
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            member: member.to_owned(),
            led_as: None,
            members,
        }
    }

    pub(super) fn sync_response(&self, assignment: Bytes) -> SyncResponse {
        SyncResponse {
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            assignment,
        }
    }

    /// Answers every pending sync with `Rebalancing`.
    pub(super) fn refuse_syncs(&mut self, now: Elapsed) {
        for member in self.members.values_mut() {
            if let Some(request_id) = member.syncing.take() {
                member.touch(now);
                (self.effects).push(Effect::Synced(request_id, Err(GroupError::Rebalancing)));
            }
        }
    }
}
