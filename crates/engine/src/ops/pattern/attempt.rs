//! One attempt at a match, from one first event on.
//!
//! An attempt runs all alternatives at once as *threads*, the preferred first. A thread that reaches the end of the
//! pattern is the best match so far and ends all less preferred threads; it is final when no more preferred thread is
//! left.
//!
//! Two threads in the same state continue alike unless a later condition distinguishes them, so only the preferred one
//! is kept. If no condition refers to earlier events, there are never more threads than states. Otherwise threads that
//! differ in the values of such conditions are kept, and there may be very many: an attempt with more than
//! [`THREADS_MAX`] is abandoned and counted as a data error.

use std::collections::BTreeSet;
use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_query::Span;
use highwater_query::plan::{ExprKind, Pred};
use highwater_time::Instant;

use super::captures::{CaptureSpec, Captures, Event, RefSource};
use super::nfa::Nfa;
use crate::chunk::Chunk;
use crate::codec::{ReadValue, WriteValue};
use crate::column::{Column, ColumnBuilder};
use crate::eval::{self, Faults};
use crate::ops::DataErrors;
use crate::value::Value;

/// The maximum number of threads of an attempt.
pub(super) const THREADS_MAX: usize = 1_000;

/// The compiled pattern and conditions.
pub(super) struct MatchRules {
    pub nfa: Nfa,
    pub capture_spec: CaptureSpec,
    /// Per variable.
    pub tests: Vec<Condition>,
    /// Per state, the running values that later conditions read.
    ahead: Vec<Vec<usize>>,
    span: Span,
}

/// When a variable may take an event.
pub(super) enum Condition {
    Always,
    /// Depends on the event alone; `columns` has the expressions of the refs.
    Alone {
        pred: Pred,
        columns: Vec<Option<usize>>,
    },
    /// Depends on earlier events; `refs` are the refs that it reads.
    LooksBack {
        pred: Pred,
        refs: Vec<usize>,
    },
}

impl MatchRules {
    pub(super) fn new(
        nfa: Nfa,
        capture_spec: CaptureSpec,
        defines: &[Option<Pred>],
        span: Span,
    ) -> MatchRules {
        let tests = defines.iter().enumerate();
        let tests: Vec<Condition> = tests
            .map(|(variable, pred)| test(variable, pred.as_ref(), &capture_spec))
            .collect();
        let ahead = looked_at_ahead(&nfa, &capture_spec, &tests);
        MatchRules {
            nfa,
            capture_spec,
            tests,
            ahead,
            span,
        }
    }

    /// Whether the variable may take the event; `None` if that depends on earlier events.
    fn alone(&self, variable: Option<usize>, event: &Event<'_>) -> Option<bool> {
        let Some(variable) = variable else {
            return Some(true);
        };
        match &self.tests[variable] {
            Condition::Always => Some(true),
            Condition::Alone { .. } => {
                let holds = event.alone[variable].as_ref();
                Some(holds.is_some_and(|holds| holds.value(event.row)))
            }
            Condition::LooksBack { .. } => None,
        }
    }

    /// Whether a match may begin with the event, by the conditions on the event alone.
    pub(super) fn may_begin(&self, event: &Event<'_>) -> bool {
        let mut states = self.nfa.start.states.iter();
        states.any(|&state| self.alone(self.nfa.tests[state as usize], event) != Some(false))
    }
}

fn test(variable: usize, pred: Option<&Pred>, capture_spec: &CaptureSpec) -> Condition {
    let Some(pred) = pred else {
        return Condition::Always;
    };
    let mut refs = BTreeSet::new();
    pred.visit(|expr| {
        if let ExprKind::Column(column) = expr.kind {
            refs.insert(column);
        }
    });
    let expr_alone = |at: usize| match capture_spec.refs.get(at) {
        Some(RefSource::RunningValue(at)) => {
            let running = capture_spec.running[*at];
            let alone = running.variable == variable && is_last(running.pick);
            alone.then_some(running.expr)
        }
        _ => None,
    };
    let pred = pred.clone();
    if refs.iter().all(|&at| expr_alone(at).is_some()) {
        let columns =
            (0..capture_spec.refs.len()).map(|at| expr_alone(at).filter(|_| refs.contains(&at)));
        return Condition::Alone {
            pred,
            columns: columns.collect(),
        };
    }
    let refs = refs.into_iter().collect();
    Condition::LooksBack { pred, refs }
}

fn is_last(pick: highwater_query::plan::Pick) -> bool {
    pick == highwater_query::plan::Pick::Last
}

