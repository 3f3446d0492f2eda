//! Merges several ordered streams.
//!
//! Rows are emitted by time, then by port (T9: equal times are ordered by input, partition, offset), and only when
//! every port has passed their time, so that the order does not depend on the speed of the streams. With a single port
//! chunks pass through unchanged.
//!
//! Rows with lanes are ordered only within a lane. They are merged by the maximum time in their stream so far, which is
//! deterministic too, and lose their lanes.

use std::collections::VecDeque;

use arrow_buffer::ScalarBuffer;
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_time::{CombinedWatermark, Instant};

use super::{Context, Item, KeyOperator, Operator};
use crate::chunk::{CHUNK_ROWS, Chunk};
use crate::codec::{ReadValue, WriteValue};
use crate::column::{Column, ColumnBuilder};

#[derive(Debug)]
pub struct Merge {
    ports: Vec<Port>,
    combined_watermark: CombinedWatermark,
}

#[derive(Debug)]
struct Port {
    /// The columns of its chunks to take; `None` for all.
    mapping: Option<Vec<usize>>,
    pending: VecDeque<PendingChunk>,
    /// The maximum time so far.
    reached: i64,
}

impl Port {
    fn new(mapping: Option<Vec<usize>>) -> Port {
        Port {
            mapping,
            pending: VecDeque::new(),
            reached: i64::MIN,
        }
    }
}

#[derive(Debug)]
struct PendingChunk {
    chunk: Chunk,
    /// The merge order of the rows; never decreases along a port.
    order: ScalarBuffer<i64>,
    /// The first row that is not emitted yet.
    start: usize,
}

impl Merge {
    pub fn new(ports: usize) -> Merge {
        Merge::mapped(std::iter::repeat_n(None, ports))
    }

    /// With the columns that each port contributes.
    pub fn mapped(mappings: impl Iterator<Item = Option<Vec<usize>>>) -> Merge {
        let ports: Vec<Port> = mappings.map(Port::new).collect();
        Merge {
            combined_watermark: CombinedWatermark::new(ports.len()),
            ports,
        }
    }

    fn take(&mut self, port: usize, chunk: Chunk, out: &mut Vec<Item>) {
        let single = self.ports.len() == 1;
        let port = &mut self.ports[port];
        let mut chunk = chunk;
        if let Some(mapping) = &port.mapping {
            chunk = chunk.with_columns(mapping.iter().map(|&c| chunk.columns[c].clone()).collect());
        }
        if single {
            out.push(Item::Rows(chunk));
            return;
        }
        let lanes = chunk.lanes.take();
        let order = match lanes {
            None => chunk.times.clone(),
            Some(_) => chunk
                .times
                .iter()
                .scan(port.reached, |reached, &time| {
                    *reached = (*reached).max(time);
                    Some(*reached)
                })
                .collect(),
        };
        port.reached = order.last().map_or(port.reached, |last| *last);
        // No row is earlier than a common watermark before it, so this changes the order of no row; but a stream
        // without further rows does not delay the others.
        let watermarks = lanes.iter().flat_map(|lanes| &lanes.watermarks);
        let floors = watermarks.filter(|mark| mark.lane.is_none());
        port.reached = floors.fold(port.reached, |reached, mark| {
            reached.max(mark.watermark.ticks())
        });
        if chunk.rows() > 0 {
            port.pending.push_back(PendingChunk {
                chunk,
                order,
                start: 0,
            });
        }
    }

    /// Advances a port and emits the rows that all ports have passed.
    fn pass(&mut self, port: usize, watermark: Instant, out: &mut Vec<Item>) {
        if let Some(watermark) = self.combined_watermark.advance(port, watermark) {
            self.release(watermark, out);
            out.push(Item::Watermark(watermark));
        }
    }

    /// Emits every pending row before `watermark`.
    fn release(&mut self, watermark: Instant, out: &mut Vec<Item>) {
        loop {
            let picked = self.pick(watermark.ticks());
            if picked.is_empty() {
                return;
            }
            out.push(Item::Rows(self.gather(&picked)));
            for port in &mut self.ports {
                while port
                    .pending
                    .front()
                    .is_some_and(|pending| pending.start == pending.order.len())
                {
                    port.pending.pop_front();
                }
            }
        }
    }

    /// The next rows in order, as runs of (port, chunk in port, rows), at most about a chunk's worth.
    fn pick(&mut self, before: i64) -> Vec<Run> {
        let mut at: Vec<usize> = vec![0; self.ports.len()];
        let (mut runs, mut rows) = (Vec::new(), 0);
        while rows < CHUNK_ROWS {
            let Some((head, port)) = self.head(&at) else {
                break;
            };
            if head >= before {
                break;
            }
            // Up to the earliest row of the other ports.
            let limit = self.other_head(&at, port);
            let pending = &mut self.ports[port].pending[at[port]];
            let rest = &pending.order[pending.start..];
            let run = rest.partition_point(|&order| {
                order < before && limit.is_none_or(|(time, other)| (order, port) < (time, other))
            });
            let run = run.min(CHUNK_ROWS - rows).max(1);
            runs.push(Run {
                port,
                chunk: at[port],
                start: pending.start,
                rows: run,
            });
            pending.start += run;
            rows += run;
            if pending.start == pending.order.len() {
                at[port] += 1;
            }
        }
        runs
    }

