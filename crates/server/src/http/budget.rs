//! The share of queued answer bytes in the budget of requests and answers.

use bytes::Bytes;
use highwater_env::MemoryShare;

/// Bytes that hold the share until they are dropped, which is after they are written to the socket.
pub(super) fn metered(bytes: impl Into<Bytes>, share: MemoryShare) -> Bytes {
    Bytes::from_owner(MeteredBytes {
        bytes: bytes.into(),
        _share: share,
    })
}

struct MeteredBytes {
    bytes: Bytes,
    _share: MemoryShare,
}

impl AsRef<[u8]> for MeteredBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_env::MemoryBudget;

    #[test]
    fn bytes_hold_their_share() {
        let budget = MemoryBudget::new(10);
        let bytes = metered(vec![1, 2, 3], budget.try_take(3).unwrap());
        let rest = bytes.slice(1..);
        drop(bytes);
        assert_eq!((&rest[..], budget.taken()), (&[2, 3][..], 3));
        drop(rest);
        assert_eq!(budget.taken(), 0);
    }
}
