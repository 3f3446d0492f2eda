//! LAG, LAST and ISFIRST: values of earlier rows of a key.

use std::collections::VecDeque;

use arrow_array::Array;
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_time::{Duration, Instant};

use super::{CallInput, CallState, Failures, KeyedCall, RowInput, expire};
use crate::codec::{ReadValue, WriteValue};
use crate::column::{Column, ColumnBuilder};
use crate::value::{Value, ValueRef};

/// A candidate: its time and value.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub time: i64,
    pub value: Value,
}

impl Cell {
    pub(super) fn new(time: i64, column: &Column, row: usize) -> Cell {
        Cell {
            time,
            value: column.get(row).to_value(),
        }
    }

    pub(super) fn snapshot(&self, out: &mut Vec<u8>) {
        out.i64(self.time);
        out.value(self.value.view());
    }

    pub(super) fn restore(from: &mut Reader<'_>) -> Result<Cell, DecodeError> {
        Ok(Cell {
            time: from.i64()?,
            value: from.value()?,
        })
    }
}

/// LAG with offset 1, and LAST: the latest candidate of each key.
pub(super) struct Latest {
    limit: i64,
    /// LAST: the row itself is a candidate.
    with_row: bool,
    cells: Cells,
}

/// At most one candidate per key. While all values have one small type, or are NULL, they are stored without it: with
/// very many keys, the cost of a row is the memory that it touches.
enum Cells {
    PlainCell {
        kind: Kind,
        cells: Vec<PlainCell>,
        nulls: Vec<bool>,
    },
    Wide(Vec<Cell>),
}

#[derive(Clone, Copy)]
struct PlainCell {
    /// [`NEVER`] if there is no candidate.
    time: i64,
    bits: u64,
}

impl PlainCell {
    const NONE: PlainCell = PlainCell {
        time: NEVER,
        bits: 0,
    };
}

/// Before every time, so never within a limit.
const NEVER: i64 = i64::MIN;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// No value yet.
    Unknown,
    Bit,
    Int,
    Float,
    Time,
}

impl Kind {
    /// The type and bits of a value that is neither NULL nor too large.
    fn of(value: ValueRef<'_>) -> Option<(Kind, u64)> {
        match value {
            ValueRef::Bit(b) => Some((Kind::Bit, b.into())),
            ValueRef::Int(i) => Some((Kind::Int, i as u64)),
            ValueRef::Float(f) => Some((Kind::Float, f.to_bits())),
            ValueRef::Time(t) => Some((Kind::Time, t.ticks() as u64)),
            _ => None,
        }
    }

    fn value(self, bits: u64) -> ValueRef<'static> {
        match self {
            Kind::Unknown => ValueRef::Null,
            Kind::Bit => ValueRef::Bit(bits != 0),
            Kind::Int => ValueRef::Int(bits as i64),
            Kind::Float => ValueRef::Float(f64::from_bits(bits)),
            Kind::Time => ValueRef::Time(Instant::from_ticks(bits as i64)),
        }
    }
}

impl Cells {
    fn new() -> Cells {
        Cells::PlainCell {
            kind: Kind::Unknown,
            cells: Vec::new(),
            nulls: Vec::new(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Cells::PlainCell { cells, .. } => cells.len(),
            Cells::Wide(cells) => cells.len(),
        }
    }

    fn grow(&mut self, slots: usize) {
        match self {
            Cells::PlainCell { cells, nulls, .. } => {
                cells.resize(slots, PlainCell::NONE);
                nulls.resize(slots, false);
            }
            Cells::Wide(cells) => cells.resize(
                slots,
                Cell {
                    time: NEVER,
                    value: Value::Null,
                },
            ),
        }
    }

    #[inline]
    fn get(&self, slot: usize) -> (i64, ValueRef<'_>) {
        match self {
            Cells::PlainCell { kind, cells, nulls } => {
                let PlainCell { time, bits } = cells[slot];
                let value = match nulls[slot] {
                    true => ValueRef::Null,
                    false => kind.value(bits),
                };
                (time, value)
            }
            Cells::Wide(cells) => (cells[slot].time, cells[slot].value.view()),
        }
    }

    #[inline]
    fn set(&mut self, slot: usize, time: i64, value: ValueRef<'_>) {
        if let Cells::PlainCell { kind, cells, nulls } = self {
            if value.is_null() {
                (cells[slot].time, nulls[slot]) = (time, true);
                return;
            }
            if let Some((new, bits)) = Kind::of(value)
                && (*kind == new || *kind == Kind::Unknown)
            {
                *kind = new;
                cells[slot] = PlainCell { time, bits };
                nulls[slot] = false;
                return;
            }
            self.widen();
        }
        if let Cells::Wide(cells) = self {
            cells[slot] = Cell {
                time,
                value: value.to_value(),
            };
        }
    }

    #[cold]
    fn widen(&mut self) {
        let cells = (0..self.len()).map(|slot| {
            let (time, value) = self.get(slot);
            Cell {
                time,
                value: value.to_value(),
            }
        });
        *self = Cells::Wide(cells.collect());
    }
}

impl Latest {
    /// LAG with offset 1.
    pub(super) fn before_row(limit: i64) -> Latest {
        Latest {
            limit,
            with_row: false,
            cells: Cells::new(),
        }
    }

