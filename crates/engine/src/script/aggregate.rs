//! JavaScript aggregates: objects that accumulate the events of a window.
//!
//! An object that can retract events is cached from one result to the next and receives only the changes. The caller
//! can repeat all steps, and an object that is not in the cache (made by another thread, interpreter replaced, evicted)
//! is rebuilt from them by the same calls. So nothing needs to be known about the state of a script.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use highwater_time::Instant;
use rquickjs::function::{Constructor, This};
use rquickjs::{Ctx, Function, Object, Persistent, Value as Js};

use super::convert::{Conversion, ConvertError};
use super::interpreter::{Failure, Interpreter, with_interpreter};
use super::{Retraction, Scripts, Step};
use crate::value::{Value, ValueRef};

/// The maximum number of cached objects of an interpreter.
const OBJECTS_MAX: usize = 4096;

type Class = Persistent<Function<'static>>;

impl Retraction {
    fn method(self) -> &'static str {
        match self {
            Retraction::OneByOne => "deaccumulate",
            Retraction::Together => "deaccumulateState",
        }
    }
}

/// Objects by number, each with its number of steps.
#[derive(Default)]
pub(super) struct Objects(HashMap<u64, (Persistent<Object<'static>>, usize), FixedState>);

impl Objects {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn forget(&mut self, object: u64) {
        self.0.remove(&object);
    }

    fn keep(&mut self, number: u64, object: Persistent<Object<'static>>, steps: usize) {
        // If more are in use than fit, evicting the oldest would miss every time.
        if self.0.len() >= OBJECTS_MAX {
            self.0.clear();
        }
        self.0.insert(number, (object, steps));
    }
}

pub(super) fn aggregate(
    scripts: &Arc<Scripts>,
    name: &str,
    events: &[(i64, Value)],
) -> Result<Value, String> {
    with_interpreter(scripts, |interpreter| {
        interpreter.aggregate(scripts, name, events)
    })
}

pub(super) fn roll<'a>(
    scripts: &Arc<Scripts>,
    name: &str,
    object: u64,
    retraction: Retraction,
    steps: usize,
    step: &dyn Fn(usize) -> Step<'a>,
) -> Result<Value, String> {
    with_interpreter(scripts, |interpreter| {
        interpreter.roll(scripts, name, object, retraction, steps, step)
    })
}

pub(super) fn can_retract(scripts: &Arc<Scripts>, name: &str, retraction: Retraction) -> bool {
    with_interpreter(scripts, |interpreter| {
        interpreter.can_retract(scripts, name, retraction)
    })
    .unwrap_or(false)
}

/// An object of a script's constructor, and its interpreter.
struct ObjectRun<'e, 'js> {
    interpreter: &'e Interpreter,
    ctx: &'e Ctx<'js>,
    conversion: Conversion<'e, 'js>,
    object: Object<'js>,
}

impl Interpreter {
    /// Creates an object, accumulates every event and computes the result.
    fn aggregate(
        &mut self,
        scripts: &Scripts,
        name: &str,
        events: &[(i64, Value)],
    ) -> Result<Value, Failure> {
        let class = self.loaded(scripts, name)?.function.clone();
        self.context.with(|ctx| {
            let run = || -> Result<Value, ConvertError> {
                let first = events.first().map_or(0, |(time, _)| *time);
                let run = ObjectRun::begin(self, &ctx, &class, first)?;
                run.show("accumulate", events)?;
                run.result()
            };
            run().map_err(|error| self.convert_failure(&ctx, error))
        })
    }

    /// The result after the last step.
    fn roll<'a>(
        &mut self,
        scripts: &Scripts,
        name: &str,
        number: u64,
        retraction: Retraction,
        steps: usize,
        step: &dyn Fn(usize) -> Step<'a>,
    ) -> Result<Value, Failure> {
        let class = self.loaded(scripts, name)?.function.clone();
        let kept = self.objects.0.remove(&number);
        let kept = kept.filter(|(_, taken)| *taken + 1 == steps);
        let (value, object) = self.context.with(|ctx| {
            let run = || -> Result<_, ConvertError> {
                let (run, taken) = match kept {
                    Some((object, taken)) => {
                        let object = object.restore(&ctx)?;
                        (ObjectRun::of(self, &ctx, object, step(taken).at)?, taken)
                    }
                    None => (ObjectRun::begin(self, &ctx, &class, step(0).at)?, 0),
                };
                let mut value = Value::Null;
                for at in taken..steps {
                    value = run.step(&class, retraction, step(at))?;
                }
                Ok((value, Persistent::save(&ctx, run.object)))
            };
            run().map_err(|error| self.convert_failure(&ctx, error))
        })?;
        self.objects.keep(number, object, steps);
        Ok(value)
    }

    fn can_retract(
        &mut self,
        scripts: &Scripts,
        name: &str,
        retraction: Retraction,
    ) -> Result<bool, Failure> {
        let loaded = self.loaded(scripts, name)?;
        if let Some(known) = loaded.retraction[retraction as usize] {
            return Ok(known);
        }
        let class = loaded.function.clone();
        let can = self.context.with(|ctx| {
            let run = || -> Result<bool, ConvertError> {
                let run = ObjectRun::begin(self, &ctx, &class, 0)?;
                Ok(run.find(retraction.method())?.is_some())
            };
            run().map_err(|error| self.convert_failure(&ctx, error))
        })?;
        self.loaded(scripts, name)?.retraction[retraction as usize] = Some(can);
        Ok(can)
    }
}

