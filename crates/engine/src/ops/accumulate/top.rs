//! CollectTop and TopOne: the first events by rank; of equal ranks the earlier event comes first.

use std::cmp::Ordering;
use std::sync::Arc;

use highwater_query::plan::{Aggregate, AggregateFunction};

use highwater_codec::{DecodeError, Reader, Writer};

use super::FailureReason;
use super::packed::{PackedEvent, unpack};
use super::per_group::{GroupState, PerGroup};
use crate::codec::{ReadValue, WriteValue};
use crate::column::{Column, ColumnBuilder};
use crate::eval;
use crate::lazy::{HeldValue, same_reader};
use crate::value::{Record, Value, ValueRef};

#[derive(Clone, Debug)]
pub(crate) struct Ranking {
    /// The number of ranks in the result; `None` for the value of the first alone.
    shown: Option<usize>,
    descending: Box<[bool]>,
}

/// The best events of a group, best first, at most as many as are shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct TopEvents(Vec<Entry>);

#[derive(Clone, Debug)]
struct Entry {
    keys: Box<[Value]>,
    time: i64,
    value: HeldValue,
}

impl Ranking {
    pub(crate) fn new(spec: &Aggregate) -> Ranking {
        Ranking {
            shown: match spec.function {
                AggregateFunction::CollectTop(count) => Some(count),
                _ => None,
            },
            descending: spec.order.iter().map(|key| key.descending).collect(),
        }
    }
}

/// An event that may enter a ranking. What it has is read only as far as the ranking needs it.
trait Candidate {
    fn time(&self) -> i64;
    fn key(&self, index: usize) -> ValueRef<'_>;
    fn value(&self) -> HeldValue;
}

impl Candidate for PackedEvent<'_> {
    fn time(&self) -> i64 {
        self.time
    }

    fn key(&self, index: usize) -> ValueRef<'_> {
        self.keys[index].view()
    }

    fn value(&self) -> HeldValue {
        HeldValue::Value(self.value.clone())
    }
}

impl Candidate for &Entry {
    fn time(&self) -> i64 {
        self.time
    }

    fn key(&self, index: usize) -> ValueRef<'_> {
        self.keys[index].view()
    }

    fn value(&self) -> HeldValue {
        self.value.clone()
    }
}

/// A row of the columns that [`super::packed::ranked`] gives.
struct RankedRow<'a> {
    time: i64,
    value: &'a Column,
    keys: &'a [Column],
    row: usize,
}

impl Candidate for RankedRow<'_> {
    fn time(&self) -> i64 {
        self.time
    }

    fn key(&self, index: usize) -> ValueRef<'_> {
        self.keys[index].get(self.row)
    }

    fn value(&self) -> HeldValue {
        self.value.hold(self.row)
    }
}

impl TopEvents {
    fn add_event(&mut self, ranking: &Ranking, new: &impl Candidate) {
        let best = &mut self.0;
        let ahead = |old: &Entry| {
            let by_keys = ranking.compare(&old.keys, new);
            by_keys.then(old.time.cmp(&new.time())).is_le()
        };
        let most = ranking.shown.unwrap_or(1);
        if most == 0 || (best.len() == most && best.last().is_some_and(ahead)) {
            return;
        }
        let position = best.partition_point(ahead);
        best.truncate(most - 1);
        if best.len() == best.capacity() {
            // There may be a million groups with an event or two.
            best.reserve_exact(best.len().clamp(1, most - best.len()));
        }
        let keys = (0..ranking.descending.len()).map(|index| new.key(index).to_value());
        let entry = Entry {
            keys: keys.collect(),
            time: new.time(),
            value: new.value(),
        };
        best.insert(position, entry);
    }
}

