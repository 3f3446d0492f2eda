//! JavaScript aggregates.
//!
//! The state of a script can be neither merged nor serialized, so events are kept and the script runs when the result
//! is needed. For overlapping windows, a script that can retract events is updated instead of running from the start
//! ([`RollingScript`]). A retraction need not be exact (0.1 + 0.2 - 0.2 is not 0.1), and a row must not depend on where
//! the job started. So the state is rebuilt from the content at the first result after every multiple of the window's
//! length; a result depends only on the events since then, and a snapshot has exactly these.

use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};

use super::FailureReason;
use super::collect::TimedValues;
use super::packed::unpack;
use super::per_group::PerGroup;
use crate::codec::{ReadValue, WriteValue};
use crate::script::{self, ObjectHandle, Retraction, Step};
use crate::value::Value;

#[derive(Clone, Debug)]
pub(crate) struct ScriptAggregates {
    pub(super) name: Arc<str>,
    pub(super) events: PerGroup<TimedValues, ()>,
    /// The known results, by group.
    results: Vec<Result<Value, FailureReason>>,
}

impl ScriptAggregates {
    pub(crate) fn new(name: &str) -> ScriptAggregates {
        ScriptAggregates::of(name.into(), PerGroup::new(()))
    }

    fn of(name: Arc<str>, events: PerGroup<TimedValues, ()>) -> ScriptAggregates {
        ScriptAggregates {
            name,
            events,
            results: Vec::new(),
        }
    }

    pub(crate) fn pick(&self, slots: &[u32]) -> ScriptAggregates {
        ScriptAggregates::of(self.name.clone(), self.events.pick(slots))
    }

    pub(crate) fn result(&self, slot: usize) -> Result<Value, FailureReason> {
        match self.results.get(slot) {
            Some(known) => known.clone(),
            None => script::aggregate(&self.name, &self.events.states[slot].0).map_err(reason),
        }
    }

    /// Whether the script can retract the events of a hop at once.
    pub(crate) fn can_roll(&self) -> bool {
        script::can_retract(&self.name, Retraction::Together)
    }

    /// Computes the result of the next group from its state in the previous window. Returns the time of its last event.
    pub(crate) fn roll(&mut self, rolling: &mut RollingScript, end: i64, size: i64) -> Option<i64> {
        let events = &self.events.states[self.results.len()].0;
        let content = events.iter().map(|(time, value)| (*time, value));
        let result = rolling.step(&self.name, Retraction::Together, end, size, content);
        self.results.push(result);
        events.last().map(|(time, _)| *time)
    }
}

fn reason(error: crate::eval::EvalError) -> FailureReason {
    error.to_string().into()
}

/// The event in an argument of a sliding window.
pub(crate) fn event(argument: &Value) -> Option<(i64, &Value)> {
    unpack(argument.view()).map(|event| (event.time, event.value))
}

/// The state of an aggregate from one window to the next.
#[derive(Debug)]
pub(crate) struct RollingScript {
    object: ObjectHandle,
    /// The events of the windows since the state was rebuilt, in order.
    events: Vec<(i64, Value)>,
    /// The ends of those windows.
    ends: Vec<i64>,
}

impl Default for RollingScript {
    fn default() -> RollingScript {
        RollingScript {
            object: ObjectHandle::new(),
            events: Vec::new(),
            ends: Vec::new(),
        }
    }
}

impl RollingScript {
    /// The result of the window that ends at `end` with this content.
    pub(crate) fn step<'a>(
        &mut self,
        name: &str,
        retraction: Retraction,
        end: i64,
        size: i64,
        content: impl DoubleEndedIterator<Item = (i64, &'a Value)> + Clone,
    ) -> Result<Value, FailureReason> {
        let first = content.clone().next().map_or(i64::MAX, |(time, _)| time);
        let era = |end: i64| end.div_euclid(size);
        let goes_on = |last: &i64| first <= *last && era(*last) == era(end);
        match self.ends.last().copied().filter(goes_on) {
            Some(last) => {
                let new = content.rev().take_while(|(time, _)| *time > last);
                let from = self.events.len();
                self.events
                    .extend(new.map(|(time, value)| (time, value.clone())));
                self.events[from..].reverse();
            }
            None => {
                *self = RollingScript::default();
                let content = content.map(|(time, value)| (time, value.clone()));
                self.events.extend(content);
            }
        }
        self.ends.push(end);
        let outcome = script::roll(name, &self.object, retraction, self.ends.len(), |step| {
            self.changes(step, size)
        });
        if outcome.is_err() {
            // The object may be inconsistent: the next result rebuilds it.
            *self = RollingScript::default();
        }
        outcome.map_err(reason)
    }

