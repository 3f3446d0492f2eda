//! Destinations of a job's rows: each row once, in order, across restarts and failures.
//!
//! The rows of an output are numbered from 0, and the numbers depend on the job's input alone. After a restart the job
//! resumes from its last checkpoint and writes some rows again; the endpoint knows from their numbers which it has, and
//! skips those. This is the whole exactly-once protocol between a job and its outputs.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::time::Duration;

use highwater_engine::Chunk;
use highwater_time::Instant;

mod file;
mod files;
mod hub;
mod kafka;
#[cfg(feature = "postgres")]
mod postgres;
mod queue;
mod registry;
mod sink;
mod state;
mod stdout;
#[cfg(test)]
mod testing;
mod webhook;

pub use files::FilesOutput;
pub(crate) use files::check_store_options;
#[cfg(not(feature = "object-store"))]
pub(crate) use files::no_object_store;
#[cfg(feature = "object-store")]
pub(crate) use files::remote::connect as object_store;
pub use hub::HubOutput;
#[cfg(feature = "postgres")]
pub use postgres::PostgresOutput;
pub use registry::{
    Destination, OUTPUT_KINDS, OpenResult, OutputContext, OutputKind, OutputSettings, OutputShard,
    OutsideAccess, SinkTarget,
};
pub use sink::{OpenSink, SinkEndpoint};
pub use stdout::StdoutOutput;

#[cfg(not(feature = "postgres"))]
mod postgres {
    pub(super) const KIND: super::OutputKind =
        super::OutputKind::not_built_in("postgres", "postgres");
}

/// A destination for numbered rows.
///
/// A job calls [`resume`](Endpoint::resume) once, then [`write`](Endpoint::write) with consecutive rows, and
/// [`checkpoint`](Endpoint::checkpoint) for every checkpoint. **The first checkpoint is stored before the first
/// write**: otherwise a job that crashes early could not find its written rows. Some endpoints insist on it.
///
/// All methods run on a tokio runtime.
pub trait Endpoint: Send {
    /// Finds out which rows are already there. `state` is the result of [`checkpoint`](Endpoint::checkpoint) in the
    /// checkpoint that the job resumes from; `None` if the job starts from the beginning; rows of an earlier job of
    /// that name are ignored. May be called again after a failure.
    fn resume<'a>(&'a mut self, state: Option<&'a [u8]>) -> EndpointFuture<'a, ()>;

    /// Accepts rows, which may stay buffered. Skips rows that are already there. After a failure the job writes the
    /// same rows again, some of which may have arrived, but without refused rows. So numbers only grow, and a gap is a
    /// dropped row.
    fn write<'a>(&'a mut self, rows: &'a Rows) -> EndpointFuture<'a, ()>;

    /// All rows before `watermark` have been written. An endpoint that groups rows by time can complete those groups.
    fn advance(&mut self, watermark: Instant) -> EndpointFuture<'_, ()> {
        let _ = watermark;
        Box::pin(std::future::ready(Ok(())))
    }

    /// Makes every accepted row durable: in the destination or in the returned state, which
    /// [`resume`](Endpoint::resume) gets when the job resumes from this checkpoint.
    fn checkpoint(&mut self) -> EndpointFuture<'_, Vec<u8>>;

    /// A remark for the user about the rows written so far, such as values that the format has no column for.
    fn note(&self) -> Option<String> {
        None
    }
}

/// The column that marks whether an early row is final; NULL for a withdrawn row.
pub const FINAL_COLUMN: &str = "_final";

/// Consecutive rows of one output.
#[derive(Clone, Debug)]
pub struct Rows {
    /// The number of the first row.
    pub first: u64,
    /// Times are the times of the rows, ascending; columns are those of the statement.
    pub chunk: Chunk,
}

impl Rows {
    /// The number of the row after the last.
    pub fn end(&self) -> u64 {
        self.first + self.chunk.rows() as u64
    }

    /// The rows of the chunk from `number` on.
    fn from(&self, number: u64) -> Range<usize> {
        let rows = self.chunk.rows();
        let passed = number.saturating_sub(self.first).min(rows as u64);
        passed as usize..rows
    }
}

/// Why rows were not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// It may succeed later: no connection, a timeout, a server that is starting, a full disk.
    #[error("{reason}")]
    Unavailable {
        reason: String,
        /// The delay that the destination asks for.
        retry_after: Option<Duration>,
    },
    /// These rows will never be accepted as they are, such as a text for a numeric column. None of the rows written
    /// with them has been accepted.
    #[error("{reason}")]
    Refused {
        /// Row numbers, ascending.
        rows: Vec<u64>,
        reason: String,
    },
    /// No rows will be accepted until an operator intervenes: no such table, wrong password.
    #[error("{reason}")]
    Unfit { reason: String },
    /// The reader of standard output has closed the pipe, as `head` does, or the job has ended.
    #[error("the output was closed by its reader")]
    Closed,
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

/// A boxed future of an endpoint.
pub type EndpointFuture<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, EndpointError>> + Send + 'a>>;
