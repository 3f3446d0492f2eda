//! One member of a group: its record, its pending requests and its session.

use std::time::Duration;

use bytes::Bytes;
use highwater_log::{JoinRequest, JoinResponseMember, MemberInfo};

use super::{Elapsed, RequestId};

/// The part of a member that survives a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemberRecord {
    pub(crate) id: String,
    pub(crate) instance: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) session_timeout: Duration,
    pub(crate) rebalance_timeout: Duration,
    /// Name and metadata, in order of preference.
    pub(crate) protocols: Vec<(String, Bytes)>,
    pub(crate) assignment: Bytes,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) record: MemberRecord,
    /// Number in the order of arrival.
    pub(super) arrival: u64,
    pub(super) joining: Option<RequestId>,
    pub(super) syncing: Option<RequestId>,
    /// It has requested its assignment in this generation, or was never notified of the generation.
    pub(super) synced: bool,
    /// It was part of a generation.
    pub(super) in_generation: bool,
    /// It knows its own id and could join again with it.
    pub(super) knows_id: bool,
    pub(super) expires: Elapsed,
}

impl Member {
    pub(super) fn new(id: String, arrival: u64, request: JoinRequest, now: Elapsed) -> Member {
        Member {
            knows_id: !request.member.is_empty(),
            synced: false,
            in_generation: false,
            ..Member::restore(MemberRecord::new(id, request), arrival, now)
        }
    }

    /// A member after a restart: it has a whole session from now on.
    pub(super) fn restore(record: MemberRecord, arrival: u64, now: Elapsed) -> Member {
        Member {
            expires: now + record.session_timeout,
            record,
            arrival,
            joining: None,
            syncing: None,
            synced: true,
            in_generation: true,
            knows_id: true,
        }
    }

    /// Takes over a new join request. Id, instance and assignment stay.
    pub(super) fn update(&mut self, request: JoinRequest, now: Elapsed) {
        let own = &mut self.record;
        *own = MemberRecord {
            instance: own.instance.take(),
            assignment: std::mem::take(&mut own.assignment),
            ..MemberRecord::new(std::mem::take(&mut own.id), request)
        };
        self.touch(now);
    }

    pub(super) fn touch(&mut self, now: Elapsed) {
        self.expires = now + self.record.session_timeout;
    }

    /// The end of its session; `None` while a request of it is pending.
    pub(super) fn expiry(&self) -> Option<Elapsed> {
        (self.joining.is_none() && self.syncing.is_none()).then_some(self.expires)
    }

    pub(super) fn supports(&self, protocol: &str) -> bool {
        (self.record.protocols.iter()).any(|(name, _)| name == protocol)
    }
}

/// Size of metadata by protocol, or of assignments by member.
pub(super) fn named_bytes(values: &[(String, Bytes)]) -> usize {
    let bytes = |(name, value): &(String, Bytes)| name.len() + value.len();
    values.iter().map(bytes).sum()
}

impl MemberRecord {
    fn new(id: String, request: JoinRequest) -> MemberRecord {
        MemberRecord {
            id,
            instance: request.instance,
            client_id: request.client_id,
            client_host: request.client_host,
            session_timeout: request.session_timeout,
            rebalance_timeout: request.rebalance_timeout,
            protocols: request.protocols,
            assignment: Bytes::new(),
        }
    }

    /// Size of the record, roughly.
    pub(super) fn bytes(&self) -> usize {
        let texts = [&self.id, &self.client_id, &self.client_host];
        let texts: usize = (texts.into_iter().chain(&self.instance))
            .map(String::len)
            .sum();
        texts + named_bytes(&self.protocols) + self.assignment.len()
    }

    fn metadata(&self, protocol: &str) -> Bytes {
        let found = self.protocols.iter().find(|(name, _)| name == protocol);
        found.map(|(_, bytes)| bytes.clone()).unwrap_or_default()
    }

    pub(super) fn join_response_member(&self, protocol: &str) -> JoinResponseMember {
        JoinResponseMember {
            member: self.id.clone(),
            instance: self.instance.clone(),
            metadata: self.metadata(protocol),
        }
    }

    pub(super) fn info(&self, protocol: &str) -> MemberInfo {
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
