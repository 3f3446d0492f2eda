//! A member of a group of the classic protocol, over any coordinator: it joins with the id that the group gives out,
//! assigns if it leads, and leaves. The metadata, the assignor and the heartbeats are the caller's.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::{
    GroupCoordinator, GroupError, JoinRequest, JoinResponseMember, MemberIdentity, Membership,
    SyncRequest,
};

pub struct GroupSession {
    pub groups: Arc<dyn GroupCoordinator>,
    pub group: String,
    /// The static member id.
    pub instance: Option<String>,
    /// Shown in descriptions of the group.
    pub client: String,
    pub protocol_type: &'static str,
    pub protocol: &'static str,
    /// The group removes a member after this long without a heartbeat.
    pub session_timeout: Duration,
    /// How long members may take to join again in a rebalance.
    pub rebalance_timeout: Duration,
    /// The id that the group gave; empty before the first join.
    pub member: String,
}

impl GroupSession {
    /// Joins and returns the membership with the assignment. If this member leads, `assign` gets the metadata of all
    /// members and returns the assignment of each.
    pub async fn join(
        &mut self,
        metadata: Bytes,
        assign: impl FnOnce(&[JoinResponseMember]) -> Vec<(String, Bytes)>,
    ) -> Result<(Membership, Bytes), GroupError> {
        let result = self.join_and_sync(metadata, assign).await;
        if matches!(result, Err(GroupError::UnknownMember(_))) {
            self.member.clear();
        }
        result
    }

    async fn join_and_sync(
        &mut self,
        metadata: Bytes,
        assign: impl FnOnce(&[JoinResponseMember]) -> Vec<(String, Bytes)>,
    ) -> Result<(Membership, Bytes), GroupError> {
        let joined = match self.groups.join(self.request(metadata.clone())).await {
            Err(GroupError::MemberIdRequired { member }) => {
                self.member = member;
                self.groups.join(self.request(metadata)).await?
            }
            joined => joined?,
        };
        self.member.clone_from(&joined.member);
        let membership = Membership {
            group: self.group.clone(),
            generation: joined.generation,
            member: joined.member,
            instance: self.instance.clone(),
        };
        let leads = joined.leader == membership.member && joined.led_as.is_none();
        let synced = self.groups.sync(SyncRequest {
            member: membership.clone(),
            protocol_type: Some(joined.protocol_type),
            protocol: Some(joined.protocol),
            assignments: match leads {
                true => assign(&joined.members),
                false => Vec::new(),
            },
        });
        Ok((membership, synced.await?.assignment))
    }

    fn request(&self, metadata: Bytes) -> JoinRequest {
        JoinRequest {
            group: self.group.clone(),
            member: self.member.clone(),
            instance: self.instance.clone(),
            client_id: self.client.clone(),
            client_host: String::new(),
            session_timeout: self.session_timeout,
            rebalance_timeout: self.rebalance_timeout,
            protocol_type: self.protocol_type.into(),
            protocols: vec![(self.protocol.into(), metadata)],
            expects_member_id: true,
        }
    }

    /// Leaves, if it has joined, so that the others need not wait for the session to end.
    pub async fn leave(&mut self) -> Result<(), GroupError> {
        let member = std::mem::take(&mut self.member);
        if member.is_empty() {
            return Ok(());
        }
        let leaving = vec![MemberIdentity {
            member,
            instance: self.instance.clone(),
        }];
        self.groups.leave(self.group.clone(), leaving).await?;
        Ok(())
    }
}
