//! Analytic functions: every row is emitted at once with one more value per call, computed from the rows before it.
//!
//! A call at time `t` reads the rows that precede the row (by time, ties by arrival), have equal keys, satisfy WHEN and
//! lie in (t - limit, t]. The value depends on those rows alone, not on chunk boundaries or on when a silent key was
//! dropped. Keys of different substreams are different keys.
//!
//! Keys, conditions and arguments are evaluated for a whole chunk; then each call runs over the rows once with its
//! state per key. Calls with equal PARTITION BY share one table of keys. The argument of a call is evaluated only in
//! rows that satisfy its WHEN, so a WHEN can guard it; the default of LAG and LAST is evaluated in every row.
//!
//! A row on which an expression fails is dropped and counted, and is invisible to other rows. A row whose result cannot
//! be represented (a SUM that overflows) is dropped and counted too, but stays visible to later rows.

mod anomaly;
pub(super) mod exact_sum;
mod lag;
mod partition_keys;
pub(super) mod range_aggregate;

use std::collections::{BTreeMap, VecDeque};

use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use highwater_codec::{DecodeError, Reader};
use highwater_query::Span;
use highwater_query::plan::{Analytic, AnalyticCall, AnalyticColumn, AnalyticNode, Expr, Pred};
use highwater_time::Instant;

use super::groups::EncodedKeys;
use super::{Context, Item, Operator, accumulate};
use crate::chunk::Chunk;
use crate::column::{Column, ColumnBuilder};
use crate::eval::{self, Faults};

use partition_keys::PartitionKeys;

/// The state of one call, per key. [`PartitionKeys`] numbers the keys; the number of a dropped key is cleared and
/// reused.
trait CallState: Send {
    /// Grows the state to `slots` keys.
    fn grow(&mut self, slots: usize);

    fn clear(&mut self, slot: usize);

    /// Processes the rows of a chunk in order and appends one value for each.
    fn run(&mut self, input: &CallInput<'_>, out: &mut ColumnBuilder, failures: &mut Failures);

    fn state_bytes(&self) -> usize;
    fn snapshot(&self, slot: usize, out: &mut Vec<u8>);
    fn restore(&mut self, slot: usize, from: &mut Reader<'_>) -> Result<(), DecodeError>;
}

/// A call whose state is one value per key.
trait KeyedCall: Send {
    type State: Default + Send;

    /// Processes a row and appends one value, or fails and appends none.
    fn row(
        &self,
        state: &mut Self::State,
        at: RowInput,
        input: &CallInput<'_>,
        out: &mut ColumnBuilder,
    ) -> Result<(), String>;

    /// The approximate overhead of a key besides the state itself.
    fn list_bytes(_state: &Self::State) -> usize {
        0
    }

    fn snapshot(&self, state: &Self::State, out: &mut Vec<u8>);
    fn restore(&self, from: &mut Reader<'_>) -> Result<Self::State, DecodeError>;
}

struct PerKey<C: KeyedCall> {
    call: C,
    states: Vec<C::State>,
}

fn per_key<C: KeyedCall + 'static>(call: C) -> Box<dyn CallState> {
    let states = Vec::new();
    Box::new(PerKey { call, states })
}

impl<C: KeyedCall> CallState for PerKey<C> {
    fn grow(&mut self, slots: usize) {
        let slots = slots.max(self.states.len());
        self.states.resize_with(slots, C::State::default);
    }

    fn clear(&mut self, slot: usize) {
        self.states[slot] = C::State::default();
    }

    fn run(&mut self, input: &CallInput<'_>, out: &mut ColumnBuilder, failures: &mut Failures) {
        for at in input.rows() {
            let state = &mut self.states[at.slot];
            if let Err(reason) = self.call.row(state, at, input, out) {
                out.push_null();
                failures.add(at.row, input.span, reason);
            }
        }
    }

    fn state_bytes(&self) -> usize {
        size_of_val(&self.states[..]) + self.states.iter().map(C::list_bytes).sum::<usize>()
    }

    fn snapshot(&self, slot: usize, out: &mut Vec<u8>) {
        self.call.snapshot(&self.states[slot], out);
    }

    fn restore(&mut self, slot: usize, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.states[slot] = self.call.restore(from)?;
        Ok(())
    }
}

/// Drops the entries up to and including `floor`, and frees memory after a peak.
fn expire<T>(entries: &mut VecDeque<T>, floor: i64, time: impl Fn(&T) -> i64) {
    const SHRINK_CAPACITY_MIN: usize = 64;
    while entries.front().is_some_and(|entry| time(entry) <= floor) {
        entries.pop_front();
    }
    if entries.capacity() > SHRINK_CAPACITY_MIN && entries.capacity() / 8 > entries.len() {
        entries.shrink_to(entries.len() * 2);
    }
}

/// The input of one call.
struct CallInput<'a> {
    times: &'a [i64],
    /// The number of each row's key.
    slots: &'a [u32],
    /// The rows that satisfy WHEN; `None` for all.
    when: Option<&'a BooleanBuffer>,
    /// The arguments; NULL where WHEN does not hold.
    arguments: &'a [Column],
    span: Span,
}

impl CallInput<'_> {
    fn rows(&self) -> impl Iterator<Item = RowInput> {
        (0..self.times.len()).map(|row| RowInput {
            row,
            slot: self.slots[row] as usize,
            time: self.times[row],
            passes: self.when.is_none_or(|when| when.value(row)),
        })
    }
}

