//! What every window shares: walking the rows and clock movements of a chunk, lane by lane.
//!
//! Without substreams all rows go by one clock, which moves by watermark items between chunks. With substreams the clock
//! movements stand between the rows of a chunk, and results carry lanes and watermarks on to the next operator. A window
//! itself only sees runs of rows of one lane and the news that a lane (or all) has passed a time.

use std::ops::Range;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_time::{Instant, LaneWatermark};

use super::agenda::ONE_LANE;
use super::groups::{GroupSpec, Prepared};
use super::{Context, DataErrors, Item, Operator, WindowEntry};
use crate::chunk::{CHUNK_ROWS, Chunk, LaneName, Lanes};
use crate::column::ColumnBuilder;
use crate::value::Value;

pub(crate) trait LaneWindow: Send {
    fn spec(&self) -> &GroupSpec;

    /// Takes rows of one lane, in time order.
    fn rows(&mut self, input: &Prepared, lane: u32, rows: Range<usize>, notes: &mut Notes<'_>);

    /// Emits what is complete now that `lane` (or every lane) has passed `watermark`.
    fn advance(
        &mut self,
        lane: Option<u32>,
        watermark: Instant,
        out: &mut RowsOut,
        notes: &mut Notes<'_>,
    );

    fn snapshot(&self, out: &mut Vec<u8>);
    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError>;
}

/// Where a window reports what went wrong and which events it took.
pub(crate) struct Notes<'a> {
    pub errors: &'a mut DataErrors,
    pub trace: Option<&'a mut Vec<WindowEntry>>,
}

impl Notes<'_> {
    pub fn entered(&mut self, input: &Prepared, row: usize, start: Instant, end: Instant) {
        if let (Some(trace), Some(origins)) = (&mut self.trace, &input.chunk.origins) {
            trace.push(WindowEntry {
                origin: origins[row],
                start,
                end,
            });
        }
    }

    pub fn tracing(&self) -> bool {
        self.trace.is_some()
    }
}

/// A window as an operator.
pub(crate) struct Windowed<W> {
    pub window: W,
    has_lanes: bool,
}

impl<W> Windowed<W> {
    pub fn new(window: W) -> Windowed<W> {
        Windowed {
            window,
            has_lanes: false,
        }
    }
}

impl<W: LaneWindow> Operator for Windowed<W> {
    fn push(&mut self, _port: usize, item: Item, context: &mut Context<'_>) {
        match item {
            Item::Rows(chunk) => self.rows(chunk, context),
            Item::Watermark(watermark) => {
                let mut out = RowsOut::new(self.window.spec(), self.has_lanes);
                self.window
                    .advance(None, watermark, &mut out, &mut notes_of(context));
                out.finish(context.out);
                context.out.push(Item::Watermark(watermark));
            }
            Item::Shares(_) => unreachable!("a window over rows is never given shares"),
        }
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

impl<W: LaneWindow> Windowed<W> {
    fn rows(&mut self, chunk: Chunk, context: &mut Context<'_>) {
        let input = self.window.spec().prepare(chunk, context);
        let mut notes = notes_of(context);
        let Some(lanes) = &input.chunk.lanes else {
            self.window
                .rows(&input, ONE_LANE, 0..input.chunk.rows(), &mut notes);
            return;
        };
        self.has_lanes = true;
        let mut out = RowsOut::new(self.window.spec(), true);
        let (mut from, mut names) = (0, lanes.names.iter().peekable());
        for (number, mark) in lanes.watermarks.iter().enumerate() {
            while let Some(name) = names.next_if(|name| name.after <= number) {
                out.name(name);
            }
            self.lane_runs(&input, &lanes.of_row, from..mark.before_row, &mut notes);
            from = mark.before_row;
            self.window
                .advance(mark.lane, mark.watermark, &mut out, &mut notes);
            out.mark(*mark);
        }
        self.lane_runs(&input, &lanes.of_row, from..input.chunk.rows(), &mut notes);
        names.for_each(|name| out.name(name));
        out.finish(context.out);
    }

    fn lane_runs(
        &mut self,
        input: &Prepared,
        lanes: &[u32],
        rows: Range<usize>,
        notes: &mut Notes<'_>,
    ) {
        let mut start = rows.start;
        while start < rows.end {
            let lane = lanes[start];
            let run = lanes[start..rows.end]
                .iter()
                .take_while(|&&other| other == lane)
                .count();
            self.window.rows(input, lane, start..start + run, notes);
            start += run;
        }
    }
}

fn notes_of<'a>(context: &'a mut Context<'_>) -> Notes<'a> {
    Notes {
        errors: context.errors,
        trace: context.trace.as_deref_mut(),
    }
}

/// Result rows being written.
pub(crate) struct RowsOut {
    times: Vec<i64>,
    columns: Vec<ColumnBuilder>,
    lanes: Option<Lanes>,
    /// The lane that rows written now belong to.
    pub lane: u32,
    sealed: Vec<Chunk>,
}

impl RowsOut {
    pub fn new(spec: &GroupSpec, has_lanes: bool) -> RowsOut {
        let width = spec.keys.len() + spec.aggregates.len();
        RowsOut {
            times: Vec::new(),
            columns: builders(width),
            lanes: has_lanes.then(Lanes::default),
            lane: ONE_LANE,
            sealed: Vec::new(),
        }
    }

    /// Begins a row; the caller pushes one value onto every column.
    pub fn begin(&mut self, time: i64) -> &mut [ColumnBuilder] {
        if self.times.len() >= CHUNK_ROWS {
            self.seal();
        }
        self.times.push(time);
        if let Some(lanes) = &mut self.lanes {
            lanes.of_row.push(self.lane);
        }
        &mut self.columns
    }

    pub fn row(&mut self, time: i64, values: impl Iterator<Item = Value>) {
        for (column, value) in self.begin(time).iter_mut().zip(values) {
            column.push_owned(value);
        }
    }

    pub fn mark(&mut self, mark: LaneWatermark) {
        if let Some(lanes) = &mut self.lanes {
            lanes.watermarks.push(LaneWatermark {
                before_row: self.times.len(),
                ..mark
            });
        }
    }

    pub fn name(&mut self, name: &LaneName) {
        if let Some(lanes) = &mut self.lanes {
            lanes.name(name);
        }
    }

    fn seal(&mut self) {
        let width = self.columns.len();
        let columns = std::mem::replace(&mut self.columns, builders(width));
        let columns = columns.into_iter().map(ColumnBuilder::finish).collect();
        let mut chunk = Chunk::new(std::mem::take(&mut self.times).into(), columns);
        chunk.lanes = self.lanes.as_mut().map(std::mem::take);
        self.sealed.push(chunk);
    }

    pub fn finish(mut self, out: &mut Vec<Item>) {
        let news = self.lanes.as_ref().is_some_and(Lanes::has_news);
        if !self.times.is_empty() || news {
            self.seal();
        }
        out.extend(self.sealed.into_iter().map(Item::Rows));
    }
}

fn builders(width: usize) -> Vec<ColumnBuilder> {
    std::iter::repeat_with(ColumnBuilder::default)
        .take(width)
        .collect()
}
