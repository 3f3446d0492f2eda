//! Validation of a definition from any source.

use highwater_spelling::nearest;

use super::{Action, Call, Definition, STEPS_MAX, Step, Work};
use crate::expr::Path;

/// Why a definition cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionError {
    #[error("`{0}` cannot name a workflow: use 1 to 100 letters, digits, dashes and underscores")]
    Name(String),
    #[error("a workflow has 1 to {STEPS_MAX} steps, this one has {0}")]
    StepCount(usize),
    #[error("step {}: {reason}", number + 1)]
    Step { number: usize, reason: String },
    #[error("the stored definition cannot be read: {0}")]
    Stored(String),
}

impl Definition {
    pub(super) fn check(&self) -> Result<(), DefinitionError> {
        if !is_name(&self.name) {
            return Err(DefinitionError::Name(self.name.clone()));
        }
        if !(1..=STEPS_MAX).contains(&self.steps.len()) {
            return Err(DefinitionError::StepCount(self.steps.len()));
        }
        let mut first = 0;
        while first < self.steps.len() {
            let stage = self.stage(first);
            for number in stage.clone() {
                self.check_step(number, first)
                    .map_err(|reason| DefinitionError::Step { number, reason })?;
            }
            first = stage.end;
        }
        let notified = self.notify.as_ref().map(|notify| notify.service);
        match notified.is_some_and(|service| service >= self.services.len()) {
            true => Err(DefinitionError::Stored(
                "its `notify` names an unknown service".into(),
            )),
            false => Ok(()),
        }
    }

    /// A step may use answers of earlier stages; its undo and later conditions may also use its own.
    fn check_step(&self, number: usize, stage: usize) -> Result<(), String> {
        let step = &self.steps[number];
        if !is_name(&step.name) {
            return Err(format!(
                "`{}` cannot name a step: use letters, digits, dashes and underscores",
                step.name
            ));
        }
        if self.steps[..number].iter().any(|s| s.name == step.name) {
            return Err(format!("there is another step `{}` before it", step.name));
        }
        let group = step.group.as_ref();
        let split = group.is_some()
            && self.steps[..stage]
                .iter()
                .any(|s| s.group.as_ref() == group);
        if split {
            return Err("steps of one group must stand side by side".into());
        }
        let before: Vec<&str> = names(&self.steps[..stage]);
        let with_own: Vec<&str> = before.iter().copied().chain([&*step.name]).collect();
        let all = names(&self.steps);
        let check = |paths: Vec<&Path>, seen: &[&str]| check_paths(&paths, seen, &all);
        if let Some(when) = &step.when {
            check(when.paths(), &before)?;
        }
        check(self.work_paths(&step.work)?, &before)?;
        if let Some(undo) = &step.undo {
            check(self.work_paths(undo)?, &with_own)?;
        }
        let after = [
            step.refuse_when.as_ref().map(|refusal| &refusal.when),
            step.finish_when.as_ref(),
        ];
        after
            .into_iter()
            .flatten()
            .try_for_each(|condition| check(condition.paths(), &with_own))
    }

    fn work_paths<'w>(&self, work: &'w Work) -> Result<Vec<&'w Path>, String> {
        if work.retry.tries == 0 {
            return Err("`tries` must be at least 1".into());
        }
        match &work.action {
            Action::Function(name) if name.is_empty() => Err("its function has no name".into()),
            Action::Function(_) => Ok(Vec::new()),
            Action::Call(call) => self.call_paths(call),
        }
    }

    fn call_paths<'c>(&self, call: &'c Call) -> Result<Vec<&'c Path>, String> {
        if call.service >= self.services.len() {
            return Err("it calls an unknown service".into());
        }
        if hyper::Method::from_bytes(call.method.as_bytes()).is_err() || call.method.is_empty() {
            return Err(format!("`{}` is no method of HTTP", call.method));
        }
        if !call.path.source().is_empty() && !call.path.source().starts_with(['/', '?']) {
            return Err(format!(
                "the path `{}` must begin with /",
                call.path.source()
            ));
        }
        for (name, _) in &call.headers {
            if hyper::header::HeaderName::from_bytes(name.as_bytes()).is_err() {
                return Err(format!("`{name}` is no name of a header"));
            }
            if OWN_HEADERS.iter().any(|own| name.eq_ignore_ascii_case(own)) {
                return Err(format!("the header `{name}` is set by the workflow itself"));
            }
        }
        let headers = call.headers.iter().flat_map(|(_, value)| value.paths());
        let body = call.body.iter().flat_map(|body| body.paths());
        Ok(call.path.paths().chain(headers).chain(body).collect())
    }
}

const OWN_HEADERS: [&str; 4] = [
    "idempotency-key",
    "host",
    "content-length",
    "transfer-encoding",
];

fn names(steps: &[Step]) -> Vec<&str> {
    steps.iter().map(|step| step.name.as_str()).collect()
}

fn check_paths(paths: &[&Path], seen: &[&str], all: &[&str]) -> Result<(), String> {
    for path in paths {
        let Some(step) = path.step().filter(|step| !seen.contains(step)) else {
            continue;
        };
        return Err(match nearest(step, seen.iter().copied()) {
            _ if all.contains(&step) => {
                format!("`{path}` is not known yet: `{step}` is not done before")
            }
            Some(near) => {
                format!("`{path}`: there is no step `{step}` before it; did you mean `{near}`?")
            }
            None => format!("`{path}`: there is no step `{step}` before it"),
        });
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=100).contains(&name.len()) && name.bytes().all(plain)
}
