//! User-defined functions and aggregates in JavaScript.
//!
//! A job's functions are texts under names ([`Scripts`]). Whoever drives operators enters them first
//! ([`Scripts::enter`]), as a pipeline does for every item; expressions and aggregates then find them by name. Each
//! thread makes its own interpreter when a function is first called, because interpreters cannot move between threads.
//!
//! A script computes and does nothing else: there is no I/O, no module and no timer to reach. Its result should follow
//! from its arguments, since events are replayed after a restart and aggregates are run anew for every window that
//! holds an event. What JavaScript would take from the outside is therefore taken from the event: `Date.now()` is its
//! time, `Math.random()` is seeded by it, and the local time zone is UTC. A script that keeps state of its own between
//! calls gets results that depend on how often it was called, which nobody promises.

#[cfg(feature = "javascript")]
mod convert;
#[cfg(feature = "javascript")]
mod engine;
#[cfg(all(test, feature = "javascript"))]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use highwater_time::Instant;

use crate::eval::EvalError;
use crate::value::{Value, ValueRef};

/// How much of a message is kept.
const MESSAGE_CHARS: usize = 300;

/// The JavaScript functions of a job.
#[derive(Debug, Default)]
pub struct Scripts {
    sources: BTreeMap<String, String>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("function '{name}': {message}")]
pub struct ScriptError {
    pub name: String,
    pub message: String,
}

thread_local! {
    static ENTERED: RefCell<Option<Arc<Scripts>>> = const { RefCell::new(None) };
}

/// While this lives, the calls of this thread find the functions.
#[must_use]
#[derive(Debug)]
pub struct Entered {
    before: Option<Arc<Scripts>>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        ENTERED.with(|entered| *entered.borrow_mut() = self.before.take());
    }
}

impl Scripts {
    /// Functions by name, each as the text of a script that defines `main`, or a function of that very name.
    pub fn new(
        functions: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Scripts, ScriptError> {
        let scripts = Scripts {
            sources: functions.into_iter().collect(),
        };
        scripts.check()?;
        Ok(scripts)
    }

    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sources.keys().map(String::as_str)
    }

    /// Makes the functions known to this thread until the answer is dropped.
    pub fn enter(self: &Arc<Scripts>) -> Entered {
        Entered {
            before: ENTERED.with(|entered| entered.replace(Some(self.clone()))),
        }
    }

    /// The function of exactly that name, else one that differs in case only.
    fn source(&self, name: &str) -> Option<(&str, &str)> {
        let exact = self.sources.get_key_value(name);
        let found = exact.or_else(|| {
            let alike = |(known, _): &(&String, &String)| known.eq_ignore_ascii_case(name);
            self.sources.iter().find(alike)
        });
        found.map(|(name, source)| (name.as_str(), source.as_str()))
    }

    #[cfg(feature = "javascript")]
    fn check(&self) -> Result<(), ScriptError> {
        engine::check(self)
    }

    #[cfg(not(feature = "javascript"))]
    fn check(&self) -> Result<(), ScriptError> {
        match self.sources.keys().next() {
            None => Ok(()),
            Some(name) => Err(ScriptError {
                name: name.clone(),
                message: "this program was built without JavaScript".into(),
            }),
        }
    }
}

/// The value of `udf.name(args)` for an event at `time`.
pub(crate) fn call(name: &str, args: &[ValueRef<'_>], time: Instant) -> Result<Value, EvalError> {
    run(name, |scripts| interpreter::call(scripts, name, args, time))
}

/// The value of `uda.name` over these events, given by time.
pub(crate) fn aggregate(name: &str, events: &[(i64, Value)]) -> Result<Value, EvalError> {
    run(name, |scripts| {
        interpreter::aggregate(scripts, name, events)
    })
}

fn run(
    name: &str,
    body: impl FnOnce(&Arc<Scripts>) -> Result<Value, String>,
) -> Result<Value, EvalError> {
    let scripts = ENTERED.with(|entered| entered.borrow().clone());
    let outcome = match &scripts {
        Some(scripts) => body(scripts),
        None => Err("the job has no JavaScript functions".into()),
    };
    outcome.map_err(|message| EvalError::Script {
        name: name.into(),
        message: message.chars().take(MESSAGE_CHARS).collect(),
    })
}

#[cfg(feature = "javascript")]
use engine as interpreter;

#[cfg(not(feature = "javascript"))]
mod interpreter {
    use super::*;

    const MISSING: &str = "this program was built without JavaScript";

    pub fn call(
        scripts: &Scripts,
        name: &str,
        _args: &[ValueRef<'_>],
        _time: Instant,
    ) -> Result<Value, String> {
        Err(scripts.source(name).map_or(MISSING, |_| MISSING).into())
    }

    pub fn aggregate(
        scripts: &Scripts,
        name: &str,
        _events: &[(i64, Value)],
    ) -> Result<Value, String> {
        Err(scripts.source(name).map_or(MISSING, |_| MISSING).into())
    }
}
