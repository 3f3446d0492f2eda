//! Sliding windows: a row for every instant at which a group's content changes.
//!
//! The content at `t` is the group's events in (t - size, t]. It changes when events enter, at their time, and when they
//! leave, `size` later; empty content gives no row. Aggregates that can retract values are updated with the content
//! ([`SlidingAggregate`]); the others are recomputed at each change. Either way a result depends only on the content of
//! the window; only scripts that retract events depend on a little more.
//!
//! Where keys are many, the cost of an event is the memory that it touches. So a group is small and holds no list: its
//! events are linked in a pool ([`EventPool`]) whose places are taken in the order of time, and the aggregates of all
//! groups are one list.

use std::ops::Range;
use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_query::plan::{Aggregate, AggregateFunction};
use highwater_time::{Duration, Instant};

use super::accumulate::{self, Accumulator, FailureReason, RollingScript};
use super::change_queue::ChangeQueue;
use super::event_pool::{EventList, EventPool};
use super::groups::{GroupInput, GroupSpec};
use super::keyed_slots::{KeyedSlots, LaneKey, PREFETCH_SLOTS};
use super::sliding_aggregate::SlidingAggregate;
use super::window_operator::{LaneWindow, RowWriter, WindowReport};
use crate::codec::{ReadValue, WriteValue};
use crate::column::{Column, ColumnBuilder};
use crate::eval;
use crate::script::{self, Retraction};
use crate::value::{Value, ValueRef};

pub(crate) struct Sliding {
    spec: Arc<GroupSpec>,
    size: i64,
    groups: KeyedSlots<Group>,
    /// The aggregates of slot `n` begin at `n` times the number of aggregates.
    rolling: Vec<SlidingAggregate>,
    /// The events of all groups, with one argument per aggregate; NULL for COUNT(*).
    events: EventPool,
    /// Groups whose content changes at an instant.
    changes: ChangeQueue,
    /// The results of the group that changes; reused.
    results: Vec<Value>,
    /// The groups that change; reused.
    changed: Vec<u32>,
}

#[derive(Debug)]
struct Group {
    /// `None` if the key's bytes determine its representation.
    display_keys: Option<Box<DisplayKeys>>,
    events: EventList,
    /// How many events at the front are in the content; the watermark has not reached the later ones.
    inside: u32,
    /// The last evaluated time.
    last_evaluated: i64,
}

/// Equal keys may have different representations, such as 1 and 1.0; the output must not depend on how long a group is
/// kept, so it follows the content.
#[derive(Debug)]
struct DisplayKeys {
    /// Of the first event.
    first: Vec<Value>,
    /// Of the last event.
    last: Vec<Value>,
}

pub(super) const GROUP_BYTES: usize = size_of::<Group>() + KeyedSlots::<Group>::OVERHEAD;
pub(super) const EVENT_BYTES: usize = EventPool::EVENT_BYTES;

impl Sliding {
    pub(crate) fn new(spec: Arc<GroupSpec>, size: Duration) -> Sliding {
        Sliding {
            size: size.ticks(),
            groups: KeyedSlots::default(),
            rolling: Vec::new(),
            events: EventPool::new(spec.aggregates.len()),
            changes: ChangeQueue::default(),
            results: Vec::new(),
            changed: Vec::new(),
            spec,
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
        let display_keys = (!input.is_plain()).then(|| {
            let first: Vec<Value> = keys_of(input, row).map(ValueRef::to_value).collect();
            let last = first.clone();
            Box::new(DisplayKeys { first, last })
        });
        let group = Group {
            display_keys,
            events: EventList::default(),
            inside: 0,
            last_evaluated: i64::MIN,
        };
        let slot = self.groups.insert(key, group);
        let fresh = || self.spec.aggregates.iter().map(SlidingAggregate::new);
        while self.rolling.len() < (slot as usize + 1) * self.spec.aggregates.len() {
            self.rolling.extend(fresh());
        }
        slot
    }

    /// Touches the groups that change next, for all of them together, so that cache misses overlap.
    fn prefetch_changes(&self) {
        let upcoming = || self.changes.upcoming(PREFETCH_SLOTS / 2);
        self.groups.prefetch_slots(upcoming());
        let width = self.spec.aggregates.len();
        let rolling = upcoming().filter_map(|slot| self.rolling.get(slot as usize * width));
        let folded = rolling.filter(|rolling| matches!(rolling, SlidingAggregate::Folded));
        std::hint::black_box(folded.count());
    }

    fn change(
        &mut self,
        slot: u32,
        time: i64,
        out: &mut RowWriter<'_>,
        report: &mut WindowReport<'_>,
    ) {
        let Some((key, group)) = self.groups.entry_mut(slot) else {
            return;
        };
        if group.last_evaluated == time {
            return;
        }
        group.last_evaluated = time;
        let width = self.spec.aggregates.len();
        let first = slot as usize * width;
        let mut content = Content {
            group,
            events: &mut self.events,
            rolling: &mut self.rolling[first..first + width],
        };
        content.move_to(time, self.size);
        if content.group.inside > 0 {
            let (spec, results) = (&self.spec, &mut self.results);
            match content.results(spec, time, self.size, results) {
                Ok(()) => {
                    let columns = out.begin(time);
                    let (shown, computed) = columns.split_at_mut(spec.keys.len());
                    write_keys(key, content.group, shown);
                    for (column, value) in computed.iter_mut().zip(results) {
                        column.push(value.view());
                    }
                }
                Err((index, reason)) => report.errors.add(
                    Instant::from_ticks(time),
                    spec.aggregates[index].span,
                    || reason.to_string(),
                ),
            }
        } else if content.group.events.is_empty() {
            let aggregates = content.rolling.iter_mut().zip(&self.spec.aggregates);
            aggregates.for_each(|(rolling, aggregate)| rolling.clear(aggregate));
            self.groups.remove(slot);
        }
    }
}

fn keys_of(input: &GroupInput, row: usize) -> impl Iterator<Item = ValueRef<'_>> {
    input.keys.iter().map(move |key| key.get(row))
}

