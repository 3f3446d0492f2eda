//! LAG, LAST and ISFIRST: what a key's earlier rows were.

use std::collections::VecDeque;

use highwater_time::{Duration, Instant};

use super::over::trim;
use super::{CallInput, Failures, Memory};
use crate::codec::{Reader, RestoreError, Writer};
use crate::column::{Column, ColumnBuilder};
use crate::value::Value;

/// A candidate: its time and value. Numbers and times stand in place, so that the usual LAG allocates nothing.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub time: i64,
    pub value: Value,
}

/// Before every time, so never within the limit.
const NO_CELL: Cell = Cell {
    time: i64::MIN,
    value: Value::Null,
};

impl Cell {
    pub fn new(time: i64, column: &Column, row: usize) -> Cell {
        Cell {
            time,
            value: column.get(row).to_value(),
        }
    }

    fn is_none(&self) -> bool {
        self.time == i64::MIN
    }

    pub fn snapshot(&self, out: &mut Writer) {
        out.i64(self.time);
        out.value(self.value.view());
    }

    pub fn restore(from: &mut Reader<'_>) -> Result<Cell, RestoreError> {
        Ok(Cell {
            time: from.i64()?,
            value: from.value()?,
        })
    }
}

/// LAG with offset 1: the latest candidate of each key.
pub(super) struct LagOne {
    limit: i64,
    cells: Vec<Cell>,
}

/// LAST: the same, the row itself included.
pub(super) struct Last(LagOne);

impl LagOne {
    pub fn new(limit: i64) -> LagOne {
        LagOne {
            limit,
            cells: Vec::new(),
        }
    }

    fn walk(&mut self, input: &CallInput<'_>, out: &mut ColumnBuilder, itself: bool) {
        let (of, default) = (&input.arguments[0], input.arguments.get(1));
        for at in input.rows() {
            let cell = &mut self.cells[at.slot];
            if itself && at.passes {
                *cell = Cell::new(at.time, of, at.row);
            }
            if cell.time > at.time.saturating_sub(self.limit) {
                out.push(cell.value.view());
            } else {
                push_default(default, at.row, out);
            }
            if !itself && at.passes {
                *cell = Cell::new(at.time, of, at.row);
            }
        }
    }
}

fn push_default(default: Option<&Column>, row: usize, out: &mut ColumnBuilder) {
    match default {
        Some(default) => out.push(default.get(row)),
        None => out.push_null(),
    }
}

impl Last {
    pub fn new(limit: i64) -> Last {
        Last(LagOne::new(limit))
    }
}

impl Memory for LagOne {
    fn grow(&mut self, slots: usize) {
        self.cells.resize(slots.max(self.cells.len()), NO_CELL);
    }

    fn clear(&mut self, slot: usize) {
        self.cells[slot] = NO_CELL;
    }

    fn run(&mut self, input: &CallInput<'_>, out: &mut ColumnBuilder, _failures: &mut Failures) {
        self.walk(input, out, false);
    }

    fn snapshot(&self, slot: usize, out: &mut Writer) {
        let cell = &self.cells[slot];
        out.u8(cell.is_none().into());
        if !cell.is_none() {
            cell.snapshot(out);
        }
    }

    fn restore(&mut self, slot: usize, from: &mut Reader<'_>) -> Result<(), RestoreError> {
        self.cells[slot] = match from.u8()? {
            0 => Cell::restore(from)?,
            _ => NO_CELL,
        };
        Ok(())
    }
}

impl Memory for Last {
    fn grow(&mut self, slots: usize) {
        self.0.grow(slots);
    }

    fn clear(&mut self, slot: usize) {
        self.0.clear(slot);
    }

    fn run(&mut self, input: &CallInput<'_>, out: &mut ColumnBuilder, _failures: &mut Failures) {
        self.0.walk(input, out, true);
    }

    fn snapshot(&self, slot: usize, out: &mut Writer) {
        self.0.snapshot(slot, out);
    }

    fn restore(&mut self, slot: usize, from: &mut Reader<'_>) -> Result<(), RestoreError> {
        self.0.restore(slot, from)
    }
}

/// LAG with a larger offset: the latest candidates of each key, as many as can be asked for.
pub(super) struct LagMany {
    limit: i64,
    offset: usize,
    rings: Vec<VecDeque<Cell>>,
}

impl LagMany {
    pub fn new(limit: i64, offset: usize) -> LagMany {
        LagMany {
            limit,
            offset: offset.max(1),
            rings: Vec::new(),
        }
    }
}

impl Memory for LagMany {
    fn grow(&mut self, slots: usize) {
        self.rings
            .resize(slots.max(self.rings.len()), VecDeque::new());
    }

    fn clear(&mut self, slot: usize) {
        self.rings[slot] = VecDeque::new();
    }

    fn run(&mut self, input: &CallInput<'_>, out: &mut ColumnBuilder, _failures: &mut Failures) {
        let (of, default) = (&input.arguments[0], input.arguments.get(1));
        for at in input.rows() {
            let ring = &mut self.rings[at.slot];
            let floor = at.time.saturating_sub(self.limit);
            while ring.front().is_some_and(|cell| cell.time <= floor) {
                ring.pop_front();
            }
            match ring.len().checked_sub(self.offset) {
                Some(index) => out.push(ring[index].value.view()),
                None => push_default(default, at.row, out),
            }
            if at.passes {
                if ring.len() == self.offset {
                    ring.pop_front();
                }
                ring.push_back(Cell::new(at.time, of, at.row));
            }
            trim(ring);
        }
    }

    fn snapshot(&self, slot: usize, out: &mut Writer) {
        let ring = &self.rings[slot];
        out.count(ring.len());
        ring.iter().for_each(|cell| cell.snapshot(out));
    }

    fn restore(&mut self, slot: usize, from: &mut Reader<'_>) -> Result<(), RestoreError> {
        let cells: Result<_, _> = (0..from.count()?).map(|_| Cell::restore(from)).collect();
        self.rings[slot] = cells?;
        if self.rings[slot].len() > self.offset {
            return Err(RestoreError("more rows than LAG looks back"));
        }
        Ok(())
    }
}

/// ISFIRST: the end of the interval in which each key was seen last.
pub(super) struct IsFirst {
    size: Duration,
    ends: Vec<i64>,
}

impl IsFirst {
    pub fn new(size: Duration) -> IsFirst {
        IsFirst {
            size,
            ends: Vec::new(),
        }
    }
}

impl Memory for IsFirst {
    fn grow(&mut self, slots: usize) {
        self.ends.resize(slots.max(self.ends.len()), i64::MIN);
    }

    fn clear(&mut self, slot: usize) {
        self.ends[slot] = i64::MIN;
    }

    fn run(&mut self, input: &CallInput<'_>, out: &mut ColumnBuilder, _failures: &mut Failures) {
        for at in input.rows() {
            let seen = &mut self.ends[at.slot];
            // A key's times never decrease, so up to its end the interval is still the same.
            let first = at.passes && at.time > *seen;
            if first {
                let time = Instant::from_ticks(at.time);
                *seen = time.ceil_to(self.size, Duration::ZERO).ticks();
            }
            out.push_int(first.into());
        }
    }

    fn snapshot(&self, slot: usize, out: &mut Writer) {
        out.i64(self.ends[slot]);
    }

    fn restore(&mut self, slot: usize, from: &mut Reader<'_>) -> Result<(), RestoreError> {
        self.ends[slot] = from.i64()?;
        Ok(())
    }
}