#[derive(Clone, Copy)]
struct RowInput {
    row: usize,
    slot: usize,
    time: i64,
    passes: bool,
}

/// Rows without a representable result, and the reasons.
#[derive(Default)]
struct Failures(BTreeMap<usize, (Span, String)>);

impl Failures {
    fn add(&mut self, row: usize, span: Span, reason: String) {
        self.0.entry(row).or_insert((span, reason));
    }
}

pub(crate) struct Analytics {
    keyings: Vec<PartitionBy>,
    calls: Vec<Call>,
    columns: Vec<AnalyticColumn>,
}

/// A PARTITION BY list and its keys.
struct PartitionBy {
    partition: Vec<Expr>,
    keys: PartitionKeys,
    /// The number of each row's key in the current chunk.
    slots: Vec<u32>,
}

struct Call {
    function: Analytic,
    when: Option<Pred>,
    keying: usize,
    call_state: Box<dyn CallState>,
    span: Span,
}

/// The conditions, arguments and keys of one chunk.
struct CallColumns {
    keys: Vec<Vec<Column>>,
    calls: Vec<(Option<BooleanBuffer>, Vec<Column>)>,
}

impl Analytics {
    pub(crate) fn new(node: &AnalyticNode) -> Analytics {
        let mut keyings: Vec<PartitionBy> = Vec::new();
        let mut calls = Vec::new();
        for call in &node.calls {
            let known = keyings
                .iter()
                .position(|keying| same_keys(&keying.partition, &call.partition));
            let keying = known.unwrap_or_else(|| {
                keyings.push(PartitionBy {
                    partition: call.partition.clone(),
                    keys: PartitionKeys::default(),
                    slots: Vec::new(),
                });
                keyings.len() - 1
            });
            keyings[keying].keys.keep_for(call.limit);
            calls.push(Call {
                function: call.function.clone(),
                when: call.when.clone(),
                keying,
                call_state: call_state(call),
                span: call.span,
            });
        }
        Analytics {
            keyings,
            calls,
            columns: node.columns.clone(),
        }
    }

