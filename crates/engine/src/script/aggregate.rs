//! JavaScript aggregates: objects that are shown the events of a window.
//!
//! An object that can take events back is kept from one result to the next, and shown only what has changed. It is no
//! more than a short cut: whoever interrupts can say all steps again from the first, and an object that is not here (another
//! thread made it, the interpreter was given up, there were too many) is made anew from them, by the very same calls. So
//! nothing has to be known about what a script keeps, or where.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use highwater_time::Instant;
use rquickjs::function::{Constructor, This};
use rquickjs::{Ctx, Function, Object, Persistent, Value as Js};

use super::convert::{ConvertError, Dates, from_js, to_js};
use super::interpreter::{Failure, Interpreter, with_interpreter};
use super::{Retraction, Scripts, Step};
use crate::value::{Value, ValueRef};

/// How many objects an interpreter keeps.
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

/// Objects by number, each with how many steps it has taken.
#[derive(Default)]
pub(super) struct Objects(HashMap<u64, (Persistent<Object<'static>>, usize), FixedState>);

impl Objects {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn forget(&mut self, object: u64) {
        self.0.remove(&object);
    }

    fn keep(&mut self, number: u64, object: Persistent<Object<'static>>, steps: usize) {
        // Where more are in use than fit, going round them would never find the oldest in time.
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

/// An object of a script's constructor, and who runs it.
struct ObjectRun<'e, 'js> {
    interpreter: &'e Interpreter,
    ctx: &'e Ctx<'js>,
    dates: Dates<'js>,
    object: Object<'js>,
}

impl Interpreter {
    /// Makes an object, shows it every event and interrupts for its result.
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

    /// The result after the last of the steps.
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
        Ok(ObjectRun {
            interpreter,
            ctx,
            dates: interpreter.enter(ctx, Instant::from_ticks(time), &[])?,
            object,
        })
    }

    /// Makes an object and lets it begin.
    fn begin(
        interpreter: &'e Interpreter,
        ctx: &'e Ctx<'js>,
        class: &Class,
        time: i64,
    ) -> Result<ObjectRun<'e, 'js>, ConvertError> {
        interpreter.begin();
        let dates = interpreter.enter(ctx, Instant::from_ticks(time), &[])?;
        let function = class.clone().restore(ctx)?;
        let Some(class) = Constructor::from_value(function.into_value()).ok() else {
            return Err(ConvertError::Unsupported("main is no constructor".into()));
        };
        let run = ObjectRun {
            interpreter,
            ctx,
            dates,
            object: class.construct(())?,
        };
        let init = run.method("init")?;
        // What is missing is told before anything is called.
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

    /// Calls the method for every event. The steps are counted anew for each.
    fn show(&self, method: &str, events: &[(i64, Value)]) -> Result<(), ConvertError> {
        if events.is_empty() {
            return Ok(());
        }
        let method = self.method(method)?;
        for (time, value) in events {
            let time = Instant::from_ticks(*time);
            self.interpreter.begin();
            self.interpreter.enter(self.ctx, time, &[value.view()])?;
            let value = to_js(self.ctx, &self.dates, value.view())?;
            let time = to_js(self.ctx, &self.dates, ValueRef::Time(time))?;
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
        self.interpreter
            .enter(self.ctx, Instant::from_ticks(step.at), &[])?;
        self.result()
    }

    fn result(&self) -> Result<Value, ConvertError> {
        self.interpreter.begin();
        let compute = self.method("computeResult")?;
        let result: Js<'js> = compute.call((This(self.object.clone()),))?;
        from_js(&self.dates, &result)
    }
}
