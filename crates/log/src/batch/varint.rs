//! Numbers of varying length: seven bits a byte, lowest first, the sign in the lowest bit.

/// The longest length of a 64-bit number.
pub(super) const LEN_MAX: usize = 10;

/// Takes a number from the front. `None` if it is cut off or does not fit into 64 bits.
#[inline]
pub(super) fn take_long(bytes: &mut &[u8]) -> Option<i64> {
    let (&first, rest) = bytes.split_first()?;
    if first < 0x80 {
        *bytes = rest;
        return Some(unfold(u64::from(first)));
    }
    let mut number = u64::from(first & 0x7f);
    for (i, &byte) in rest.iter().take(LEN_MAX - 1).enumerate() {
        let shift = 7 * (i + 1);
        if shift == 63 && byte > 1 {
            return None;
        }
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            *bytes = &rest[i + 1..];
            return Some(unfold(number));
        }
    }
    None
}

/// The same for a number that must fit into 32 bits.
#[inline]
pub(super) fn take_int(bytes: &mut &[u8]) -> Option<i32> {
    i32::try_from(take_long(bytes)?).ok()
}

fn unfold(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

fn fold(number: i64) -> u64 {
    (number << 1) as u64 ^ (number >> 63) as u64
}

/// How many bytes the number takes.
pub(super) fn len(number: i64) -> usize {
    let bits = 64 - (fold(number) | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

#[inline]
pub(super) fn put(into: &mut impl bytes::BufMut, number: i64) {
    let mut folded = fold(number);
    if folded < 0x80 {
        return into.put_u8(folded as u8);
    }
    let mut buffer = [0; LEN_MAX];
    let mut at = 0;
    while folded >= 0x80 {
        buffer[at] = folded as u8 | 0x80;
        folded >>= 7;
        at += 1;
    }
    buffer[at] = folded as u8;
    into.put_slice(&buffer[..=at]);
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
            put(&mut written, number);
            assert_eq!(written, bytes, "{number}");
            assert_eq!(len(number), bytes.len(), "{number}");
            assert_eq!(take_long(&mut &*written), Some(number));
        }
    }

    #[test]
    fn what_is_cut_off_or_too_long_is_none() {
        for bytes in [&[] as &[u8], &[0x80], &[0xff; 9], &[0xff; 10], &[0xff; 11]] {
            assert_eq!(take_long(&mut &*bytes), None, "{bytes:?}");
        }
        let too_high = [255, 255, 255, 255, 255, 255, 255, 255, 255, 2];
        assert_eq!(take_long(&mut &too_high[..]), None);
        assert_eq!(take_int(&mut &[128, 128, 128, 128, 16][..]), None);
    }

    proptest! {
        #[test]
        fn reading_undoes_writing(number: i64, rest: [u8; 3]) {
            let mut bytes = Vec::new();
            put(&mut bytes, number);
            prop_assert_eq!(bytes.len(), len(number));
            bytes.extend(rest);
            let mut left = &bytes[..];
            prop_assert_eq!(take_long(&mut left), Some(number));
            prop_assert_eq!(left, rest);
        }
    }
}