    fn rows(&mut self, chunk: Chunk, context: &mut Context<'_>) -> Chunk {
        let mut faults = Faults::new(chunk.rows());
        let mut evaluated = self.evaluate(&chunk, &mut faults);
        let mut chunk = chunk;
        if !faults.is_silent() {
            chunk = context.errors.drop_failed_rows(chunk, &faults);
            evaluated = self.evaluate(&chunk, &mut Faults::new(chunk.rows()));
        }
        let lanes = chunk.lanes.as_ref().map(|lanes| &lanes.of_row[..]);
        for (keying, keys) in self.keyings.iter_mut().zip(&evaluated.keys) {
            let encoded = EncodedKeys::new(keys.iter(), chunk.rows());
            keying
                .keys
                .find(&encoded, lanes, &chunk.times, &mut keying.slots);
        }
        let mut failures = Failures::default();
        let mut results = Vec::with_capacity(self.calls.len());
        for (call, (when, arguments)) in self.calls.iter_mut().zip(&evaluated.calls) {
            let keying = &self.keyings[call.keying];
            call.call_state.grow(keying.keys.slots());
            let input = CallInput {
                times: &chunk.times,
                slots: &keying.slots,
                when: when.as_ref(),
                arguments,
                span: call.span,
            };
            let mut out = ColumnBuilder::with_capacity(chunk.rows());
            call.call_state.run(&input, &mut out, &mut failures);
            results.push(out.finish());
        }
        let columns = self.columns.iter().map(|column| match *column {
            AnalyticColumn::Carried(column) => chunk.columns[column].clone(),
            AnalyticColumn::Call(call) => results[call].clone(),
        });
        let columns = columns.collect();
        drop_failed(chunk.with_columns(columns), failures, context)
    }

    fn evaluate(&self, chunk: &Chunk, faults: &mut Faults) -> CallColumns {
        let keyings = self.keyings.iter();
        let keys = keyings.map(|keying| eval::evaluate_all(&keying.partition, chunk, faults));
        let keys = keys.collect();
        let calls = self.calls.iter().map(|call| call.evaluate(chunk, faults));
        let calls = calls.collect();
        CallColumns { keys, calls }
    }

    /// Drops keys whose rows no call can read any more.
    fn forget(&mut self, watermark: Instant) {
        for (index, keying) in self.keyings.iter_mut().enumerate() {
            let calls = &mut self.calls;
            keying.keys.forget(watermark, |slot| {
                let own = calls.iter_mut().filter(|call| call.keying == index);
                own.for_each(|call| call.call_state.clear(slot));
            });
        }
    }
}

impl Call {
    fn evaluate(&self, chunk: &Chunk, faults: &mut Faults) -> (Option<BooleanBuffer>, Vec<Column>) {
        let Some(when) = &self.when else {
            let mut arguments = self.arguments(chunk, faults);
            arguments.extend(self.default(chunk, faults));
            return (None, arguments);
        };
        let when = eval::test(when, chunk, faults);
        let rows: Vec<usize> = when.set_indices().collect();
        let guarded = chunk.filter(&when);
        let mut own = Faults::new(rows.len());
        let arguments = self.arguments(&guarded, &mut own);
        for (row, fault) in own.iter() {
            faults.add(rows[row], fault.span, fault.reason.clone());
        }
        for (row, warning) in own.warnings() {
            faults.warn(rows[row], warning.span, warning.text);
        }
        let arguments = arguments.iter().map(|column| spread(column, &when));
        let mut arguments: Vec<Column> = arguments.collect();
        arguments.extend(self.default(chunk, faults));
        (Some(when), arguments)
    }

    /// The default for a missing row, as the last argument.
    fn default(&self, chunk: &Chunk, faults: &mut Faults) -> Option<Column> {
        match &self.function {
            Analytic::Lag { default, .. } | Analytic::Last { default, .. } => {
                let default = default.as_ref()?;
                Some(eval::evaluate(default, chunk, faults))
            }
            _ => None,
        }
    }

    fn arguments(&self, chunk: &Chunk, faults: &mut Faults) -> Vec<Column> {
        match &self.function {
            Analytic::Lag { of, .. } | Analytic::Last { of, .. } => {
                vec![eval::evaluate(of, chunk, faults)]
            }
            Analytic::IsFirst => Vec::new(),
            Analytic::Aggregate(aggregate) => {
                let argument = accumulate::argument(aggregate, chunk, faults);
                argument.into_iter().collect()
            }
            Analytic::SpikeAndDip {
                of,
                confidence,
                mode,
                ..
            } => vec![
                anomaly::numbers(of, chunk, faults),
                anomaly::numbers(confidence, chunk, faults),
                eval::evaluate(mode, chunk, faults),
            ],
            Analytic::ChangePoint { of, confidence, .. } => vec![
                anomaly::numbers(of, chunk, faults),
                anomaly::numbers(confidence, chunk, faults),
            ],
        }
    }
}

