//! One attempt at a match, from one first event on.
//!
//! An attempt follows all ways to go on at once, the preferred first. A way that reaches the end of the pattern is the
//! match so far and ends all ways that are less preferred than it; it is final when none is left that is more preferred.
//!
//! Two ways in the same state go on alike if the conditions ahead cannot tell them apart, so only the preferred one is
//! kept. If no condition looks back, there are never more ways than states. If some do, ways that differ in what those
//! can see are kept apart, and there may be very many: an attempt with more than [`WAYS_MAX`] is given up and counted
//! as a data error.

use std::collections::BTreeSet;
use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_query::Span;
use highwater_query::plan::{Expr, ExprKind, Pred, PredKind};
use highwater_time::Instant;

use super::captures::{Asked, Captures, Event, Source};
use super::nfa::Nfa;
use crate::chunk::Chunk;
use crate::codec::{ReadValue, WriteValue};
use crate::column::{Column, ColumnBuilder};
use crate::eval::{self, Faults};
use crate::ops::DataErrors;
use crate::value::Value;

/// How many ways to go on one attempt may have.
pub(super) const WAYS_MAX: usize = 1_000;

/// What all attempts share.
pub(super) struct Rules {
    pub nfa: Nfa,
    pub asked: Asked,
    /// Per variable.
    pub tests: Vec<Test>,
    /// Per state, which running values the conditions ahead of it look at.
    ahead: Vec<Vec<usize>>,
    span: Span,
}

/// When a variable may take an event.
pub(super) enum Test {
    Always,
    /// It is a matter of the event alone; `columns` says which expressions stand for the refs.
    Alone {
        pred: Pred,
        columns: Vec<Option<usize>>,
    },
    /// It depends on what was taken before; `refs` are the refs that it looks at.
    LooksBack {
        pred: Pred,
        refs: Vec<usize>,
    },
}

impl Rules {
    pub fn new(nfa: Nfa, asked: Asked, defines: &[Option<Pred>], span: Span) -> Rules {
        let tests = defines.iter().enumerate();
        let tests: Vec<Test> = tests
            .map(|(variable, pred)| test(variable, pred.as_ref(), &asked))
            .collect();
        let ahead = looked_at_ahead(&nfa, &asked, &tests);
        Rules {
            nfa,
            asked,
            tests,
            ahead,
            span,
        }
    }

    /// Whether the variable may take the event, where the event alone decides.
    fn alone(&self, variable: Option<usize>, event: &Event<'_>) -> Option<bool> {
        let Some(variable) = variable else {
            return Some(true);
        };
        match &self.tests[variable] {
            Test::Always => Some(true),
            Test::Alone { .. } => {
                let holds = event.alone[variable].as_ref();
                Some(holds.is_some_and(|holds| holds.value(event.row)))
            }
            Test::LooksBack { .. } => None,
        }
    }

    /// Whether a match may begin with the event, as far as the event alone tells.
    pub fn may_begin(&self, event: &Event<'_>) -> bool {
        let mut states = self.nfa.start.states.iter();
        states.any(|&state| self.alone(self.nfa.tests[state as usize], event) != Some(false))
    }
}

fn test(variable: usize, pred: Option<&Pred>, asked: &Asked) -> Test {
    let Some(pred) = pred else {
        return Test::Always;
    };
    let mut refs = BTreeSet::new();
    columns_of_pred(pred, &mut refs);
    let expr_alone = |at: usize| match asked.refs.get(at) {
        Some(Source::Running(at)) => {
            let running = asked.running[*at];
            let alone = running.variable == variable && is_last(running.pick);
            alone.then_some(running.expr)
        }
        _ => None,
    };
    let pred = pred.clone();
    if refs.iter().all(|&at| expr_alone(at).is_some()) {
        let columns = (0..asked.refs.len()).map(|at| expr_alone(at).filter(|_| refs.contains(&at)));
        return Test::Alone {
            pred,
            columns: columns.collect(),
        };
    }
    let refs = refs.into_iter().collect();
    Test::LooksBack { pred, refs }
}

fn is_last(pick: highwater_query::plan::Pick) -> bool {
    pick == highwater_query::plan::Pick::Last
}

