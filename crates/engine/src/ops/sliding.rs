//! Sliding windows: a row for every instant at which a group's content changes.
//!
//! The content at `t` is the group's events in (t - size, t]. It changes when events enter, at their time, and when they
//! leave, `size` later; empty content gives no row. Aggregates that can retract values are updated with the content
//! ([`SlidingAggregate`]); the others are recomputed at each change. Either way a result depends only on the content of
//! the window; only scripts that retract events depend on a little more.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashTable;
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_query::plan::{Aggregate, AggregateFunction};
use highwater_time::{Duration, Instant};

use super::accumulate::{self, Accumulator, FailureReason, RollingScript};
use super::groups::{GroupInput, GroupSpec};
use super::sliding_aggregate::SlidingAggregate;
use super::timer_queue::TimerQueue;
use super::window_operator::{LaneWindow, RowWriter, WindowReport};
use crate::codec::{ReadValue, WriteValue};
use crate::column::ColumnBuilder;
use crate::script::{self, Retraction};
use crate::value::{Value, ValueRef};

pub(crate) struct Sliding {
    spec: Arc<GroupSpec>,
    size: i64,
    table: HashTable<u32>,
    groups: Vec<Option<Group>>,
    free: Vec<u32>,
    /// Groups whose content changes at an instant.
    changes: TimerQueue<Vec<u32>>,
}

struct Group {
    lane: u32,
    hash: u64,
    key: Box<[u8]>,
    /// The keys of the first event. Equal keys may have different representations, such as 1 and 1.0; the output must
    /// not depend on how long a group is kept, so it follows the content.
    display_keys: Vec<Value>,
    /// The keys of the last event.
    last_display_keys: Vec<Value>,
    events: VecDeque<Event>,
    /// How many events at the front are in the content; the watermark has not reached the later ones.
    inside: usize,
    rolling: Vec<SlidingAggregate>,
    /// The last evaluated time.
    last_evaluated: i64,
}

struct Event {
    time: i64,
    /// One per aggregate; NULL for COUNT(*).
    arguments: Box<[Value]>,
    /// The keys, if their representation differs from that of the previous event.
    display_keys: Option<Vec<Value>>,
}

pub(super) const GROUP_BYTES: usize = size_of::<Group>();
pub(super) const EVENT_BYTES: usize = size_of::<Event>();

impl Sliding {
    pub(crate) fn new(spec: Arc<GroupSpec>, size: Duration) -> Sliding {
        Sliding {
            spec,
            size: size.ticks(),
            table: HashTable::new(),
            groups: Vec::new(),
            free: Vec::new(),
            changes: TimerQueue::default(),
        }
    }

    fn slot(&mut self, lane: u32, input: &GroupInput, row: usize) -> u32 {
        let (hash, key) = (input.hash(row), input.key(row));
        let found = self.table.find(hash, |&slot| {
            self.groups[slot as usize]
                .as_ref()
                .is_some_and(|g| g.lane == lane && &*g.key == key)
        });
        if let Some(&slot) = found {
            return slot;
        }
        let display_keys: Vec<Value> = keys_of(input, row).map(ValueRef::to_value).collect();
        self.insert(Group {
            lane,
            hash,
            key: key.into(),
            last_display_keys: display_keys.clone(),
            display_keys,
            events: VecDeque::new(),
            inside: 0,
            rolling: self.rolling(),
            last_evaluated: i64::MIN,
        })
    }

    fn rolling(&self) -> Vec<SlidingAggregate> {
        self.spec
            .aggregates
            .iter()
            .map(SlidingAggregate::new)
            .collect()
    }

    fn insert(&mut self, group: Group) -> u32 {
        let hash = group.hash;
        let slot = match self.free.pop() {
            Some(slot) => {
                self.groups[slot as usize] = Some(group);
                slot
            }
            None => {
                self.groups.push(Some(group));
                (self.groups.len() - 1) as u32
            }
        };
        let groups = &self.groups;
        self.table.insert_unique(hash, slot, |&slot| {
            groups[slot as usize].as_ref().map_or(0, |group| group.hash)
        });
        slot
    }

