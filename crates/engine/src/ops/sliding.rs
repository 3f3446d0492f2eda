//! Sliding windows: a row for every instant at which a group's content changes.
//!
//! The content at `t` is the group's events in (t - size, t]. It changes when events enter, at their time, and when they
//! leave, `size` later; empty content gives no row. Aggregates that can retract values are updated with the content
//! ([`SlidingAggregate`]); the others are recomputed at each change. Either way a result depends only on the content of
//! the window; only scripts that retract events depend on a little more.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_query::plan::{Aggregate, AggregateFunction};
use highwater_time::{Duration, Instant};

use super::accumulate::{self, Accumulator, FailureReason, RollingScript};
use super::change_queue::ChangeQueue;
use super::groups::{GroupInput, GroupSpec};
use super::keyed_slots::{KeyedSlots, LaneKey};
use super::sliding_aggregate::SlidingAggregate;
use super::window_operator::{LaneWindow, RowWriter, WindowReport};
use crate::codec::{ReadValue, WriteValue};
use crate::column::{Column, ColumnBuilder};
use crate::script::{self, Retraction};
use crate::value::{Value, ValueRef};

pub(crate) struct Sliding {
    spec: Arc<GroupSpec>,
    size: i64,
    groups: KeyedSlots<Group>,
    /// Groups whose content changes at an instant.
    changes: ChangeQueue,
    /// Groups that are gone: where keys are many, a group lives for an event or two, and allocating it anew costs more
    /// than what it does.
    spare: Vec<Group>,
    /// The results of the group that changes; reused.
    results: Vec<Value>,
    /// The groups that change; reused.
    changed: Vec<u32>,
}

/// How many groups that are gone are kept.
const SPARE_MAX: usize = 1024;

struct Group {
    /// The keys of the first event. Equal keys may have different representations, such as 1 and 1.0; the output must
    /// not depend on how long a group is kept, so it follows the content.
    display_keys: Vec<Value>,
    /// The keys of the last event.
    last_display_keys: Vec<Value>,
    events: VecDeque<Event>,
    /// Of every event one value per aggregate; NULL for COUNT(*).
    arguments: VecDeque<Value>,
    /// How many events at the front are in the content; the watermark has not reached the later ones.
    inside: usize,
    rolling: Vec<SlidingAggregate>,
    /// The last evaluated time.
    last_evaluated: i64,
}

struct Event {
    time: i64,
    /// The keys, if their representation differs from that of the previous event.
    display_keys: Option<Vec<Value>>,
}

pub(super) const GROUP_BYTES: usize = size_of::<Group>() + KeyedSlots::<Group>::OVERHEAD;
pub(super) const EVENT_BYTES: usize = size_of::<Event>();

impl Sliding {
    pub(crate) fn new(spec: Arc<GroupSpec>, size: Duration) -> Sliding {
        Sliding {
            spec,
            size: size.ticks(),
            groups: KeyedSlots::default(),
            changes: ChangeQueue::default(),
            spare: Vec::new(),
            results: Vec::new(),
            changed: Vec::new(),
        }
    }

    fn slot(&mut self, lane: u32, input: &GroupInput, row: usize) -> u32 {
        let key = LaneKey {
            lane,
            hash: input.hash(row),
            key: input.key(row),
        };
        if let Some(slot) = self.groups.find(key) {
            return slot;
        }
        let mut group = self.spare.pop().unwrap_or_else(|| Group {
            display_keys: Vec::new(),
            last_display_keys: Vec::new(),
            events: VecDeque::new(),
            arguments: VecDeque::new(),
            inside: 0,
            rolling: self.rolling(),
            last_evaluated: i64::MIN,
        });
        let keys = keys_of(input, row).map(ValueRef::to_value);
        group.display_keys.extend(keys);
        let keys = group.display_keys.iter().cloned();
        group.last_display_keys.extend(keys);
        self.groups.insert(key, group)
    }

    fn rolling(&self) -> Vec<SlidingAggregate> {
        self.spec
            .aggregates
            .iter()
            .map(SlidingAggregate::new)
            .collect()
    }

    fn change(
        &mut self,
        slot: u32,
        time: i64,
        out: &mut RowWriter<'_>,
        report: &mut WindowReport<'_>,
    ) {
        let Some(group) = self.groups.get_mut(slot) else {
            return;
        };
        if group.last_evaluated == time {
            return;
        }
        group.last_evaluated = time;
        group.move_to(time, self.size);
        if group.inside > 0 {
            let (spec, results) = (&self.spec, &mut self.results);
            match group.results(spec, time, self.size, results) {
                Ok(()) => {
                    let shown = group.display_keys.iter().chain(results.iter());
                    for (column, value) in out.begin(time).iter_mut().zip(shown) {
                        column.push(value.view());
                    }
                }
                Err((index, reason)) => report.errors.add(
                    Instant::from_ticks(time),
                    spec.aggregates[index].span,
                    || reason.to_string(),
                ),
            }
        } else if group.events.is_empty()
            && let Some(mut group) = self.groups.remove(slot)
            && self.spare.len() < SPARE_MAX
        {
            group.clear(&self.spec);
            self.spare.push(group);
        }
    }
}

