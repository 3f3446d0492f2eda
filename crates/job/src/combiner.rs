//! Combines all streams: runs the shared part of the query, and merges and numbers its rows and dead letters.
//!
//! The same for files and hubs. A job over files calls it in place (`run.rs`); a job over hubs has a thread for it
//! (`live/combiner_thread.rs`), which receives stream outputs in any order. The order of rows does not depend on it,
//! because every merge waits until all of its streams have passed a time.

use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_connect::EndpointError;
use highwater_engine::{Chunk, DataError, Item, OutputOverflow, SharedPipeline, Value};
use highwater_time::{CombinedWatermark, Instant};

use crate::early::{PipelineCopies, RevisionClock, RevisionStep};
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
    early: Option<EarlyCombiner>,
}

/// The part of a combiner for early results.
struct EarlyCombiner {
    copies: Arc<PipelineCopies>,
    clock: RevisionClock,
    /// Per input of the plan.
    partitions: Vec<usize>,
    /// Why the job must fail.
    overflow: Option<OutputOverflow>,
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
            early: None,
        }
    }

    /// Gives early results. `inputs` has the input of each stream.
    #[must_use]
    pub(crate) fn with_early_results(
        mut self,
        copies: &Arc<PipelineCopies>,
        partitions: &[usize],
        inputs: impl Iterator<Item = usize>,
    ) -> Combiner {
        let plan = &copies.plan;
        self.early = Some(EarlyCombiner {
            clock: RevisionClock::new(plan, inputs.map(|input| plan.inputs[input])),
            copies: copies.clone(),
            partitions: partitions.to_vec(),
            overflow: None,
        });
        self
    }

    /// The clock of early results, if there are any.
    pub(crate) fn revision_clock(&mut self) -> Option<&mut RevisionClock> {
        self.early.as_mut().map(|early| &mut early.clock)
    }

    /// The next step of early results that streams take part in. Revisions whose previews are here are sent.
    pub(crate) fn revision_step(&mut self) -> Result<RevisionStep, EndpointError> {
        loop {
            let Some(early) = &mut self.early else {
                return Ok(RevisionStep::Wait);
            };
            match early.clock.step() {
                RevisionStep::Revise => self.revise()?,
                RevisionStep::Raise(barrier) => {
                    early.clock.expect_acknowledgements();
                    return Ok(RevisionStep::Raise(barrier));
                }
                step => return Ok(step),
            }
        }
    }

    /// Sends the rows that the job would give if its input ended at the barrier.
    fn revise(&mut self) -> Result<(), EndpointError> {
        let Some(early) = &mut self.early else {
            return Ok(());
        };
        let time = early.clock.barrier();
        let (previews, intervals) = early.clock.complete_revision();
        let copies = &early.copies;
        let pipeline = &self.shared.pipeline;
        let exits = match copies.end_of_shared(&early.partitions, pipeline, previews) {
            Ok(exits) => exits,
            Err(overflow) => {
                early.overflow = Some(overflow);
                return Err(EndpointError::Closed);
            }
        };
        let mut rows: Vec<Vec<(usize, Chunk)>> = vec![Vec::new(); self.routing.outputs.len()];
        for (statement, item) in exits {
            let to = self.routing.statements[statement];
            if let (Item::Rows(chunk), Some(_)) = (item, &copies.plan.statements[statement]) {
                rows[to.output].push((to.port, chunk));
            }
        }
        let outputs = self.routing.outputs.iter_mut().zip(rows);
        for (output, rows) in outputs {
            output.revise(time, &intervals, rows)?;
        }
        Ok(())
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

    /// Why the job must fail, if a step has made too many rows.
    pub(crate) fn overflow(&self) -> Option<String> {
        let early = self.early.as_ref().and_then(|early| early.overflow);
        let overflow = self.shared.pipeline.overflow().or(early);
        overflow.map(|overflow| self.query.overflow_reason(overflow))
    }

    /// Runs the output of a stream through the shared part of the query. After an [overflow](Combiner::overflow) no
    /// output receives more rows.
    pub(crate) fn combine(&mut self, output: StreamOutput) -> Result<(), EndpointError> {
        let mut exits = Vec::new();
        for exit_item in output.exit_items {
            let shared = &mut self.shared;
            let entry = shared.entry(output.input, exit_item.exit, exit_item.partition);
            shared.pipeline.renew_budget();
            shared.pipeline.push(entry, exit_item.item, &mut exits);
            if shared.pipeline.overflow().is_some() {
                return Err(EndpointError::Closed);
            }
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
        if let (Some(early), Some(progress)) = (&mut self.early, output.progress) {
            early.clock.report(stream, watermark, progress);
        }
        risen.map_or(Ok(()), |watermark| self.advance(watermark))
    }

    /// Tells outputs that all rows before `watermark` have been sent.
    pub(crate) fn advance(&mut self, watermark: Instant) -> Result<(), EndpointError> {
        if watermark == Instant::AFTER_ALL {
            let mut outputs = self.routing.outputs.iter_mut();
            outputs.try_for_each(OutputMerge::end_revisions)?;
        }
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
        if let Some(early) = &mut self.early {
            early.partitions[input] += 1;
            let stops = early.copies.plan.inputs[input];
            early.clock.add_stream(stops, reached);
        }
        let side_outputs = self
            .routing
            .dead_letters
            .iter_mut()
            .chain(&mut self.routing.late_events);
        side_outputs.for_each(SideOutput::add_stream);
        self.streams.push(location);
        Some(stream)
    }

    /// About the size of the state outside of streams; see `Operator::state_bytes`.
    pub(crate) fn state_bytes(&self) -> usize {
        let outputs = self.routing.outputs.iter().map(OutputMerge::state_bytes);
        let side_outputs = self.side_outputs().map(SideOutput::state_bytes);
        self.shared.pipeline.state_bytes() + outputs.chain(side_outputs).sum::<usize>()
    }

    fn side_outputs(&self) -> impl Iterator<Item = &SideOutput> {
        let routing = &self.routing;
        routing.dead_letters.iter().chain(&routing.late_events)
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
        self.side_outputs()
            .for_each(|side_output| side_output.snapshot(out));
        if let Some(early) = &self.early {
            early.clock.snapshot(out);
        }
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
        if let Some(early) = &mut self.early {
            early.clock.restore(from, self.clock.members())?;
        }
        from.end()
    }
}
