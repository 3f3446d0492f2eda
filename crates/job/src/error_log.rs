//! The latest data errors of a live job, each with its position.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use highwater_engine::DataError;
use highwater_time::Instant;

/// How many are stored.
const ERRORS_STORED: usize = 50;

/// An event or row that was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataErrorSample {
    /// The arrival of the event, or the timestamp of the row.
    pub time: Option<Instant>,
    /// Hub, partition and offset, as far as they are known.
    pub place: String,
    pub input: Option<String>,
    pub kind: &'static str,
    pub reason: String,
    /// The start of an event that could not be decoded.
    pub event: String,
}

impl DataErrorSample {
    /// A row that an expression failed on.
    pub(crate) fn of_row(error: &DataError, place: String) -> DataErrorSample {
        DataErrorSample {
            time: Some(error.time),
            place,
            input: None,
            kind: "QueryRuntimeError",
            reason: error.reason.clone(),
            event: String::new(),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct ErrorLog(Mutex<VecDeque<DataErrorSample>>);

impl ErrorLog {
    pub(crate) fn add(&self, sample: DataErrorSample) {
        let mut samples = self.lock();
        if samples.len() == ERRORS_STORED {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// The latest first.
    pub(crate) fn latest(&self) -> Vec<DataErrorSample> {
        self.lock().iter().rev().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<DataErrorSample>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
