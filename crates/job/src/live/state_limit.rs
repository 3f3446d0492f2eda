//! The limit on the state of a job, so that a query that remembers too much fails by itself before the node is hurt.
//!
//! The size of state is that of its checkpoint, part by part: each stream by its worker, the shared part by the
//! combiner. To encode a part only to know its size costs time in proportion to it, so between checkpoints a part is
//! *estimated* (`state_bytes` of its operators), and the estimate is scaled by the last encoded size. A part is encoded
//! apart from checkpoints only after input of a multiple of its size, or when the estimate is clearly above the limit.
//! So a job that stays near its limit costs about as much as any other, and a job that outgrows it fails within an
//! eighth of the limit.
//!
//! Work in flight is bounded by read permits (`read_permits.rs`), as long as the rows of a fetch have about its size.
//! The rows beyond that are limited like state: those of one push (`Pipeline::limit_output`), and those of all fetches
//! that wait for the combiner.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The size of a job's state and its limit, shared by all parts.
#[derive(Clone, Debug)]
pub(super) struct StateLimit {
    bytes_max: u64,
    bytes: Arc<AtomicU64>,
    in_flight: Arc<AtomicU64>,
}

/// Rows beyond the size of their input that wait for the combiner.
#[derive(Debug)]
pub(super) struct BytesInFlight {
    bytes: u64,
    all: Arc<AtomicU64>,
}

impl Drop for BytesInFlight {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Measures one part of the state.
#[derive(Debug)]
pub(super) struct StateMeter {
    limit: StateLimit,
    /// The share of this part in the size of the job's state.
    bytes: u64,
    last_encoded: Option<EncodedSize>,
    /// The size of the input since the last estimate.
    since_estimate: u64,
    /// The size of the input since the part was last encoded.
    since_encoded: u64,
    checkpointed: CheckpointedSize,
}

/// The encoded size of a part, and its estimated size at that moment.
#[derive(Clone, Copy, Debug)]
struct EncodedSize {
    bytes: u64,
    estimated: u64,
}

/// The size of a part in the last checkpoint, which another thread may encode.
type CheckpointedSize = Arc<Mutex<Option<EncodedSize>>>;

/// Reports the size of a part in a checkpoint to its meter.
pub(super) struct SizeReport {
    estimated: u64,
    to: CheckpointedSize,
}

/// The size of a part of the state, in two ways.
pub(super) trait MeasuredState {
    /// About the size, at little cost.
    fn estimated_bytes(&self) -> u64;

    /// The size, at the cost of encoding the part.
    fn encoded_bytes(&self) -> u64;
}

/// A part is not estimated more often than after this much input.
const INTERVAL_MIN: u64 = 8 << 20;

/// State is assumed to grow by at most this many bytes per byte of input.
const GROWTH_MAX: u64 = 8;

/// A part is encoded at the latest after input of this multiple of its size, because the size of values may change.
const INPUT_PER_ENCODED: u64 = 4;

impl StateLimit {
    pub(super) fn new(bytes_max: u64) -> StateLimit {
        StateLimit {
            bytes_max,
            bytes: Arc::default(),
            in_flight: Arc::default(),
        }
    }

    /// The limit on the rows of one push.
    pub(super) fn output_bytes_max(&self) -> u64 {
        self.bytes_max
    }

    pub(super) fn meter(&self) -> StateMeter {
        StateMeter {
            limit: self.clone(),
            bytes: 0,
            last_encoded: None,
            since_estimate: 0,
            since_encoded: 0,
            checkpointed: Arc::default(),
        }
    }
}

impl StateMeter {
    /// Called after `input` bytes were processed. The error is for the user.
    pub(super) fn processed(
        &mut self,
        input: u64,
        state: &impl MeasuredState,
    ) -> Result<(), String> {
        self.since_estimate += input;
        self.since_encoded += input;
        if self.since_estimate < self.interval() {
            return Ok(());
        }
        self.since_estimate = 0;
        let checkpointed = take(&self.checkpointed);
        if checkpointed.is_some() {
            (self.last_encoded, self.since_encoded) = (checkpointed, 0);
        }
        let estimated = state.estimated_bytes();
        let scaled = self.last_encoded.map(|last| last.scaled(estimated));
        let total = self.set_bytes(scaled.unwrap_or(estimated));
        if scaled.is_some() && !self.must_encode(total) {
            return Ok(());
        }
        let bytes = state.encoded_bytes();
        self.last_encoded = Some(EncodedSize { bytes, estimated });
        self.since_encoded = 0;
        let (total, limit) = (self.set_bytes(bytes), self.limit.bytes_max);
        match total > limit {
            true => Err(format!(
                "its state has {total} bytes, more than the limit of {limit}: let the query remember less, or raise \
                 jobs.state_bytes_max"
            )),
            false => Ok(()),
        }
    }

