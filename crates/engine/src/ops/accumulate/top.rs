//! CollectTop and TopOne: the first events by rank; of equal ranks the earlier event comes first.

use std::cmp::Ordering;
use std::sync::Arc;

use highwater_query::plan::{Aggregate, AggregateFunction};

use highwater_codec::{DecodeError, Reader, Writer};

use super::packed::{PackedEvent, unpack};
use crate::codec::{ReadValue, WriteValue};
use crate::column::Column;
use crate::eval;
use crate::value::{Record, Value};

#[derive(Clone, Debug)]
pub(crate) struct TopValues {
    /// The number of ranks in the result; `None` for the value of the first alone.
    pub(super) shown: Option<usize>,
    pub(super) descending: Box<[bool]>,
    /// The best events per group, best first, at most `shown`.
    pub(super) best: Vec<Vec<Entry>>,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    keys: Box<[Value]>,
    time: i64,
    value: Value,
}

impl TopValues {
    pub(crate) fn new(spec: &Aggregate) -> TopValues {
        TopValues {
            shown: match spec.function {
                AggregateFunction::CollectTop(count) => Some(count),
                _ => None,
            },
            descending: spec.order.iter().map(|key| key.descending).collect(),
            best: Vec::new(),
        }
    }

    pub(crate) fn grow(&mut self, groups: usize) {
        self.best.resize_with(groups, Vec::new);
    }

    pub(crate) fn clear(&mut self, slot: usize) {
        self.best[slot] = Vec::new();
    }

    pub(crate) fn update(&mut self, slots: &[u32], start: usize, column: &Column) {
        for (row, &slot) in slots.iter().enumerate() {
            if let Some(packed) = unpack(column.get(start + row)) {
                self.add(slot as usize, packed);
            }
        }
    }

    pub(crate) fn absorb(&mut self, other: &TopValues, slots: &[u32]) {
        for (&slot, theirs) in slots.iter().zip(&other.best) {
            for Entry { keys, time, value } in theirs {
                let time = *time;
                self.add(slot as usize, PackedEvent { time, value, keys });
            }
        }
    }

    fn add(&mut self, slot: usize, new: PackedEvent<'_>) {
        let best = &mut self.best[slot];
        let ahead = |old: &Entry| {
            let by_keys = compare_keys(&old.keys, new.keys, &self.descending);
            by_keys.then(old.time.cmp(&new.time)).is_le()
        };
        let room = self.shown.unwrap_or(1);
        if room == 0 || (best.len() == room && best.last().is_some_and(ahead)) {
            return;
        }
        let place = best.partition_point(ahead);
        best.truncate(room - 1);
        let entry = Entry {
            keys: new.keys.into(),
            time: new.time,
            value: new.value.clone(),
        };
        best.insert(place, entry);
    }

    pub(crate) fn result(&self, slot: usize) -> Value {
        let best = &self.best[slot];
        if self.shown.is_none() {
            return best
                .first()
                .map_or(Value::Null, |entry| entry.value.clone());
        }
        let (rank, value): (Arc<str>, Arc<str>) = ("rank".into(), "value".into());
        let shown = best.iter().enumerate().map(|(place, entry)| {
            let mut record = Record::with_capacity(2);
            record.set(rank.clone(), Value::Int(place as i64 + 1));
            record.set(value.clone(), entry.value.clone());
            Value::Record(Arc::new(record))
        });
        Value::Array(shown.collect())
    }

    pub(crate) fn snapshot(&self, out: &mut Vec<u8>) {
        for best in &self.best {
            out.count(best.len());
            for entry in best {
                entry.keys.iter().for_each(|key| out.value(key.view()));
                out.i64(entry.time);
                out.value(entry.value.view());
            }
        }
    }

    pub(crate) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        for best in &mut self.best {
            for _ in 0..from.count()? {
                let keys: Result<_, _> = self.descending.iter().map(|_| from.value()).collect();
                best.push(Entry {
                    keys: keys?,
                    time: from.i64()?,
                    value: from.value()?,
                });
            }
        }
        Ok(())
    }
}

/// NULL is the smallest, and every number comes before every time.
fn compare_keys(a: &[Value], b: &[Value], descending: &[bool]) -> Ordering {
    let kind = |value: &Value| match value {
        Value::Null => 0,
        Value::Time(_) => 2,
        _ => 1,
    };
    let pairs = a.iter().zip(b).zip(descending);
    let mut orderings = pairs.map(|((a, b), &descending)| {
        let ordering = match kind(a).cmp(&kind(b)) {
            Ordering::Equal => eval::compare(a.view(), b.view())
                .ok()
                .flatten()
                .unwrap_or(Ordering::Equal),
            unequal => unequal,
        };
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