    fn head(&self, at: &[usize]) -> Option<(i64, usize)> {
        self.heads(at).min()
    }

    fn other_head(&self, at: &[usize], port: usize) -> Option<(i64, usize)> {
        self.heads(at).filter(|&(_, other)| other != port).min()
    }

    fn heads<'a>(&'a self, at: &'a [usize]) -> impl Iterator<Item = (i64, usize)> + 'a {
        self.ports.iter().enumerate().filter_map(|(port, state)| {
            let pending = state.pending.get(at[port])?;
            Some((pending.order[pending.start], port))
        })
    }

    fn gather(&self, runs: &[Run]) -> Chunk {
        let mut sources: Vec<(usize, usize)> =
            runs.iter().map(|run| (run.port, run.chunk)).collect();
        sources.sort_unstable();
        sources.dedup();
        let chunks: Vec<&Chunk> = sources
            .iter()
            .map(|&(port, chunk)| &self.ports[port].pending[chunk].chunk)
            .collect();
        let mut rows: Vec<(u32, u32)> = Vec::with_capacity(CHUNK_ROWS);
        for run in runs {
            let source = sources.partition_point(|source| *source < (run.port, run.chunk)) as u32;
            rows.extend((run.start..run.start + run.rows).map(|row| (source, row as u32)));
        }
        Chunk::interleave(&chunks, &rows)
    }
}

struct Run {
    port: usize,
    chunk: usize,
    start: usize,
    rows: usize,
}

impl KeyOperator for Merge {
    fn next_due(&self) -> Option<i64> {
        self.head(&vec![0; self.ports.len()]).map(|(time, _)| time)
    }
}

impl Operator for Merge {
    fn push(&mut self, port: usize, item: Item, context: &mut Context<'_>) {
        match item {
            Item::Rows(chunk) => {
                let has_lanes = chunk.lanes.is_some();
                self.take(port, chunk, context.out);
                if has_lanes {
                    // No watermark covers rows with lanes; their order does.
                    self.pass(
                        port,
                        Instant::from_ticks(self.ports[port].reached),
                        context.out,
                    );
                }
            }
            Item::Watermark(watermark) => {
                self.pass(port, watermark, context.out);
            }
            Item::PartialPanes(_) => unreachable!("rows are merged, shares are joined"),
        }
    }

    fn state_bytes(&self) -> usize {
        let pending = self.ports.iter().flat_map(|port| &port.pending);
        let pending = pending.map(|pending| {
            let (rows, left) = (pending.order.len(), pending.order.len() - pending.start);
            pending.chunk.approximate_bytes() / rows.max(1) * left
        });
        pending.sum()
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        snapshot_watermark(&self.combined_watermark, out);
        for port in &self.ports {
            out.i64(port.reached);
            out.count(
                port.pending
                    .iter()
                    .map(|pending| pending.order.len() - pending.start)
                    .sum(),
            );
            out.count(
                port.pending
                    .front()
                    .map_or(0, |pending| pending.chunk.columns.len()),
            );
            let known = port
                .pending
                .iter()
                .all(|pending| pending.chunk.origins.is_some());
            out.u8(known.into());
            for pending in &port.pending {
                for row in pending.start..pending.order.len() {
                    out.i64(pending.chunk.times[row]);
                    out.i64(pending.order[row]);
                    if let (true, Some(origins)) = (known, &pending.chunk.origins) {
                        out.u64(origins[row]);
                    }
                    pending
                        .chunk
                        .columns
                        .iter()
                        .for_each(|column| out.value(column.get(row)));
                }
            }
        }
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        restore_watermark(&mut self.combined_watermark, from)?;
        for port in &mut self.ports {
            port.reached = from.i64()?;
            port.pending.clear();
            let (rows, width) = (from.count()?, from.count()?);
            let known = from.u8()? != 0;
            let (mut times, mut order) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
            let mut origins = Vec::new();
            let mut columns = ColumnBuilder::of_width(width);
            for _ in 0..rows {
                times.push(from.i64()?);
                order.push(from.i64()?);
                if known {
                    origins.push(from.u64()?);
                }
                for column in &mut columns {
                    column.push_owned(from.value()?);
                }
            }
            if rows > 0 {
                let columns: Vec<Column> = columns.into_iter().map(ColumnBuilder::finish).collect();
                let mut chunk = Chunk::new(times.into(), columns);
                chunk.origins = known.then(|| origins.into());
                port.pending.push_back(PendingChunk {
                    chunk,
                    order: order.into(),
                    start: 0,
                });
            }
        }
        Ok(())
    }

    fn add_port(&mut self) -> bool {
        self.combined_watermark
            .add(self.combined_watermark.watermark());
        self.ports.push(Port::new(None));
        true
    }
}

pub(super) fn snapshot_watermark(combined_watermark: &CombinedWatermark, out: &mut Vec<u8>) {
    combined_watermark
        .members()
        .iter()
        .for_each(|member| out.i64(member.ticks()));
}

pub(super) fn restore_watermark(
    combined_watermark: &mut CombinedWatermark,
    from: &mut Reader<'_>,
) -> Result<(), DecodeError> {
    let members = combined_watermark.members().len();
    *combined_watermark = CombinedWatermark::new(members);
    for member in 0..members {
        combined_watermark.advance(member, Instant::from_ticks(from.i64()?));
    }
    Ok(())
}
