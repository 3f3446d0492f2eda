//! A stream over one partition of a hub: decodes fetched batches and processes their events.

use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_log::{FetchData, Offset, TopicPartition};
use highwater_time::Instant;

use super::batch_decoder::{BatchDecoder, DecodedItem, OffsetRange};
use super::state_limit::{BytesInFlight, MeasuredState, SizeReport, StateMeter};
use super::status::PartitionStatus;
use super::time_journal::PassedTime;
use crate::early::{EndPreview, PipelineCopies};
use crate::partition_pipeline::{PartitionPipeline, PartitionSnapshot};
use crate::stream::{EventBlock, Stream, StreamOutput};

pub(super) struct HubStream {
    stream: Stream,
    decoder: BatchDecoder,
    /// The next offset to process.
    next: Offset,
    /// The end of processing, if there is one.
    until: Option<Offset>,
    /// The latest arrival of an event or a punctuation.
    arrived: Instant,
    events: u64,
    bytes: u64,
    /// The counts of earlier runs of this start.
    before: PartitionStatus,
    meter: StateMeter,
    /// It stops at barriers.
    stops: bool,
}

/// The state of a stream, not encoded yet.
pub(super) struct StreamSnapshot {
    pub next: Offset,
    pub arrived: Instant,
    state: SnapshotState,
}

enum SnapshotState {
    Partition {
        partition: PartitionSnapshot,
        size: SizeReport,
    },
    Exchange {
        /// The first record of the exchange that is needed.
        keep_from: Offset,
        state: Vec<u8>,
    },
}

impl StreamSnapshot {
    /// Of a stream that comes from the exchange.
    pub(super) fn of_exchange(
        next: Offset,
        arrived: Instant,
        keep_from: Offset,
        state: Vec<u8>,
    ) -> StreamSnapshot {
        StreamSnapshot {
            next,
            arrived,
            state: SnapshotState::Exchange { keep_from, state },
        }
    }

    /// The first record of the exchange that is needed, if the stream comes from there.
    pub(super) fn keep_from(&self) -> Option<Offset> {
        match self.state {
            SnapshotState::Partition { .. } => None,
            SnapshotState::Exchange { keep_from, .. } => Some(keep_from),
        }
    }

    /// The next offset and the encoded state.
    pub(super) fn encoded(&self) -> (Offset, Vec<u8>) {
        let mut out = Vec::new();
        out.i64(self.next.0);
        out.i64(self.arrived.ticks());
        match &self.state {
            SnapshotState::Partition { partition, size } => {
                partition.write(&mut out);
                size.encoded(out.len());
            }
            SnapshotState::Exchange { state, .. } => out.raw(state),
        }
        (self.next, out)
    }
}

impl MeasuredState for PartitionPipeline {
    fn estimated_bytes(&self) -> u64 {
        self.state_bytes() as u64
    }

    fn encoded_bytes(&self) -> u64 {
        let mut state = Vec::new();
        self.snapshot().write(&mut state);
        state.len() as u64
    }
}

impl HubStream {
    pub(super) fn new(
        place: TopicPartition,
        decoder: BatchDecoder,
        stream: Stream,
        meter: StateMeter,
    ) -> HubStream {
        HubStream {
            stream,
            decoder,
            next: Offset(0),
            until: None,
            arrived: Instant::BEFORE_ALL,
            events: 0,
            bytes: 0,
            before: PartitionStatus::new(place),
            meter,
            stops: false,
        }
    }

    /// The number of the stream within the job.
    pub(super) fn number(&self) -> usize {
        self.stream.number
    }

    pub(super) fn input(&self) -> usize {
        self.stream.input
    }

    /// Continues the counts of an earlier run.
    pub(super) fn restore_counters(&mut self, status: PartitionStatus) {
        self.before = status;
    }

    /// Starts with this watermark, because others of its input have passed it.
    pub(super) fn begin_behind(&mut self, watermark: Instant) {
        let input = self.stream.plan();
        let arrival = match input.plan.timestamp {
            // The earliest arrival that implies this watermark.
            Some(_) => watermark + input.policy.late_arrival,
            None => watermark,
        };
        // No event is pending, so none is released.
        let partition = self.stream.partition_mut();
        partition.punctuate(arrival, &mut Vec::new());
        partition.raise_barrier(watermark, &mut Vec::new());
    }

    /// Whether it stops at barriers.
    pub(super) fn stops(&self) -> bool {
        self.stops
    }

    /// From now on stops at barriers.
    pub(super) fn stop_at_barriers(&mut self, copies: &Arc<PipelineCopies>) {
        self.stream.stop_at_barriers(copies);
        self.stops = true;
    }

    /// Continues up to `barrier`. The error is the reason why the job fails.
    pub(super) fn raise_barrier(&mut self, barrier: Instant) -> Result<StreamOutput, String> {
        self.stream.partition_mut().pipeline.renew_budget();
        let mut output = self.stream.new_output();
        self.stream.raise_barrier(barrier, &mut output);
        self.completed(output)
    }

    /// See [`Stream::preview_end`].
    pub(super) fn preview_end(&self) -> Result<EndPreview, String> {
        self.stream.preview_end()
    }

    /// The latest arrival of an event or a punctuation.
    pub(super) fn arrived(&self) -> Instant {
        self.arrived
    }

    pub(super) fn watermark(&self) -> Instant {
        self.stream.watermark()
    }

