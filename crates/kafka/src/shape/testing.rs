//! Bodies for the tests of requests and responses.

use proptest::prelude::*;

/// Bytes that resemble messages: mostly small numbers, which are valid lengths.
pub(super) fn body(bytes_max: usize) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![6 => Just(0u8), 3 => 1u8..4, 1 => any::<u8>()];
    prop::collection::vec(byte, 0..bytes_max)
}

/// Bodies that claim an array of the largest length after fewer than `zeros_max` zeros.
pub(super) fn oversized_arrays(zeros_max: usize) -> impl Iterator<Item = Vec<u8>> {
    // In the old and in the compact format, and as a tagged field.
    let claims: [&[u8]; 3] = [
        &[0x7F, 0xFF, 0xFF, 0xFF],
        &[0xFF, 0xFF, 0xFF, 0xFF, 0x0F],
        &[1, 0, 5, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F],
    ];
    let body = |zeros: usize, claim: &[u8]| [&vec![0; zeros], claim, &[0; 16]].concat();
    let bodies = move |claim: &'static [u8]| (0..zeros_max).map(move |zeros| body(zeros, claim));
    claims.into_iter().flat_map(bodies)
}
