//! MIN and MAX: of equal values the first one stays. Numbers are below times, and times below texts.
//!
//! Integers and times are a plain vector, eight bytes per group; other types, or mixed ones, take a [`Value`] per
//! group. Results do not depend on the representation.

use std::cmp::Ordering;

use arrow_array::Array;
use highwater_codec::{DecodeError, Reader};
use highwater_time::Instant;

use crate::codec::{ReadValue, WriteValue};
use crate::column::Column;
use crate::eval;
use crate::ops::vec_growth;
use crate::value::{Value, ValueRef};

#[derive(Clone, Debug)]
pub(crate) struct Extremes {
    /// How a new value must compare with the old one to replace it.
    wanted: Ordering,
    best: Best,
}

#[derive(Clone, Debug)]
enum Best {
    /// A number of groups without a value.
    Empty(usize),
    Ints(Vec<i64>),
    /// In ticks.
    Times(Vec<i64>),
    Any(Vec<Value>),
}

impl Extremes {
    pub(crate) fn least() -> Extremes {
        Extremes {
            wanted: Ordering::Less,
            best: Best::Empty(0),
        }
    }

    pub(crate) fn most() -> Extremes {
        Extremes {
            wanted: Ordering::Greater,
            best: Best::Empty(0),
        }
    }

    /// The placeholder for no value in a plain vector, which every other number replaces. As a value it needs a
    /// [`Value`].
    fn none(&self) -> i64 {
        match self.wanted {
            Ordering::Less => i64::MAX,
            _ => i64::MIN,
        }
    }

    fn len(&self) -> usize {
        match &self.best {
            Best::Empty(groups) => *groups,
            Best::Ints(best) | Best::Times(best) => best.len(),
            Best::Any(best) => best.len(),
        }
    }

