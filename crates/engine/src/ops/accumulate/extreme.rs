//! MIN and MAX: of equal values the first one stays.

use std::cmp::Ordering;

use crate::column::Column;
use crate::eval::{self, EvalError};
use crate::value::{Value, ValueRef};

#[derive(Clone, Debug)]
pub(crate) struct Extremes {
    /// How a new value must compare with the old one to replace it.
    pub(super) wanted: Ordering,
    pub values: Vec<Value>,
}

impl Extremes {
    pub fn least() -> Extremes {
        Extremes {
            wanted: Ordering::Less,
            values: Vec::new(),
        }
    }

    pub fn most() -> Extremes {
        Extremes {
            wanted: Ordering::Greater,
            values: Vec::new(),
        }
    }

    pub fn update(
        &mut self,
        slots: &[u32],
        start: usize,
        column: &Column,
    ) -> Result<(), EvalError> {
        let mut outcome = Ok(());
        for (row, &slot) in slots.iter().enumerate() {
            let current = &mut self.values[slot as usize];
            let replaced = replace_if(current, column.get(start + row), self.wanted);
            outcome = outcome.and(replaced);
        }
        outcome
    }

    pub fn absorb(&mut self, other: &Extremes, slots: &[u32]) -> Result<(), EvalError> {
        let mut outcome = Ok(());
        for (&slot, value) in slots.iter().zip(&other.values) {
            let current = &mut self.values[slot as usize];
            let replaced = replace_if(current, value.view(), self.wanted);
            outcome = outcome.and(replaced);
        }
        outcome
    }
}

fn replace_if(current: &mut Value, new: ValueRef<'_>, wanted: Ordering) -> Result<(), EvalError> {
    let replaces = match (&*current, new) {
        (_, ValueRef::Null) => false,
        (Value::Null, _) => true,
        (Value::Int(old), ValueRef::Int(new)) => new.cmp(old) == wanted,
        (Value::Time(old), ValueRef::Time(new)) => new.cmp(old) == wanted,
        (old, new) => eval::compare(new, old.view())? == Some(wanted),
    };
    if replaces {
        *current = new.to_value();
    }
    Ok(())
}