/// The keys that the bytes of a key say.
fn decoded_keys(mut key: &[u8], count: usize) -> Vec<Value> {
    let keys = (0..count).map(|_| eval::decode_key(&mut key).to_value());
    keys.collect()
}

fn write_keys(mut key: &[u8], group: &Group, columns: &mut [ColumnBuilder]) {
    match &group.display_keys {
        None => {
            for column in columns {
                column.push(eval::decode_key(&mut key));
            }
        }
        Some(display_keys) => {
            for (column, value) in columns.iter_mut().zip(&display_keys.first) {
                column.push(value.view());
            }
        }
    }
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
    fn changed_keys(&mut self, key: &[u8], input: &GroupInput, row: usize) -> Option<Vec<Value>> {
        if self.display_keys.is_none() && input.is_plain() {
            return None;
        }
        let display_keys = self.display_keys.get_or_insert_with(|| {
            let first = decoded_keys(key, input.keys.len());
            let last = first.clone();
            Box::new(DisplayKeys { first, last })
        });
        let mut pairs = display_keys.last.iter().zip(keys_of(input, row));
        if pairs.all(|(last, new)| same_representation(last, new)) {
            return None;
        }
        display_keys.last = keys_of(input, row).map(ValueRef::to_value).collect();
        Some(display_keys.last.clone())
    }
}

/// A group with its events and aggregates.
struct Content<'a> {
    group: &'a mut Group,
    events: &'a mut EventPool,
    rolling: &'a mut [SlidingAggregate],
}

