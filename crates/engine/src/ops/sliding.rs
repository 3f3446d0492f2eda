//! Sliding windows: a row for every instant at which a group's content changes.
//!
//! The content at `t` is the group's events in (t - size, t]. It changes when events enter, at their time, and when
//! they leave, `size` later; empty content gives no row. Aggregates that can retract values are updated with the
//! content ([`SlidingAggregate`]); the others are recomputed at each change. Either way a result depends only on the
//! content of the window; only scripts that retract events depend on a little more.
//!
//! Where keys are many, the cost of an event is the memory that it touches. So a group is one cache line and holds no
//! list: its events are linked in a pool ([`EventPool`]) whose slots are taken in time order, and the states of each
//! aggregate are one list. Changes are taken many at a time, and the memory of all of them is touched first.

use std::ops::Range;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_query::plan::{Aggregate, AggregateFunction};
use highwater_time::{Duration, Instant};

use super::accumulate::{self, Accumulator, FailureReason, RollingScript};
use super::change_queue::{Change, ChangeQueue};
use super::event_pool::{EventList, EventPool};
use super::groups::{GroupInput, GroupSpec};
use super::keyed_slots::{KeyedSlots, LaneKey, PREFETCH_SLOTS};
use super::sliding_aggregate::{self, SlidingAggregate};
use super::untested_rows::UntestedRows;
use super::window_operator::{LaneWindow, RowWriter, WindowReport};
use crate::codec::{ReadValue, WriteValue};
use crate::column::ColumnBuilder;
use crate::eval;
use crate::script::{self, Retraction};
use crate::value::{Value, ValueRef};