fn keys_of(input: &GroupInput, row: usize) -> impl Iterator<Item = ValueRef<'_>> {
    input.keys.iter().map(move |key| key.get(row))
}

/// Whether two equal keys have the same representation.
fn same_representation(a: &Value, b: ValueRef<'_>) -> bool {
    match (a, b) {
        (Value::Float(a), ValueRef::Float(b)) => a.to_bits() == b.to_bits(),
        (Value::Text(a), ValueRef::Text(b)) => **a == *b,
        (Value::Record(_) | Value::Array(_), _) => false,
        (a, b) => std::mem::discriminant(&a.view()) == std::mem::discriminant(&b),
    }
}

impl Group {
    /// The keys of the next event, if their representation differs from that of the last one.
    fn changed_keys(&mut self, input: &GroupInput, row: usize) -> Option<Vec<Value>> {
        let mut pairs = self.last_display_keys.iter().zip(keys_of(input, row));
        if pairs.all(|(last, new)| same_representation(last, new)) {
            return None;
        }
        self.last_display_keys = keys_of(input, row).map(ValueRef::to_value).collect();
        Some(self.last_display_keys.clone())
    }

    /// Makes the group one without events, for another key.
    fn clear(&mut self, spec: &GroupSpec) {
        self.display_keys.clear();
        self.last_display_keys.clear();
        self.last_evaluated = i64::MIN;
        for (rolling, aggregate) in self.rolling.iter_mut().zip(&spec.aggregates) {
            rolling.clear(aggregate);
        }
    }

    /// The arguments of one aggregate, of all events inside.
    fn content(&self, index: usize) -> impl Iterator<Item = &Value> {
        let width = self.rolling.len();
        let inside = self.arguments.range(..self.inside * width);
        inside.skip(index).step_by(width)
    }

    fn move_to(&mut self, time: i64, size: i64) {
        let width = self.rolling.len();
        while (self.events.get(self.inside)).is_some_and(|event| event.time <= time) {
            let arguments = self.arguments.range(self.inside * width..);
            for (rolling, value) in self.rolling.iter_mut().zip(arguments) {
                rolling.enter(value);
            }
            self.inside += 1;
        }
        while self
            .events
            .front()
            .is_some_and(|event| event.time <= time - size)
        {
            self.events.pop_front();
            for (rolling, value) in self.rolling.iter_mut().zip(self.arguments.drain(..width)) {
                rolling.leave(&value);
            }
            self.inside -= 1;
            let first = self.events.front_mut();
            if let Some(display_keys) = first.and_then(|event| event.display_keys.take()) {
                self.display_keys = display_keys;
            }
        }
    }

    fn results(
        &mut self,
        spec: &GroupSpec,
        time: i64,
        size: i64,
        results: &mut Vec<Value>,
    ) -> Result<(), (usize, FailureReason)> {
        results.clear();
        for (index, aggregate) in spec.aggregates.iter().enumerate() {
            let result = match self.rolling_result(index, aggregate, time, size) {
                Some(result) => result,
                None => self.folded_result(index, aggregate),
            };
            results.push(result.map_err(|reason| (index, reason))?);
        }
        Ok(())
    }

    fn rolling_result(
        &mut self,
        index: usize,
        aggregate: &Aggregate,
        time: i64,
        size: i64,
    ) -> Option<Result<Value, FailureReason>> {
        let width = self.rolling.len();
        match (&mut self.rolling[index], &aggregate.function) {
            (SlidingAggregate::Script(rolling), AggregateFunction::User(name)) => {
                script::can_retract(name, Retraction::OneByOne).then(|| {
                    let content = self.arguments.range(..self.inside * width);
                    let content = content.skip(index).step_by(width);
                    let content = content.filter_map(accumulate::event);
                    rolling.step(name, Retraction::OneByOne, time, size, content)
                })
            }
            (rolling, _) => rolling.result(aggregate),
        }
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        let display_keys = self.display_keys.iter().chain(&self.last_display_keys);
        display_keys.for_each(|value| out.value(value.view()));
        out.i64(self.last_evaluated);
        out.count(self.inside);
        out.count(self.events.len());
        let width = self.rolling.len();
        for (index, event) in self.events.iter().enumerate() {
            out.i64(event.time);
            let arguments = self.arguments.range(index * width..(index + 1) * width);
            arguments.for_each(|value| out.value(value.view()));
            out.u8(event.display_keys.is_some().into());
            let display_keys = event.display_keys.iter().flatten();
            display_keys.for_each(|value| out.value(value.view()));
        }
        for rolling in &self.rolling {
            if let SlidingAggregate::Script(rolling) = rolling {
                rolling.snapshot(out);
            }
        }
    }