    fn changes(&self, step: usize, size: i64) -> Step<'_> {
        let events = &self.events[..];
        let until = |time: i64| events.partition_point(|(at, _)| *at <= time);
        let at = self.ends[step];
        let (left, entered) = match step {
            0 => (0..0, 0..until(at)),
            _ => {
                let before = self.ends[step - 1];
                let left = until(before.saturating_sub(size))..until(at.saturating_sub(size));
                (left, until(before)..until(at))
            }
        };
        Step {
            at,
            left: &events[left],
            entered: &events[entered],
        }
    }

    pub(crate) fn state_bytes(&self) -> usize {
        size_of_val(&self.events[..]) + size_of_val(&self.ends[..])
    }

    pub(crate) fn snapshot(&self, out: &mut Vec<u8>) {
        out.count(self.events.len());
        for (time, value) in &self.events {
            out.i64(*time);
            out.value(value.view());
        }
        out.count(self.ends.len());
        self.ends.iter().for_each(|end| out.i64(*end));
    }

    pub(crate) fn restore(from: &mut Reader<'_>) -> Result<RollingScript, DecodeError> {
        let mut rolling = RollingScript::default();
        for _ in 0..from.count()? {
            rolling.events.push((from.i64()?, from.value()?));
        }
        for _ in 0..from.count()? {
            rolling.ends.push(from.i64()?);
        }
        if !rolling.ends.is_sorted() || !rolling.events.is_sorted_by_key(|(time, _)| *time) {
            return Err(DecodeError::Invalid("a script's events are out of order"));
        }
        Ok(rolling)
    }
}

#[cfg(all(test, feature = "javascript"))]
mod tests {
    use super::*;
    use crate::script::Scripts;

    const BACK: &str = "function main() {
        this.init = function () { this.total = 0; };
        this.accumulate = function (value) { if (value === 13) throw new Error('13'); this.total += value; };
        this.deaccumulate = function (value) { if (value === 17) for (;;) {} this.total -= value; };
        this.computeResult = function () { return this.total; };
    }";

    fn scripts() -> Arc<Scripts> {
        let functions = [("f".to_string(), BACK.to_string())];
        Scripts::new(functions).expect("the script is whole")
    }

    /// The sums of a sliding window of three instants over these values, one an instant.
    fn slid(values: &[i64], mut between: impl FnMut(usize)) -> Vec<String> {
        let mut rolling = RollingScript::default();
        let values: Vec<Value> = values.iter().map(|v| Value::Int(*v)).collect();
        let results = (0..values.len()).map(|end| {
            between(end);
            let content = (end.saturating_sub(2)..=end).map(|at| (at as i64, &values[at]));
            match rolling.step("f", Retraction::OneByOne, end as i64, 3, content) {
                Ok(value) => format!("{value:?}"),
                Err(reason) => reason.to_string(),
            }
        });
        results.collect()
    }

    #[test]
    fn after_an_error_an_aggregate_begins_anew() {
        let scripts = scripts();
        let _entered = scripts.enter();
        assert!(script::can_retract("f", Retraction::OneByOne));
        assert!(!script::can_retract("f", Retraction::Together));
        let thrown = "function 'f': Error: 13";
        assert_eq!(
            slid(&[1, 2, 3, 4, 13, 6, 7, 8], |_| ()),
            [
                "Int(1)", "Int(3)", "Int(6)", "Int(9)", thrown, thrown, thrown, "Int(21)"
            ]
        );
        // The 17 is inside when the state begins at 3, and cannot be taken back at 4.
        let stopped = "function 'f': it took too many steps and was stopped";
        assert_eq!(
            slid(&[0, 17, 2, 3, 4, 5], |_| ()),
            [
                "Int(0)", "Int(17)", "Int(19)", "Int(22)", stopped, "Int(12)"
            ]
        );
    }

    #[test]
    fn an_object_that_was_lost_is_made_again() {
        let scripts = scripts();
        let _entered = scripts.enter();
        let values = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        let alone = slid(&values, |_| ());
        // Others crowd it out, or break the interpreter that they share.
        let crowd: Vec<ObjectHandle> = (0..5000).map(|_| ObjectHandle::new()).collect();
        let crowded = slid(&values, |end| {
            if end % 4 == 0 {
                for object in &crowd {
                    let step = |_| Step {
                        at: 0,
                        left: &[],
                        entered: &[],
                    };
                    script::roll("f", object, Retraction::OneByOne, 1, step)
                        .expect("an object that has seen nothing");
                }
            }
        });
        assert_eq!(crowded, alone);
        let endless = [(0, Value::Int(17))];
        let broken = slid(&values, |_| {
            let object = ObjectHandle::new();
            let step = |_| Step {
                at: 0,
                left: &endless,
                entered: &[],
            };
            script::roll("f", &object, Retraction::OneByOne, 1, step).expect_err("it never ends");
        });
        assert_eq!(broken, alone);
    }
}
