//! Definitions built in Rust.

use std::time::Duration;

use super::{
    Action, Breaker, Call, Definition, DefinitionError, Notify, NotifyEvent, RefusalRule, Retry,
    Service, Step, Target, TargetError, Work,
};
use crate::expr::{Body, Condition, ExprError, Template};

/// Builds a definition. `build` returns the first error.
#[derive(Debug)]
pub struct Builder {
    definition: Definition,
    wrong: Option<String>,
}

/// Builds a step. Settings of calls are ignored for a function.
#[derive(Debug)]
pub struct StepBuilder {
    step: Step,
    url: Option<String>,
    undo_url: Option<String>,
    wrong: Option<String>,
}

/// Default timeout of a call.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
pub(super) const CONCURRENCY: u32 = 100;

impl Builder {
    pub fn new(name: &str) -> Builder {
        Builder {
            definition: Definition {
                name: name.to_owned(),
                deadline: None,
                services: Vec::new(),
                steps: Vec::new(),
                notify: None,
            },
            wrong: None,
        }
    }

    pub fn deadline(mut self, deadline: Duration) -> Builder {
        self.definition.deadline = Some(deadline);
        self
    }

    /// Sets concurrency and circuit for the host of `url`. Must precede the steps that call it.
    pub fn service(mut self, url: &str, concurrency: u32, circuit: Option<Breaker>) -> Builder {
        match Target::parse(url) {
            Ok(target) => self.definition.services.push(Service {
                name: target.authority(),
                target,
                concurrency,
                circuit,
            }),
            Err(error) => self.note(error.to_string()),
        }
        self
    }

    /// POSTs to `url` when an instance is parked.
    pub fn notify(mut self, url: &str) -> Builder {
        match split_url(url) {
            Ok((target, path)) => {
                self.definition.notify = Some(Notify {
                    service: service_of(&mut self.definition, target),
                    path,
                    on: vec![NotifyEvent::Parked],
                });
            }
            Err(error) => self.note(error.to_string()),
        }
        self
    }

    pub fn step(mut self, step: StepBuilder) -> Builder {
        let StepBuilder {
            mut step,
            url,
            undo_url,
            wrong,
        } = step;
        if let Some(wrong) = wrong {
            self.note(format!("step `{}`: {wrong}", step.name));
        }
        let works = [(Some(&mut step.work), url), (step.undo.as_mut(), undo_url)];
        for (work, url) in works {
            if let (Some(work), Some(url)) = (work, url)
                && let Err(wrong) = aim(&mut self.definition, work, &url)
            {
                self.note(wrong);
            }
        }
        self.definition.steps.push(step);
        self
    }

    fn note(&mut self, wrong: String) {
        self.wrong.get_or_insert(wrong);
    }

    pub fn build(self) -> Result<Definition, DefinitionError> {
        if let Some(wrong) = self.wrong {
            return Err(DefinitionError::Stored(wrong));
        }
        self.definition.check()?;
        Ok(self.definition)
    }
}

/// Sets the service of a call by its URL; a new one is added if necessary.
fn aim(definition: &mut Definition, work: &mut Work, url: &str) -> Result<(), String> {
    let Action::Call(call) = &mut work.action else {
        return Ok(());
    };
    let (target, path) = split_url(url).map_err(|error| error.to_string())?;
    call.service = service_of(definition, target);
    call.path = Template::parse(&path).map_err(|error| error.to_string())?;
    Ok(())
}

/// The target of a URL, and the rest of it.
pub(super) fn split_url(url: &str) -> Result<(Target, String), TargetError> {
    let host = url.find("://").map_or(0, |at| at + 3);
    let path = url[host..]
        .find(['/', '?'])
        .map_or(url.len(), |at| host + at);
    let target = Target::parse(&url[..path])?;
    Ok((target, url[path..].to_owned()))
}

/// The service with this host, added with default limits if necessary.
pub(super) fn service_of(definition: &mut Definition, target: Target) -> usize {
    let same = |service: &Service| {
        let there = &service.target;
        (there.https, &there.host, there.port, there.base.as_str())
            == (target.https, &target.host, target.port, "")
    };
    if let Some(found) = definition.services.iter().position(same) {
        return found;
    }
    definition.services.push(Service {
        name: target.authority(),
        target,
        concurrency: CONCURRENCY,
        circuit: Some(Breaker::default()),
    });
    definition.services.len() - 1
}

