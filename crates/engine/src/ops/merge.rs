//! Several ordered streams read as one.
//!
//! Rows come out by time, then by port (T9: equal times are ordered by input, partition, offset), and only when every
//! port has passed their time, so that the order never depends on which stream was faster. With a single port there is
//! nothing to wait for and chunks pass through as they are.
//!
//! Rows with lanes are in order only within a lane. They are merged by the largest time that their stream has shown so
//! far, which is a fixed order too, and leave their lanes behind.

use std::collections::VecDeque;

use arrow_buffer::ScalarBuffer;
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_time::{CombinedWatermark, Instant};

use super::{Context, Item, Member, Operator};
use crate::chunk::{CHUNK_ROWS, Chunk};
use crate::codec::{ReadValue, WriteValue};
use crate::column::{Column, ColumnBuilder};

#[derive(Debug)]
pub struct Merge {
    ports: Vec<Port>,
    clock: CombinedWatermark,
}

#[derive(Debug)]
struct Port {
    /// Which columns of its chunks to take; `None` takes them as they are.
    mapping: Option<Vec<usize>>,
    held: VecDeque<Held>,
    /// The largest time seen.
    reached: i64,
}

impl Port {
    fn new(mapping: Option<Vec<usize>>) -> Port {
        Port {
            mapping,
            held: VecDeque::new(),
            reached: i64::MIN,
        }
    }
}

#[derive(Debug)]
struct Held {
    chunk: Chunk,
    /// What rows are merged by; never decreases along a port.
    order: ScalarBuffer<i64>,
    /// Rows before this one have left.
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
            clock: CombinedWatermark::new(ports.len()),
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
        // No row is earlier than a mark of all lanes before it, so this changes the order of none; but a stream of which
        // nothing else comes holds up nobody.
        let watermarks = lanes.iter().flat_map(|lanes| &lanes.watermarks);
        let floors = watermarks.filter(|mark| mark.lane.is_none());
        port.reached = floors.fold(port.reached, |reached, mark| {
            reached.max(mark.watermark.ticks())
        });
        if chunk.rows() > 0 {
            port.held.push_back(Held {
                chunk,
                order,
                start: 0,
            });
        }
    }

    /// The port has passed `watermark`: emits what all of them have passed.
    fn pass(&mut self, port: usize, watermark: Instant, out: &mut Vec<Item>) {
        if let Some(watermark) = self.clock.advance(port, watermark) {
            self.release(watermark, out);
            out.push(Item::Watermark(watermark));
        }
    }

    /// Emits every held row before `watermark`.
    fn release(&mut self, watermark: Instant, out: &mut Vec<Item>) {
        loop {
            let picked = self.pick(watermark.ticks());
            if picked.is_empty() {
                return;
            }
            out.push(Item::Rows(self.gather(&picked)));
            for port in &mut self.ports {
                while port
                    .held
                    .front()
                    .is_some_and(|held| held.start == held.order.len())
                {
                    port.held.pop_front();
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
            // The others wait until this port has caught up with the earliest of them.
            let limit = self.other_head(&at, port);
            let held = &mut self.ports[port].held[at[port]];
            let rest = &held.order[held.start..];
            let run = rest.partition_point(|&order| {
                order < before && limit.is_none_or(|(time, other)| (order, port) < (time, other))
            });
            let run = run.min(CHUNK_ROWS - rows).max(1);
            runs.push(Run {
                port,
                chunk: at[port],
                start: held.start,
                rows: run,
            });
            held.start += run;
            rows += run;
            if held.start == held.order.len() {
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
            let held = state.held.get(at[port])?;
            Some((held.order[held.start], port))
        })
    }

    fn gather(&self, runs: &[Run]) -> Chunk {
        let mut sources: Vec<(usize, usize)> =
            runs.iter().map(|run| (run.port, run.chunk)).collect();
        sources.sort_unstable();
        sources.dedup();
        let chunks: Vec<&Chunk> = sources
            .iter()
            .map(|&(port, chunk)| &self.ports[port].held[chunk].chunk)
            .collect();
        let mut rows: Vec<(u32, u32)> = Vec::with_capacity(CHUNK_ROWS);
        for run in runs {
            let place = sources.partition_point(|source| *source < (run.port, run.chunk)) as u32;
            rows.extend((run.start..run.start + run.rows).map(|row| (place, row as u32)));
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

impl Member for Merge {
    fn wakes(&self) -> Option<i64> {
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
                    // No watermark says how far rows with lanes have come; their order does.
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
            Item::Shares(_) => unreachable!("rows are merged, shares are joined"),
        }
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        snapshot_clock(&self.clock, out);
        for port in &self.ports {
            out.i64(port.reached);
            out.count(
                port.held
                    .iter()
                    .map(|held| held.order.len() - held.start)
                    .sum(),
            );
            out.count(port.held.front().map_or(0, |held| held.chunk.columns.len()));
            let known = port.held.iter().all(|held| held.chunk.origins.is_some());
            out.u8(known.into());
            for held in &port.held {
                for row in held.start..held.order.len() {
                    out.i64(held.chunk.times[row]);
                    out.i64(held.order[row]);
                    if let (true, Some(origins)) = (known, &held.chunk.origins) {
                        out.u64(origins[row]);
                    }
                    held.chunk
                        .columns
                        .iter()
                        .for_each(|column| out.value(column.get(row)));
                }
            }
        }
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        restore_clock(&mut self.clock, from)?;
        for port in &mut self.ports {
            port.reached = from.i64()?;
            port.held.clear();
            let (rows, width) = (from.count()?, from.count()?);
            let known = from.u8()? != 0;
            let (mut times, mut order) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
            let mut origins = Vec::new();
            let mut columns: Vec<ColumnBuilder> = std::iter::repeat_with(ColumnBuilder::default)
                .take(width)
                .collect();
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
                port.held.push_back(Held {
                    chunk,
                    order: order.into(),
                    start: 0,
                });
            }
        }
        Ok(())
    }

    fn add_port(&mut self) -> bool {
        self.clock.add(self.clock.watermark());
        self.ports.push(Port::new(None));
        true
    }
}

pub(super) fn snapshot_clock(clock: &CombinedWatermark, out: &mut Vec<u8>) {
    clock
        .members()
        .iter()
        .for_each(|member| out.i64(member.ticks()));
}

pub(super) fn restore_clock(
    clock: &mut CombinedWatermark,
    from: &mut Reader<'_>,
) -> Result<(), DecodeError> {
    let members = clock.members().len();
    *clock = CombinedWatermark::new(members);
    for member in 0..members {
        clock.advance(member, Instant::from_ticks(from.i64()?));
    }
    Ok(())
}