impl<'e, 'js> ObjectRun<'e, 'js> {
    fn of(
        interpreter: &'e Interpreter,
        ctx: &'e Ctx<'js>,
        object: Object<'js>,
        time: i64,
    ) -> Result<ObjectRun<'e, 'js>, ConvertError> {
        interpreter.begin();
        interpreter.enter(Instant::from_ticks(time), &[]);
        Ok(ObjectRun {
            interpreter,
            ctx,
            conversion: interpreter.conversion(ctx)?,
            object,
        })
    }

    /// Creates and initialises an object.
    fn begin(
        interpreter: &'e Interpreter,
        ctx: &'e Ctx<'js>,
        class: &Class,
        time: i64,
    ) -> Result<ObjectRun<'e, 'js>, ConvertError> {
        interpreter.begin();
        interpreter.enter(Instant::from_ticks(time), &[]);
        let conversion = interpreter.conversion(ctx)?;
        let function = class.clone().restore(ctx)?;
        let Some(class) = Constructor::from_value(function.into_value()).ok() else {
            return Err(ConvertError::Unsupported("main is no constructor".into()));
        };
        let run = ObjectRun {
            interpreter,
            ctx,
            conversion,
            object: class.construct(())?,
        };
        let init = run.method("init")?;
        // Missing methods are reported before any call.
        for needed in ["accumulate", "computeResult"] {
            run.method(needed)?;
        }
        init.call::<_, ()>((This(run.object.clone()),))?;
        Ok(run)
    }

    fn find(&self, name: &str) -> Result<Option<Function<'js>>, ConvertError> {
        Ok(self.object.get::<_, Js<'js>>(name)?.into_function())
    }

    fn method(&self, name: &str) -> Result<Function<'js>, ConvertError> {
        let missing = || ConvertError::Unsupported(format!("the aggregate has no {name}()"));
        self.find(name)?.ok_or_else(missing)
    }

    /// Calls the method for every event. Each call has its own step limit.
    fn show(&self, method: &str, events: &[(i64, Value)]) -> Result<(), ConvertError> {
        if events.is_empty() {
            return Ok(());
        }
        let method = self.method(method)?;
        for (time, value) in events {
            let time = Instant::from_ticks(*time);
            self.interpreter.begin();
            self.interpreter.enter(time, &[value.view()]);
            let value = self.conversion.to_js(value.view())?;
            let time = self.conversion.to_js(ValueRef::Time(time))?;
            method.call::<_, Js<'js>>((This(self.object.clone()), value, time))?;
        }
        Ok(())
    }

    fn step(
        &self,
        class: &Class,
        retraction: Retraction,
        step: Step<'_>,
    ) -> Result<Value, ConvertError> {
        match (retraction, step.left) {
            (_, []) => {}
            (Retraction::OneByOne, left) => self.show(retraction.method(), left)?,
            (Retraction::Together, left @ [(first, _), ..]) => {
                let other = ObjectRun::begin(self.interpreter, self.ctx, class, *first)?;
                other.show("accumulate", left)?;
                self.interpreter.begin();
                let method = self.method(retraction.method())?;
                method.call::<_, Js<'js>>((This(self.object.clone()), other.object))?;
            }
        }
        self.show("accumulate", step.entered)?;
        self.interpreter.enter(Instant::from_ticks(step.at), &[]);
        self.result()
    }

    fn result(&self) -> Result<Value, ConvertError> {
        self.interpreter.begin();
        let compute = self.method("computeResult")?;
        let result: Js<'js> = compute.call((This(self.object.clone()),))?;
        self.conversion.read_js(&result)
    }
}
