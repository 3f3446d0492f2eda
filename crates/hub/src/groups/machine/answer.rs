//! Answers to those who wait.

use bytes::Bytes;
use highwater_log::{GroupError, JoinResponse, SyncResponse};

use super::{Effect, Elapsed, Group, Ticket};

impl Group {
    pub(super) fn answer_join(&mut self, ticket: Ticket, answer: Result<JoinResponse, GroupError>) {
        self.effects.push(Effect::Joined(ticket, answer));
    }

    pub(super) fn answer_sync(&mut self, ticket: Ticket, answer: Result<SyncResponse, GroupError>) {
        self.effects.push(Effect::Synced(ticket, answer));
    }

    /// The current generation as `member` is to see it: only the leader is told who else there is.
    pub(super) fn joined(&self, member: &str) -> JoinResponse {
        let members = match self.leader == member {
            true => (self.members.values())
                .map(|each| each.card(&self.protocol))
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

    pub(super) fn synced(&self, assignment: Bytes) -> SyncResponse {
        SyncResponse {
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            assignment,
        }
    }

    /// Tells every member that waits for an assignment that there will be none.
    pub(super) fn refuse_syncs(&mut self, now: Elapsed) {
        for member in self.members.values_mut() {
            if let Some(ticket) = member.syncing.take() {
                member.touch(now);
                (self.effects).push(Effect::Synced(ticket, Err(GroupError::Rebalancing)));
            }
        }
    }
}
