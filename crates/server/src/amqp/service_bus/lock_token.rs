//! Lock tokens as clients write them: a UUID, whose bytes in a delivery tag have the order of a .NET GUID.

use highwater_queue::LockToken;

pub(super) fn to_uuid(token: LockToken) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&token.seq.to_be_bytes());
    uuid[8..].copy_from_slice(&token.number.to_be_bytes());
    uuid
}

pub(super) fn of_uuid(uuid: [u8; 16]) -> LockToken {
    let (seq, number) = (
        (u128::from_be_bytes(uuid) >> 64) as u64,
        u128::from_be_bytes(uuid) as u64,
    );
    LockToken { seq, number }
}

pub(in crate::amqp) fn to_tag(token: LockToken) -> [u8; 16] {
    swap(to_uuid(token))
}

pub(in crate::amqp) fn of_tag(tag: [u8; 16]) -> LockToken {
    of_uuid(swap(tag))
}

/// From one order of bytes to the other: the first three parts of a GUID are little-endian.
fn swap(mut bytes: [u8; 16]) -> [u8; 16] {
    bytes[..4].reverse();
    bytes[4..6].reverse();
    bytes[6..8].reverse();
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves A2
    #[test]
    fn the_tag_and_the_uuid_of_a_lock_are_the_same_guid() {
        let token = LockToken {
            seq: 0x0011_2233_4455_6677,
            number: 0x8899_aabb_ccdd_eeff,
        };
        let uuid = to_uuid(token);
        assert_eq!(uuid[..4], [0x00, 0x11, 0x22, 0x33]);
        let tag = to_tag(token);
        assert_eq!(tag[..8], [0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66]);
        assert_eq!(tag[8..], uuid[8..]);
        assert_eq!((of_uuid(uuid), of_tag(tag)), (token, token));
    }
}
