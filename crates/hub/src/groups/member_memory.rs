//! A limit on the metadata and assignments of all members together. They come from clients, and stay until the session
//! of a member ends, also if the client has disconnected.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use highwater_log::{GroupError, JoinRequest, SyncRequest};

#[derive(Clone, Debug)]
pub(super) struct MemberMemory {
    used: Arc<AtomicUsize>,
    max: usize,
}

/// Counted bytes, until it is dropped.
#[derive(Debug)]
pub(super) struct MemberShare {
    counted: usize,
    used: Arc<AtomicUsize>,
}

impl MemberShare {
    pub(super) fn bytes(&self) -> usize {
        self.counted
    }
}

/// Bytes of a member, counted until the last clone is dropped. They are a copy, so that a few bytes do not keep the
/// buffer of a whole request.
struct CountedBytes {
    bytes: Vec<u8>,
    _share: MemberShare,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for MemberShare {
    fn drop(&mut self) {
        self.used.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

impl MemberMemory {
    pub(super) fn new(max: usize) -> MemberMemory {
        let used = Arc::default();
        MemberMemory { used, max }
    }

    pub(super) fn count_join(&self, mut request: JoinRequest) -> Result<JoinRequest, GroupError> {
        // The id of the member has the client id in it. It is kept in several maps, as is the id of a static member.
        let instance = request.instance.as_ref().map_or(0, String::len);
        let mut extra = 4 * (request.client_id.len() + request.member.len() + instance);
        for (name, metadata) in &mut request.protocols {
            *metadata = self.count(metadata, name.len() + std::mem::take(&mut extra))?;
        }
        Ok(request)
    }

    pub(super) fn count_sync(&self, mut request: SyncRequest) -> Result<SyncRequest, GroupError> {
        for (_, assignment) in &mut request.assignments {
            *assignment = self.count(assignment, 0)?;
        }
        Ok(request)
    }

    fn count(&self, bytes: &[u8], extra: usize) -> Result<Bytes, GroupError> {
        let bytes = CountedBytes {
            _share: self.charge(bytes.len() + extra)?,
            bytes: bytes.to_vec(),
        };
        Ok(Bytes::from_owner(bytes))
    }

    pub(super) fn charge(&self, bytes: usize) -> Result<MemberShare, GroupError> {
        self.charge_beyond(bytes, 0)
    }

    /// Charges what will replace `old`, whose bytes do not count against it.
    pub(super) fn charge_more(
        &self,
        bytes: usize,
        old: &MemberShare,
    ) -> Result<MemberShare, GroupError> {
        self.charge_beyond(bytes, old.counted)
    }

    /// Charges members that were accepted before a restart, also beyond the limit.
    pub(super) fn charge_stored(&self, bytes: usize) -> MemberShare {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        MemberShare {
            counted: bytes,
            used: Arc::clone(&self.used),
        }
    }

    fn charge_beyond(&self, bytes: usize, old: usize) -> Result<MemberShare, GroupError> {
        let share = self.charge_stored(bytes);
        // Less memory than before is never too much.
        let used = self.used.load(Ordering::Relaxed).saturating_sub(old);
        match used <= self.max || bytes <= old {
            true => Ok(share),
            false => Err(GroupError::OutOfMemory { max: self.max }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn join(metadata: &[u8]) -> JoinRequest {
        JoinRequest {
            group: "g".into(),
            member: String::new(),
            instance: None,
            client_id: String::new(),
            client_host: String::new(),
            session_timeout: Duration::ZERO,
            rebalance_timeout: Duration::ZERO,
            protocol_type: "consumer".into(),
            protocols: vec![("r".into(), Bytes::copy_from_slice(metadata))],
            expects_member_id: false,
        }
    }

    #[test]
    fn metadata_counts_until_its_last_clone_is_dropped() {
        let memory = MemberMemory::new(250);
        let first = memory.count_join(join(&[1; 100])).unwrap();
        assert_eq!(first.protocols[0].1, [1; 100][..]);
        let clone = first.protocols[0].1.clone();
        let second = memory.count_join(join(&[2; 100])).unwrap();
        let full = memory.count_join(join(&[3; 100])).err();
        assert_eq!(full, Some(GroupError::OutOfMemory { max: 250 }));
        drop(first);
        assert!(memory.count_join(join(&[3; 100])).is_err());
        drop(clone);
        assert!(memory.count_join(join(&[3; 100])).is_ok());
        drop(second);
        assert_eq!(memory.used.load(Ordering::Relaxed), 0);
    }
}
