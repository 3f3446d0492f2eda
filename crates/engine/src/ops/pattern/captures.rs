//! The values of a match that DEFINE and MEASURES read: first, last, smallest and largest values, and classifiers.
//!
//! Values are updated per event, so the size of a match depends on the query and not on its number of events. Threads
//! share their common values.

use std::cmp::Ordering;
use std::sync::Arc;

use highwater_query::plan::{Expr, MatchRef, Pick};

use highwater_codec::{DecodeError, Reader, Writer};

use crate::codec::{ReadValue, WriteValue};
use crate::column::Column;
use crate::eval::{self, EvalError};
use crate::value::{Value, ValueRef};

/// The distinct values that a query reads.
#[derive(Debug, Default)]
pub(super) struct CaptureSpec {
    /// Evaluated in every event.
    pub exprs: Vec<Expr>,
    pub running: Vec<RunningValue>,
    /// The source of each of the node's refs.
    pub refs: Vec<RefSource>,
    /// Whether the query reads classifiers.
    path: bool,
    /// The expressions whose values in all events are read.
    pub collected: Vec<usize>,
}

/// A value that is updated with each event of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunningValue {
    pub variable: usize,
    pub pick: Pick,
    pub expr: usize,
    /// Text compares as text.
    pub as_text: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefSource {
    RunningValue(usize),
    Classifier,
    /// An index in [`CaptureSpec::collected`]; the attempt has the values.
    Collected(usize),
}

impl CaptureSpec {
    pub(super) fn new(refs: &[MatchRef]) -> CaptureSpec {
        let mut capture_spec = CaptureSpec::default();
        // Expressions at different positions in the text are different values: checkpoints depend on their number.
        let mut texts = Vec::new();
        for one in refs {
            let source = match one {
                MatchRef::Classifier => RefSource::Classifier,
                MatchRef::Collected { of } => {
                    let expr = capture_spec.expr(&mut texts, of);
                    capture_spec.collected.push(expr);
                    RefSource::Collected(capture_spec.collected.len() - 1)
                }
                MatchRef::Picked {
                    variable,
                    pick,
                    of,
                    as_text,
                } => {
                    let expr = capture_spec.expr(&mut texts, of);
                    // Once the event under test counts as taken, it is the last one.
                    let pick = match pick {
                        Pick::Current => Pick::Last,
                        other => *other,
                    };
                    let running = RunningValue {
                        variable: *variable,
                        pick,
                        expr,
                        as_text: *as_text,
                    };
                    RefSource::RunningValue(position(&mut capture_spec.running, running))
                }
            };
            capture_spec.path |= source == RefSource::Classifier;
            capture_spec.refs.push(source);
        }
        capture_spec
    }

    /// The index of an expression, which is added if its text is new.
    fn expr(&mut self, texts: &mut Vec<String>, of: &Expr) -> usize {
        let expr = position(texts, format!("{of:?}"));
        if expr == self.exprs.len() {
            self.exprs.push(of.clone());
        }
        expr
    }
}

