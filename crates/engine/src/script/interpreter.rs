//! The JavaScript interpreter of a thread, and its limits.
//!
//! A call may use 64 MB of memory and 256 KB of stack, and a limited number of steps. The limit is in steps and not in
//! time, so that an event's failure does not depend on the load of the machine: QuickJS calls the interrupt handler
//! every 10,000 backward jumps and calls, and is stopped after [`INTERRUPTS_MAX`] interrupts (about 100 ms). The count
//! to 10,000 continues from call to call, so the limit is exact to one part in [`INTERRUPTS_MAX`]. After a call that
//! was stopped or ran out of memory the interpreter is replaced, because its state may be inconsistent. Not all native
//! functions count steps; a call that never returns from one is noticed by the clock ([`super::running_calls`]).

use std::cell::{Cell, RefCell};
use std::hash::BuildHasher;
use std::rc::Rc;
use std::sync::{Arc, Weak, mpsc};
use std::thread;
use std::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use highwater_time::Instant;
use rquickjs::context::EvalOptions;
use rquickjs::function::Args;
use rquickjs::{Context, Ctx, Function, Object, Persistent, Runtime, Value as Js};

use super::aggregate::Objects;
use super::convert::{Conversion, ConvertError, FieldNames};
use super::running_calls::{self, CallSlot};
use super::shapes::Shapes;
use super::{Calls, ScriptError, Scripts};
use crate::eval;
use crate::value::{Value, ValueRef};

pub(super) const MEMORY_BYTES_MAX: usize = 64 << 20;
const STACK_BYTES_MAX: usize = 256 << 10;
const INTERRUPTS_MAX: u32 = 400;
/// How long all scripts of a job may take to define their functions. Each has a step limit, so only a native function
/// takes that long.
const CHECK_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 5 } else { 10 });

const PRELUDE: &str = include_str!("prelude.js");

thread_local! {
    static INTERPRETERS: RefCell<Vec<(Weak<Scripts>, Interpreter)>> = const { RefCell::new(Vec::new()) };
}

// Fields are dropped in this order: saved values before their runtime.
pub(super) struct Interpreter {
    pub(super) objects: Objects,
    shapes: Shapes,
    functions: HashMap<String, LoadedFunction, FixedState>,
    prelude: PreludeFunctions,
    pub(super) context: Context,
    _runtime: Runtime,
    interrupts: Rc<Cell<u32>>,
    event: Rc<Event>,
    /// The inputs of the seed; reused.
    key: RefCell<Vec<u8>>,
    slot: Arc<CallSlot>,
    /// The number of the function that is called next.
    function: usize,
}

/// The context of a script's event besides the arguments.
#[derive(Default)]
struct Event {
    unix_millis: Cell<f64>,
    /// The seed of random numbers, until the call has taken it.
    seed: Cell<Option<i32>>,
}

pub(super) struct LoadedFunction {
    number: usize,
    /// Whether the script may draw random numbers: its text names them.
    draws: bool,
    pub function: Persistent<Function<'static>>,
    /// Whether its objects can retract events one by one and together, if known.
    pub retraction: [Option<bool>; 2],
}

#[derive(Clone)]
struct PreludeFunctions {
    date: Persistent<Function<'static>>,
    time: Persistent<Function<'static>>,
    plain: Persistent<Object<'static>>,
}

/// The failure of a call, and whether the interpreter must be replaced.
pub(super) struct Failure {
    message: String,
    broken: bool,
}

impl Failure {
    pub(super) fn of(message: impl Into<String>) -> Failure {
        Failure {
            message: message.into(),
            broken: false,
        }
    }
}

