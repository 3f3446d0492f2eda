//! State as bytes, for checkpoints.
//!
//! Little-endian integers in a fixed order, no padding and no names: equal state gives equal
//! bytes. Each kind of state starts with a byte for its kind and version. Snapshots come from a
//! disk, so the reader validates everything.

use std::error::Error;
use std::fmt;

use crate::{Instant, VerdictCounts};

/// Why a snapshot could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RestoreError {
    Truncated,
    UnknownFormat { found: u8, expected: u8 },
    Invalid(&'static str),
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestoreError::Truncated => f.write_str("the snapshot ends too soon"),
            RestoreError::UnknownFormat { found, expected } => {
                write!(
                    f,
                    "the snapshot has format {found:#04x} where {expected:#04x} is expected"
                )
            }
            RestoreError::Invalid(reason) => write!(f, "the snapshot is damaged: {reason}"),
        }
    }
}

impl Error for RestoreError {}

pub(crate) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_instant(out: &mut Vec<u8>, value: Instant) {
    out.extend_from_slice(&value.ticks().to_le_bytes());
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, value: &[u8]) {
    put_u64(out, value.len() as u64);
    out.extend_from_slice(value);
}

pub(crate) fn put_counts(out: &mut Vec<u8>, counts: &VerdictCounts) {
    for value in [
        counts.read,
        counts.early_adjusted,
        counts.early_dropped,
        counts.late_adjusted,
        counts.late_dropped,
        counts.out_of_order_adjusted,
        counts.out_of_order_dropped,
    ] {
        put_u64(out, value);
    }
}

pub(crate) fn take_u8(from: &mut &[u8]) -> Result<u8, RestoreError> {
    let [byte] = take_array(from)?;
    Ok(byte)
}

pub(crate) fn take_u64(from: &mut &[u8]) -> Result<u64, RestoreError> {
    take_array(from).map(u64::from_le_bytes)
}

pub(crate) fn take_instant(from: &mut &[u8]) -> Result<Instant, RestoreError> {
    take_array(from)
        .map(i64::from_le_bytes)
        .map(Instant::from_ticks)
}

pub(crate) fn take_bytes<'a>(from: &mut &'a [u8]) -> Result<&'a [u8], RestoreError> {
    let length = usize::try_from(take_u64(from)?).map_err(|_| RestoreError::Truncated)?;
    let (bytes, rest) = from
        .split_at_checked(length)
        .ok_or(RestoreError::Truncated)?;
    *from = rest;
    Ok(bytes)
}

pub(crate) fn take_counts(from: &mut &[u8]) -> Result<VerdictCounts, RestoreError> {
    let mut counts = VerdictCounts {
        read: take_u64(from)?,
        kept: 0,
        early_adjusted: take_u64(from)?,
        early_dropped: take_u64(from)?,
        late_adjusted: take_u64(from)?,
        late_dropped: take_u64(from)?,
        out_of_order_adjusted: take_u64(from)?,
        out_of_order_dropped: take_u64(from)?,
    };
    let dropped = [
        counts.early_dropped,
        counts.late_dropped,
        counts.out_of_order_dropped,
    ];
    counts.kept = dropped
        .into_iter()
        .try_fold(counts.read, u64::checked_sub)
        .ok_or(RestoreError::Invalid("more events dropped than read"))?;
    Ok(counts)
}

pub(crate) fn take_format(from: &mut &[u8], expected: u8) -> Result<(), RestoreError> {
    match take_u8(from)? {
        found if found == expected => Ok(()),
        found => Err(RestoreError::UnknownFormat { found, expected }),
    }
}

fn take_array<const N: usize>(from: &mut &[u8]) -> Result<[u8; N], RestoreError> {
    let (bytes, rest) = from
        .split_first_chunk::<N>()
        .ok_or(RestoreError::Truncated)?;
    *from = rest;
    Ok(*bytes)
}