/// The position of a value in a list, to which it is added if it is new.
fn position<T: PartialEq>(list: &mut Vec<T>, wanted: T) -> usize {
    match list.iter().position(|known| *known == wanted) {
        Some(at) => at,
        None => {
            list.push(wanted);
            list.len() - 1
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Captures {
    /// One for each running value; `None` until its variable has taken an event.
    pub values: Arc<[Option<Value>]>,
    path: Option<Arc<ClassifierPath>>,
}

/// The variables that took the events, last first; runs of one variable are counted.
#[derive(Debug)]
struct ClassifierPath {
    variable: u32,
    events: u64,
    before: Option<Arc<ClassifierPath>>,
}

/// The wildcard `.`, which is no variable.
const ANY: u32 = u32::MAX;

impl Drop for ClassifierPath {
    /// Iterative, because dropping a long path recursively would overflow the stack.
    fn drop(&mut self) {
        let mut before = self.before.take();
        while let Some(mut path) = before.and_then(Arc::into_inner) {
            before = path.before.take();
        }
    }
}

impl Captures {
    pub(super) fn new(capture_spec: &CaptureSpec) -> Captures {
        Captures {
            values: vec![None; capture_spec.running.len()].into(),
            path: None,
        }
    }

    /// The captures after an event. Values that cannot be compared do not change the smallest or largest.
    pub(super) fn with(
        &self,
        capture_spec: &CaptureSpec,
        variable: Option<usize>,
        event: &Event<'_>,
        failed: &mut Option<EvalError>,
    ) -> Captures {
        let mut next = self.clone();
        if capture_spec.path {
            let variable = variable.map_or(ANY, |variable| variable as u32);
            next.path = Some(Arc::new(extend(self.path.as_ref(), variable)));
        }
        let own = |running: &RunningValue| Some(running.variable) == variable;
        if !capture_spec.running.iter().any(own) {
            return next;
        }
        let mut values = self.values.to_vec();
        for (running, value) in capture_spec.running.iter().zip(&mut values) {
            if own(running)
                && let Err(reason) = pick(running, value, event.value(running.expr))
            {
                failed.get_or_insert(reason);
            }
        }
        next.values = values.into();
        next
    }

    pub(super) fn value(&self, source: RefSource, variables: &[Value]) -> Value {
        match source {
            RefSource::RunningValue(at) => self.values[at].clone().unwrap_or_default(),
            RefSource::Classifier => self.classifier(variables),
            RefSource::Collected(_) => Value::Null,
        }
    }

    fn classifier(&self, variables: &[Value]) -> Value {
        let mut names = Vec::new();
        let mut path = self.path.as_ref();
        while let Some(run) = path {
            let name = variables.get(run.variable as usize);
            let name = name.cloned().unwrap_or_else(|| Value::text("."));
            names.extend(std::iter::repeat_n(name, run.events as usize));
            path = run.before.as_ref();
        }
        names.reverse();
        Value::Array(names.into())
    }

    pub(super) fn snapshot(&self, out: &mut Vec<u8>) {
        for value in self.values.iter() {
            out.u8(value.is_some().into());
            if let Some(value) = value {
                out.value(value.view());
            }
        }
        let runs = std::iter::successors(self.path.as_ref(), |path| path.before.as_ref());
        out.count(runs.clone().count());
        for run in runs {
            out.u32(run.variable);
            out.u64(run.events);
        }
    }

    pub(super) fn restore(
        capture_spec: &CaptureSpec,
        from: &mut Reader<'_>,
    ) -> Result<Captures, DecodeError> {
        let values = capture_spec.running.iter().map(|_| match from.u8()? {
            0 => Ok(None),
            _ => from.value().map(Some),
        });
        let values: Result<Vec<_>, DecodeError> = values.collect();
        let values = values?.into();
        let runs = (0..from.count()?).map(|_| Ok((from.u32()?, from.u64()?)));
        let runs: Result<Vec<_>, DecodeError> = runs.collect();
        let mut path = None;
        for (variable, events) in runs?.into_iter().rev() {
            path = Some(Arc::new(ClassifierPath {
                variable,
                events,
                before: path,
            }));
        }
        Ok(Captures { values, path })
    }
}

fn extend(path: Option<&Arc<ClassifierPath>>, variable: u32) -> ClassifierPath {
    match path {
        Some(last) if last.variable == variable => ClassifierPath {
            variable,
            events: last.events + 1,
            before: last.before.clone(),
        },
        before => ClassifierPath {
            variable,
            events: 1,
            before: before.cloned(),
        },
    }
}

fn pick(
    running: &RunningValue,
    kept: &mut Option<Value>,
    new: ValueRef<'_>,
) -> Result<(), EvalError> {
    let wanted = match running.pick {
        Pick::First if kept.is_some() => return Ok(()),
        Pick::First | Pick::Last | Pick::Current => {
            *kept = Some(new.to_value());
            return Ok(());
        }
        Pick::Min => Ordering::Less,
        Pick::Max => Ordering::Greater,
    };
    let new = match new {
        ValueRef::Text(text) if !running.as_text => eval::read_text(text),
        ValueRef::Record(_) | ValueRef::Array(_) => {
            return Err(EvalError::Unordered {
                of: new.type_name(),
            });
        }
        _ => new,
    };
    let old = kept.as_ref().map_or(ValueRef::Null, Value::view);
    if old.is_null() || (!new.is_null() && eval::rank(new, old) == wanted) {
        *kept = Some(new.to_value());
    }
    Ok(())
}

/// One event under test: a row of the evaluated chunk.
#[derive(Clone, Copy)]
pub(super) struct Event<'a> {
    pub time: i64,
    pub row: usize,
    /// The columns of [`CaptureSpec::exprs`].
    pub columns: &'a [Column],
    /// Per variable, the rows in which its condition holds, if it depends on the event alone.
    pub alone: &'a [Option<arrow_buffer::BooleanBuffer>],
}

impl<'a> Event<'a> {
    pub(super) fn value(&self, expr: usize) -> ValueRef<'a> {
        self.columns[expr].get(self.row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_query::Span;

    /// Checkpoints of released versions have a value for each.
    #[test]
    fn equal_expressions_at_different_positions_are_different_values() {
        let picked = |pick, start| MatchRef::Picked {
            variable: 0,
            pick,
            of: Expr::column(3, Span::new(start, start + 1)),
            as_text: false,
        };
        let spec = CaptureSpec::new(&[
            picked(Pick::Current, 0),
            picked(Pick::Last, 0),
            picked(Pick::Last, 9),
        ]);
        assert_eq!((spec.exprs.len(), spec.running.len()), (2, 2));
    }
}