fn looked_at_ahead(nfa: &Nfa, capture_spec: &CaptureSpec, tests: &[Condition]) -> Vec<Vec<usize>> {
    let looks = |state: usize| -> Vec<usize> {
        let Some(variable) = nfa.tests[state] else {
            return Vec::new();
        };
        let Condition::LooksBack { refs, .. } = &tests[variable] else {
            return Vec::new();
        };
        let running = refs.iter().filter_map(|&at| match capture_spec.refs[at] {
            RefSource::RunningValue(at) => Some(at),
            RefSource::Classifier | RefSource::Collected(_) => None,
        });
        let of_itself = |at: &usize| {
            capture_spec.running[*at].variable == variable
                && is_last(capture_spec.running[*at].pick)
        };
        running.filter(|at| !of_itself(at)).collect()
    };
    let states = 0..nfa.tests.len();
    states
        .map(|state| {
            let (mut reached, mut todo) = (BTreeSet::new(), vec![state]);
            while let Some(state) = todo.pop() {
                if reached.insert(state) {
                    todo.extend(nfa.after[state].states.iter().map(|&next| next as usize));
                }
            }
            let all: BTreeSet<usize> = reached.into_iter().flat_map(looks).collect();
            all.into_iter().collect()
        })
        .collect()
}

pub(super) struct Attempt {
    /// The time of the first event.
    pub first: i64,
    /// The number of the first event.
    pub number: u64,
    /// The partition keys of the first event.
    pub shown: Arc<[Value]>,
    /// In order of preference.
    threads: Vec<Thread>,
    /// The match so far.
    pub best: Option<Captures>,
    collected: CollectedValues,
}

/// The values of [`CaptureSpec::collected`] in all events since the first. A match has no gaps, so its events are the
/// first ones of its attempt.
#[derive(Default)]
struct CollectedValues {
    /// Event by event.
    values: Vec<Value>,
    /// How many of them are of the match so far.
    matched: usize,
}

impl CollectedValues {
    fn push(&mut self, collected: &[usize], event: &Event<'_>) {
        let values = collected.iter().map(|&expr| event.value(expr).to_value());
        self.values.extend(values);
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        out.count(self.values.len());
        self.values.iter().for_each(|value| out.value(value.view()));
        out.u64(self.matched as u64);
    }

    fn restore(from: &mut Reader<'_>) -> Result<CollectedValues, DecodeError> {
        let values = (0..from.count()?).map(|_| from.value());
        let values = values.collect::<Result<Vec<Value>, DecodeError>>()?;
        let matched = usize::try_from(from.u64()?).unwrap_or(usize::MAX);
        if matched > values.len() {
            return Err(DecodeError::Invalid(
                "a match has events that were not seen",
            ));
        }
        Ok(CollectedValues { values, matched })
    }
}

struct Thread {
    state: u32,
    captures: Captures,
    /// The captures after the event under test; `None` if the thread cannot take it.
    taken: Option<Captures>,
}

impl Attempt {
    pub(super) fn new(rules: &MatchRules, first: i64, number: u64, shown: Arc<[Value]>) -> Attempt {
        let captures = Captures::new(&rules.capture_spec);
        let states = rules.nfa.start.states.iter();
        Attempt {
            first,
            number,
            shown,
            threads: states
                .map(|&state| Thread {
                    state,
                    captures: captures.clone(),
                    taken: None,
                })
                .collect(),
            best: None,
            collected: CollectedValues::default(),
        }
    }

    /// The value of a reference in the match `best`.
    pub(super) fn value(
        &self,
        best: &Captures,
        source: RefSource,
        rules: &MatchRules,
        variables: &[Value],
    ) -> Value {
        let RefSource::Collected(at) = source else {
            return best.value(source, variables);
        };
        let width = rules.capture_spec.collected.len();
        let matched = &self.collected.values[..self.collected.matched];
        let values: Vec<Value> = matched.iter().skip(at).step_by(width).cloned().collect();
        Value::Array(values.into())
    }

    /// Whether no further event can change the result.
    pub(super) fn is_decided(&self) -> bool {
        self.threads.is_empty()
    }

    /// Continues with the threads that took the event.
    fn advance(&mut self, rules: &MatchRules, event: &Event<'_>, errors: &mut DataErrors) {
        let mut next: Vec<Thread> = Vec::new();
        let mut seen = vec![false; rules.nfa.tests.len()];
        let mut seen_with = BTreeSet::new();
        self.collected.push(&rules.capture_spec.collected, event);
        for way in std::mem::take(&mut self.threads) {
            let Some(taken) = way.taken else { continue };
            let follow = &rules.nfa.after[way.state as usize];
            for &state in &follow.states {
                let ahead = &rules.ahead[state as usize];
                let new = match ahead.is_empty() {
                    true => !std::mem::replace(&mut seen[state as usize], true),
                    false => seen_with.insert((state, distinct(&taken, ahead))),
                };
                if new {
                    next.push(Thread {
                        state,
                        captures: taken.clone(),
                        taken: None,
                    });
                }
            }
            if follow.done {
                self.best = Some(taken);
                self.collected.matched = self.collected.values.len();
                break;
            }
            if next.len() > THREADS_MAX {
                let first = Instant::from_ticks(self.first);
                errors.add(Instant::from_ticks(event.time), rules.span, || {
                    format!(
                        "the match that begins at {first} was abandoned: it has more than {THREADS_MAX} alternatives"
                    )
                });
                self.best = None;
                return;
            }
        }
        self.threads = next;
    }