fn call_state(call: &AnalyticCall) -> Box<dyn CallState> {
    let limit = call.limit.ticks();
    match &call.function {
        Analytic::Lag { offset: 1, .. } => Box::new(lag::Latest::before_row(limit)),
        Analytic::Lag { offset, .. } => per_key(lag::LagMany::new(limit, *offset)),
        Analytic::Last { .. } => Box::new(lag::Latest::up_to_row(limit)),
        Analytic::IsFirst => per_key(lag::IsFirst(call.limit)),
        Analytic::Aggregate(aggregate) => range_aggregate::call_state(aggregate, limit),
        Analytic::SpikeAndDip { history, .. } => {
            per_key(anomaly::SpikeAndDip(anomaly::Limits::new(limit, *history)))
        }
        Analytic::ChangePoint { history, .. } => {
            per_key(anomaly::ChangePoint(anomaly::Limits::new(limit, *history)))
        }
    }
}

/// Whether calls with these PARTITION BY lists share a table. Positions in the text count inside of an expression, and
/// have to: checkpoints depend on which calls share a table.
fn same_keys(a: &[Expr], b: &[Expr]) -> bool {
    let text = |expr: &Expr| format!("{:?}", expr.kind);
    a.iter().map(text).eq(b.iter().map(text))
}

/// A column over the rows that `mask` selects, with NULL in the other rows.
fn spread(column: &Column, mask: &BooleanBuffer) -> Column {
    if column.len() == mask.len() {
        return column.clone();
    }
    let mut builder = ColumnBuilder::with_capacity(mask.len());
    let mut at = 0;
    for selected in mask.iter() {
        if selected {
            builder.push(column.get(at));
            at += 1;
        } else {
            builder.push_null();
        }
    }
    builder.finish()
}

fn drop_failed(chunk: Chunk, failures: Failures, context: &mut Context<'_>) -> Chunk {
    if failures.0.is_empty() {
        return chunk;
    }
    let mut good = BooleanBufferBuilder::new(chunk.rows());
    good.append_n(chunk.rows(), true);
    for (row, (span, reason)) in failures.0 {
        context.errors.add(chunk.time(row), span, || reason);
        good.set_bit(row, false);
    }
    chunk.filter(&good.finish())
}

impl Operator for Analytics {
    fn push(&mut self, _port: usize, item: Item, context: &mut Context<'_>) {
        match item {
            Item::Rows(chunk) => {
                let floors = chunk.lanes.iter().flat_map(|lanes| &lanes.watermarks);
                let floor = floors
                    .filter(|mark| mark.lane.is_none())
                    .map(|mark| mark.watermark)
                    .max();
                let chunk = self.rows(chunk, context);
                context.out.push(Item::Rows(chunk));
                if let Some(floor) = floor {
                    self.forget(floor);
                }
            }
            Item::Watermark(watermark) => {
                self.forget(watermark);
                context.out.push(item);
            }
            Item::PartialPanes(_) => unreachable!("analytic functions are never given shares"),
        }
    }

    fn state_bytes(&self) -> usize {
        let keys = self.keyings.iter().map(|by| by.keys.state_bytes());
        let calls = self.calls.iter().map(|call| call.call_state.state_bytes());
        keys.chain(calls).sum()
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        for (index, keying) in self.keyings.iter().enumerate() {
            keying.keys.snapshot(out);
            for call in self.calls.iter().filter(|call| call.keying == index) {
                let used = keying.keys.used();
                used.for_each(|slot| call.call_state.snapshot(slot, out));
            }
        }
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        for (index, keying) in self.keyings.iter_mut().enumerate() {
            keying.keys.restore(from)?;
            for call in self.calls.iter_mut().filter(|call| call.keying == index) {
                call.call_state.grow(keying.keys.slots());
                for slot in keying.keys.used() {
                    call.call_state.restore(slot, from)?;
                }
            }
        }
        Ok(())
    }
}