pub(crate) struct Sliding {
    spec: Arc<GroupSpec>,
    size: i64,
    groups: KeyedSlots<Group>,
    /// Of the groups whose keys the bytes do not determine, by slot.
    display_keys: HashMap<u32, DisplayKeys, FixedState>,
    rolling: Vec<SlidingAggregate>,
    /// The aggregates that need the values of events.
    reading: Vec<usize>,
    /// The events of all groups, with one argument for each of `reading`.
    events: EventPool,
    /// Groups whose content changes at an instant.
    changes: ChangeQueue,
    /// The results of the group that changes; reused.
    results: Vec<Value>,
    /// The groups that change; reused.
    changed: Vec<Change>,
    /// The rows whose HAVING is not tested yet; empty between calls.
    untested: UntestedRows,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    events: EventList,
    /// How many events at the front are in the content; the watermark has not reached the later ones.
    inside: u32,
    /// The group has an entry in [`Sliding::display_keys`].
    has_display_keys: bool,
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

pub(super) const GROUP_BYTES: usize = KeyedSlots::<Group>::SLOT_BYTES;
const _: () = assert!(GROUP_BYTES == 64);
pub(super) const EVENT_BYTES: usize = EventPool::EVENT_BYTES;

impl Sliding {
    pub(crate) fn new(spec: Arc<GroupSpec>, size: Duration) -> Sliding {
        let aggregates = spec.aggregates.iter().enumerate();
        let reading = aggregates.filter(|(_, of)| sliding_aggregate::reads_events(of));
        let reading: Vec<usize> = reading.map(|(index, _)| index).collect();
        Sliding {
            size: size.ticks(),
            groups: KeyedSlots::default(),
            display_keys: HashMap::default(),
            rolling: spec.aggregates.iter().map(SlidingAggregate::new).collect(),
            events: EventPool::new(reading.len()),
            reading,
            changes: ChangeQueue::default(),
            results: Vec::new(),
            changed: Vec::new(),
            untested: UntestedRows::default(),
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
        let group = Group {
            events: EventList::default(),
            inside: 0,
            has_display_keys: !input.is_plain(),
            last_evaluated: i64::MIN,
        };
        let slot = self.groups.insert(key, group);
        if !input.is_plain() {
            let first: Vec<Value> = keys_of(input, row).map(ValueRef::to_value).collect();
            let last = first.clone();
            self.display_keys.insert(slot, DisplayKeys { first, last });
        }
        let rolling = self.rolling.iter_mut();
        rolling.for_each(|rolling| rolling.grow(slot as usize + 1));
        slot
    }

    /// Touches the groups that change, for all of them together, so that cache misses overlap.
    fn prefetch(&self, changed: &[Change]) {
        let slots = || changed.iter().map(|change| change.slot);
        self.groups.prefetch_slots(slots());
        let rolling = self.rolling.iter();
        rolling.for_each(|rolling| rolling.prefetch(slots()));
    }

    /// Adds the row of a change; with `tests`, to those whose HAVING is tested together.
    fn change(
        &mut self,
        change: Change,
        tests: bool,
        out: &mut RowWriter<'_>,
        report: &mut WindowReport<'_>,
    ) {
        let Change { time, lane, slot } = change;
        let Some((key, group)) = self.groups.entry_mut(slot) else {
            return;
        };
        if group.last_evaluated == time {
            return;
        }
        group.last_evaluated = time;
        let display_keys = match group.has_display_keys {
            true => self.display_keys.get_mut(&slot),
            false => None,
        };
        let mut content = Content {
            slot: slot as usize,
            group,
            display_keys,
            events: &mut self.events,
            reading: &self.reading,
            rolling: &mut self.rolling,
        };
        content.move_to(time, self.size);
        if content.group.inside > 0 {
            let (spec, results) = (&self.spec, &mut self.results);
            match content.results(spec, time, self.size, results) {
                Ok(()) => {
                    let shown = content.display_keys.map(|keys| &keys.first[..]);
                    let computed = if tests {
                        self.untested.begin(lane, time, key, shown)
                    } else {
                        let columns = out.begin(time);
                        let (keys, computed) = columns.split_at_mut(spec.keys.len());
                        write_keys(key, shown, keys);
                        computed
                    };
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
            self.remove(slot);
        }
    }

    fn remove(&mut self, slot: u32) {
        let rolling = self.rolling.iter_mut();
        rolling.for_each(|rolling| rolling.clear(slot as usize));
        if self
            .groups
            .remove(slot)
            .is_some_and(|group| group.has_display_keys)
        {
            self.display_keys.remove(&slot);
        }
    }

    /// The keys of the next event of a group, if their representation differs from that of the last one.
    fn changed_keys(&mut self, slot: u32, input: &GroupInput, row: usize) -> Option<Vec<Value>> {
        let (key, group) = self.groups.entry_mut(slot)?;
        if !group.has_display_keys && input.is_plain() {
            return None;
        }
        group.has_display_keys = true;
        let display_keys = self.display_keys.entry(slot).or_insert_with(|| {
            let first = decoded_keys(key, input.keys.len());
            let last = first.clone();
            DisplayKeys { first, last }
        });
        let mut pairs = display_keys.last.iter().zip(keys_of(input, row));
        if pairs.all(|(last, new)| same_representation(last, new)) {
            return None;
        }
        display_keys.last = keys_of(input, row).map(ValueRef::to_value).collect();
        Some(display_keys.last.clone())
    }
}

fn keys_of(input: &GroupInput, row: usize) -> impl Iterator<Item = ValueRef<'_>> {
    input.keys.iter().map(move |key| key.get(row))
}

/// Decodes the keys of an encoded key.
fn decoded_keys(mut key: &[u8], count: usize) -> Vec<Value> {
    let keys = (0..count).map(|_| eval::decode_key(&mut key).to_value());
    keys.collect()
}

fn write_keys(mut key: &[u8], shown: Option<&[Value]>, columns: &mut [ColumnBuilder]) {
    match shown {
        None => {
            for column in columns {
                column.push(eval::decode_key(&mut key));
            }
        }
        Some(values) => {
            for (column, value) in columns.iter_mut().zip(values) {
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

/// A group with its events and aggregates.
struct Content<'a> {
    slot: usize,
    group: &'a mut Group,
    display_keys: Option<&'a mut DisplayKeys>,
    events: &'a mut EventPool,
    reading: &'a [usize],
    rolling: &'a mut [SlidingAggregate],
}

impl Content<'_> {
    /// The arguments of one aggregate, of all events inside.
    fn arguments(&self, index: usize) -> impl Iterator<Item = &Value> {
        let argument = self.reading.iter().position(|reading| *reading == index);
        let events = self.events.iter(&self.group.events);
        let inside = events.take(self.group.inside as usize);
        inside.filter_map(move |event| event.arguments.get(argument?))
    }

    fn move_to(&mut self, time: i64, size: i64) {
        let Content {
            slot,
            group,
            display_keys,
            events,
            reading,
            rolling,
        } = self;
        while let Some(event) = events.next_to_enter(&group.events)
            && event.time <= time
        {
            for (index, value) in reading.iter().zip(event.arguments) {
                rolling[*index].enter(*slot, value);
            }
            events.enter(&mut group.events);
            group.inside += 1;
        }
        while let Some(event) = events.first(&group.events)
            && event.time <= time - size
        {
            for (index, value) in reading.iter().zip(event.arguments) {
                rolling[*index].leave(*slot, value);
            }
            events.pop_first(&mut group.events);
            group.inside -= 1;
            if let Some(display_keys) = display_keys
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
        let inside = self.group.inside;
        match (&mut self.rolling[index], &aggregate.function) {
            (SlidingAggregate::Scripts(scripts), AggregateFunction::User(name)) => {
                script::can_retract(name, Retraction::OneByOne).then(|| {
                    let argument = self.reading.iter().position(|reading| *reading == index);
                    let events = self.events.iter(&self.group.events).take(inside as usize);
                    let values = events.filter_map(|event| event.arguments.get(argument?));
                    let content: Vec<&Value> = values.collect();
                    let content = content.into_iter().filter_map(accumulate::event);
                    scripts[self.slot].step(name, Retraction::OneByOne, time, size, content)
                })
            }
            (rolling, _) => rolling.result(self.slot, inside, aggregate),
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
            let display_keys = self.changed_keys(slot, input, row);
            if let Some(group) = self.groups.get_mut(slot) {
                let arguments = input.arguments.iter().flatten();
                let arguments = arguments.map(|column| column.value(row));
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
        // With watermarks between rows there are too few changes of a lane at a time.
        let tests = self.spec.having.is_some() && lane.is_none();
        if tests {
            self.untested.prepare(&self.spec);
        }
        let mut changed = std::mem::take(&mut self.changed);
        loop {
            self.changes.take(lane, watermark, &mut changed);
            if changed.is_empty() {
                break;
            }
            self.prefetch(&changed);
            for &change in &changed {
                out.lane = change.lane;
                self.change(change, tests, out, report);
            }
            if tests && self.untested.is_full() {
                self.untested.write(&self.spec, out, report);
            }
        }
        if tests {
            self.untested.write(&self.spec, out, report);
        }
        self.changed = changed;
    }

    fn state_bytes(&self) -> usize {
        let event = EVENT_BYTES + self.reading.len() * size_of::<Value>();
        let scripts = self.rolling.iter().map(|rolling| match rolling {
            SlidingAggregate::Scripts(scripts) => {
                scripts.iter().map(RollingScript::state_bytes).sum()
            }
            _ => 0,
        });
        let rolling = self.rolling.iter().map(SlidingAggregate::state_bytes);
        let rolling = rolling.sum::<usize>();
        let groups = self
            .groups
            .state_bytes(|group| rolling + group.events.len() * event);
        groups + scripts.sum::<usize>()
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        self.groups.snapshot_slots(out, |slot, key, group, out| {
            self.snapshot_group(slot, key, group, out);
        });
        self.changes.snapshot(out);
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        let mut fresh = Sliding::new(self.spec.clone(), Duration::from_ticks(self.size));
        let groups = KeyedSlots::restore_slot_states(from, |slot, from| {
            let rolling = fresh.rolling.iter_mut();
            rolling.for_each(|rolling| rolling.grow(slot as usize + 1));
            fresh.restore_group(slot, from)
        })?;
        fresh.changes = ChangeQueue::restore(from, |from| groups.restore_slots(from))?;
        fresh.groups = groups;
        *self = fresh;
        Ok(())
    }
}

impl Sliding {
    fn snapshot_group(&self, slot: u32, key: &[u8], group: &Group, out: &mut Vec<u8>) {
        match self
            .display_keys
            .get(&slot)
            .filter(|_| group.has_display_keys)
        {
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
            let mut arguments = event.arguments.iter();
            for index in 0..self.spec.aggregates.len() {
                let argument = self.reading.contains(&index).then(|| arguments.next());
                out.value(argument.flatten().map_or(ValueRef::Null, Value::view));
            }
            out.u8(event.display_keys.is_some().into());
            let display_keys = event.display_keys.into_iter().flatten();
            display_keys.for_each(|value| out.value(value.view()));
        }
        for rolling in &self.rolling {
            if let SlidingAggregate::Scripts(scripts) = rolling {
                scripts[slot as usize].snapshot(out);
            }
        }
    }

    fn restore_group(&mut self, slot: u32, from: &mut Reader<'_>) -> Result<Group, DecodeError> {
        let keys = self.spec.keys.len();
        let values = |from: &mut Reader<'_>, count: usize| -> Result<Vec<Value>, DecodeError> {
            (0..count).map(|_| from.value()).collect()
        };
        let (first, last) = (values(from, keys)?, values(from, keys)?);
        let (last_evaluated, inside) = (from.i64()?, from.u64()?);
        let mut events = EventList::default();
        for index in 0..from.count()? {
            let time = from.i64()?;
            let mut arguments = values(from, self.spec.aggregates.len())?;
            if (index as u64) < inside {
                for (rolling, value) in self.rolling.iter_mut().zip(&arguments) {
                    rolling.enter(slot as usize, value);
                }
            }
            let display_keys = match from.u8()? {
                0 => None,
                _ => Some(values(from, keys)?),
            };
            let reading = self.reading.iter();
            let arguments = reading.map(|&index| std::mem::take(&mut arguments[index]));
            self.events.push(&mut events, time, display_keys, arguments);
            if (index as u64) < inside {
                self.events.enter(&mut events);
            }
        }
        for rolling in &mut self.rolling {
            if let SlidingAggregate::Scripts(scripts) = rolling {
                scripts[slot as usize] = RollingScript::restore(from)?;
            }
        }
        if inside > events.len() as u64 {
            return Err(DecodeError::Invalid(
                "more events inside a window than there are",
            ));
        }
        self.display_keys.insert(slot, DisplayKeys { first, last });
        Ok(Group {
            events,
            inside: inside as u32,
            has_display_keys: true,
            last_evaluated,
        })
    }
}
