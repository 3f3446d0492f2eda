//! Lists of values in order of time, then arrival, for Collect and JavaScript aggregates.

use highwater_codec::{DecodeError, Reader, Writer};

use super::FailureReason;
use super::packed::unpack;
use super::per_group::GroupState;
use crate::codec::{ReadValue, WriteValue};
use crate::value::{Value, ValueRef};

#[derive(Clone, Debug, Default)]
pub(crate) struct TimedValues(pub(super) Vec<(i64, Value)>);

impl GroupState for TimedValues {
    type Rule = ();

    fn add(&mut self, (): &(), value: ValueRef<'_>, _: &mut Vec<u8>) {
        let packed = unpack(value);
        self.0
            .extend(packed.map(|packed| (packed.time, packed.value.clone())));
    }

    fn absorb(&mut self, (): &(), other: &TimedValues) {
        let in_order = match (self.0.last(), other.0.first()) {
            (Some((last, _)), Some((first, _))) => last <= first,
            _ => true,
        };
        self.0.extend_from_slice(&other.0);
        if !in_order {
            // Partitions overlap in time; at equal times the earlier partition's events come first.
            self.0.sort_by_key(|(time, _)| *time);
        }
    }

    fn result(&self, (): &()) -> Result<Value, FailureReason> {
        let values = self.0.iter().map(|(_, value)| value.clone());
        Ok(Value::Array(values.collect()))
    }

    fn list_bytes(&self) -> usize {
        size_of_val(&self.0[..])
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        out.count(self.0.len());
        for (time, value) in &self.0 {
            out.i64(*time);
            out.value(value.view());
        }
    }

    fn restore((): &(), from: &mut Reader<'_>) -> Result<TimedValues, DecodeError> {
        let values = (0..from.count()?).map(|_| Ok((from.i64()?, from.value()?)));
        values.collect::<Result<_, _>>().map(TimedValues)
    }
}