    /// LAST.
    pub(super) fn up_to_row(limit: i64) -> Latest {
        Latest {
            with_row: true,
            ..Latest::before_row(limit)
        }
    }
}

impl Latest {
    /// The common case of LAG: values of one small type, without NULLs, WHEN and default. Returns whether it is one.
    ///
    /// The first loop does nothing but exchange the cells of its rows, so that the cache misses of many keys overlap.
    fn run_plain(&mut self, input: &CallInput<'_>, out: &mut ColumnBuilder) -> bool {
        let ([of], None, false) = (input.arguments, input.when, self.with_row) else {
            return false;
        };
        let Cells::PlainCell { kind, cells, nulls } = &mut self.cells else {
            return false;
        };
        let Some((new, bits)) = plain_bits(of) else {
            return false;
        };
        if *kind != new && *kind != Kind::Unknown {
            return false;
        }
        *kind = new;
        let rows = input.slots.iter().zip(input.times).zip(bits);
        let exchange = |((slot, time), bits): ((&u32, &i64), u64)| {
            let slot = *slot as usize;
            let before = std::mem::replace(&mut cells[slot], PlainCell { time: *time, bits });
            match std::mem::take(&mut nulls[slot]) {
                true => PlainCell::NONE,
                false => before,
            }
        };
        let before: Vec<PlainCell> = rows.map(exchange).collect();
        for (cell, time) in before.into_iter().zip(input.times) {
            match cell.time > time.saturating_sub(self.limit) {
                true => out.push(new.value(cell.bits)),
                false => out.push_null(),
            }
        }
        true
    }
}

/// The type and bits of values without NULLs, if the type is a small one.
fn plain_bits(of: &Column) -> Option<(Kind, Vec<u64>)> {
    let ints = |values: &[i64]| values.iter().map(|value| *value as u64).collect();
    match of {
        Column::Int(values) if values.null_count() == 0 => Some((Kind::Int, ints(values.values()))),
        Column::Time(values) if values.null_count() == 0 => {
            Some((Kind::Time, ints(values.values())))
        }
        Column::Float(values) if values.null_count() == 0 => {
            let bits = values.values().iter().map(|value| value.to_bits());
            Some((Kind::Float, bits.collect()))
        }
        _ => None,
    }
}

fn push_default(default: Option<&Column>, row: usize, out: &mut ColumnBuilder) {
    match default {
        Some(default) => out.push(default.get(row)),
        None => out.push_null(),
    }
}

impl CallState for Latest {
    fn grow(&mut self, slots: usize) {
        self.cells.grow(slots.max(self.cells.len()));
    }

    fn clear(&mut self, slot: usize) {
        self.cells.set(slot, NEVER, ValueRef::Null);
    }

