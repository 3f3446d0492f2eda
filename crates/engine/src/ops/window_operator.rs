//! Runs a [`LaneWindow`] as an operator: splits chunks into runs of rows of one lane, and watermarks.
//!
//! Without substreams all rows have one watermark, which advances between chunks. With substreams watermarks are
//! between the rows of a chunk, and results carry lanes and watermarks to the next operator. A window sees only runs of
//! rows of one lane, and watermarks of one lane or of all.

use std::ops::Range;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_time::{Instant, LaneWatermark};

use super::groups::{GroupInput, GroupSpec};
use super::timer_queue::ONE_LANE;
use super::{Context, DataErrors, Item, Operator, OutputBudget, WindowEntry};
use crate::chunk::{CHUNK_ROWS, Chunk, ChunkLanes, LaneName};
use crate::column::ColumnBuilder;

pub(crate) trait LaneWindow: Send {
    fn spec(&self) -> &GroupSpec;

    /// Takes rows of one lane, in time order.
    fn rows(
        &mut self,
        input: &GroupInput,
        lane: u32,
        rows: Range<usize>,
        report: &mut WindowReport<'_>,
    );

    /// Emits the windows that end before `watermark`, of one lane or of all.
    fn advance(
        &mut self,
        lane: Option<u32>,
        watermark: Instant,
        out: &mut RowWriter<'_>,
        report: &mut WindowReport<'_>,
    );

    /// See [`Operator::state_bytes`].
    fn state_bytes(&self) -> usize;
    fn snapshot(&self, out: &mut Vec<u8>);
    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError>;
}

/// The errors and the trace of a window.
pub(crate) struct WindowReport<'a> {
    pub errors: &'a mut DataErrors,
    pub trace: Option<&'a mut Vec<WindowEntry>>,
}

impl WindowReport<'_> {
    pub(crate) fn window_entered(
        &mut self,
        input: &GroupInput,
        row: usize,
        start: Instant,
        end: Instant,
    ) {
        if let (Some(trace), Some(origins)) = (&mut self.trace, &input.chunk.origins) {
            trace.push(WindowEntry {
                origin: origins[row],
                start,
                end,
            });
        }
    }

    pub(crate) fn tracing(&self) -> bool {
        self.trace.is_some()
    }
}

/// Runs a window as an operator.
pub(crate) struct WindowOperator<W> {
    pub window: W,
    has_lanes: bool,
}

impl<W> WindowOperator<W> {
    pub(crate) fn new(window: W) -> WindowOperator<W> {
        WindowOperator {
            window,
            has_lanes: false,
        }
    }
}

impl<W: LaneWindow> Operator for WindowOperator<W> {
    fn push(&mut self, _port: usize, item: Item, context: &mut Context<'_>) {
        match item {
            Item::Rows(chunk) => self.rows(chunk, context),
            Item::Watermark(watermark) => {
                let mut out = RowWriter::new(self.window.spec(), self.has_lanes, context.budget);
                self.window
                    .advance(None, watermark, &mut out, &mut report_of(context));
                out.finish(context.out);
                context.out.push(Item::Watermark(watermark));
            }
            Item::PartialPanes(_) => unreachable!("a window over rows is never given shares"),
        }
    }

    fn state_bytes(&self) -> usize {
        self.window.state_bytes()
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        out.u8(self.has_lanes.into());
        self.window.snapshot(out);
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.has_lanes = from.u8()? != 0;
        self.window.restore(from)
    }
}