    /// Sets the first offset.
    pub(super) fn begin(&mut self, next: Offset) {
        self.next = next;
    }

    /// Sets the end of processing.
    pub(super) fn end_at(&mut self, until: Offset) {
        self.until = Some(until);
    }

    pub(super) fn next(&self) -> Offset {
        self.next
    }

    pub(super) fn snapshot(&self) -> StreamSnapshot {
        let partition = self.stream.partition();
        StreamSnapshot {
            next: self.next,
            arrived: self.arrived,
            state: SnapshotState::Partition {
                partition: partition.snapshot(),
                size: self.meter.size_report(partition.estimated_bytes()),
            },
        }
    }

    /// Reads what [`StreamSnapshot::encoded`] wrote.
    pub(super) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.next = Offset(from.i64()?);
        self.arrived = Instant::from_ticks(from.i64()?);
        self.decoder.continue_from(self.arrived);
        self.stream.partition_mut().restore(from)
    }

    /// Processes batches that were fetched at [`next`](HubStream::next), with the times of a journal. The error is the
    /// reason why the job fails.
    pub(super) fn take(
        &mut self,
        fetched: &FetchData,
        passed: &[PassedTime],
    ) -> Result<StreamOutput, String> {
        self.stream.partition_mut().pipeline.renew_budget();
        let mut output = self.stream.new_output();
        let mut items = Vec::new();
        let range = OffsetRange {
            from: self.next,
            until: self.until,
        };
        let decoder = &mut self.decoder;
        let next = decoder.decode(fetched, passed, &range, &mut |item| items.push(item));
        let next =
            next.map_err(|broken| format!("a fetch is not a sequence of batches: {broken}"))?;
        for item in items {
            self.take_item(item, &mut output);
        }
        self.next = next;
        self.bytes += fetched_bytes(fetched);
        self.completed(output)
    }

    fn take_item(&mut self, item: DecodedItem, output: &mut StreamOutput) {
        let (events, arrivals, bad_arrivals, file) = match item {
            DecodedItem::Punctuation(arrival) => {
                self.arrived = self.arrived.max(arrival);
                let partition = self.stream.partition_mut();
                return partition.punctuate(arrival, &mut output.exit_items);
            }
            DecodedItem::Events {
                events,
                arrivals,
                bad_arrivals,
                file,
            } => (events, arrivals, bad_arrivals, file),
        };
        self.events += (events.rows + events.bad.len()) as u64;
        let last = arrivals.iter().chain(&bad_arrivals).max();
        self.arrived = last.map_or(self.arrived, |last| self.arrived.max(*last));
        output.arrived = self.arrived;
        let file = file.as_deref();
        let block = EventBlock {
            events,
            arrivals: Some(arrivals),
            bad_arrivals,
            file: file.map(|file| &file.name[..]),
            modified: file.map_or(Instant::BEFORE_ALL, |file| file.modified),
        };
        self.stream.push(block, output);
    }

    /// Measures the state if it may have grown much by a fetch. Fails if the job's state is too large.
    pub(super) fn measure(&mut self, fetched: &FetchData) -> Result<(), String> {
        let input = fetched_bytes(fetched);
        self.meter.processed(input, self.stream.partition())
    }

    /// Charges the output of `input` fetched bytes until it has been combined. Fails if there are too many rows.
    pub(super) fn put_in_flight(
        &self,
        output: &StreamOutput,
        input: u64,
    ) -> Result<BytesInFlight, String> {
        self.meter.put_in_flight(output.size(), input)
    }

    /// Ends time: no event will follow.
    pub(super) fn end(&mut self) -> Result<StreamOutput, String> {
        self.stream.partition_mut().pipeline.renew_budget();
        let mut output = self.stream.new_output();
        self.arrived = Instant::AFTER_ALL;
        self.stream.end(&mut output);
        self.completed(output)
    }

    fn completed(&mut self, mut output: StreamOutput) -> Result<StreamOutput, String> {
        if let Some(reason) = self.stream.overflow() {
            return Err(reason);
        }
        self.stream.complete(&mut output);
        // Undecodable events and events without a time were appended separately.
        output.rejected.sort_by_key(|row| row.offset);
        output.arrived = self.arrived;
        if let Some(sampler) = self.stream.sampler() {
            sampler.add_watermark(self.arrived, output.watermark);
        }
        Ok(output)
    }

    /// The counts of this start so far.
    pub(super) fn status(&self) -> PartitionStatus {
        let (before, account) = (&self.before, &self.stream.account);
        let partition = self.stream.partition();
        let (deserialization, conversion) = account.report.errors.by_stage();
        PartitionStatus {
            place: before.place.clone(),
            events: before.events + self.events,
            bytes: before.bytes + self.bytes,
            time: *partition.counts(),
            deserialization_errors: before.deserialization_errors + deserialization,
            conversion_errors: before.conversion_errors + conversion,
            runtime_errors: before.runtime_errors + partition.pipeline.errors.count,
            last_error: account.last_error.clone().or(before.last_error.clone()),
            next: self.next,
            backlog: before.backlog,
            watermark: self.stream.watermark(),
            waiting: partition.waiting() as u64,
        }
    }
}

pub(super) fn fetched_bytes(fetched: &FetchData) -> u64 {
    fetched.pieces.iter().map(|piece| piece.len() as u64).sum()
}