    /// Charges `rows` bytes that were made of `input` bytes. The error is for the user.
    pub(super) fn put_in_flight(&self, rows: u64, input: u64) -> Result<BytesInFlight, String> {
        let (all, limit) = (self.limit.in_flight.clone(), self.limit.bytes_max);
        let bytes = rows.saturating_sub(input.saturating_mul(GROWTH_MAX));
        let before = all.fetch_add(bytes, Ordering::Relaxed);
        let charged = BytesInFlight { bytes, all };
        match before.saturating_add(bytes) > limit {
            true => Err(format!(
                "its steps make so many rows of each event that more than {limit} bytes wait to be combined: let them make \
                 fewer, or raise jobs.state_bytes_max"
            )),
            false => Ok(charged),
        }
    }

    /// For a checkpoint that another thread encodes: reports the size of the part to this meter.
    pub(super) fn size_report(&self, estimated: u64) -> SizeReport {
        SizeReport {
            estimated,
            to: self.checkpointed.clone(),
        }
    }

    /// Whether the scaled estimate is too uncertain.
    fn must_encode(&self, total: u64) -> bool {
        let limit = self.limit.bytes_max;
        let patience = match total > limit {
            true if total - limit > limit / 8 => 0,
            true => INPUT_PER_ENCODED / 2,
            false => INPUT_PER_ENCODED,
        };
        self.since_encoded >= self.bytes.saturating_mul(patience)
    }

    /// Sets the share of this part. Returns the size of the job's state.
    fn set_bytes(&mut self, bytes: u64) -> u64 {
        let change = bytes.wrapping_sub(std::mem::replace(&mut self.bytes, bytes));
        let before = self.limit.bytes.fetch_add(change, Ordering::Relaxed);
        before.wrapping_add(change)
    }

    fn interval(&self) -> u64 {
        let bytes = self.limit.bytes.load(Ordering::Relaxed);
        let left = self.limit.bytes_max.saturating_sub(bytes);
        let least = INTERVAL_MIN.min(self.limit.bytes_max / GROWTH_MAX);
        (self.bytes * 4).min(left / GROWTH_MAX).max(least)
    }
}

impl EncodedSize {
    /// Smaller estimates say little about the size of values.
    const SCALED_MIN: u64 = 1 << 16;

