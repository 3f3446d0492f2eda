//! SUM and AVG of many groups, twelve bytes per group.
//!
//! Sums of integers alone or of floats alone are two plain vectors; mixed types, or a sum or count that overflows them,
//! take a [`Total`] per group. Results do not depend on the representation.

use highwater_codec::{DecodeError, Reader};

use arrow_array::Array;

use super::total::Total;
use crate::column::Column;
use crate::ops::vec_growth;
use crate::value::ValueRef;

#[derive(Clone, Debug)]
pub(crate) enum Totals {
    /// A number of groups without a value.
    Empty(usize),
    Ints(Plain<i64>),
    Floats(Plain<f64>),
    Any(Vec<Total>),
}

/// Sums of one type with their counts.
#[derive(Clone, Debug)]
pub(crate) struct Plain<T> {
    sums: Vec<T>,
    counts: Vec<u32>,
}

impl<T: Clone + Copy + Default> Plain<T> {
    fn new(groups: usize) -> Plain<T> {
        Plain {
            sums: vec![T::default(); groups],
            counts: vec![0; groups],
        }
    }

    fn grow(&mut self, groups: usize) {
        vec_growth::resize(&mut self.sums, groups, T::default());
        vec_growth::resize(&mut self.counts, groups, 0);
    }

    fn pick(&self, slots: &[u32]) -> Plain<T> {
        Plain {
            sums: super::pick(&self.sums, slots),
            counts: super::pick(&self.counts, slots),
        }
    }

    fn shrink(&mut self) {
        self.sums.shrink_to_fit();
        self.counts.shrink_to_fit();
    }

    fn clear(&mut self, slot: usize) {
        self.sums[slot] = T::default();
        self.counts[slot] = 0;
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.sums.swap(a, b);
        self.counts.swap(a, b);
    }

    /// Stores a new sum and count, if both fit.
    #[inline]
    fn put(&mut self, slot: usize, sum: Option<T>, count: Option<u32>) -> bool {
        let (Some(sum), Some(count)) = (sum, count) else {
            return false;
        };
        self.sums[slot] = sum;
        self.counts[slot] = count;
        true
    }
}

impl Plain<i64> {
    /// False if it does not fit.
    #[inline]
    fn add(&mut self, slot: usize, sum: i64, count: u32) -> bool {
        let sum = self.sums[slot].checked_add(sum);
        self.put(slot, sum, self.counts[slot].checked_add(count))
    }
}

impl Plain<f64> {
    #[inline]
    fn add(&mut self, slot: usize, sum: f64, count: u32) -> bool {
        let sum = self.sums[slot] + sum;
        self.put(slot, Some(sum), self.counts[slot].checked_add(count))
    }
}

impl Default for Totals {
    fn default() -> Totals {
        Totals::Empty(0)
    }
}

impl Totals {
    fn len(&self) -> usize {
        match self {
            Totals::Empty(groups) => *groups,
            Totals::Ints(ints) => ints.counts.len(),
            Totals::Floats(floats) => floats.counts.len(),
            Totals::Any(totals) => totals.len(),
        }
    }

    pub(crate) fn get(&self, slot: usize) -> Total {
        match self {
            Totals::Empty(_) => Total::default(),
            Totals::Ints(ints) => Total::of_ints(ints.sums[slot], ints.counts[slot]),
            Totals::Floats(floats) => Total::of_floats(floats.sums[slot], floats.counts[slot]),
            Totals::Any(totals) => totals[slot],
        }
    }

    pub(crate) fn grow(&mut self, groups: usize) {
        match self {
            Totals::Empty(len) => *len = groups,
            Totals::Ints(ints) => ints.grow(groups),
            Totals::Floats(floats) => floats.grow(groups),
            Totals::Any(totals) => totals.resize(groups, Total::default()),
        }
    }

    pub(crate) fn shrink(&mut self) {
        match self {
            Totals::Empty(_) => {}
            Totals::Ints(ints) => ints.shrink(),
            Totals::Floats(floats) => floats.shrink(),
            Totals::Any(totals) => totals.shrink_to_fit(),
        }
    }

