//! Short keys, stored where they are compared, so that a lookup touches no other memory for them.

use super::row_keys::HashedKey;

/// A key of fewer than `N` bytes with its length in the last byte; for a longer one its hash and [`LONG`], and the
/// caller has the key elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShortKey<const N: usize = 16>([u8; N]);

const LONG: u8 = u8::MAX;
const NO_KEY: u8 = LONG - 1;

impl<const N: usize> ShortKey<N> {
    const LAST: usize = {
        assert!(N > size_of::<u64>() && N <= NO_KEY as usize);
        N - 1
    };

    /// For a row without a key.
    pub(super) const NONE: ShortKey<N> = {
        let mut short = [0; N];
        short[Self::LAST] = NO_KEY;
        ShortKey(short)
    };

    #[inline]
    pub(super) fn new(key: &[u8], hash: u64) -> ShortKey<N> {
        let mut short = [0; N];
        if key.len() < N {
            short[..key.len()].copy_from_slice(key);
            short[Self::LAST] = key.len() as u8;
        } else {
            short[..8].copy_from_slice(&hash.to_le_bytes());
            short[Self::LAST] = LONG;
        }
        ShortKey(short)
    }

    #[inline]
    pub(super) fn is_long(&self) -> bool {
        self.0[Self::LAST] == LONG
    }

    /// The key, if it is short.
    #[inline]
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        match self.0[Self::LAST] {
            LONG | NO_KEY => None,
            len => Some(&self.0[..usize::from(len)]),
        }
    }

    /// Any of its bytes, to prefetch it.
    #[inline]
    pub(super) fn first_byte(&self) -> u8 {
        self.0[0]
    }
}

impl<const N: usize> Default for ShortKey<N> {
    fn default() -> ShortKey<N> {
        ShortKey([0; N])
    }
}

/// A key that is looked up.
#[derive(Clone, Copy)]
pub(super) struct WantedKey<'a, const N: usize = 16> {
    pub key: &'a [u8],
    pub short: ShortKey<N>,
    pub hash: u64,
}

impl<const N: usize> WantedKey<'_, N> {
    #[inline]
    pub(super) fn new(HashedKey { hash, key }: HashedKey<'_>) -> WantedKey<'_, N> {
        WantedKey {
            key,
            short: ShortKey::new(key, hash),
            hash,
        }
    }

    /// Whether a stored key is this one, as far as that can be told without touching a long key.
    #[inline]
    pub(super) fn is(&self, known: &ShortKey<N>) -> bool {
        *known == self.short && !self.short.is_long()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_keys_are_equal_where_keys_are() {
        let bytes: Vec<u8> = (1..=40).chain([0; 40]).collect();
        let keys: Vec<&[u8]> = (0..=80)
            .step_by(5)
            .flat_map(|start| (start..=80).map(move |end| (start, end)))
            .filter(|(start, end)| end - start <= 41)
            .map(|(start, end)| &bytes[start..end])
            .collect();
        for key in &keys {
            let (small, large) = (ShortKey::<16>::new(key, 7), ShortKey::<40>::new(key, 7));
            assert_eq!(small.bytes(), Some(*key).filter(|key| key.len() <= 15));
            assert_eq!(large.bytes(), Some(*key).filter(|key| key.len() <= 39));
            assert_eq!(small.is_long(), key.len() > 15);
            assert_ne!(large, ShortKey::NONE);
            for other in keys
                .iter()
                .filter(|other| other.len().abs_diff(key.len()) <= 1)
            {
                let equal = key == other || (key.len() > 39 && other.len() > 39);
                assert_eq!(large == ShortKey::new(other, 7), equal, "{key:?} {other:?}");
            }
        }
    }
}
