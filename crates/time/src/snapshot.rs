//! The state of clocks as bytes, for checkpoints.
//!
//! Equal state gives equal bytes. Each kind of state starts with a byte for its kind and version.

use highwater_codec::{DecodeError, Reader, Writer};

use crate::{Instant, VerdictCounts};

pub(crate) fn write_instant(out: &mut Vec<u8>, value: Instant) {
    out.i64(value.ticks());
}

pub(crate) fn write_counts(out: &mut Vec<u8>, counts: &VerdictCounts) {
    for value in [
        counts.read,
        counts.early_adjusted,
        counts.early_dropped,
        counts.late_adjusted,
        counts.late_dropped,
        counts.out_of_order_adjusted,
        counts.out_of_order_dropped,
    ] {
        out.u64(value);
    }
}

pub(crate) fn read_instant(from: &mut Reader<'_>) -> Result<Instant, DecodeError> {
    from.i64().map(Instant::from_ticks)
}

pub(crate) fn read_counts(from: &mut Reader<'_>) -> Result<VerdictCounts, DecodeError> {
    let mut counts = VerdictCounts {
        read: from.u64()?,
        kept: 0,
        early_adjusted: from.u64()?,
        early_dropped: from.u64()?,
        late_adjusted: from.u64()?,
        late_dropped: from.u64()?,
        out_of_order_adjusted: from.u64()?,
        out_of_order_dropped: from.u64()?,
    };
    let dropped = [
        counts.early_dropped,
        counts.late_dropped,
        counts.out_of_order_dropped,
    ];
    counts.kept = dropped
        .into_iter()
        .try_fold(counts.read, u64::checked_sub)
        .ok_or(DecodeError::Invalid("more events dropped than read"))?;
    Ok(counts)
}
