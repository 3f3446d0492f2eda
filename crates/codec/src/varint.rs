//! LEB128: seven bits a byte, lowest first. Signed numbers are folded (zigzag) so that the sign is the lowest bit.

/// The longest encoding of a 64-bit number.
pub const LEN_MAX: usize = 10;

/// Takes a number from the front. `None` if it is truncated or does not fit into 64 bits.
#[inline]
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = bytes.split_first()?;
    if first < 0x80 {
        *bytes = rest;
        return Some(u64::from(first));
    }
    let mut value = u64::from(first & 0x7f);
    for (i, &byte) in rest.iter().take(LEN_MAX - 1).enumerate() {
        let shift = 7 * (i + 1);
        if shift == 63 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            *bytes = &rest[i + 1..];
            return Some(value);
        }
    }
    None
}

/// The bytes of a number, at the front of `buffer`.
#[inline]
pub fn encode(mut value: u64, buffer: &mut [u8; LEN_MAX]) -> &[u8] {
    let mut last = 0;
    while value >= 0x80 {
        buffer[last] = value as u8 | 0x80;
        value >>= 7;
        last += 1;
    }
    buffer[last] = value as u8;
    &buffer[..=last]
}

#[inline]
pub(crate) fn put(out: &mut Vec<u8>, value: u64) {
    match value {
        0..0x80 => out.push(value as u8),
        _ => out.extend_from_slice(encode(value, &mut [0; LEN_MAX])),
    }
}

/// How many bytes the number takes.
#[inline]
pub fn len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Zigzag: 0, -1, 1, -2 become 0, 1, 2, 3.
#[inline]
pub fn fold(value: i64) -> u64 {
    (value << 1) as u64 ^ (value >> 63) as u64
}

/// Undoes [`fold`].
#[inline]
pub fn unfold(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_numbers() {
        for (number, bytes) in [
            (0, &[0u8] as &[u8]),
            (-1, &[1]),
            (1, &[2]),
            (63, &[126]),
            (-64, &[127]),
            (64, &[128, 1]),
            (8191, &[254, 127]),
            (i64::from(i32::MAX), &[254, 255, 255, 255, 15]),
            (i64::MAX, &[254, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
            (i64::MIN, &[255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
        ] {
            let mut written = Vec::new();
            put(&mut written, fold(number));
            assert_eq!(written, bytes, "{number}");
            assert_eq!(len(fold(number)), bytes.len(), "{number}");
            assert_eq!(take(&mut &*written).map(unfold), Some(number));
        }
    }

    #[test]
    fn truncated_and_too_long_numbers_are_refused() {
        for bytes in [&[] as &[u8], &[0x80], &[0xff; 9], &[0xff; 10], &[0xff; 11]] {
            assert_eq!(take(&mut &*bytes), None, "{bytes:?}");
        }
        let too_high = [255, 255, 255, 255, 255, 255, 255, 255, 255, 2];
        assert_eq!(take(&mut &too_high[..]), None);
    }

    proptest! {
        #[test]
        fn reading_undoes_writing(number: i64, rest: [u8; 3]) {
            let mut bytes = Vec::new();
            put(&mut bytes, fold(number));
            prop_assert_eq!(bytes.len(), len(fold(number)));
            bytes.extend(rest);
            let mut left = &bytes[..];
            prop_assert_eq!(take(&mut left).map(unfold), Some(number));
            prop_assert_eq!(left, rest);
        }
    }
}