impl StepBuilder {
    /// An HTTP call. `url` is a template whose host is fixed.
    pub fn call(name: &str, method: &str, url: &str) -> StepBuilder {
        let mut step = StepBuilder::with(name, call(method));
        step.url = Some(url.to_owned());
        step
    }

    /// A function registered under `function`.
    pub fn function(name: &str, function: &str) -> StepBuilder {
        StepBuilder::with(name, Action::Function(function.to_owned()))
    }

    fn with(name: &str, action: Action) -> StepBuilder {
        StepBuilder {
            step: Step {
                name: name.to_owned(),
                work: Work {
                    action,
                    timeout: TIMEOUT,
                    retry: Retry::STEP,
                },
                undo: None,
                when: None,
                refuse_when: None,
                finish_when: None,
                group: None,
                after: None,
            },
            url: None,
            undo_url: None,
            wrong: None,
        }
    }

    /// The JSON body; its strings are templates.
    pub fn json(mut self, body: &serde_json::Value) -> StepBuilder {
        match (Body::from_json(body), &mut self.step.work.action) {
            (Ok(body), Action::Call(call)) => call.body = Some(body),
            (Ok(_), Action::Function(_)) => {}
            (Err(error), _) => self.note(error),
        }
        self
    }

    pub fn expect(mut self, statuses: &[u16]) -> StepBuilder {
        if let Action::Call(call) = &mut self.step.work.action {
            call.expect = statuses.to_vec();
        }
        self
    }

    pub fn refuse(mut self, statuses: &[u16]) -> StepBuilder {
        if let Action::Call(call) = &mut self.step.work.action {
            call.refuse = statuses.to_vec();
        }
        self
    }

    pub fn timeout(mut self, timeout: Duration) -> StepBuilder {
        self.step.work.timeout = timeout;
        self
    }

    pub fn retry(mut self, retry: Retry) -> StepBuilder {
        self.step.work.retry = retry;
        self
    }

    pub fn undo(mut self, method: &str, url: &str) -> StepBuilder {
        self.undo_url = Some(url.to_owned());
        self.undo_with(call_to_undo(method))
    }

    pub fn undo_function(self, function: &str) -> StepBuilder {
        self.undo_with(Action::Function(function.to_owned()))
    }

    fn undo_with(mut self, action: Action) -> StepBuilder {
        self.step.undo = Some(Work {
            action,
            timeout: TIMEOUT,
            retry: Retry::UNDO,
        });
        self
    }

    /// Must follow `undo`.
    pub fn undo_retry(mut self, retry: Retry) -> StepBuilder {
        if let Some(undo) = &mut self.step.undo {
            undo.retry = retry;
        }
        self
    }

    pub fn when(mut self, condition: &str) -> StepBuilder {
        self.step.when = self.condition(condition);
        self
    }

    pub fn refuse_when(mut self, condition: &str, reason: &str) -> StepBuilder {
        let when = self.condition(condition);
        self.step.refuse_when = when.map(|when| RefusalRule {
            when,
            reason: reason.to_owned(),
        });
        self
    }

    pub fn finish_when(mut self, condition: &str) -> StepBuilder {
        self.step.finish_when = self.condition(condition);
        self
    }

    pub fn group(mut self, group: &str) -> StepBuilder {
        self.step.group = Some(group.to_owned());
        self
    }

    pub fn after(mut self, delay: Duration) -> StepBuilder {
        self.step.after = Some(delay);
        self
    }

    fn condition(&mut self, text: &str) -> Option<Condition> {
        Condition::parse(text)
            .map_err(|error| self.note(error))
            .ok()
    }

    fn note(&mut self, error: ExprError) {
        self.wrong.get_or_insert(error.to_string());
    }
}

fn call(method: &str) -> Action {
    Action::Call(Call {
        service: 0,
        method: method.to_owned(),
        path: Template::parse("").expect("nothing has no holes"),
        headers: Vec::new(),
        body: None,
        expect: Vec::new(),
        refuse: Vec::new(),
    })
}

/// A resource that no longer exists counts as undone.
pub(super) const UNDO_EXPECT: [u16; 6] = [200, 201, 202, 204, 404, 410];

fn call_to_undo(method: &str) -> Action {
    let mut action = call(method);
    if let Action::Call(call) = &mut action {
        call.expect = UNDO_EXPECT.to_vec();
    }
    action
}
