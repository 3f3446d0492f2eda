//! Combines all streams: runs the shared part of the query, and merges and numbers its rows and dead letters.
//!
//! The same for files and hubs. A job over files calls it in place (`run.rs`); a job over hubs has a thread for it
//! (`live/combiner_thread.rs`), which receives stream outputs in any order. The order of rows does not depend on it,
//! because every merge waits until all of its streams have passed a time.

use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_connect::EndpointError;
use highwater_engine::{DataError, SharedPipeline, Value};
use highwater_time::{CombinedWatermark, Instant};

use crate::event_trace::{origin_file, origin_line};
use crate::output_merge::{OutputMerge, OutputMessage};
use crate::side_output::SideOutput;
use crate::side_row::{EventLocation, FailedRow, QueryText, SideRow, StreamLocation};
use crate::stream::StreamOutput;

pub(crate) struct Combiner {
    pub shared: SharedPipeline,
    pub routing: OutputRouting,
    clock: CombinedWatermark,
    streams: Vec<StreamLocation>,
    query: Arc<QueryText>,
}

/// The output of a statement, and the statement's index among those of that output.
#[derive(Clone, Copy, Default)]
pub(crate) struct StatementPort {
    pub output: usize,
    pub port: usize,
}

/// The outputs of a job, and the statements and side outputs that write to them.
pub(crate) struct OutputRouting {
    /// In the order of the job's outputs.
    pub outputs: Vec<OutputMerge>,
    /// Per statement of the plan.
    pub statements: Vec<StatementPort>,
    pub dead_letters: Option<SideOutput>,
    pub late_events: Option<SideOutput>,
}

impl Combiner {
    pub(crate) fn new(
        shared: SharedPipeline,
        routing: OutputRouting,
        streams: Vec<StreamLocation>,
        query: Arc<QueryText>,
    ) -> Combiner {
        Combiner {
            shared,
            routing,
            clock: CombinedWatermark::new(streams.len()),
            streams,
            query,
        }
    }

    /// How many streams there are.
    pub(crate) fn streams(&self) -> usize {
        self.streams.len()
    }

    /// The minimum watermark over all streams.
    pub(crate) fn watermark(&self) -> Instant {
        self.clock.watermark()
    }

    /// Per stream, its watermark.
    pub(crate) fn watermarks(&self) -> &[Instant] {
        self.clock.members()
    }

    /// Runs the output of a stream through the shared part of the query.
    pub(crate) fn combine(&mut self, output: StreamOutput) -> Result<(), EndpointError> {
        let mut exits = Vec::new();
        for delivery in output.deliveries {
            let shared = &mut self.shared;
            let entry = shared.entry(output.input, delivery.exit, delivery.partition);
            shared.pipeline.push(entry, delivery.item, &mut exits);
            for (statement, item) in exits.drain(..) {
                let to = self.routing.statements[statement];
                self.routing.outputs[to.output].push(to.port, item)?;
            }
        }
        let risen = self.clock.advance(output.stream, output.watermark);
        let (stream, watermark) = (output.stream, output.watermark);
        let failed = self.take_failed_rows();
        if let Some(side) = &mut self.routing.dead_letters {
            let outputs = &mut self.routing.outputs[..];
            side.push_events(stream, output.rejected, output.arrived, outputs)?;
            side.push_failed(Some(stream), output.failed, watermark, outputs)?;
            side.push_failed(None, failed, self.clock.watermark(), outputs)?;
        }
        if let Some(side) = &mut self.routing.late_events {
            side.push_events(
                stream,
                output.late,
                output.arrived,
                &mut self.routing.outputs,
            )?;
        }
        risen.map_or(Ok(()), |watermark| self.advance(watermark))
    }

    /// Tells outputs that all rows before `watermark` have been sent.
    pub(crate) fn advance(&mut self, watermark: Instant) -> Result<(), EndpointError> {
        let mut outputs = self.routing.outputs.iter_mut();
        outputs.try_for_each(|output| output.send(OutputMessage::Advance(watermark)))
    }

    /// Asks outputs to make all rows sent so far durable.
    pub(crate) fn settle(&mut self, checkpoint: u64) -> Result<(), EndpointError> {
        let mut outputs = self.routing.outputs.iter_mut();
        outputs.try_for_each(|output| output.send(OutputMessage::Settle(checkpoint)))
    }

    /// Dead letters of the rows that failed in the shared part of the query.
    fn take_failed_rows(&mut self) -> Vec<SideRow> {
        let failed = self.shared.pipeline.errors.take_collected();
        failed.iter().map(|error| self.failed_row(error)).collect()
    }

    fn failed_row(&self, error: &DataError) -> SideRow {
        let location = error.origin.and_then(|origin| {
            Some(EventLocation {
                stream: self.streams.get(origin_file(origin))?,
                file: None,
                offset: Some(origin_line(origin)),
            })
        });
        let failed = FailedRow {
            error,
            query: &self.query,
            location,
            event: Value::Null,
        };
        match self.streams.first() {
            Some(StreamLocation::File { .. }) => SideRow::of_failed_in_files(&failed),
            Some(StreamLocation::Hub { .. }) | None => SideRow::of_failed_in_hubs(&failed),
        }
    }

    /// Adds a stream with the watermark `reached`. Returns its number, or `None` if the query does not allow it.
    pub(crate) fn add_stream(
        &mut self,
        input: usize,
        location: StreamLocation,
        reached: Instant,
    ) -> Option<usize> {
        if !self.shared.grow(input) {
            return None;
        }
        let stream = self.clock.add(reached);
        let side_outputs = self
            .routing
            .dead_letters
            .iter_mut()
            .chain(&mut self.routing.late_events);
        side_outputs.for_each(SideOutput::add_stream);
        self.streams.push(location);
        Some(stream)
    }

    /// The state outside of streams.
    pub(crate) fn snapshot(&self, out: &mut Vec<u8>) {
        let mut pipeline = Vec::new();
        self.shared.pipeline.snapshot(&mut pipeline);
        out.blob(&pipeline);
        let watermarks = self.clock.members().iter();
        watermarks.for_each(|watermark| out.i64(watermark.ticks()));
        self.routing
            .outputs
            .iter()
            .for_each(|output| output.snapshot(out));
        let side_outputs = self
            .routing
            .dead_letters
            .iter()
            .chain(&self.routing.late_events);
        side_outputs.for_each(|side_output| side_output.snapshot(out));
    }

    pub(crate) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.shared
            .pipeline
            .restore(&mut Reader::new(from.blob()?))?;
        for stream in 0..self.streams.len() {
            self.clock.advance(stream, Instant::from_ticks(from.i64()?));
        }
        for output in &mut self.routing.outputs {
            output.restore(from)?;
        }
        for side_output in self
            .routing
            .dead_letters
            .iter_mut()
            .chain(&mut self.routing.late_events)
        {
            side_output.restore(from)?;
        }
        from.end()
    }
}