    pub(super) fn state_bytes(&self) -> usize {
        let values = self.threads.first();
        let values = values.map_or(0, |thread| size_of_val(&thread.captures.values[..]));
        size_of::<Attempt>()
            + self.threads.len() * (size_of::<Thread>() + values)
            + size_of_val(&self.collected.values[..])
    }

    pub(super) fn snapshot(&self, rules: &MatchRules, out: &mut Vec<u8>) {
        out.i64(self.first);
        out.u64(self.number);
        let shown = self.shown.iter();
        shown.for_each(|value| out.value(value.view()));
        out.count(self.threads.len());
        for way in &self.threads {
            out.u32(way.state);
            way.captures.snapshot(out);
        }
        out.u8(self.best.is_some().into());
        if let Some(best) = &self.best {
            best.snapshot(out);
        }
        if !rules.capture_spec.collected.is_empty() {
            self.collected.snapshot(out);
        }
    }

    pub(super) fn restore(
        rules: &MatchRules,
        keys: usize,
        from: &mut Reader<'_>,
    ) -> Result<Attempt, DecodeError> {
        let (first, number) = (from.i64()?, from.u64()?);
        let shown: Result<Vec<Value>, _> = (0..keys).map(|_| from.value()).collect();
        let shown = shown?.into();
        let mut threads = Vec::new();
        for _ in 0..from.count()? {
            let state = from.u32()?;
            if state as usize >= rules.nfa.tests.len() {
                return Err(DecodeError::Invalid("an unknown state of a pattern"));
            }
            let captures = Captures::restore(&rules.capture_spec, from)?;
            threads.push(Thread {
                state,
                captures,
                taken: None,
            });
        }
        let best = match from.u8()? {
            0 => None,
            _ => Some(Captures::restore(&rules.capture_spec, from)?),
        };
        let collected = match rules.capture_spec.collected.is_empty() {
            true => CollectedValues::default(),
            false => CollectedValues::restore(from)?,
        };
        Ok(Attempt {
            first,
            number,
            shown,
            threads,
            best,
            collected,
        })
    }
}

/// The values by which later conditions distinguish threads.
fn distinct(captures: &Captures, ahead: &[usize]) -> Vec<u8> {
    let mut out = Vec::new();
    for &at in ahead {
        let value = captures.values[at].as_ref();
        out.u8(value.is_some().into());
        if let Some(value) = value {
            out.value(value.view());
        }
    }
    out
}

/// Advances all attempts by one event.
pub(super) fn advance_all<'a>(
    attempts: impl IntoIterator<Item = &'a mut Attempt>,
    rules: &MatchRules,
    event: &Event<'_>,
    errors: &mut DataErrors,
) {
    let mut attempts: Vec<&mut Attempt> = attempts.into_iter().collect();
    let mut open: Vec<Vec<&mut Thread>> = rules.tests.iter().map(|_| Vec::new()).collect();
    let mut failed = None;
    for way in attempts.iter_mut().flat_map(|attempt| &mut attempt.threads) {
        let variable = rules.nfa.tests[way.state as usize];
        let holds = rules.alone(variable, event);
        if holds == Some(false) {
            continue;
        }
        let taken = way
            .captures
            .with(&rules.capture_spec, variable, event, &mut failed);
        way.taken = Some(taken);
        if let (None, Some(variable)) = (holds, variable) {
            open[variable].push(way);
        }
    }
    if let Some(reason) = failed {
        let time = Instant::from_ticks(event.time);
        errors.add(time, rules.span, || reason.to_string());
    }
    for (test, threads) in rules.tests.iter().zip(open) {
        if let Condition::LooksBack { pred, refs } = test
            && !threads.is_empty()
        {
            look_back(pred, refs, threads, rules, event, errors);
        }
    }
    for attempt in attempts {
        attempt.advance(rules, event, errors);
    }
}

/// Evaluates a condition for many threads at once.
fn look_back(
    pred: &Pred,
    refs: &[usize],
    threads: Vec<&mut Thread>,
    rules: &MatchRules,
    event: &Event<'_>,
    errors: &mut DataErrors,
) {
    let mut columns = vec![Column::Null(threads.len()); rules.capture_spec.refs.len()];
    for &at in refs {
        let mut builder = ColumnBuilder::with_capacity(threads.len());
        for taken in threads.iter().filter_map(|way| way.taken.as_ref()) {
            builder.push_owned(taken.value(rules.capture_spec.refs[at], &[]));
        }
        columns[at] = builder.finish();
    }
    let chunk = Chunk::new(vec![event.time; threads.len()].into(), columns);
    let mut faults = Faults::new(threads.len());
    let holds = eval::test(pred, &chunk, &mut faults);
    errors.add_faults(&faults, |_| Instant::from_ticks(event.time));
    for (row, way) in threads.into_iter().enumerate() {
        if !holds.value(row) {
            way.taken = None;
        }
    }
}