    pub(crate) fn clear(&mut self, slot: usize) {
        match self {
            Totals::Empty(_) => {}
            Totals::Ints(ints) => ints.clear(slot),
            Totals::Floats(floats) => floats.clear(slot),
            Totals::Any(totals) => totals[slot] = Total::default(),
        }
    }

    pub(crate) fn swap(&mut self, a: usize, b: usize) {
        match self {
            Totals::Empty(_) => {}
            Totals::Ints(ints) => ints.swap(a, b),
            Totals::Floats(floats) => floats.swap(a, b),
            Totals::Any(totals) => totals.swap(a, b),
        }
    }

    pub(crate) fn pick(&self, slots: &[u32]) -> Totals {
        match self {
            Totals::Empty(_) => Totals::Empty(slots.len()),
            Totals::Ints(ints) => Totals::Ints(ints.pick(slots)),
            Totals::Floats(floats) => Totals::Floats(floats.pick(slots)),
            Totals::Any(totals) => Totals::Any(super::pick(totals, slots)),
        }
    }

    #[cold]
    fn any(&mut self) -> &mut Vec<Total> {
        if !matches!(self, Totals::Any(_)) {
            *self = Totals::Any((0..self.len()).map(|slot| self.get(slot)).collect());
        }
        match self {
            Totals::Any(totals) => totals,
            _ => unreachable!("just made so"),
        }
    }

    #[inline]
    fn add_int(&mut self, slot: usize, value: i64) {
        if let Totals::Empty(groups) = self {
            *self = Totals::Ints(Plain::new(*groups));
        }
        let added = match self {
            Totals::Ints(ints) => ints.add(slot, value, 1),
            _ => false,
        };
        if !added {
            self.any()[slot].add_int(value);
        }
    }

    #[inline]
    fn add_float(&mut self, slot: usize, value: f64) {
        if let Totals::Empty(groups) = self {
            *self = Totals::Floats(Plain::new(*groups));
        }
        let added = match self {
            Totals::Floats(floats) => floats.add(slot, value, 1),
            _ => false,
        };
        if !added {
            self.any()[slot].add_float(value);
        }
    }

    #[inline]
    fn add(&mut self, slot: usize, total: &Total) {
        if *total == Total::default() {
            return;
        }
        if let Totals::Empty(groups) = *self {
            *self = match (total.as_ints(), total.as_floats()) {
                (Some(_), _) => Totals::Ints(Plain::new(groups)),
                (_, Some(_)) => Totals::Floats(Plain::new(groups)),
                _ => Totals::Any(vec![Total::default(); groups]),
            };
        }
        let added = match self {
            Totals::Ints(ints) => total
                .as_ints()
                .is_some_and(|(sum, count)| ints.add(slot, sum, count)),
            Totals::Floats(floats) => total
                .as_floats()
                .is_some_and(|(sum, count)| floats.add(slot, sum, count)),
            _ => false,
        };
        if !added {
            self.any()[slot].add(total);
        }
    }

    pub(crate) fn update(&mut self, slots: &[u32], start: usize, column: &Column) {
        match column {
            Column::Int(a) if a.null_count() == 0 => {
                let mut values = slots.iter().zip(&a.values()[start..]);
                if let Totals::Ints(ints) = self {
                    let fits = |(slot, value): (&u32, &i64)| ints.add(*slot as usize, *value, 1);
                    let done = values.clone().map(fits).take_while(|fits| *fits).count();
                    values = slots[done..].iter().zip(&a.values()[start + done..]);
                }
                values.for_each(|(&slot, &value)| self.add_int(slot as usize, value));
            }
            Column::Float(a) if a.null_count() == 0 => {
                let mut values = slots.iter().zip(&a.values()[start..]);
                if let Totals::Floats(floats) = self {
                    let fits = |(slot, value): (&u32, &f64)| floats.add(*slot as usize, *value, 1);
                    let done = values.clone().map(fits).take_while(|fits| *fits).count();
                    values = slots[done..].iter().zip(&a.values()[start + done..]);
                }
                values.for_each(|(&slot, &value)| self.add_float(slot as usize, value));
            }
            column => {
                for (row, &slot) in slots.iter().enumerate() {
                    match column.get(start + row) {
                        ValueRef::Int(value) => self.add_int(slot as usize, value),
                        ValueRef::Float(value) => self.add_float(slot as usize, value),
                        _ => {}
                    }
                }
            }
        }
    }