    fn run(&mut self, input: &CallInput<'_>, out: &mut ColumnBuilder, _failures: &mut Failures) {
        if self.run_plain(input, out) {
            return;
        }
        let (of, default) = (&input.arguments[0], input.arguments.get(1));
        for at in input.rows() {
            if self.with_row && at.passes {
                self.cells.set(at.slot, at.time, of.get(at.row));
            }
            let (time, value) = self.cells.get(at.slot);
            if time > at.time.saturating_sub(self.limit) {
                out.push(value);
            } else {
                push_default(default, at.row, out);
            }
            if !self.with_row && at.passes {
                self.cells.set(at.slot, at.time, of.get(at.row));
            }
        }
    }

    fn state_bytes(&self) -> usize {
        self.cells.len() * size_of::<PlainCell>()
    }

    fn snapshot(&self, slot: usize, out: &mut Vec<u8>) {
        let (time, value) = self.cells.get(slot);
        out.i64(time);
        out.value(value);
    }

    fn restore(&mut self, slot: usize, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        let time = from.i64()?;
        self.cells.set(slot, time, from.value()?.view());
        Ok(())
    }
}

/// LAG with a larger offset: the latest `offset` candidates of each key.
pub(super) struct LagMany {
    limit: i64,
    offset: usize,
}

impl LagMany {
    pub(super) fn new(limit: i64, offset: usize) -> LagMany {
        let offset = offset.max(1);
        LagMany { limit, offset }
    }
}

impl KeyedCall for LagMany {
    type State = VecDeque<Cell>;

    fn row(
        &self,
        cells: &mut VecDeque<Cell>,
        at: RowInput,
        input: &CallInput<'_>,
        out: &mut ColumnBuilder,
    ) -> Result<(), String> {
        let (of, default) = (&input.arguments[0], input.arguments.get(1));
        expire(cells, at.time.saturating_sub(self.limit), |cell| cell.time);
        match cells.len().checked_sub(self.offset) {
            Some(index) => out.push(cells[index].value.view()),
            None => push_default(default, at.row, out),
        }
        if at.passes {
            if cells.len() == self.offset {
                cells.pop_front();
            }
            cells.push_back(Cell::new(at.time, of, at.row));
        }
        Ok(())
    }

    fn list_bytes(cells: &VecDeque<Cell>) -> usize {
        cells.len() * size_of::<Cell>()
    }

    fn snapshot(&self, cells: &VecDeque<Cell>, out: &mut Vec<u8>) {
        snapshot_cells(cells, out);
    }

    fn restore(&self, from: &mut Reader<'_>) -> Result<VecDeque<Cell>, DecodeError> {
        let cells = restore_cells(from)?;
        match cells.len() <= self.offset {
            true => Ok(cells),
            false => Err(DecodeError::Invalid("more rows than LAG looks back")),
        }
    }
}

pub(super) fn snapshot_cells(cells: &VecDeque<Cell>, out: &mut Vec<u8>) {
    out.count(cells.len());
    cells.iter().for_each(|cell| cell.snapshot(out));
}

pub(super) fn restore_cells(from: &mut Reader<'_>) -> Result<VecDeque<Cell>, DecodeError> {
    (0..from.count()?).map(|_| Cell::restore(from)).collect()
}

/// ISFIRST, with the length of its intervals.
pub(super) struct IsFirst(pub Duration);

/// The end of the last interval with a row of the key, in ticks.
pub(super) struct IntervalEnd(i64);

impl Default for IntervalEnd {
    fn default() -> IntervalEnd {
        IntervalEnd(i64::MIN)
    }
}

impl KeyedCall for IsFirst {
    type State = IntervalEnd;

    fn row(
        &self,
        IntervalEnd(end): &mut IntervalEnd,
        at: RowInput,
        _input: &CallInput<'_>,
        out: &mut ColumnBuilder,
    ) -> Result<(), String> {
        // A key's times never decrease, so up to its end the interval is still the same.
        let first = at.passes && at.time > *end;
        if first {
            let time = Instant::from_ticks(at.time);
            *end = time.ceil_to(self.0, Duration::ZERO).ticks();
        }
        out.push_int(first.into());
        Ok(())
    }

    fn snapshot(&self, IntervalEnd(end): &IntervalEnd, out: &mut Vec<u8>) {
        out.i64(*end);
    }

    fn restore(&self, from: &mut Reader<'_>) -> Result<IntervalEnd, DecodeError> {
        from.i64().map(IntervalEnd)
    }
}