    pub(crate) fn get(&self, slot: usize) -> ValueRef<'_> {
        match &self.best {
            Best::Ints(best) if best[slot] != self.none() => ValueRef::Int(best[slot]),
            Best::Times(best) if best[slot] != self.none() => {
                ValueRef::Time(Instant::from_ticks(best[slot]))
            }
            Best::Empty(_) | Best::Ints(_) | Best::Times(_) => ValueRef::Null,
            Best::Any(best) => best[slot].view(),
        }
    }

    pub(crate) fn grow(&mut self, groups: usize) {
        let none = self.none();
        match &mut self.best {
            Best::Empty(len) => *len = groups,
            Best::Ints(best) | Best::Times(best) => vec_growth::resize(best, groups, none),
            Best::Any(best) => best.resize(groups, Value::Null),
        }
    }

    pub(crate) fn shrink(&mut self) {
        match &mut self.best {
            Best::Empty(_) => {}
            Best::Ints(best) | Best::Times(best) => best.shrink_to_fit(),
            Best::Any(best) => best.shrink_to_fit(),
        }
    }

    pub(crate) fn clear(&mut self, slot: usize) {
        let none = self.none();
        match &mut self.best {
            Best::Empty(_) => {}
            Best::Ints(best) | Best::Times(best) => best[slot] = none,
            Best::Any(best) => best[slot] = Value::Null,
        }
    }

    pub(crate) fn swap(&mut self, a: usize, b: usize) {
        match &mut self.best {
            Best::Empty(_) => {}
            Best::Ints(best) | Best::Times(best) => best.swap(a, b),
            Best::Any(best) => best.swap(a, b),
        }
    }

    pub(crate) fn pick(&self, slots: &[u32]) -> Extremes {
        Extremes {
            wanted: self.wanted,
            best: match &self.best {
                Best::Empty(_) => Best::Empty(slots.len()),
                Best::Ints(best) => Best::Ints(super::pick(best, slots)),
                Best::Times(best) => Best::Times(super::pick(best, slots)),
                Best::Any(best) => Best::Any(super::pick(best, slots)),
            },
        }
    }

    #[cold]
    fn any(&mut self) -> &mut Vec<Value> {
        if !matches!(self.best, Best::Any(_)) {
            let values = (0..self.len()).map(|slot| self.get(slot).to_value());
            self.best = Best::Any(values.collect());
        }
        match &mut self.best {
            Best::Any(values) => values,
            _ => unreachable!("just made so"),
        }
    }

    fn offer(&mut self, slot: usize, new: ValueRef<'_>) {
        let (wanted, none) = (self.wanted, self.none());
        if let Best::Empty(groups) = self.best {
            self.best = match new {
                ValueRef::Null => return,
                ValueRef::Int(_) => Best::Ints(vec![none; groups]),
                ValueRef::Time(_) => Best::Times(vec![none; groups]),
                _ => Best::Any(vec![Value::Null; groups]),
            };
        }
        match (&mut self.best, new) {
            (Best::Ints(best), ValueRef::Int(new)) if new != none => {
                replace_plain(&mut best[slot], new, wanted);
            }
            (Best::Times(best), ValueRef::Time(new)) if new.ticks() != none => {
                replace_plain(&mut best[slot], new.ticks(), wanted);
            }
            (_, ValueRef::Null) => {}
            _ => replace_if(&mut self.any()[slot], new, wanted),
        }
    }

    pub(crate) fn update(&mut self, slots: &[u32], start: usize, column: &Column) {
        let none = self.none();
        let done = match (&mut self.best, column) {
            (Best::Ints(best), Column::Int(new)) | (Best::Times(best), Column::Time(new))
                if new.null_count() == 0 =>
            {
                let new = &new.values()[start..];
                let plain = slots.iter().zip(new).take_while(|(_, new)| **new != none);
                plain
                    .map(|(&slot, &new)| replace_plain(&mut best[slot as usize], new, self.wanted))
                    .count()
            }
            _ => 0,
        };
        for (row, &slot) in slots.iter().enumerate().skip(done) {
            self.offer(slot as usize, column.get(start + row));
        }
    }

    pub(crate) fn absorb(&mut self, other: &Extremes, slots: &[u32]) {
        match (&mut self.best, &other.best) {
            (Best::Ints(ours), Best::Ints(theirs)) | (Best::Times(ours), Best::Times(theirs)) => {
                for (&slot, &new) in slots.iter().zip(theirs) {
                    replace_plain(&mut ours[slot as usize], new, self.wanted);
                }
            }
            _ => {
                for (row, &slot) in slots.iter().enumerate() {
                    self.offer(slot as usize, other.get(row));
                }
            }
        }
    }

    pub(crate) fn snapshot(&self, out: &mut Vec<u8>) {
        (0..self.len()).for_each(|slot| out.value(self.get(slot)));
    }

    /// Restores the values of the existing number of groups.
    pub(crate) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.best = Best::Empty(self.len());
        for slot in 0..self.len() {
            let value = from.value()?;
            self.offer(slot, value.view());
        }
        Ok(())
    }
}

#[inline]
fn replace_plain(current: &mut i64, new: i64, wanted: Ordering) {
    *current = match wanted {
        Ordering::Less => new.min(*current),
        _ => new.max(*current),
    };
}

