//! Short keys, stored where they are compared, so that a lookup touches no other memory for them.

/// A key of up to 15 bytes with its length in the last byte; for a longer one its hash and [`LONG`], and the caller has
/// the key elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ShortKey([u8; 16]);

const LONG: u8 = u8::MAX;

impl ShortKey {
    #[inline]
    pub(super) fn new(key: &[u8], hash: u64) -> ShortKey {
        let mut short = [0; 16];
        if key.len() < short.len() {
            short[..key.len()].copy_from_slice(key);
            short[15] = key.len() as u8;
        } else {
            short[..8].copy_from_slice(&hash.to_le_bytes());
            short[15] = LONG;
        }
        ShortKey(short)
    }

    #[inline]
    pub(super) fn is_long(self) -> bool {
        self.0[15] == LONG
    }

    /// The key, if it is short.
    #[inline]
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        match self.0[15] {
            LONG => None,
            len => Some(&self.0[..usize::from(len)]),
        }
    }

    /// Any of its bytes, to prefetch it.
    #[inline]
    pub(super) fn first_byte(self) -> u8 {
        self.0[0]
    }
}