fn looked_at_ahead(nfa: &Nfa, asked: &Asked, tests: &[Test]) -> Vec<Vec<usize>> {
    let looks = |state: usize| -> Vec<usize> {
        let Some(variable) = nfa.tests[state] else {
            return Vec::new();
        };
        let Test::LooksBack { refs, .. } = &tests[variable] else {
            return Vec::new();
        };
        let running = refs.iter().filter_map(|&at| match asked.refs[at] {
            Source::Running(at) => Some(at),
            Source::Classifier => None,
        });
        let of_itself = |at: &usize| {
            asked.running[*at].variable == variable && is_last(asked.running[*at].pick)
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
    /// Which event that was.
    pub number: u64,
    /// The partition keys as the first event has them.
    pub shown: Arc<[Value]>,
    /// In order of preference.
    ways: Vec<Way>,
    /// The match so far.
    pub best: Option<Captures>,
}

struct Way {
    state: u32,
    captures: Captures,
    /// What it is once the event under test is taken; `None`: it cannot take it.
    taken: Option<Captures>,
}

impl Attempt {
    pub fn new(rules: &Rules, first: i64, number: u64, shown: Arc<[Value]>) -> Attempt {
        let captures = Captures::new(&rules.asked);
        let states = rules.nfa.start.states.iter();
        Attempt {
            first,
            number,
            shown,
            ways: states
                .map(|&state| Way {
                    state,
                    captures: captures.clone(),
                    taken: None,
                })
                .collect(),
            best: None,
        }
    }

    /// Whether no event can change the outcome any more.
    pub fn is_decided(&self) -> bool {
        self.ways.is_empty()
    }

    /// Goes on with the ways that took the event.
    fn advance(&mut self, rules: &Rules, event: &Event<'_>, errors: &mut DataErrors) {
        let mut next: Vec<Way> = Vec::new();
        let mut seen = vec![false; rules.nfa.tests.len()];
        let mut seen_with = BTreeSet::new();
        for way in std::mem::take(&mut self.ways) {
            let Some(taken) = way.taken else { continue };
            let follow = &rules.nfa.after[way.state as usize];
            for &state in &follow.states {
                let ahead = &rules.ahead[state as usize];
                let new = match ahead.is_empty() {
                    true => !std::mem::replace(&mut seen[state as usize], true),
                    false => seen_with.insert((state, distinct(&taken, ahead))),
                };
                if new {
                    next.push(Way {
                        state,
                        captures: taken.clone(),
                        taken: None,
                    });
                }
            }
            if follow.done {
                self.best = Some(taken);
                break;
            }
            if next.len() > WAYS_MAX {
                let first = Instant::from_ticks(self.first);
                errors.add(Instant::from_ticks(event.time), rules.span, || {
                    format!(
                        "the match that begins at {first} was given up: it has more than {WAYS_MAX} ways to go on"
                    )
                });
                self.best = None;
                return;
            }
        }
        self.ways = next;
    }

    pub fn snapshot(&self, out: &mut Vec<u8>) {
        out.i64(self.first);
        out.u64(self.number);
        let shown = self.shown.iter();
        shown.for_each(|value| out.value(value.view()));
        out.count(self.ways.len());
        for way in &self.ways {
            out.u32(way.state);
            way.captures.snapshot(out);
        }
        out.u8(self.best.is_some().into());
        if let Some(best) = &self.best {
            best.snapshot(out);
        }
    }

    pub fn restore(
        rules: &Rules,
        keys: usize,
        from: &mut Reader<'_>,
    ) -> Result<Attempt, DecodeError> {
        let (first, number) = (from.i64()?, from.u64()?);
        let shown: Result<Vec<Value>, _> = (0..keys).map(|_| from.value()).collect();
        let shown = shown?.into();
        let mut ways = Vec::new();
        for _ in 0..from.count()? {
            let state = from.u32()?;
            if state as usize >= rules.nfa.tests.len() {
                return Err(DecodeError::Invalid("an unknown state of a pattern"));
            }
            let captures = Captures::restore(&rules.asked, from)?;
            ways.push(Way {
                state,
                captures,
                taken: None,
            });
        }
        let best = match from.u8()? {
            0 => None,
            _ => Some(Captures::restore(&rules.asked, from)?),
        };
        Ok(Attempt {
            first,
            number,
            shown,
            ways,
            best,
        })
    }
}

/// What the conditions ahead can tell ways apart by.
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

/// Shows an event to all attempts at once.
pub(super) fn show<'a>(
    attempts: impl IntoIterator<Item = &'a mut Attempt>,
    rules: &Rules,
    event: &Event<'_>,
    errors: &mut DataErrors,
) {
    let mut attempts: Vec<&mut Attempt> = attempts.into_iter().collect();
    let mut open: Vec<Vec<&mut Way>> = rules.tests.iter().map(|_| Vec::new()).collect();
    let mut failed = None;
    for way in attempts.iter_mut().flat_map(|attempt| &mut attempt.ways) {
        let variable = rules.nfa.tests[way.state as usize];
        let holds = rules.alone(variable, event);
        if holds == Some(false) {
            continue;
        }
        let taken = way
            .captures
            .with(&rules.asked, variable, event, &mut failed);
        way.taken = Some(taken);
        if let (None, Some(variable)) = (holds, variable) {
            open[variable].push(way);
        }
    }
    if let Some(reason) = failed {
        let time = Instant::from_ticks(event.time);
        errors.add(time, rules.span, || reason.to_string());
    }
    for (test, ways) in rules.tests.iter().zip(open) {
        if let Test::LooksBack { pred, refs } = test
            && !ways.is_empty()
        {
            look_back(pred, refs, ways, rules, event, errors);
        }
    }
    for attempt in attempts {
        attempt.advance(rules, event, errors);
    }
}

/// Tests a condition for many ways at once.
fn look_back(
    pred: &Pred,
    refs: &[usize],
    ways: Vec<&mut Way>,
    rules: &Rules,
    event: &Event<'_>,
    errors: &mut DataErrors,
) {
    let mut columns = vec![Column::Null(ways.len()); rules.asked.refs.len()];
    for &at in refs {
        let mut builder = ColumnBuilder::with_capacity(ways.len());
        for taken in ways.iter().filter_map(|way| way.taken.as_ref()) {
            builder.push_owned(taken.value(rules.asked.refs[at], &[]));
        }
        columns[at] = builder.finish();
    }
    let chunk = Chunk::new(vec![event.time; ways.len()].into(), columns);
    let mut faults = Faults::new(ways.len());
    let holds = eval::test(pred, &chunk, &mut faults);
    errors.note(&faults, |_| Instant::from_ticks(event.time));
    for (_, fault) in faults.iter() {
        let time = Instant::from_ticks(event.time);
        errors.add(time, fault.span, || fault.reason.to_string());
    }
    for (row, way) in ways.into_iter().enumerate() {
        if !holds.value(row) {
            way.taken = None;
        }
    }
}

fn columns_of(expr: &Expr, out: &mut BTreeSet<usize>) {
    match &expr.kind {
        ExprKind::Column(column) => {
            out.insert(*column);
        }
        ExprKind::Literal(_) | ExprKind::Timestamp => {}
        ExprKind::Field { of, .. } | ExprKind::Unary { of, .. } | ExprKind::Cast { of, .. } => {
            columns_of(of, out);
        }
        ExprKind::Binary { left, right, .. } => {
            columns_of(left, out);
            columns_of(right, out);
        }
        ExprKind::Case {
            branches,
            otherwise,
        } => {
            for (when, then) in branches {
                columns_of_pred(when, out);
                columns_of(then, out);
            }
            columns_of(otherwise, out);
        }
        ExprKind::Coalesce(args) | ExprKind::Call { args, .. } | ExprKind::User { args, .. } => {
            args.iter().for_each(|arg| columns_of(arg, out));
        }
        ExprKind::Fold(of) => columns_of(of, out),
        ExprKind::Record(items) => items.iter().for_each(|item| columns_of(&item.expr, out)),
    }
}

fn columns_of_pred(pred: &Pred, out: &mut BTreeSet<usize>) {
    match &pred.kind {
        PredKind::And(left, right) | PredKind::Or(left, right) => {
            columns_of_pred(left, out);
            columns_of_pred(right, out);
        }
        PredKind::Not(of) => columns_of_pred(of, out),
        PredKind::Compare { left, right, .. } => {
            columns_of(left, out);
            columns_of(right, out);
        }
        PredKind::Like { of, pattern, .. } => {
            columns_of(of, out);
            columns_of(pattern, out);
        }
        PredKind::In { of, list, .. } => {
            columns_of(of, out);
            list.iter().for_each(|one| columns_of(one, out));
        }
        PredKind::Between { of, low, high, .. } => {
            columns_of(of, out);
            columns_of(low, out);
            columns_of(high, out);
        }
        PredKind::IsNull { of, .. } => columns_of(of, out),
    }
}
