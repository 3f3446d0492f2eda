//! One member of a group: what it told us, what it waits for, and until when we believe in it.

use std::time::Duration;

use bytes::Bytes;
use highwater_log::{JoinRequest, JoinResponseMember, MemberInfo};

use super::{Elapsed, Ticket};

#[derive(Debug)]
pub(super) struct Member {
    pub id: String,
    pub instance: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub session_timeout: Duration,
    pub rebalance_timeout: Duration,
    /// Name and metadata, best first.
    pub protocols: Vec<(String, Bytes)>,
    pub assignment: Bytes,
    /// Its place in the order of arrival.
    pub arrival: u64,
    pub joining: Option<Ticket>,
    pub syncing: Option<Ticket>,
    /// It has asked for its assignment in this generation, or was never told of the generation.
    pub synced: bool,
    /// It knows its own id, and could come back with it.
    pub knows_itself: bool,
    pub expires: Elapsed,
}

impl Member {
    pub fn new(id: String, arrival: u64, request: JoinRequest, now: Elapsed) -> Member {
        let mut member = Member {
            id,
            instance: request.instance.clone(),
            client_id: String::new(),
            client_host: String::new(),
            session_timeout: Duration::ZERO,
            rebalance_timeout: Duration::ZERO,
            protocols: Vec::new(),
            assignment: Bytes::new(),
            arrival,
            joining: None,
            syncing: None,
            synced: false,
            knows_itself: !request.member.is_empty(),
            expires: now,
        };
        member.update(request, now);
        member
    }

    pub fn update(&mut self, request: JoinRequest, now: Elapsed) {
        self.client_id = request.client_id;
        self.client_host = request.client_host;
        self.session_timeout = request.session_timeout;
        self.rebalance_timeout = request.rebalance_timeout;
        self.protocols = request.protocols;
        self.touch(now);
    }

    pub fn touch(&mut self, now: Elapsed) {
        self.expires = now + self.session_timeout;
    }

    /// When it is given up. One that waits for us is not.
    pub fn expiry(&self) -> Option<Elapsed> {
        (self.joining.is_none() && self.syncing.is_none()).then_some(self.expires)
    }

    pub fn metadata(&self, protocol: &str) -> Bytes {
        let found = self.protocols.iter().find(|(name, _)| name == protocol);
        found.map(|(_, bytes)| bytes.clone()).unwrap_or_default()
    }

    pub fn speaks(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|(name, _)| name == protocol)
    }

    pub fn card(&self, protocol: &str) -> JoinResponseMember {
        JoinResponseMember {
            member: self.id.clone(),
            instance: self.instance.clone(),
            metadata: self.metadata(protocol),
        }
    }

    pub fn info(&self, protocol: &str) -> MemberInfo {
        MemberInfo {
            member: self.id.clone(),
            instance: self.instance.clone(),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            metadata: self.metadata(protocol),
            assignment: self.assignment.clone(),
        }
    }
}