    /// The size of a part that is now estimated at `estimated` bytes.
    fn scaled(self, estimated: u64) -> u64 {
        if self.estimated < EncodedSize::SCALED_MIN {
            return self.bytes.max(estimated);
        }
        let scaled = u128::from(self.bytes) * u128::from(estimated) / u128::from(self.estimated);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
}

impl SizeReport {
    pub(super) fn encoded(&self, bytes: usize) {
        let mut size = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        *size = Some(EncodedSize {
            bytes: bytes as u64,
            estimated: self.estimated,
        });
    }
}

fn take(size: &CheckpointedSize) -> Option<EncodedSize> {
    size.lock().unwrap_or_else(PoisonError::into_inner).take()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// State whose values take `scale` times their estimated size.
    #[derive(Default)]
    struct State {
        bytes: u64,
        scale: u64,
        encodings: Cell<u64>,
    }

    impl MeasuredState for State {
        fn estimated_bytes(&self) -> u64 {
            self.bytes / self.scale.max(1)
        }

        fn encoded_bytes(&self) -> u64 {
            self.encodings.set(self.encodings.get() + 1);
            self.bytes
        }
    }

    fn of(bytes: u64) -> State {
        State {
            bytes,
            scale: 3,
            ..State::default()
        }
    }

    // proves G2
    #[test]
    fn parts_are_summed() {
        let limit = StateLimit::new(100 * MIB);
        let (mut a, mut b) = (limit.meter(), limit.meter());
        let none = of(0);
        assert_eq!(a.processed(INTERVAL_MIN - 1, &none), Ok(()));
        assert_eq!(none.encodings.get(), 0);
        assert_eq!(a.processed(1, &of(60 * MIB)), Ok(()));
        assert_eq!(a.interval(), INTERVAL_MIN, "the limit is near");
        let refused = b.processed(INTERVAL_MIN, &of(50 * MIB)).unwrap_err();
        assert!(
            refused.contains("its state has 115343360 bytes"),
            "{refused}"
        );
        assert_eq!(a.processed(INTERVAL_MIN, &of(10 * MIB)), Ok(()));
        let mut large = StateLimit::new(u64::MAX).meter();
        assert_eq!(large.processed(INTERVAL_MIN, &of(1 << 30)), Ok(()));
        assert_eq!(large.interval(), 4 << 30);
    }

    // proves G2
    #[test]
    fn a_job_near_its_limit_is_seldom_encoded() {
        let (mut meter, state) = (StateLimit::new(1024 * MIB).meter(), of(950 * MIB));
        let input = 100 * 1024 * MIB;
        for _ in 0..input / MIB {
            assert_eq!(meter.processed(MIB, &state), Ok(()));
        }
        let encodings = state.encodings.get();
        let encoded = encodings * state.bytes;
        assert!(encoded <= input / 4 + state.bytes, "{encodings}");
        // Checkpoints are written anyway; with them nothing else is encoded.
        for _ in 0..input / MIB / 100 {
            for _ in 0..100 {
                assert_eq!(meter.processed(MIB, &state), Ok(()));
            }
            let report = meter.size_report(state.estimated_bytes());
            report.encoded(state.bytes as usize);
        }
        assert_eq!(state.encodings.get(), encodings);
    }

    // proves G2
    #[test]
    fn a_job_that_outgrows_its_limit_fails_within_an_eighth() {
        let (mut meter, mut state) = (StateLimit::new(1024 * MIB).meter(), of(0));
        let failed_at = (1..).find(|step| {
            state.bytes = step * MIB;
            meter.processed(MIB, &state).is_err()
        });
        let failed_at = failed_at.unwrap_or_default();
        assert!((1025..=1024 + 128 + 16).contains(&failed_at), "{failed_at}");
        let encodings = state.encodings.get();
        assert!(encodings < 20, "{encodings}");
    }

    // proves G2
    #[test]
    fn rows_in_flight_are_limited_beyond_the_size_of_their_input() {
        let limit = StateLimit::new(100 * MIB);
        let (a, b) = (limit.meter(), limit.meter());
        let usual: Result<Vec<_>, _> = (0..1000).map(|_| a.put_in_flight(MIB, MIB)).collect();
        let first = a.put_in_flight(60 * MIB, MIB).expect("there is room");
        let refused = b.put_in_flight(60 * MIB, MIB).unwrap_err();
        assert!(refused.contains("more than 104857600 bytes"), "{refused}");
        drop(first);
        b.put_in_flight(60 * MIB, MIB).expect("there is room again");
        assert_eq!(usual.map(|all| all.len()), Ok(1000));
    }

    // proves G2
    #[test]
    fn an_estimate_alone_fails_no_job() {
        let (mut meter, mut state) = (StateLimit::new(1024 * MIB).meter(), of(900 * MIB));
        assert_eq!(meter.processed(2 * INTERVAL_MIN, &state), Ok(()));
        // Twice as many values, each half as large.
        (state.bytes, state.scale) = (900 * MIB, 1);
        assert_eq!(meter.processed(2 * INTERVAL_MIN, &state), Ok(()));
        assert_eq!(state.encodings.get(), 2);
        assert_eq!(meter.processed(2 * INTERVAL_MIN, &state), Ok(()));
        assert_eq!(state.encodings.get(), 2, "the estimate is scaled anew");
    }
}