/// Runs every script once, on a thread that can be abandoned.
pub(super) fn check(scripts: &Arc<Scripts>) -> Result<(), ScriptError> {
    let Some(first) = scripts.names().next() else {
        return Ok(());
    };
    let failed = |name: &str, message: String| {
        let name = name.into();
        ScriptError { name, message }
    };
    running_calls::may_start().map_err(|reason| failed(first, reason))?;
    let (done, result) = mpsc::channel();
    let checked = scripts.clone();
    thread::Builder::new()
        .name("highwater-functions".into())
        // A late result has no receiver.
        .spawn(move || drop(done.send(check_all(&checked))))
        .map_err(|error| failed(first, error.to_string()))?;
    result.recv_timeout(CHECK_TIMEOUT).unwrap_or_else(|_| {
        let name = scripts.overdue_call(Duration::ZERO, Duration::ZERO);
        let seconds = CHECK_TIMEOUT.as_secs();
        let message = format!("the script did not end within {seconds} s");
        Err(failed(name.unwrap_or(first), message))
    })
}

fn check_all(scripts: &Scripts) -> Result<(), ScriptError> {
    for name in scripts.names() {
        let checked = Interpreter::new(scripts).and_then(|mut interpreter| {
            let loaded = interpreter.load(scripts, name);
            interpreter.slot.end();
            loaded
        });
        checked.map_err(|failure| ScriptError {
            name: name.into(),
            message: failure.message,
        })?;
    }
    Ok(())
}

/// Makes calls until one breaks the interpreter or cannot be made; that one is left to the caller.
pub(super) fn call(scripts: &Arc<Scripts>, calls: &mut Calls<'_, '_>) -> Result<(), String> {
    with_interpreter(scripts, |interpreter| interpreter.call(scripts, calls))
}

/// Runs `body` with the interpreter of this thread. If the interpreter breaks, its cached objects may be the reason, so
/// `body` is retried once with a new one.
pub(super) fn with_interpreter<T>(
    scripts: &Arc<Scripts>,
    mut body: impl FnMut(&mut Interpreter) -> Result<T, Failure>,
) -> Result<T, String> {
    INTERPRETERS.with(|interpreters| {
        let interpreters = &mut *interpreters.borrow_mut();
        loop {
            let index =
                interpreter_index(scripts, interpreters).map_err(|failure| failure.message)?;
            let crowded = !interpreters[index].1.objects.is_empty();
            let result = body(&mut interpreters[index].1);
            interpreters[index].1.slot.end();
            let failure = match result {
                Ok(done) => return Ok(done),
                Err(failure) => failure,
            };
            if failure.broken {
                interpreters.swap_remove(index);
            }
            if !(failure.broken && crowded) {
                return Err(failure.message);
            }
        }
    })
}

fn interpreter_index(
    scripts: &Arc<Scripts>,
    interpreters: &mut Vec<(Weak<Scripts>, Interpreter)>,
) -> Result<usize, Failure> {
    let ours = |(of, _): &(Weak<Scripts>, Interpreter)| of.as_ptr() == Arc::as_ptr(scripts);
    if let Some(index) = interpreters.iter().position(ours) {
        return Ok(index);
    }
    interpreters.retain(|(of, _)| of.strong_count() > 0);
    interpreters.push((Arc::downgrade(scripts), Interpreter::new(scripts)?));
    Ok(interpreters.len() - 1)
}

/// Drops an object, if this thread has it.
pub(super) fn forget(object: u64) {
    // A thread that ends has dropped its interpreters.
    let _ = INTERPRETERS.try_with(|interpreters| {
        if let Ok(mut interpreters) = interpreters.try_borrow_mut() {
            let interpreters = interpreters.iter_mut();
            interpreters.for_each(|(_, interpreter)| interpreter.objects.forget(object));
        }
    });
}