impl<W: LaneWindow> WindowOperator<W> {
    fn rows(&mut self, chunk: Chunk, context: &mut Context<'_>) {
        let input = self.window.spec().prepare(chunk, context);
        let budget = context.budget;
        let mut report = report_of(context);
        let Some(lanes) = &input.chunk.lanes else {
            self.window
                .rows(&input, ONE_LANE, 0..input.chunk.rows(), &mut report);
            return;
        };
        self.has_lanes = true;
        let mut out = RowWriter::new(self.window.spec(), true, budget);
        let (mut from, mut names) = (0, lanes.names.iter().peekable());
        for (number, mark) in lanes.watermarks.iter().enumerate() {
            while let Some(name) = names.next_if(|name| name.after <= number) {
                out.push_name(name);
            }
            self.lane_runs(&input, &lanes.of_row, from..mark.before_row, &mut report);
            from = mark.before_row;
            self.window
                .advance(mark.lane, mark.watermark, &mut out, &mut report);
            out.push_watermark(*mark);
        }
        self.lane_runs(&input, &lanes.of_row, from..input.chunk.rows(), &mut report);
        names.for_each(|name| out.push_name(name));
        out.finish(context.out);
    }

    fn lane_runs(
        &mut self,
        input: &GroupInput,
        lanes: &[u32],
        rows: Range<usize>,
        report: &mut WindowReport<'_>,
    ) {
        let mut start = rows.start;
        while start < rows.end {
            let lane = lanes[start];
            let run = lanes[start..rows.end]
                .iter()
                .take_while(|&&other| other == lane)
                .count();
            self.window.rows(input, lane, start..start + run, report);
            start += run;
        }
    }
}

fn report_of<'a>(context: &'a mut Context<'_>) -> WindowReport<'a> {
    WindowReport {
        errors: context.errors,
        trace: context.trace.as_deref_mut(),
    }
}

/// Builds chunks of result rows.
pub(crate) struct RowWriter<'a> {
    budget: &'a OutputBudget,
    times: Vec<i64>,
    columns: Vec<ColumnBuilder>,
    lanes: Option<ChunkLanes>,
    /// The lane of the next rows.
    pub lane: u32,
    sealed: Vec<Chunk>,
}

impl<'a> RowWriter<'a> {
    pub(crate) fn new(
        spec: &GroupSpec,
        has_lanes: bool,
        budget: &'a OutputBudget,
    ) -> RowWriter<'a> {
        let width = spec.keys.len() + spec.aggregates.len();
        RowWriter {
            budget,
            times: Vec::new(),
            columns: ColumnBuilder::of_width(width),
            lanes: has_lanes.then(ChunkLanes::default),
            lane: ONE_LANE,
            sealed: Vec::new(),
        }
    }

    /// Starts a row; the caller pushes one value onto every column.
    pub(crate) fn begin(&mut self, time: i64) -> &mut [ColumnBuilder] {
        if self.times.len() >= CHUNK_ROWS {
            self.seal();
        }
        self.times.push(time);
        if let Some(lanes) = &mut self.lanes {
            lanes.of_row.push(self.lane);
        }
        &mut self.columns
    }

    pub(crate) fn push_watermark(&mut self, mark: LaneWatermark) {
        if let Some(lanes) = &mut self.lanes {
            lanes.watermarks.push(LaneWatermark {
                before_row: self.times.len(),
                ..mark
            });
        }
    }

    pub(crate) fn push_name(&mut self, name: &LaneName) {
        if let Some(lanes) = &mut self.lanes {
            lanes.push_name(name);
        }
    }

    fn seal(&mut self) {
        let width = self.columns.len();
        let columns = std::mem::replace(&mut self.columns, ColumnBuilder::of_width(width));
        let columns = columns.into_iter().map(ColumnBuilder::finish).collect();
        let mut chunk = Chunk::new(std::mem::take(&mut self.times).into(), columns);
        chunk.lanes = self.lanes.as_mut().map(std::mem::take);
        if self
            .budget
            .charge(chunk.approximate_bytes(), "window", None)
        {
            self.sealed.push(chunk);
        }
    }

    pub(crate) fn finish(mut self, out: &mut Vec<Item>) {
        let news = self.lanes.as_ref().is_some_and(ChunkLanes::has_updates);
        if !self.times.is_empty() || news {
            self.seal();
        }
        out.extend(self.sealed.into_iter().map(Item::Rows));
    }
}