impl Content<'_> {
    /// The arguments of one aggregate, of all events inside.
    fn arguments(&self, index: usize) -> impl Iterator<Item = &Value> {
        let events = self.events.iter(&self.group.events);
        let inside = events.take(self.group.inside as usize);
        inside.map(move |event| &event.arguments[index])
    }

    fn move_to(&mut self, time: i64, size: i64) {
        let Content {
            group,
            events,
            rolling,
        } = self;
        while let Some(event) = events.next_to_enter(&group.events)
            && event.time <= time
        {
            for (rolling, value) in rolling.iter_mut().zip(event.arguments) {
                rolling.enter(value);
            }
            events.enter(&mut group.events);
            group.inside += 1;
        }
        while let Some(event) = events.first(&group.events)
            && event.time <= time - size
        {
            for (rolling, value) in rolling.iter_mut().zip(event.arguments) {
                rolling.leave(value);
            }
            events.pop_first(&mut group.events);
            group.inside -= 1;
            if let Some(display_keys) = &mut group.display_keys
                && let Some(changed) = events.take_display_keys(&group.events)
            {
                display_keys.first = changed;
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
        let Content {
            group,
            events,
            rolling,
        } = self;
        match (&mut rolling[index], &aggregate.function) {
            (SlidingAggregate::Script(rolling), AggregateFunction::User(name)) => {
                script::can_retract(name, Retraction::OneByOne).then(|| {
                    let inside = events.iter(&group.events).take(group.inside as usize);
                    let content: Vec<&Value> =
                        inside.map(|event| &event.arguments[index]).collect();
                    let content = content.into_iter().filter_map(accumulate::event);
                    rolling.step(name, Retraction::OneByOne, time, size, content)
                })
            }
            (rolling, _) => rolling.result(aggregate),
        }
    }

    fn folded_result(&self, index: usize, aggregate: &Aggregate) -> Result<Value, FailureReason> {
        let inside = self.group.inside as usize;
        let mut accumulator = Accumulator::new(aggregate);
        let mut column = ColumnBuilder::with_capacity(inside);
        for value in self.arguments(index) {
            column.push(value.view());
        }
        accumulator.grow(1);
        accumulator.update(&vec![0; inside], 0, Some(&column.finish()));
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
        let end = rows.end;
        for row in rows {
            if row % PREFETCH_SLOTS == 0 {
                let next = row..end.min(row + PREFETCH_SLOTS);
                self.groups.prefetch(next.map(|row| input.hash(row)));
            }
            let time = input.chunk.times[row];
            let slot = self.slot(lane, input, row);
            let argument = |column: &Option<Column>| {
                let column = column.as_ref();
                column.map_or(Value::Null, |column| column.value(row))
            };
            if let Some((key, group)) = self.groups.entry_mut(slot) {
                let display_keys = group.changed_keys(key, input, row);
                let arguments = input.arguments.iter().map(argument);
                let events = &mut self.events;
                events.push(&mut group.events, time, display_keys, arguments);
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
        let mut prefetched = 0;
        while let Some((lane, time)) = self.changes.pop(lane, watermark, &mut changed) {
            out.lane = lane;
            for &slot in &changed {
                if prefetched == 0 {
                    self.prefetch_changes();
                    prefetched = PREFETCH_SLOTS;
                }
                prefetched -= 1;
                self.change(slot, time, out, report);
            }
        }
        self.changed = changed;
    }

    fn state_bytes(&self) -> usize {
        let width = self.spec.aggregates.len();
        let event = EVENT_BYTES + width * size_of::<Value>();
        let scripts = self.rolling.iter().map(|rolling| match rolling {
            SlidingAggregate::Script(rolling) => rolling.state_bytes(),
            _ => 0,
        });
        let rolling = width * size_of::<SlidingAggregate>();
        let groups = self
            .groups
            .state_bytes(|group| size_of::<Group>() + rolling + group.events.len() * event);
        groups + scripts.sum::<usize>()
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        let width = self.spec.aggregates.len();
        self.groups.snapshot_slots(out, |slot, key, group, out| {
            let first = slot as usize * width;
            let rolling = &self.rolling[first..first + width];
            self.snapshot_group(key, group, rolling, out);
        });
        self.changes.snapshot(out);
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        let mut fresh = Sliding::new(self.spec.clone(), Duration::from_ticks(self.size));
        let Sliding {
            spec,
            rolling,
            events,
            ..
        } = &mut fresh;
        let groups = KeyedSlots::restore_slot_states(from, |slot, from| {
            while rolling.len() < (slot as usize + 1) * spec.aggregates.len() {
                rolling.extend(spec.aggregates.iter().map(SlidingAggregate::new));
            }
            let first = slot as usize * spec.aggregates.len();
            restore_group(spec, &mut rolling[first..], events, from)
        })?;
        fresh.changes = ChangeQueue::restore(from, |from| groups.restore_slots(from))?;
        fresh.groups = groups;
        *self = fresh;
        Ok(())
    }
}

impl Sliding {
    fn snapshot_group(
        &self,
        key: &[u8],
        group: &Group,
        rolling: &[SlidingAggregate],
        out: &mut Vec<u8>,
    ) {
        match &group.display_keys {
            Some(display_keys) => {
                let display_keys = display_keys.first.iter().chain(&display_keys.last);
                display_keys.for_each(|value| out.value(value.view()));
            }
            None => {
                let keys = decoded_keys(key, self.spec.keys.len());
                let display_keys = keys.iter().chain(&keys);
                display_keys.for_each(|value| out.value(value.view()));
            }
        }
        out.i64(group.last_evaluated);
        out.count(group.inside as usize);
        out.count(group.events.len());
        for event in self.events.iter(&group.events) {
            out.i64(event.time);
            let arguments = event.arguments.iter();
            arguments.for_each(|value| out.value(value.view()));
            out.u8(event.display_keys.is_some().into());
            let display_keys = event.display_keys.into_iter().flatten();
            display_keys.for_each(|value| out.value(value.view()));
        }
        for rolling in rolling {
            if let SlidingAggregate::Script(rolling) = rolling {
                rolling.snapshot(out);
            }
        }
    }
}

fn restore_group(
    spec: &GroupSpec,
    rolling: &mut [SlidingAggregate],
    pool: &mut EventPool,
    from: &mut Reader<'_>,
) -> Result<Group, DecodeError> {
    let (keys, aggregates) = (spec.keys.len(), spec.aggregates.len());
    let values = |from: &mut Reader<'_>, count: usize| -> Result<Vec<Value>, DecodeError> {
        (0..count).map(|_| from.value()).collect()
    };
    let (first, last) = (values(from, keys)?, values(from, keys)?);
    let (last_evaluated, inside) = (from.i64()?, from.u64()?);
    let mut events = EventList::default();
    for index in 0..from.count()? {
        let time = from.i64()?;
        let arguments = values(from, aggregates)?;
        if (index as u64) < inside {
            for (rolling, value) in rolling.iter_mut().zip(&arguments) {
                rolling.enter(value);
            }
        }
        let display_keys = match from.u8()? {
            0 => None,
            _ => Some(values(from, keys)?),
        };
        pool.push(&mut events, time, display_keys, arguments.into_iter());
        if (index as u64) < inside {
            pool.enter(&mut events);
        }
    }
    for rolling in rolling {
        if let SlidingAggregate::Script(rolling) = rolling {
            **rolling = RollingScript::restore(from)?;
        }
    }
    if inside > events.len() as u64 {
        return Err(DecodeError::Invalid(
            "more events inside a window than there are",
        ));
    }
    Ok(Group {
        display_keys: Some(Box::new(DisplayKeys { first, last })),
        events,
        inside: inside as u32,
        last_evaluated,
    })
}
