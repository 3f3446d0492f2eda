//! User-defined functions and aggregates in JavaScript.
//!
//! A job's functions are source texts by name ([`Scripts`]). The driver of operators enters them first
//! ([`Scripts::enter`]), as a pipeline does for every item; expressions and aggregates then find them by name. Each
//! thread creates its own interpreter at the first call, because interpreters cannot move between threads.
//!
//! A script can only compute: there is no I/O, no module and no timer. Its result should be a function of its
//! arguments, since events are replayed after a restart and aggregates that cannot retract events run again for every
//! window of an event. So the environment comes from the event: `Date.now()` is its time, `Math.random()` is seeded by
//! it, and the local time zone is UTC. A script with state outside of its objects has results that depend on the number
//! of calls, which is unspecified.

#[cfg(feature = "javascript")]
mod aggregate;
#[cfg(feature = "javascript")]
mod convert;
#[cfg(feature = "javascript")]
mod interpreter;
mod running_calls;
#[cfg(feature = "javascript")]
mod shapes;
#[cfg(all(test, feature = "javascript"))]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use highwater_time::Instant;

use crate::eval::EvalError;
use crate::value::{Value, ValueRef};
use running_calls::RunningCalls;

/// The maximum length of a message.
const MESSAGE_CHARS: usize = 300;
const NO_SCRIPTS: &str = "the job has no JavaScript functions";

/// The JavaScript functions of a job.
#[derive(Debug, Default)]
pub struct Scripts {
    sources: BTreeMap<String, String>,
    running: RunningCalls,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("function '{name}': {message}")]
pub struct ScriptError {
    pub name: String,
    pub message: String,
}

thread_local! {
    static CURRENT_SCRIPTS: RefCell<Option<Arc<Scripts>>> = const { RefCell::new(None) };
}

/// Guard of [`Scripts::enter`].
#[must_use]
#[derive(Debug)]
pub struct ScriptScope {
    before: Option<Arc<Scripts>>,
}

impl Drop for ScriptScope {
    fn drop(&mut self) {
        CURRENT_SCRIPTS.with(|entered| *entered.borrow_mut() = self.before.take());
    }
}

impl Scripts {
    /// Functions by name, each as the source of a script that defines `main` or a function of that name.
    pub fn new(
        functions: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Arc<Scripts>, ScriptError> {
        let scripts = Arc::new(Scripts {
            sources: functions.into_iter().collect(),
            running: RunningCalls::default(),
        });
        backend::check(&scripts)?;
        Ok(scripts)
    }

    /// A function whose call has not returned for `limit`; the call is abandoned. To be asked again and again, with the
    /// time of any clock that does not go back. After a name is returned, the caller must not wait for the call's
    /// thread.
    pub fn overdue_call(&self, now: Duration, limit: Duration) -> Option<&str> {
        let function = self.running.overdue(now, limit)?;
        self.names().nth(function)
    }

    /// Whether an abandoned call still runs.
    pub fn has_given_up_call(&self) -> bool {
        self.running.has_given_up()
    }

    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sources.keys().map(String::as_str)
    }

    /// Makes the functions available to this thread until the guard is dropped.
    pub fn enter(self: &Arc<Scripts>) -> ScriptScope {
        ScriptScope {
            before: CURRENT_SCRIPTS.with(|entered| entered.replace(Some(self.clone()))),
        }
    }

    /// The function with exactly this name, else one that matches ignoring case.
    #[cfg(feature = "javascript")]
    fn source(&self, name: &str) -> Option<(&str, &str)> {
        let exact = self.sources.get_key_value(name);
        let found = exact.or_else(|| {
            let alike = |(known, _): &(&String, &String)| known.eq_ignore_ascii_case(name);
            self.sources.iter().find(alike)
        });
        found.map(|(name, source)| (name.as_str(), source.as_str()))
    }
}

/// The calls of `udf.name` for rows of a chunk. The interpreter is entered once for all of them.
pub(crate) struct Calls<'a, 'v> {
    pub name: &'a str,
    pub rows: &'a [usize],
    /// Appends the arguments of a row.
    pub arguments: &'a dyn Fn(usize, &mut Vec<ValueRef<'v>>),
    /// The time of the event.
    pub time: &'a dyn Fn(usize) -> Instant,
    /// Takes the value of a row, or why there is none; in the order of the rows.
    pub done: &'a mut dyn FnMut(usize, Result<Value, EvalError>),
}

impl Calls<'_, '_> {
    /// Ends the call of the first row.
    fn end_first(&mut self, outcome: Result<Value, String>) {
        if let Some((&row, rest)) = self.rows.split_first() {
            let outcome = outcome.map_err(|message| script_error(self.name, &message));
            (self.done)(row, outcome);
            self.rows = rest;
        }
    }
}

