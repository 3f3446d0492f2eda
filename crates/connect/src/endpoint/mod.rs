//! Where a live job's rows go: each once, in order, across restarts and failures.
//!
//! The rows of an output are numbered from 0 on, and the numbers are a function of the job's input alone.
//! After a restart the job goes on from its last checkpoint and hands over rows again that it had handed over
//! before; the endpoint knows by their numbers what it has, and passes over it. This is all that exactly-once
//! delivery takes, so there is no other protocol between a job and its outputs.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::time::Duration;

use highwater_engine::Chunk;
use highwater_time::Instant;

mod files;
mod hub;
mod mark;
mod memory;
#[cfg(feature = "postgres")]
mod postgres;
mod queue;
mod registry;
mod stdout;
#[cfg(test)]
mod testing;
mod webhook;

pub use files::FilesOutput;
pub use hub::HubOutput;
pub use memory::{Memory, MemoryEndpoint};
#[cfg(feature = "postgres")]
pub use postgres::PostgresOutput;
pub use queue::QueueOutput;
pub use registry::{OUTPUT_KINDS, OutputContext, OutputKind, OutputSettings, SettingsReader};
pub use stdout::StdoutOutput;
pub use webhook::WebhookOutput;

#[cfg(not(feature = "postgres"))]
mod postgres {
    pub(super) const KIND: super::OutputKind =
        super::OutputKind::not_built_in("postgres", "postgres");
}

/// Something that takes numbered rows.
///
/// A job calls [`resume`](Endpoint::resume) once, then [`write`](Endpoint::write) with rows that follow one
/// another, and [`settle`](Endpoint::settle) for every checkpoint. **The first checkpoint is stored before the first
/// write**: only then does a job that crashes early find out what it had written. Some endpoints insist on it.
///
/// All of it runs on a tokio runtime.
pub trait Endpoint: Send {
    /// Finds out what is already there. `mark` is what [`settle`](Endpoint::settle) gave at the checkpoint that the
    /// job goes on from; `None` when it starts from the beginning, and what an earlier job of that name wrote is none
    /// of its business. May be called again after a failure.
    fn resume<'a>(&'a mut self, mark: Option<&'a [u8]>) -> Underway<'a, Result<(), EndpointError>>;

    /// Takes rows, and may still hold them back when this is done. Rows that are already there are passed over. After a
    /// failure the same rows are handed over again, some of which may have arrived; without those that were refused, if
    /// that was the failure. So numbers only grow, and a gap is a row that nobody wants any more.
    fn write<'a>(&'a mut self, rows: &'a Rows) -> Underway<'a, Result<(), EndpointError>>;

    /// Every row before `watermark` has been handed over. Something that gathers rows by their time can let go of them.
    fn advance(&mut self, watermark: Instant) -> Underway<'_, Result<(), EndpointError>> {
        let _ = watermark;
        Box::pin(std::future::ready(Ok(())))
    }

    /// Makes sure that no row taken so far can be lost: it is either in its place or in the answer, which is what
    /// [`resume`](Endpoint::resume) is given when the job goes on from here.
    fn settle(&mut self) -> Underway<'_, Result<Vec<u8>, EndpointError>>;
}

/// Rows of one output that follow one another.
#[derive(Clone, Debug)]
pub struct Rows {
    /// The number of the first row.
    pub first: u64,
    /// Times are those of the rows, ascending; columns are those of the statement.
    pub chunk: Chunk,
}

impl Rows {
    /// The number of the row after the last.
    pub fn end(&self) -> u64 {
        self.first + self.chunk.rows() as u64
    }

    /// Those that come at or after `number`, as rows of the chunk.
    fn from(&self, number: u64) -> Range<usize> {
        let rows = self.chunk.rows();
        let passed = number.saturating_sub(self.first).min(rows as u64);
        passed as usize..rows
    }
}

/// Why rows were not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// It may work later: a connection, a time-out, a server that is starting, a full disk.
    #[error("{reason}")]
    Unavailable {
        reason: String,
        /// No sooner than this, says the other side.
        retry_after: Option<Duration>,
    },
    /// These rows will never be taken as they are, such as a text for a column of numbers. None of the rows that were
    /// handed over with them has been taken.
    #[error("{reason}")]
    Refused {
        /// Numbers of rows, ascending.
        rows: Vec<u64>,
        reason: String,
    },
    /// Nothing will be taken until somebody changes something: no such table, wrong password.
    #[error("{reason}")]
    Unfit { reason: String },
}

impl EndpointError {
    fn unavailable(reason: impl ToString) -> EndpointError {
        EndpointError::Unavailable {
            reason: reason.to_string(),
            retry_after: None,
        }
    }

    fn unfit(reason: impl ToString) -> EndpointError {
        EndpointError::Unfit {
            reason: reason.to_string(),
        }
    }
}

/// Work of an endpoint that is not done yet.
pub type Underway<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
