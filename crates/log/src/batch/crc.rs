//! Updates the checksum of a batch after a change in its header, without reading the records.
//!
//! A CRC is linear: the checksums of two messages of the same length differ by the checksum (with neither initial value
//! nor final inversion) of their difference. A difference `d` in the checksum of the header becomes `d · x^(8n)` modulo
//! the polynomial after `n` more bytes. That costs one multiplication for each byte of the number `n`, with powers from
//! a table; the usual combination of checksums squares matrices.

/// CRC-32C, lowest power in the highest bit.
const POLYNOMIAL: u32 = 0x82F6_3B78;
const ONE: u32 = 1 << 31;

/// `POWERS[i][b]` is x to the 8 · b · 256^i.
static POWERS: [[u32; 256]; 4] = powers();

/// `difference` after `len` more bytes.
pub(super) fn shift(difference: u32, len: usize) -> u32 {
    debug_assert!(len <= u32::MAX as usize, "a batch is shorter than 2 GiB");
    let mut shifted = difference;
    for (powers, byte) in POWERS.iter().zip((len as u32).to_le_bytes()) {
        if byte != 0 {
            shifted = multiply(powers[usize::from(byte)], shifted);
        }
    }
    shifted
}

/// The product of two polynomials modulo `POLYNOMIAL`.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 32;
    while bit > 0 {
        bit -= 1;
        product ^= b & 0u32.wrapping_sub(a >> bit & 1);
        b = b >> 1 ^ POLYNOMIAL & 0u32.wrapping_sub(b & 1);
    }
    product
}

const fn powers() -> [[u32; 256]; 4] {
    let mut powers = [[ONE; 256]; 4];
    // x^8: one byte.
    let mut step = ONE >> 8;
    let mut i = 0;
    while i < 4 {
        let mut b = 1;
        while b < 256 {
            powers[i][b] = multiply(powers[i][b - 1], step);
            b += 1;
        }
        step = multiply(powers[i][255], step);
        i += 1;
    }
    powers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_in_front_moves_the_checksum_as_if_all_were_read_again() {
        let (before, after) = (
            b"forty bytes of header, before the change",
            *b"forty bytes of header, behind the change",
        );
        for len in [
            0, 1, 2, 7, 255, 256, 257, 65_535, 65_536, 1_000_003, 16_777_300,
        ] {
            let records: Vec<u8> = (0..len).map(|i: usize| ((i * 31) >> 3) as u8).collect();
            let whole = |header: &[u8]| crc32c::crc32c_append(crc32c::crc32c(header), &records);
            let change = crc32c::crc32c(before) ^ crc32c::crc32c(&after);
            assert_eq!(whole(before) ^ shift(change, len), whole(&after), "{len}");
        }
    }

    #[test]
    fn the_shift_equals_the_combination_of_the_library() {
        for len in [0usize, 1, 300, 70_000, 0x0102_0304, 0x7fff_ffff] {
            let combined = crc32c::crc32c_combine(0x1234_5678, 0, len);
            assert_eq!(shift(0x1234_5678, len), combined, "{len}");
        }
    }
}