/// Makes the calls.
pub(crate) fn call(mut calls: Calls<'_, '_>) {
    let scripts = CURRENT_SCRIPTS.with(|entered| entered.borrow().clone());
    while !calls.rows.is_empty() {
        let outcome = match &scripts {
            Some(scripts) => backend::call(scripts, &mut calls),
            None => Err(NO_SCRIPTS.into()),
        };
        // The call of the first row has broken the interpreter, or cannot be made.
        if let Err(message) = outcome {
            calls.end_first(Err(message));
        }
    }
}

/// The value of `uda.name` over these events, given by time.
pub(crate) fn aggregate(name: &str, events: &[(i64, Value)]) -> Result<Value, EvalError> {
    run(name, |scripts| backend::aggregate(scripts, name, events))
}

/// How an aggregate retracts events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retraction {
    /// `deaccumulate(value, timestamp)` for each.
    OneByOne,
    /// `deaccumulateState(other)`, where `other` has accumulated the events to retract.
    Together,
}

/// The change from one result of an aggregate to the next: events that leave, then events that enter.
#[cfg_attr(
    not(feature = "javascript"),
    allow(dead_code, reason = "no interpreter reads it")
)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step<'a> {
    pub at: i64,
    pub left: &'a [(i64, Value)],
    pub entered: &'a [(i64, Value)],
}

/// The number of an object in the cache of an interpreter.
#[derive(Debug)]
pub(crate) struct ObjectHandle(u64);

impl ObjectHandle {
    pub(crate) fn new() -> ObjectHandle {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        ObjectHandle(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Drop for ObjectHandle {
    fn drop(&mut self) {
        backend::forget(self.0);
    }
}

/// Whether objects of `uda.name` can retract events that way.
pub(crate) fn can_retract(name: &str, retraction: Retraction) -> bool {
    let scripts = CURRENT_SCRIPTS.with(|entered| entered.borrow().clone());
    scripts.is_some_and(|scripts| backend::can_retract(&scripts, name, retraction))
}

/// The value of `uda.name` after the last step; a cached object receives only the new steps.
pub(crate) fn roll<'a>(
    name: &str,
    object: &ObjectHandle,
    retraction: Retraction,
    steps: usize,
    step: impl Fn(usize) -> Step<'a>,
) -> Result<Value, EvalError> {
    run(name, |scripts| {
        backend::roll(scripts, name, object.0, retraction, steps, &step)
    })
}

fn run(
    name: &str,
    body: impl FnOnce(&Arc<Scripts>) -> Result<Value, String>,
) -> Result<Value, EvalError> {
    let scripts = CURRENT_SCRIPTS.with(|entered| entered.borrow().clone());
    let outcome = match &scripts {
        Some(scripts) => body(scripts),
        None => Err(NO_SCRIPTS.into()),
    };
    outcome.map_err(|message| script_error(name, &message))
}

fn script_error(name: &str, message: &str) -> EvalError {
    EvalError::Script {
        name: name.into(),
        message: message.chars().take(MESSAGE_CHARS).collect(),
    }
}

#[cfg(feature = "javascript")]
mod backend {
    pub(super) use super::aggregate::{aggregate, can_retract, roll};
    pub(super) use super::interpreter::{call, check, forget};
}

#[cfg(not(feature = "javascript"))]
mod backend {
    use super::*;

    const MISSING: &str = "this program was built without the feature `javascript`: build highwater-cli with `--features javascript`";

    pub(super) fn check(scripts: &Arc<Scripts>) -> Result<(), ScriptError> {
        match scripts.names().next() {
            None => Ok(()),
            Some(name) => Err(ScriptError {
                name: name.into(),
                message: MISSING.into(),
            }),
        }
    }

    pub(super) fn call(_scripts: &Scripts, calls: &mut Calls<'_, '_>) -> Result<(), String> {
        let _ = (calls.arguments, calls.time);
        Err(MISSING.into())
    }

    pub(super) fn aggregate(
        _scripts: &Scripts,
        _name: &str,
        _events: &[(i64, Value)],
    ) -> Result<Value, String> {
        Err(MISSING.into())
    }

    pub(super) fn can_retract(_scripts: &Scripts, _name: &str, _leaving: Retraction) -> bool {
        false
    }

    pub(super) fn roll<'a>(
        _scripts: &Scripts,
        _name: &str,
        _object: u64,
        _leaving: Retraction,
        _steps: usize,
        _step: &dyn Fn(usize) -> Step<'a>,
    ) -> Result<Value, String> {
        Err(MISSING.into())
    }

    pub(super) fn forget(_object: u64) {}
}
