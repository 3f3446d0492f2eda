//! Lists of values in order of time, then arrival, for Collect and JavaScript aggregates.

use highwater_codec::{DecodeError, Reader, Writer};

use super::packed::unpack;
use crate::codec::{ReadValue, WriteValue};
use crate::column::Column;
use crate::value::Value;

#[derive(Clone, Debug, Default)]
pub(crate) struct Lists(pub(super) Vec<Vec<(i64, Value)>>);

impl Lists {
    pub(crate) fn grow(&mut self, groups: usize) {
        self.0.resize_with(groups, Vec::new);
    }

    pub(crate) fn clear(&mut self, slot: usize) {
        self.0[slot] = Vec::new();
    }

    pub(crate) fn update(&mut self, slots: &[u32], start: usize, column: &Column) {
        for (row, &slot) in slots.iter().enumerate() {
            let packed = unpack(column.get(start + row));
            let list = &mut self.0[slot as usize];
            list.extend(packed.map(|packed| (packed.time, packed.value.clone())));
        }
    }

    pub(crate) fn absorb(&mut self, other: &Lists, slots: &[u32]) {
        for (&slot, theirs) in slots.iter().zip(&other.0) {
            let ours = &mut self.0[slot as usize];
            let in_order = match (ours.last(), theirs.first()) {
                (Some((last, _)), Some((first, _))) => last <= first,
                _ => true,
            };
            ours.extend_from_slice(theirs);
            if !in_order {
                // Partitions overlap in time; at equal times the earlier partition's events come first.
                ours.sort_by_key(|(time, _)| *time);
            }
        }
    }

    pub(crate) fn array(&self, slot: usize) -> Value {
        Value::Array(
            self.0[slot]
                .iter()
                .map(|(_, value)| value.clone())
                .collect(),
        )
    }

    pub(crate) fn snapshot(&self, out: &mut Vec<u8>) {
        for list in &self.0 {
            out.count(list.len());
            for (time, value) in list {
                out.i64(*time);
                out.value(value.view());
            }
        }
    }

    pub(crate) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        for list in &mut self.0 {
            for _ in 0..from.count()? {
                list.push((from.i64()?, from.value()?));
            }
        }
        Ok(())
    }
}
