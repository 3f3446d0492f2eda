//! A stream of a job: over a partition that it reads itself, or over the exchange with those that do.

use std::sync::Arc;

use highwater_codec::{DecodeError, Reader};
use highwater_log::{FetchData, Offset};
use highwater_time::Instant;

use super::hub_stream::{HubStream, StreamSnapshot};
use super::instances::ExchangeReader;
use super::state_limit::BytesInFlight;
use super::status::PartitionStatus;
use super::time_journal::PassedTime;
use crate::early::{EndPreview, PipelineCopies};
use crate::stream::StreamOutput;

pub(super) enum PartitionStream {
    Hub(Box<HubStream>),
    Exchange(Box<ExchangeReader>),
}

/// A job with early results, or with an end, does not use the exchange.
const NOT_EXCHANGED: &str = "streams of an exchange do not end";

impl PartitionStream {
    /// Its number within the job.
    pub(super) fn number(&self) -> usize {
        match self {
            PartitionStream::Hub(stream) => stream.number(),
            PartitionStream::Exchange(stream) => stream.number(),
        }
    }

    pub(super) fn input(&self) -> usize {
        match self {
            PartitionStream::Hub(stream) => stream.input(),
            PartitionStream::Exchange(stream) => stream.input(),
        }
    }

    /// The next offset to read.
    pub(super) fn next(&self) -> Offset {
        match self {
            PartitionStream::Hub(stream) => stream.next(),
            PartitionStream::Exchange(stream) => stream.next(),
        }
    }

    /// See [`HubStream::arrived`].
    pub(super) fn arrived(&self) -> Instant {
        match self {
            PartitionStream::Hub(stream) => stream.arrived(),
            PartitionStream::Exchange(stream) => stream.arrived(),
        }
    }

    pub(super) fn watermark(&self) -> Instant {
        match self {
            PartitionStream::Hub(stream) => stream.watermark(),
            PartitionStream::Exchange(stream) => stream.watermark(),
        }
    }

    /// Sets the first offset.
    pub(super) fn begin(&mut self, next: Offset) {
        match self {
            PartitionStream::Hub(stream) => stream.begin(next),
            PartitionStream::Exchange(stream) => stream.begin(next),
        }
    }

    /// Sets the end of processing.
    pub(super) fn end_at(&mut self, until: Offset) {
        if let PartitionStream::Hub(stream) = self {
            stream.end_at(until);
        }
    }

    /// Continues the counts of an earlier run.
    pub(super) fn restore_counters(&mut self, status: PartitionStatus) {
        if let PartitionStream::Hub(stream) = self {
            stream.restore_counters(status);
        }
    }

    /// See [`HubStream::stop_at_barriers`].
    pub(super) fn stop_at_barriers(&mut self, copies: &Arc<PipelineCopies>) {
        if let PartitionStream::Hub(stream) = self {
            stream.stop_at_barriers(copies);
        }
    }

    /// Whether it stops at barriers.
    pub(super) fn stops(&self) -> bool {
        match self {
            PartitionStream::Hub(stream) => stream.stops(),
            PartitionStream::Exchange(_) => false,
        }
    }

    /// See [`HubStream::raise_barrier`].
    pub(super) fn raise_barrier(&mut self, barrier: Instant) -> Result<StreamOutput, String> {
        match self {
            PartitionStream::Hub(stream) => stream.raise_barrier(barrier),
            PartitionStream::Exchange(_) => Err(NOT_EXCHANGED.into()),
        }
    }

    /// See [`HubStream::preview_end`].
    pub(super) fn preview_end(&self) -> Result<EndPreview, String> {
        match self {
            PartitionStream::Hub(stream) => stream.preview_end(),
            PartitionStream::Exchange(_) => Err(NOT_EXCHANGED.into()),
        }
    }

    /// Ends time: no event will follow.
    pub(super) fn end(&mut self) -> Result<StreamOutput, String> {
        match self {
            PartitionStream::Hub(stream) => stream.end(),
            PartitionStream::Exchange(_) => Err(NOT_EXCHANGED.into()),
        }
    }

    /// Processes a fetch at [`next`](PartitionStream::next). The error says why the job fails.
    pub(super) fn take(
        &mut self,
        fetched: &FetchData,
        passed: &[PassedTime],
    ) -> Result<StreamOutput, String> {
        match self {
            PartitionStream::Hub(stream) => stream.take(fetched, passed),
            PartitionStream::Exchange(stream) => stream.take(fetched),
        }
    }

    /// See [`HubStream::measure`].
    pub(super) fn measure(&mut self, fetched: &FetchData) -> Result<(), String> {
        match self {
            PartitionStream::Hub(stream) => stream.measure(fetched),
            // Its state is a few numbers.
            PartitionStream::Exchange(_) => Ok(()),
        }
    }

    /// See [`HubStream::put_in_flight`].
    pub(super) fn put_in_flight(
        &self,
        output: &StreamOutput,
        input: u64,
    ) -> Result<BytesInFlight, String> {
        match self {
            PartitionStream::Hub(stream) => stream.put_in_flight(output, input),
            PartitionStream::Exchange(stream) => stream.put_in_flight(output, input),
        }
    }

    pub(super) fn status(&self) -> PartitionStatus {
        match self {
            PartitionStream::Hub(stream) => stream.status(),
            PartitionStream::Exchange(stream) => stream.status(),
        }
    }

    pub(super) fn snapshot(&self) -> StreamSnapshot {
        match self {
            PartitionStream::Hub(stream) => stream.snapshot(),
            PartitionStream::Exchange(stream) => stream.snapshot(),
        }
    }

    pub(super) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        match self {
            PartitionStream::Hub(stream) => stream.restore(from),
            PartitionStream::Exchange(stream) => stream.restore(from),
        }
    }
}
