//! COUNT, four bytes per group.
//!
//! Groups are many and counts are small, so counts have 32 bits until one might overflow. The total number of values
//! bounds every count.

use highwater_codec::{DecodeError, Reader, Writer};

use arrow_array::Array;

use crate::column::Column;
use crate::ops::vec_growth;

#[derive(Clone, Debug)]
pub(crate) enum Counts {
    Narrow { counts: Vec<u32>, most: u32 },
    Wide(Vec<i64>),
}

impl Default for Counts {
    fn default() -> Counts {
        Counts::Narrow {
            counts: Vec::new(),
            most: 0,
        }
    }
}

impl Counts {
    pub(crate) fn get(&self, slot: usize) -> i64 {
        match self {
            Counts::Narrow { counts, .. } => counts[slot].into(),
            Counts::Wide(counts) => counts[slot],
        }
    }

    pub(crate) fn grow(&mut self, groups: usize) {
        match self {
            Counts::Narrow { counts, .. } => vec_growth::resize(counts, groups, 0),
            Counts::Wide(counts) => vec_growth::resize(counts, groups, 0),
        }
    }

    pub(crate) fn shrink(&mut self) {
        match self {
            Counts::Narrow { counts, .. } => counts.shrink_to_fit(),
            Counts::Wide(counts) => counts.shrink_to_fit(),
        }
    }

    pub(crate) fn clear(&mut self, slot: usize) {
        match self {
            Counts::Narrow { counts, .. } => counts[slot] = 0,
            Counts::Wide(counts) => counts[slot] = 0,
        }
    }

    pub(crate) fn swap(&mut self, a: usize, b: usize) {
        match self {
            Counts::Narrow { counts, .. } => counts.swap(a, b),
            Counts::Wide(counts) => counts.swap(a, b),
        }
    }

    pub(crate) fn pick(&self, slots: &[u32]) -> Counts {
        match self {
            Counts::Narrow { counts, most } => Counts::Narrow {
                counts: super::pick(counts, slots),
                most: *most,
            },
            Counts::Wide(counts) => Counts::Wide(super::pick(counts, slots)),
        }
    }

    /// Widens the counts if `more` values might overflow one.
    fn widen_for(&mut self, more: u64) {
        let Counts::Narrow { counts, most } = self else {
            return;
        };
        let fits = |most: u32| u32::try_from(u64::from(most).saturating_add(more));
        if let Ok(sum) = fits(*most) {
            *most = sum;
        } else if let Ok(sum) = fits(counts.iter().copied().max().unwrap_or(0)) {
            *most = sum;
        } else {
            *self = Counts::Wide(counts.iter().map(|&count| count.into()).collect());
        }
    }

    pub(crate) fn update(&mut self, slots: &[u32], start: usize, argument: Option<&Column>) {
        let nulls = match argument {
            None => None,
            Some(Column::Int(a) | Column::Time(a)) if a.null_count() == 0 => None,
            Some(Column::Float(a)) if a.null_count() == 0 => None,
            Some(column) => Some(column),
        };
        let counted = |row: usize| nulls.is_none_or(|column| !column.is_null(start + row));
        self.widen_for(slots.len() as u64);
        match self {
            Counts::Narrow { counts, .. } if nulls.is_none() => {
                slots.iter().for_each(|&slot| counts[slot as usize] += 1);
            }
            Counts::Narrow { counts, .. } => {
                for (row, &slot) in slots.iter().enumerate() {
                    counts[slot as usize] += u32::from(counted(row));
                }
            }
            Counts::Wide(counts) => {
                for (row, &slot) in slots.iter().enumerate() {
                    counts[slot as usize] += i64::from(counted(row));
                }
            }
        }
    }

    pub(crate) fn absorb(&mut self, other: &Counts, slots: &[u32]) {
        self.widen_for(match other {
            Counts::Narrow { most, .. } => u64::from(*most),
            Counts::Wide(_) => u64::MAX,
        });
        match (self, other) {
            (Counts::Narrow { counts, .. }, Counts::Narrow { counts: theirs, .. }) => {
                for (&slot, count) in slots.iter().zip(theirs) {
                    counts[slot as usize] += count;
                }
            }
            (Counts::Wide(counts), theirs) => {
                for (row, &slot) in slots.iter().enumerate() {
                    counts[slot as usize] += theirs.get(row);
                }
            }
            (Counts::Narrow { .. }, Counts::Wide(_)) => unreachable!("made wide above"),
        }
    }

    fn len(&self) -> usize {
        match self {
            Counts::Narrow { counts, .. } => counts.len(),
            Counts::Wide(counts) => counts.len(),
        }
    }

    pub(crate) fn snapshot(&self, out: &mut Vec<u8>) {
        (0..self.len()).for_each(|slot| out.i64(self.get(slot)));
    }

    pub(crate) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        let counts: Vec<i64> = (0..self.len())
            .map(|_| from.i64())
            .collect::<Result<_, _>>()?;
        let narrow: Result<Vec<u32>, _> = counts.iter().map(|&count| count.try_into()).collect();
        *self = match narrow {
            Ok(counts) => Counts::Narrow {
                most: counts.iter().copied().max().unwrap_or(0),
                counts,
            },
            Err(_) => Counts::Wide(counts),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(counts: &[u32], most: u32) -> Counts {
        Counts::Narrow {
            counts: counts.to_vec(),
            most,
        }
    }

    #[test]
    fn a_count_past_four_bytes_is_exact() {
        let mut counts = of(&[u32::MAX - 1, 7], u32::MAX - 1);
        counts.update(&[0, 0, 0, 1], 0, None);
        assert_eq!((counts.get(0), counts.get(1)), (i64::from(u32::MAX) + 2, 8));
        let mut sum = of(&[5], 5);
        sum.absorb(&counts, &[0, 0]);
        assert_eq!(sum.get(0), i64::from(u32::MAX) + 15);
    }

    #[test]
    fn many_small_groups_stay_narrow_however_much_was_added() {
        let mut counts = of(&[3, 7], u32::MAX);
        counts.update(&[0, 1], 0, None);
        assert!(matches!(counts, Counts::Narrow { most: 9, .. }));
        assert_eq!((counts.get(0), counts.get(1)), (4, 8));
    }
}
