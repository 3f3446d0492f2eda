//! CollectTop and TopOne: the first events by rank; of equal ranks the earlier event comes first.

use std::cmp::Ordering;
use std::sync::Arc;

use highwater_query::plan::{Aggregate, AggregateFunction};

use highwater_codec::{DecodeError, Reader, Writer};

use super::FailureReason;
use super::packed::{PackedEvent, unpack};
use super::per_group::GroupState;
use crate::codec::{ReadValue, WriteValue};
use crate::eval;
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
    value: Value,
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

impl TopEvents {
    fn add_event(&mut self, ranking: &Ranking, new: PackedEvent<'_>) {
        let best = &mut self.0;
        let ahead = |old: &Entry| {
            let by_keys = compare_keys(&old.keys, new.keys, &ranking.descending);
            by_keys.then(old.time.cmp(&new.time)).is_le()
        };
        let most = ranking.shown.unwrap_or(1);
        if most == 0 || (best.len() == most && best.last().is_some_and(ahead)) {
            return;
        }
        let position = best.partition_point(ahead);
        best.truncate(most - 1);
        let entry = Entry {
            keys: new.keys.into(),
            time: new.time,
            value: new.value.clone(),
        };
        best.insert(position, entry);
    }
}

impl GroupState for TopEvents {
    type Rule = Ranking;

    fn add(&mut self, ranking: &Ranking, value: ValueRef<'_>, _: &mut Vec<u8>) {
        if let Some(packed) = unpack(value) {
            self.add_event(ranking, packed);
        }
    }

    fn absorb(&mut self, ranking: &Ranking, other: &TopEvents) {
        for Entry { keys, time, value } in &other.0 {
            let time = *time;
            self.add_event(ranking, PackedEvent { time, value, keys });
        }
    }

    fn result(&self, ranking: &Ranking) -> Result<Value, FailureReason> {
        if ranking.shown.is_none() {
            return Ok(self
                .0
                .first()
                .map_or(Value::Null, |entry| entry.value.clone()));
        }
        let (rank, value): (Arc<str>, Arc<str>) = ("rank".into(), "value".into());
        let shown = self.0.iter().enumerate().map(|(position, entry)| {
            let mut record = Record::with_capacity(2);
            record.set(rank.clone(), Value::Int(position as i64 + 1));
            record.set(value.clone(), entry.value.clone());
            Value::Record(Arc::new(record))
        });
        Ok(Value::Array(shown.collect()))
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        out.count(self.0.len());
        for entry in &self.0 {
            entry.keys.iter().for_each(|key| out.value(key.view()));
            out.i64(entry.time);
            out.value(entry.value.view());
        }
    }

    fn restore(ranking: &Ranking, from: &mut Reader<'_>) -> Result<TopEvents, DecodeError> {
        let entry = |from: &mut Reader<'_>| {
            let keys: Result<_, _> = ranking.descending.iter().map(|_| from.value()).collect();
            Ok(Entry {
                keys: keys?,
                time: from.i64()?,
                value: from.value()?,
            })
        };
        let entries: Result<_, _> = (0..from.count()?).map(|_| entry(from)).collect();
        entries.map(TopEvents)
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