    fn folded_result(&self, index: usize, aggregate: &Aggregate) -> Result<Value, FailureReason> {
        let mut accumulator = Accumulator::new(aggregate);
        let mut column = ColumnBuilder::with_capacity(self.inside);
        for value in self.content(index) {
            column.push(value.view());
        }
        accumulator.grow(1);
        accumulator.update(&vec![0; self.inside], 0, Some(&column.finish()));
        accumulator.result(0)
    }
}

impl LaneWindow for Sliding {
    fn spec(&self) -> &GroupSpec {
        &self.spec
    }

    fn rows(
        &mut self,
        input: &GroupInput,
        lane: u32,
        rows: Range<usize>,
        report: &mut WindowReport<'_>,
    ) {
        for row in rows {
            let time = input.chunk.times[row];
            let slot = self.slot(lane, input, row);
            let argument = |column: &Option<Column>| {
                let column = column.as_ref();
                column.map_or(Value::Null, |column| column.value(row))
            };
            if let Some(group) = self.groups.get_mut(slot) {
                let display_keys = group.changed_keys(input, row);
                group.events.push_back(Event { time, display_keys });
                let arguments = input.arguments.iter().map(argument);
                group.arguments.extend(arguments);
            }
            let leaves = time.saturating_add(self.size);
            self.changes.push(lane, slot, time, leaves);
            report.window_entered(
                input,
                row,
                Instant::from_ticks(time),
                Instant::from_ticks(leaves),
            );
        }
    }

    fn advance(
        &mut self,
        lane: Option<u32>,
        watermark: Instant,
        out: &mut RowWriter<'_>,
        report: &mut WindowReport<'_>,
    ) {
        let mut changed = std::mem::take(&mut self.changed);
        while let Some((lane, time)) = self.changes.pop(lane, watermark, &mut changed) {
            out.lane = lane;
            for &slot in &changed {
                self.change(slot, time, out, report);
            }
        }
        self.changed = changed;
    }

    fn state_bytes(&self) -> usize {
        let event = EVENT_BYTES + self.spec.aggregates.len() * size_of::<Value>();
        self.groups.state_bytes(|group| {
            let scripts = group.rolling.iter().map(|rolling| match rolling {
                SlidingAggregate::Script(rolling) => rolling.state_bytes(),
                _ => 0,
            });
            size_of::<Group>() + group.events.len() * event + scripts.sum::<usize>()
        })
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        self.groups.snapshot(out, Group::snapshot);
        self.changes.snapshot(out);
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        let mut fresh = Sliding::new(self.spec.clone(), Duration::from_ticks(self.size));
        fresh.groups = KeyedSlots::restore(from, |from| self.restore_group(from))?;
        let groups = &fresh.groups;
        fresh.changes = ChangeQueue::restore(from, |from| groups.restore_slots(from))?;
        *self = fresh;
        Ok(())
    }
}

impl Sliding {
    fn restore_group(&self, from: &mut Reader<'_>) -> Result<Group, DecodeError> {
        let (keys, aggregates) = (self.spec.keys.len(), self.spec.aggregates.len());
        let values = |from: &mut Reader<'_>, count: usize| -> Result<Vec<Value>, DecodeError> {
            (0..count).map(|_| from.value()).collect()
        };
        let (display_keys, last_display_keys) = (values(from, keys)?, values(from, keys)?);
        let (last_evaluated, inside) = (from.i64()?, from.u64()? as usize);
        let mut rolling = self.rolling();
        let (mut events, mut all) = (VecDeque::new(), VecDeque::new());
        for index in 0..from.count()? {
            let time = from.i64()?;
            let arguments = values(from, aggregates)?;
            if index < inside {
                for (rolling, value) in rolling.iter_mut().zip(&arguments) {
                    rolling.enter(value);
                }
            }
            let display_keys = if from.u8()? == 0 {
                None
            } else {
                Some(values(from, keys)?)
            };
            events.push_back(Event { time, display_keys });
            all.extend(arguments);
        }
        for rolling in &mut rolling {
            if let SlidingAggregate::Script(rolling) = rolling {
                **rolling = RollingScript::restore(from)?;
            }
        }
        if inside > events.len() {
            return Err(DecodeError::Invalid(
                "more events inside a window than there are",
            ));
        }
        Ok(Group {
            display_keys,
            last_display_keys,
            events,
            arguments: all,
            inside,
            rolling,
            last_evaluated,
        })
    }
}
