//! The JSON view of an instance.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Instance, Phase, Status};
use crate::definition::{Action, Step, Target};

/// Times are milliseconds since 1970.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct View {
    pub workflow: String,
    pub version: String,
    pub id: String,
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The step that caused the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blame: Option<String>,
    pub started_ms: i64,
    pub changed_ms: i64,
    pub input: Box<RawValue>,
    pub steps: Vec<StepView>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<AttemptView>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepView {
    pub name: String,
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_doubt: bool,
    #[serde(flatten)]
    pub times: Times,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<UndoView>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UndoView {
    pub state: String,
    #[serde(flatten)]
    pub times: Times,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Times {
    pub tries: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<i64>,
    /// When the next attempt is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_ms: Option<i64>,
    /// The request, once an attempt has begun. Headers are left out: they may have secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestView>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

/// The request of a step or of its undo.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RequestView {
    /// `PUT http://bank/payments/d-1`, or `function pay`.
    pub line: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AttemptView {
    pub step: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undo: bool,
    pub number: u32,
    pub begun_ms: i64,
    pub ended_ms: i64,
    pub reason: String,
}

/// Longer bodies are cut in the view.
const BODY_SHOWN_MAX: usize = 2000;

impl Instance {
    pub(crate) fn view(&self) -> View {
        let name = |step: u16| self.definition.steps[usize::from(step)].name.clone();
        let input = String::from_utf8_lossy(&self.input);
        let input = serde_json::from_str::<Box<RawValue>>(&input)
            .or_else(|_| serde_json::value::to_raw_value(&input));
        let steps = self.definition.steps.iter().enumerate();
        View {
            workflow: self.definition.name.clone(),
            version: self.version.to_string(),
            id: self.id.to_string(),
            state: self.phase.name().to_owned(),
            reason: self.cause.as_ref().map(|cause| cause.reason.clone()),
            blame: self.cause.as_ref().and_then(|cause| cause.step.map(name)),
            started_ms: self.started_ms,
            changed_ms: self.changed_ms,
            input: input.unwrap_or_default(),
            steps: steps.map(|(n, step)| self.step_view(n, step)).collect(),
            attempts: (self.attempts.iter())
                .map(|attempt| AttemptView {
                    step: name(attempt.step),
                    undo: attempt.undo,
                    number: attempt.number,
                    begun_ms: attempt.begun_ms,
                    ended_ms: attempt.ended_ms,
                    reason: attempt.reason.clone(),
                })
                .collect(),
            notes: self.notes.iter().map(|note| note.text.clone()).collect(),
        }
    }

    fn step_view(&self, number: usize, step: &Step) -> StepView {
        let state = &self.steps[number];
        let undo_state = match state.undone.status {
            Status::Waiting => None,
            Status::Ready if self.phase == Phase::Parked => Some("waiting"),
            Status::Ready => Some("undoing"),
            Status::Succeeded => Some("undone"),
            Status::Failed => Some("parked"),
            Status::Skipped | Status::Passed => Some("skipped"),
        };
        StepView {
            name: step.name.clone(),
            state: match state.done.status {
                Status::Waiting => "waiting",
                Status::Ready => "running",
                Status::Succeeded => "done",
                Status::Passed | Status::Skipped => "passed",
                Status::Failed if state.done.tries == 0 => "waiting",
                Status::Failed => "failed",
            }
            .to_owned(),
            group: step.group.clone(),
            in_doubt: state.in_doubt,
            times: self.times(number, false),
            undo: undo_state.map(|undo_state| UndoView {
                state: undo_state.to_owned(),
                times: self.times(number, true),
            }),
        }
    }

    fn times(&self, number: usize, undo: bool) -> Times {
        let state = &self.steps[number];
        let progress = if undo { &state.undone } else { &state.done };
        let attempt = progress.tries > 0 || progress.begun_ms > 0;
        let answer = progress.answer.as_ref();
        Times {
            tries: progress.tries,
            begun_ms: attempt.then_some(progress.begun_ms),
            ended_ms: attempt.then_some(progress.ended_ms),
            due_ms: (progress.status == Status::Ready).then_some(progress.due_ms),
            request: (attempt.then(|| self.request(number, undo))).flatten(),
            status: answer.map(|answer| answer.status),
            body: answer.and_then(|answer| shown(&answer.body)),
        }
    }

    /// The request as every attempt renders it: its templates refer to the input and to earlier answers, which stay.
    fn request(&self, number: usize, undo: bool) -> Option<RequestView> {
        let step = &self.definition.steps[number];
        let work = if undo {
            step.undo.as_ref()?
        } else {
            &step.work
        };
        let call = match &work.action {
            Action::Call(call) => call,
            Action::Function(name) => {
                let line = format!("function {name}");
                return Some(RequestView { line, body: None });
            }
        };
        let scope = self.scope();
        let target = &self.definition.services[call.service].target;
        let scheme = if target.https { "https" } else { "http" };
        let Target {
            host, port, base, ..
        } = target;
        let path = call.path.url(&scope).ok()?;
        let body = call.body.as_ref().and_then(|body| body.render(&scope).ok());
        Some(RequestView {
            line: format!("{} {scheme}://{host}:{port}{base}{path}", call.method),
            body: body.and_then(|body| shown(&body)),
        })
    }
}

/// A body as text, cut if it is long.
fn shown(body: &[u8]) -> Option<String> {
    let shown = &body[..body.len().min(BODY_SHOWN_MAX)];
    (!body.is_empty()).then(|| String::from_utf8_lossy(shown).into_owned())
}