impl Interpreter {
    fn new(scripts: &Scripts) -> Result<Interpreter, Failure> {
        let start = || -> rquickjs::Result<Interpreter> {
            let runtime = Runtime::new()?;
            runtime.set_memory_limit(MEMORY_BYTES_MAX);
            runtime.set_max_stack_size(STACK_BYTES_MAX);
            let interrupts = Rc::new(Cell::new(0));
            let slot = scripts.running.add();
            let (counted, watched) = (interrupts.clone(), slot.clone());
            runtime.set_interrupt_handler(Some(Box::new(move || {
                counted.set(counted.get() + 1);
                counted.get() > INTERRUPTS_MAX || watched.is_given_up()
            })));
            let context = Context::full(&runtime)?;
            let event = Rc::new(Event::default());
            let prelude = context.with(|ctx| -> rquickjs::Result<PreludeFunctions> {
                let (time, once) = (event.clone(), event.clone());
                let clock = Function::new(ctx.clone(), move || time.unix_millis.get())?;
                let seed = Function::new(ctx.clone(), move || once.seed.take())?;
                let prelude: Function<'_> = ctx.eval(PRELUDE)?;
                let made: Object<'_> = prelude.call((clock, seed))?;
                let save = |name: &str| -> rquickjs::Result<_> {
                    Ok(Persistent::save(&ctx, made.get::<_, Function<'_>>(name)?))
                };
                Ok(PreludeFunctions {
                    date: save("date")?,
                    time: save("time")?,
                    plain: Persistent::save(&ctx, made.get::<_, Object<'_>>("plain")?),
                })
            })?;
            Ok(Interpreter {
                objects: Objects::default(),
                shapes: Shapes::default(),
                functions: HashMap::default(),
                prelude,
                context,
                _runtime: runtime,
                interrupts,
                event,
                key: RefCell::default(),
                slot,
                function: 0,
            })
        };
        start().map_err(|error| Failure::of(format!("JavaScript cannot start: {error}")))
    }

    /// Runs the script once and stores the function that it defines.
    fn load(&mut self, scripts: &Scripts, name: &str) -> Result<(), Failure> {
        if self.functions.contains_key(name) {
            return Ok(());
        }
        let Some((known, source)) = scripts.source(name) else {
            return Err(Failure::of("there is no JavaScript function of that name"));
        };
        let wrapped = wrapped(known, source);
        let number = scripts.names().position(|name| name == known);
        let number = number.unwrap_or_default();
        self.function = number;
        self.begin();
        let function = self.context.with(|ctx| {
            let mut options = EvalOptions::default();
            options.strict = false;
            let made: Js<'_> = ctx
                .eval_with_options(wrapped, options)
                .map_err(|error| self.failure(&ctx, error))?;
            match made.into_function() {
                Some(function) => Ok(Persistent::save(&ctx, function)),
                None => Err(Failure::of(format!(
                    "the script defines neither a function main nor one called {known}"
                ))),
            }
        })?;
        let loaded = LoadedFunction {
            number,
            draws: source.contains("random"),
            function,
            retraction: [None; 2],
        };
        self.functions.insert(name.into(), loaded);
        Ok(())
    }

    pub(super) fn loaded(
        &mut self,
        scripts: &Scripts,
        name: &str,
    ) -> Result<&mut LoadedFunction, Failure> {
        self.load(scripts, name)?;
        let loaded = self.functions.get_mut(name);
        let missing = || Failure::of("there is no JavaScript function of that name");
        let loaded = loaded.ok_or_else(missing)?;
        self.function = loaded.number;
        Ok(loaded)
    }

    fn call(&mut self, scripts: &Scripts, calls: &mut Calls<'_, '_>) -> Result<(), Failure> {
        let loaded = self.loaded(scripts, calls.name)?;
        let (function, draws) = (loaded.function.clone(), loaded.draws);
        self.context.with(|ctx| {
            let failed = |error| self.failure(&ctx, error);
            let function = function.restore(&ctx).map_err(failed)?;
            let conversion = self.conversion(&ctx).map_err(failed)?;
            let mut arguments = Vec::new();
            while let Some(&row) = calls.rows.first() {
                arguments.clear();
                (calls.arguments)(row, &mut arguments);
                self.begin();
                self.enter((calls.time)(row), if draws { &arguments } else { &[] });
                let run = || -> Result<Value, ConvertError> {
                    let mut given = Args::new(ctx.clone(), arguments.len());
                    for argument in &arguments {
                        given.push_arg(conversion.to_js(*argument)?)?;
                    }
                    let result: Js<'_> = function.call_arg(given)?;
                    conversion.read_js(&result)
                };
                let outcome = run().map_err(|error| self.convert_failure(&ctx, error));
                match outcome {
                    Err(failure) if failure.broken => return Err(failure),
                    outcome => calls.end_first(outcome.map_err(|failure| failure.message)),
                }
            }
            Ok(())
        })
    }

    /// Begins a call: resets the step count.
    pub(super) fn begin(&self) {
        self.interrupts.set(0);
        self.slot.begin(self.function);
    }

    /// Sets the clock and the random seed from the event.
    pub(super) fn enter(&self, time: Instant, args: &[ValueRef<'_>]) {
        self.event.unix_millis.set(time.to_unix_millis() as f64);
        let mut key = self.key.borrow_mut();
        key.clear();
        key.extend_from_slice(&time.ticks().to_le_bytes());
        args.iter().for_each(|arg| eval::encode_key(*arg, &mut key));
        let seed = FixedState::default().hash_one(&*key) as i32;
        self.event.seed.set(Some(seed));
    }

    pub(super) fn conversion<'js>(&self, ctx: &Ctx<'js>) -> rquickjs::Result<Conversion<'_, 'js>> {
        let prelude = &self.prelude;
        Ok(Conversion {
            ctx: ctx.clone(),
            make_date: prelude.date.clone().restore(ctx)?,
            time_of: prelude.time.clone().restore(ctx)?,
            plain: prelude.plain.clone().restore(ctx)?,
            shapes: &self.shapes,
            names: FieldNames::default(),
        })
    }

    pub(super) fn convert_failure(&self, ctx: &Ctx<'_>, error: ConvertError) -> Failure {
        match error {
            ConvertError::Unsupported(message) => Failure::of(message),
            ConvertError::Threw(error) => self.failure(ctx, error),
        }
    }

    fn failure(&self, ctx: &Ctx<'_>, error: rquickjs::Error) -> Failure {
        let thrown = error.is_exception().then(|| ctx.catch());
        if self.interrupts.get() > INTERRUPTS_MAX {
            return Failure {
                message: "it took too many steps and was stopped".into(),
                broken: true,
            };
        }
        let message = match &thrown {
            Some(thrown) => thrown_message(thrown),
            None => Some(error.to_string()),
        };
        match message {
            Some(message) if !message.contains("out of memory") => Failure::of(message),
            _ => Failure {
                message: format!("it ran out of memory ({} MB)", MEMORY_BYTES_MAX >> 20),
                broken: true,
            },
        }
    }
}

/// The thrown value as text; `None` if it cannot be converted.
fn thrown_message(thrown: &Js<'_>) -> Option<String> {
    if let Some(object) = thrown.as_object() {
        let part = |name: &str| object.get::<_, Option<String>>(name).ok().flatten();
        if let Some(message) = part("message") {
            let name = part("name").unwrap_or_else(|| "Error".into());
            return Some(format!("{name}: {message}"));
        }
    }
    if thrown.is_null() || thrown.is_undefined() {
        return None;
    }
    let text = thrown.as_string().map(|text| text.to_string());
    Some(match text {
        Some(Ok(text)) => format!("it threw '{text}'"),
        _ => "it threw something that is no Error".into(),
    })
}

/// The script in a scope of its own, whose value is its function: `main`, else the one with its name in the query, else
/// the first that the text declares.
fn wrapped(name: &str, source: &str) -> String {
    let mut candidates = vec!["main"];
    candidates.extend(is_identifier(name).then_some(name));
    candidates.extend(first_declared(source));
    let choice: String = candidates
        .iter()
        .map(|name| format!("typeof {name} === 'function' ? {name} : "))
        .collect();
    // On the first line, so that lines in messages are those of the script.
    format!("(function () {{ {source}\n; return {choice}undefined; }})()")
}

fn first_declared(source: &str) -> Option<&str> {
    let (_, after) = source.split_once("function ")?;
    let name = after.trim_start();
    let end = name.find(|c: char| !is_identifier_part(c))?;
    Some(&name[..end]).filter(|name| is_identifier(name))
}

fn is_identifier(name: &str) -> bool {
    const RESERVED: [&str; 4] = ["function", "return", "new", "delete"];
    name.starts_with(|c: char| is_identifier_part(c) && !c.is_ascii_digit())
        && name.chars().all(is_identifier_part)
        && !RESERVED.contains(&name)
}

fn is_identifier_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$'
}