impl Ranking {
    /// NULL is the smallest, then numbers, times and texts.
    fn compare(&self, keys: &[Value], new: &impl Candidate) -> Ordering {
        let orderings = keys.iter().zip(&self.descending).enumerate();
        let mut orderings = orderings.map(|(index, (old, &descending))| {
            let ordering = eval::rank(old.view(), new.key(index));
            if descending {
                ordering.reverse()
            } else {
                ordering
            }
        });
        orderings
            .find(|ordering| ordering.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

impl PerGroup<TopEvents, Ranking> {
    /// Adds the rows from `start` on, row `start + i` to group `slots[i]`.
    pub(super) fn update_ranked(&mut self, slots: &[u32], start: usize, column: &Column) {
        let columns = match column {
            Column::Lazy(lazy) => lazy.array_columns(),
            _ => None,
        };
        let Some(([Column::Time(times), value, keys @ ..], present)) = columns else {
            return self.update(slots, start, column);
        };
        for (row, &slot) in (start..).zip(slots) {
            if present.is_none_or(|present| present.value(row)) {
                let candidate = RankedRow {
                    time: times.value(row),
                    value,
                    keys,
                    row,
                };
                self.states[slot as usize].add_event(&self.rule, &candidate);
            }
        }
    }

    /// Appends the result of a group to a column. Events that are still text stay text.
    pub(super) fn write(&self, slot: usize, column: &mut ColumnBuilder) {
        let best = &self.states[slot].0;
        let first = best.first().map(|entry| &entry.value);
        let texts = || best.iter().filter_map(|entry| entry.value.text());
        match (first, first.and_then(HeldValue::text)) {
            (None, _) if self.rule.shown.is_none() => column.push_null(),
            (Some(value), _) if self.rule.shown.is_none() => column.push_held(value),
            (_, Some((_, reader)))
                if texts().count() == best.len()
                    && texts().all(|(_, other)| same_reader(other, reader)) =>
            {
                let ranked = reader.ranked(&mut texts().map(|(text, _)| text));
                column.push_nested(&ranked, reader);
            }
            _ => column.push_owned(self.result(slot).unwrap_or_default()),
        }
    }
}

impl GroupState for TopEvents {
    type Rule = Ranking;

    fn add(&mut self, ranking: &Ranking, value: ValueRef<'_>, _: &mut Vec<u8>) {
        if let Some(packed) = unpack(value) {
            self.add_event(ranking, &packed);
        }
    }

    fn absorb(&mut self, ranking: &Ranking, other: &TopEvents) {
        if self.0.is_empty() {
            self.0 = other.0.clone();
            return;
        }
        for entry in &other.0 {
            self.add_event(ranking, &entry);
        }
    }

    fn result(&self, ranking: &Ranking) -> Result<Value, FailureReason> {
        if ranking.shown.is_none() {
            return Ok(self
                .0
                .first()
                .map_or(Value::Null, |entry| entry.value.to_value()));
        }
        let (rank, value): (Arc<str>, Arc<str>) = ("rank".into(), "value".into());
        let shown = self.0.iter().enumerate().map(|(position, entry)| {
            let mut record = Record::with_capacity(2);
            record.set(rank.clone(), Value::Int(position as i64 + 1));
            record.set(value.clone(), entry.value.to_value());
            Value::Record(Arc::new(record))
        });
        Ok(Value::Array(shown.collect()))
    }

    fn list_bytes(&self) -> usize {
        let texts = self.0.iter().map(|entry| entry.value.text_bytes());
        size_of_val(&self.0[..]) + texts.sum::<usize>()
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        out.count(self.0.len());
        for entry in &self.0 {
            entry.keys.iter().for_each(|key| out.value(key.view()));
            out.i64(entry.time);
            out.value(entry.value.to_value().view());
        }
    }

    fn restore(ranking: &Ranking, from: &mut Reader<'_>) -> Result<TopEvents, DecodeError> {
        let entry = |from: &mut Reader<'_>| {
            let keys: Result<_, _> = ranking.descending.iter().map(|_| from.value()).collect();
            Ok(Entry {
                keys: keys?,
                time: from.i64()?,
                value: HeldValue::Value(from.value()?),
            })
        };
        let entries: Result<_, _> = (0..from.count()?).map(|_| entry(from)).collect();
        entries.map(TopEvents)
    }
}