    pub(crate) fn absorb(&mut self, other: &Totals, slots: &[u32]) {
        let done = match (&mut *self, other) {
            (Totals::Ints(ours), Totals::Ints(theirs)) => {
                let theirs = theirs.sums.iter().zip(&theirs.counts);
                let parts = slots.iter().zip(theirs);
                parts
                    .take_while(|(slot, (sum, count))| ours.add(**slot as usize, **sum, **count))
                    .count()
            }
            (Totals::Floats(ours), Totals::Floats(theirs)) => {
                let theirs = theirs.sums.iter().zip(&theirs.counts);
                let parts = slots.iter().zip(theirs);
                parts
                    .take_while(|(slot, (sum, count))| ours.add(**slot as usize, **sum, **count))
                    .count()
            }
            _ => 0,
        };
        for (row, &slot) in slots.iter().enumerate().skip(done) {
            self.add(slot as usize, &other.get(row));
        }
    }

    pub(crate) fn snapshot(&self, out: &mut Vec<u8>) {
        (0..self.len()).for_each(|slot| self.get(slot).snapshot(out));
    }

    /// Restores the totals of the existing number of groups.
    pub(crate) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        *self = Totals::Empty(self.len());
        for slot in 0..self.len() {
            self.add(slot, &Total::restore(from)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Number {
        Int(i64),
        Float(f64),
    }

    fn numbers() -> impl Strategy<Value = Vec<(usize, Number)>> {
        let large = prop_oneof![-5..5i64, Just(i64::MAX), Just(i64::MIN)];
        let float = (-8..8i32).prop_map(|eighths| Number::Float(f64::from(eighths) / 8.0));
        let ints = prop::collection::vec((0..3usize, large.clone().prop_map(Number::Int)), 0..12);
        let floats = prop::collection::vec((0..3usize, float.clone()), 0..12);
        let both = prop_oneof![large.prop_map(Number::Int), float];
        prop_oneof![
            ints,
            floats,
            prop::collection::vec((0..3usize, both), 0..12)
        ]
    }

    fn filled(numbers: &[(usize, Number)]) -> (Totals, Vec<Total>) {
        let (mut totals, mut naive) = (Totals::default(), vec![Total::default(); 3]);
        totals.grow(3);
        for &(slot, number) in numbers {
            match number {
                Number::Int(value) => {
                    totals.add_int(slot, value);
                    naive[slot].add_int(value);
                }
                Number::Float(value) => {
                    totals.add_float(slot, value);
                    naive[slot].add_float(value);
                }
            }
        }
        (totals, naive)
    }

    fn all(totals: &Totals) -> Vec<Total> {
        (0..totals.len()).map(|slot| totals.get(slot)).collect()
    }

    proptest! {
        /// Dense columns equal a total per group after any adds, merges, clears and snapshots.
        #[test]
        fn columns_are_totals(ours in numbers(), theirs in numbers(), cleared in 0..4usize) {
            let ((mut totals, mut naive), (other, others)) = (filled(&ours), filled(&theirs));
            prop_assert_eq!(all(&totals), naive.clone());
            if let Some(total) = naive.get_mut(cleared) {
                totals.clear(cleared);
                *total = Total::default();
            }
            totals.absorb(&other, &[2, 0, 2]);
            for (slot, total) in [2, 0, 2].into_iter().zip(&others) {
                naive[slot].add(total);
            }
            prop_assert_eq!(all(&totals), naive.clone());
            let mut writer = Vec::new();
            totals.snapshot(&mut writer);
            let mut restored = Totals::Empty(3);
            prop_assert!(restored.restore(&mut Reader::new(&writer)).is_ok());
            prop_assert_eq!(all(&restored), naive.clone());
            prop_assert_eq!(all(&restored.pick(&[1, 1, 0])), vec![naive[1], naive[1], naive[0]]);
        }
    }
}