    fn forget(&mut self, slot: u32) {
        if let Some(group) = self.groups[slot as usize].take() {
            if let Ok(entry) = self.table.find_entry(group.hash, |&other| other == slot) {
                entry.remove();
            }
            self.free.push(slot);
        }
    }

    fn change(&mut self, slot: u32, time: i64, out: &mut RowWriter, report: &mut WindowReport<'_>) {
        let Some(group) = &mut self.groups[slot as usize] else {
            return;
        };
        if group.last_evaluated == time {
            return;
        }
        group.last_evaluated = time;
        group.move_to(time, self.size);
        if group.inside > 0 {
            let spec = &self.spec;
            match group.results(spec, time, self.size, report) {
                Ok(results) => {
                    out.push_row(time, group.display_keys.iter().cloned().chain(results))
                }
                Err((index, reason)) => report.errors.add(
                    Instant::from_ticks(time),
                    spec.aggregates[index].span,
                    || reason.to_string(),
                ),
            }
        } else if group.events.is_empty() {
            self.forget(slot);
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

    fn move_to(&mut self, time: i64, size: i64) {
        while let Some(event) = self
            .events
            .get(self.inside)
            .filter(|event| event.time <= time)
        {
            for (rolling, value) in self.rolling.iter_mut().zip(&event.arguments) {
                rolling.enter(value);
            }
            self.inside += 1;
        }
        while self
            .events
            .front()
            .is_some_and(|event| event.time <= time - size)
        {
            if let Some(event) = self.events.pop_front() {
                for (rolling, value) in self.rolling.iter_mut().zip(&event.arguments) {
                    rolling.leave(value);
                }
                self.inside -= 1;
            }
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
        report: &mut WindowReport<'_>,
    ) -> Result<Vec<Value>, (usize, FailureReason)> {
        let aggregates = spec.aggregates.iter().enumerate();
        aggregates
            .map(|(index, aggregate)| {
                let result = match self.rolling_result(index, aggregate, time, size) {
                    Some(result) => result,
                    None => self.folded_result(index, aggregate, time, report),
                };
                result.map_err(|reason| (index, reason))
            })
            .collect()
    }

    fn rolling_result(
        &mut self,
        index: usize,
        aggregate: &Aggregate,
        time: i64,
        size: i64,
    ) -> Option<Result<Value, FailureReason>> {
        match (&mut self.rolling[index], &aggregate.function) {
            (SlidingAggregate::Script(rolling), AggregateFunction::User(name)) => {
                script::can_retract(name, Retraction::OneByOne).then(|| {
                    let content = self.events.range(..self.inside);
                    let content =
                        content.filter_map(|event| accumulate::event(&event.arguments[index]));
                    rolling.step(name, Retraction::OneByOne, time, size, content)
                })
            }
            (rolling, _) => rolling.result(aggregate),
        }
    }

    fn folded_result(
        &self,
        index: usize,
        aggregate: &Aggregate,
        time: i64,
        report: &mut WindowReport<'_>,
    ) -> Result<Value, FailureReason> {
        let mut accumulator = Accumulator::new(aggregate);
        let mut column = ColumnBuilder::with_capacity(self.inside);
        for event in self.events.iter().take(self.inside) {
            column.push(event.arguments[index].view());
        }
        accumulator.grow(1);
        let outcome = accumulator.update(&vec![0; self.inside], 0, Some(&column.finish()));
        accumulate::note(outcome, aggregate, Instant::from_ticks(time), report.errors);
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
            let argument = |column: &Option<_>| {
                column
                    .as_ref()
                    .map_or(Value::Null, |c: &crate::Column| c.get(row).to_value())
            };
            let arguments = input.arguments.iter().map(argument).collect();
            if let Some(group) = &mut self.groups[slot as usize] {
                let display_keys = group.changed_keys(input, row);
                group.events.push_back(Event {
                    time,
                    arguments,
                    display_keys,
                });
            }
            let leaves = time.saturating_add(self.size);
            for change in [time, leaves] {
                let changed = self.changes.at(lane, change, Vec::new);
                if changed.last() != Some(&slot) {
                    changed.push(slot);
                }
            }
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
        out: &mut RowWriter,
        report: &mut WindowReport<'_>,
    ) {
        while let Some((lane, time, changed)) = self.changes.pop(lane, watermark) {
            out.lane = lane;
            for slot in changed {
                self.change(slot, time, out, report);
            }
        }
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        out.count(self.groups.len());
        for group in &self.groups {
            out.u8(group.is_some().into());
            let Some(group) = group else { continue };
            out.u32(group.lane);
            out.u64(group.hash);
            out.blob(&group.key);
            let display_keys = group.display_keys.iter().chain(&group.last_display_keys);
            display_keys.for_each(|value| out.value(value.view()));
            out.i64(group.last_evaluated);
            out.count(group.inside);
            out.count(group.events.len());
            for event in &group.events {
                out.i64(event.time);
                event
                    .arguments
                    .iter()
                    .for_each(|value| out.value(value.view()));
                out.u8(event.display_keys.is_some().into());
                let display_keys = event.display_keys.iter().flatten();
                display_keys.for_each(|value| out.value(value.view()));
            }
            for rolling in &group.rolling {
                if let SlidingAggregate::Script(rolling) = rolling {
                    rolling.snapshot(out);
                }
            }
        }
        out.count(self.free.len());
        self.free.iter().for_each(|&slot| out.u32(slot));
        self.changes.snapshot(out, |slots, out| {
            out.count(slots.len());
            slots.iter().for_each(|&slot| out.u32(slot));
        });
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        let mut fresh = Sliding::new(self.spec.clone(), Duration::from_ticks(self.size));
        let groups = from.count()?;
        for slot in 0..groups {
            let group = if from.u8()? == 0 {
                None
            } else {
                Some(self.restore_group(from)?)
            };
            match group {
                Some(group) => {
                    fresh.insert(group);
                }
                None => fresh.groups.push(None),
            }
            debug_assert_eq!(fresh.groups.len(), slot + 1);
        }
        let known = |slot: u32| {
            if (slot as usize) < groups {
                Ok(slot)
            } else {
                Err(DecodeError::Invalid("an unknown group"))
            }
        };
        for _ in 0..from.count()? {
            fresh.free.push(known(from.u32()?)?);
        }
        fresh.changes = TimerQueue::restore(from, |from| {
            (0..from.count()?).map(|_| known(from.u32()?)).collect()
        })?;
        *self = fresh;
        Ok(())
    }
}

impl Sliding {
    fn restore_group(&self, from: &mut Reader<'_>) -> Result<Group, DecodeError> {
        let (keys, aggregates) = (self.spec.keys.len(), self.spec.aggregates.len());
        let (lane, hash, key) = (from.u32()?, from.u64()?, from.blob()?.into());
        let values = |from: &mut Reader<'_>, count: usize| -> Result<Vec<Value>, DecodeError> {
            (0..count).map(|_| from.value()).collect()
        };
        let (display_keys, last_display_keys) = (values(from, keys)?, values(from, keys)?);
        let (last_evaluated, inside) = (from.i64()?, from.u64()? as usize);
        let mut rolling = self.rolling();
        let mut events = VecDeque::new();
        for index in 0..from.count()? {
            let time = from.i64()?;
            let arguments: Box<[Value]> = values(from, aggregates)?.into();
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
            events.push_back(Event {
                time,
                arguments,
                display_keys,
            });
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
            lane,
            hash,
            key,
            display_keys,
            last_display_keys,
            events,
            inside,
            rolling,
            last_evaluated,
        })
    }
}
