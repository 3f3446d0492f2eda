//! Aggregates that have a state of their own for every group.

use highwater_codec::{DecodeError, Reader};

use super::FailureReason;
use crate::column::Column;
use crate::value::{Value, ValueRef};

/// The state of one group.
pub(crate) trait GroupState: Clone + Default {
    /// The settings of the aggregate.
    type Rule;

    /// Adds a value. The buffer has any content and is reused.
    fn add(&mut self, rule: &Self::Rule, value: ValueRef<'_>, buffer: &mut Vec<u8>);

    fn absorb(&mut self, rule: &Self::Rule, other: &Self);

    fn result(&self, rule: &Self::Rule) -> Result<Value, FailureReason>;

    /// The approximate overhead of a group besides the state itself.
    fn list_bytes(&self) -> usize {
        0
    }

    fn snapshot(&self, out: &mut Vec<u8>);
    fn restore(rule: &Self::Rule, from: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

#[derive(Clone, Debug, Default)]
pub(crate) struct PerGroup<S, R> {
    pub(super) rule: R,
    pub(super) states: Vec<S>,
}

impl<S: GroupState<Rule = R>, R: Clone> PerGroup<S, R> {
    pub(super) fn new(rule: R) -> PerGroup<S, R> {
        let states = Vec::new();
        PerGroup { rule, states }
    }

    pub(super) fn grow(&mut self, groups: usize) {
        self.states.resize_with(groups, S::default);
    }

    pub(super) fn pick(&self, slots: &[u32]) -> PerGroup<S, R> {
        PerGroup {
            rule: self.rule.clone(),
            states: super::pick(&self.states, slots),
        }
    }

    pub(super) fn clear(&mut self, slot: usize) {
        self.states[slot] = S::default();
    }

    pub(super) fn swap(&mut self, a: usize, b: usize) {
        self.states.swap(a, b);
    }

    pub(super) fn update(&mut self, slots: &[u32], start: usize, column: &Column) {
        let mut buffer = Vec::new();
        for (row, &slot) in slots.iter().enumerate() {
            let value = column.get(start + row);
            self.states[slot as usize].add(&self.rule, value, &mut buffer);
        }
    }

    pub(super) fn absorb(&mut self, other: &PerGroup<S, R>, slots: &[u32]) {
        for (&slot, theirs) in slots.iter().zip(&other.states) {
            self.states[slot as usize].absorb(&self.rule, theirs);
        }
    }

    pub(super) fn result(&self, slot: usize) -> Result<Value, FailureReason> {
        self.states[slot].result(&self.rule)
    }

    pub(super) fn list_bytes(&self) -> usize {
        self.states.iter().map(S::list_bytes).sum()
    }

    pub(super) fn snapshot(&self, out: &mut Vec<u8>) {
        self.states.iter().for_each(|state| state.snapshot(out));
    }

    /// Restores the states of the existing number of groups.
    pub(super) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        for state in &mut self.states {
            *state = S::restore(&self.rule, from)?;
        }
        Ok(())
    }
}