fn replace_if(current: &mut Value, new: ValueRef<'_>, wanted: Ordering) {
    let replaces = match (&*current, new) {
        (_, ValueRef::Null) => false,
        (Value::Null, _) => true,
        (Value::Int(old), ValueRef::Int(new)) => new.cmp(old) == wanted,
        (Value::Time(old), ValueRef::Time(new)) => new.cmp(old) == wanted,
        (old, new) => eval::rank(new, old.view()) == wanted,
    };
    if replaces {
        *current = new.to_value();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column::ColumnBuilder;
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = Value> {
        let edges = prop_oneof![-3..3i64, Just(i64::MAX), Just(i64::MIN)];
        prop_oneof![
            Just(Value::Null),
            edges.clone().prop_map(Value::Int),
            edges.prop_map(|ticks| Value::Time(Instant::from_ticks(ticks))),
            (-2..2i32).prop_map(|half| Value::Float(f64::from(half) / 2.0)),
            "[a-c]{0,2}".prop_map(|text| Value::text(&text)),
        ]
    }

    /// Values of one type, mostly, with their groups.
    fn values() -> impl Strategy<Value = Vec<(u32, Value)>> {
        let of = |value: BoxedStrategy<Value>| prop::collection::vec((0..3u32, value), 0..12);
        let int = prop_oneof![-3..3i64, Just(i64::MAX), Just(i64::MIN)].prop_map(Value::Int);
        let time = (-3..3i64).prop_map(|ticks| Value::Time(Instant::from_ticks(ticks)));
        prop_oneof![of(int.boxed()), of(time.boxed()), of(value().boxed())]
    }

    fn column(values: &[(u32, Value)]) -> Column {
        let mut builder = ColumnBuilder::with_capacity(values.len());
        values
            .iter()
            .for_each(|(_, value)| builder.push(value.view()));
        builder.finish()
    }

    /// The extreme of each group, by the order of kinds and of values in a kind.
    fn naive(naive: &mut [Value], values: &[(u32, Value)], wanted: Ordering) {
        for (slot, value) in values.iter().filter(|(_, value)| !value.is_null()) {
            let best = &mut naive[*slot as usize];
            if best.is_null() || order(value, best) == wanted {
                *best = value.clone();
            }
        }
    }

    fn order(a: &Value, b: &Value) -> Ordering {
        match (a, b) {
            (Value::Text(a), Value::Text(b)) => a.cmp(b),
            (Value::Time(a), Value::Time(b)) => a.cmp(b),
            (Value::Text(_), _) | (Value::Time(_), Value::Int(_) | Value::Float(_)) => {
                Ordering::Greater
            }
            (_, Value::Text(_)) | (Value::Int(_) | Value::Float(_), Value::Time(_)) => {
                Ordering::Less
            }
            _ => {
                let numbers = eval::compare(a.view(), b.view());
                numbers.expect("numbers compare").expect("and are not NULL")
            }
        }
    }

    fn all(extremes: &Extremes) -> String {
        let values: Vec<ValueRef<'_>> = (0..extremes.len()).map(|s| extremes.get(s)).collect();
        format!("{values:?}")
    }

    fn shown(values: &[Value]) -> String {
        format!("{:?}", values.iter().map(Value::view).collect::<Vec<_>>())
    }

    proptest! {
        /// A plain list equals a value per group after any adds, merges, clears and snapshots.
        #[test]
        fn plain_lists_are_values(ours in values(), theirs in values(), most: bool, cleared in 0..4usize) {
            let fresh = || {
                let mut fresh = if most { Extremes::most() } else { Extremes::least() };
                fresh.grow(3);
                fresh
            };
            let (mut extremes, mut other) = (fresh(), fresh());
            let (mut expected, mut others) = (vec![Value::Null; 3], vec![Value::Null; 3]);
            let wanted = extremes.wanted;
            for (extremes, expected, values) in [
                (&mut extremes, &mut expected, &ours),
                (&mut other, &mut others, &theirs),
            ] {
                let slots: Vec<u32> = values.iter().map(|(slot, _)| *slot).collect();
                let (early, late) = slots.split_at(slots.len() / 2);
                let column = column(values);
                extremes.update(early, 0, &column);
                extremes.update(late, early.len(), &column);
                naive(expected, values, wanted);
                prop_assert_eq!(all(extremes), shown(expected));
            }
            if let Some(value) = expected.get_mut(cleared) {
                extremes.clear(cleared);
                *value = Value::Null;
            }
            let merged: Vec<(u32, Value)> = [2, 0, 2].into_iter().zip(others).collect();
            extremes.absorb(&other, &[2, 0, 2]);
            naive(&mut expected, &merged, wanted);
            prop_assert_eq!(all(&extremes), shown(&expected));
            let mut writer = Vec::new();
            extremes.snapshot(&mut writer);
            let mut restored = fresh();
            prop_assert!(restored.restore(&mut Reader::new(&writer)).is_ok());
            prop_assert_eq!(all(&restored), shown(&expected));
            let picked = [1, 1, 0].map(|slot| expected[slot].clone());
            prop_assert_eq!(all(&restored.pick(&[1, 1, 0])), shown(&picked));
        }
    }
}
