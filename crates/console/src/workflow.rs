//! The page of a workflow instance: the timeline of its steps, attempts and compensations, and the decisions about it.

use maud::{Markup, html};

use crate::format::{self, Precision};
use crate::layout::{Screen, Span, View};
use crate::parts::{self, none};
use crate::payload::Payload;
use crate::workflow_list::{lasted, state_pill};

#[derive(Clone, Debug, Default)]
pub struct InstancePage {
    pub workflow: String,
    pub id: String,
    pub version: String,
    pub state: String,
    /// Why it will not complete.
    pub reason: Option<String>,
    /// The step that caused it.
    pub blame: Option<String>,
    pub started_ms: i64,
    pub changed_ms: i64,
    /// JSON with indentation.
    pub input: Payload,
    /// Steps in order, then compensations in their order.
    pub steps: Vec<StepRow>,
    /// Notes of people on their decisions.
    pub notes: Vec<String>,
    pub may_manage: bool,
}

/// A step, or the compensation of one.
#[derive(Clone, Debug, Default)]
pub struct StepRow {
    pub name: String,
    /// It undoes the step of this name.
    pub undo: bool,
    pub state: String,
    /// Steps of the same group run at the same time.
    pub group: Option<String>,
    /// An attempt may have been carried out without an answer.
    pub in_doubt: bool,
    pub tries: u32,
    pub begun_ms: Option<i64>,
    pub ended_ms: Option<i64>,
    /// When the next attempt is due.
    pub due_ms: Option<i64>,
    /// `PUT http://bank/payments/1`
    pub request: Option<String>,
    pub request_body: Option<Payload>,
    pub status: Option<u16>,
    pub answer: Option<Payload>,
    /// The failed attempts.
    pub attempts: Vec<StepAttempt>,
}

/// One attempt that failed.
#[derive(Clone, Debug, Default)]
pub struct StepAttempt {
    pub number: u32,
    pub begun_ms: i64,
    pub ended_ms: i64,
    pub reason: String,
}

impl InstancePage {
    /// A command about the instance, for a shell.
    fn command(&self, verb: &str) -> String {
        let id = self.id.replace('\'', "'\\''");
        format!("highwater workflow {verb} {} '{id}'", self.workflow)
    }

    /// The steps whose compensation failed for good. All of them while there are none yet: the dialogs of a page are
    /// not live, and the instance may be parked a moment later.
    fn skippable(&self) -> Vec<&str> {
        let parked = |step: &&StepRow| step.undo && step.state == "parked";
        let has_parked = self.steps.iter().any(|step| parked(&step));
        let offered = |step: &&StepRow| if has_parked { parked(step) } else { !step.undo };
        let offered = self.steps.iter().filter(offered);
        offered.map(|step| &*step.name).collect()
    }
}

impl From<&InstancePage> for View {
    fn from(page: &InstancePage) -> View {
        let list = format!(
            "/console/workflows?workflow={}",
            format::segment(&page.workflow)
        );
        let heading = html! {
            h1 { (page.id) }
            (state_pill(&page.state))
            span class="sub" {
                "of " a href=(list) { (page.workflow) } ", version " code { (page.version) }
                " · started " (parts::time(page.started_ms, Precision::Full))
                " · " (lasted(page.started_ms, page.changed_ms))
            }
            span class="grow" {}
            @if page.may_manage { (actions(page)) }
        };
        let mut view = View::new(Screen::Workflows, page.id.clone(), heading);
        view.live("timeline", Span::Full, timeline(page));
        view.live("input", Span::Half, input(page));
        view.live("notes", Span::Half, notes(page));
        if page.may_manage {
            view.dialogs = dialogs(page);
        }
        view
    }
}

fn actions(page: &InstancePage) -> Markup {
    html! {
        @match &*page.state {
            "running" => button type="button" class="danger" data-dialog="decide-cancel" { "Cancel…" },
            "undoing" => button type="button" class="danger" data-dialog="decide-resolve" { "Resolve…" },
            "parked" => {
                button type="button" class="primary" data-dialog="decide-retry" { "Retry…" }
                button type="button" data-dialog="decide-skip" { "Skip a step…" }
                button type="button" class="danger" data-dialog="decide-resolve" { "Resolve…" }
            },
            _ => {},
        }
    }
}

/// A decision that a dialog asks for.
struct Decision {
    verb: &'static str,
    title: &'static str,
    effect: &'static str,
    button: &'static str,
    done: &'static str,
}

const DECISIONS: [Decision; 4] = [
    Decision {
        verb: "retry",
        title: "Retry the compensations?",
        effect: "The compensations that failed are attempted again, with all their attempts. Repair the cause first.",
        button: "Retry",
        done: "The compensations are attempted again.",
    },
    Decision {
        verb: "skip",
        title: "Skip the compensation of a step?",
        effect: "The step stays as it is, and the steps before it are undone.",
        button: "Skip the step",
        done: "The step is skipped.",
    },
    Decision {
        verb: "resolve",
        title: "Mark it as resolved?",
        effect: "Nothing more is called. Do by hand what the compensations would have done, and say so in the note.",
        button: "Resolve",
        done: "The instance is resolved.",
    },
    Decision {
        verb: "cancel",
        title: "Cancel the instance?",
        effect: "No further step begins, and the completed ones are undone.",
        button: "Cancel the instance",
        done: "The instance is cancelled.",
    },
];

fn dialogs(page: &InstancePage) -> Markup {
    let base = format!(
        "POST /api/workflows/{}/{}",
        format::segment(&page.workflow),
        format::segment(&page.id)
    );
    html! {
        @for Decision { verb, title, effect, button, done } in DECISIONS {
            dialog id={ "decide-" (verb) } aria-labelledby={ "decide-" (verb) "-title" } {
                form data-call={ (base) "/" (verb) } data-done=(done) {
                    h2 id={ "decide-" (verb) "-title" } { (title) }
                    p class="sub" { (effect) }
                    @if verb == "skip" {
                        label class="field" { span { "Step" } select name="step" {
                            @for step in page.skippable() { option value=(step) { (step) } }
                        } }
                    }
                    label class="field" {
                        span { "Note, kept with the instance" }
                        input name="note" maxlength="1000" autocomplete="off" required[verb == "resolve"] placeholder="what you did about it";
                    }
                    (parts::dialog_buttons("Cancel", if verb == "retry" { "primary" } else { "danger" }, button))
                }
            }
        }
    }
}

fn timeline(page: &InstancePage) -> Markup {
    let command = page.command("show");
    let precision = match page.changed_ms - page.started_ms {
        0..10_000 => Precision::Millisecond,
        _ => Precision::Second,
    };
    html! {
        (parts::heading("Timeline", "", html! {
            span class="legend" {
                span { span class="sw done" {} " answered" } span { span class="sw failed" {} " failed attempt" } span { span class="sw wait" {} " waiting" }
            }
            button type="button" class="small" data-copy=(command) { "Copy command" }
        }))
        @if let Some(reason) = &page.reason {
            div class="body why" {
                b class="bad-text" { "It will not complete: " } (reason)
                @if let Some(step) = &page.blame { span class="sub" { " (step " (step) ")" } }
            }
        }
        div class="scroll" { table class="steps" {
            thead { tr { th { "step" } th { "state" } th class="line" { span class="spread" { span { (parts::time(page.started_ms, precision)) } span { (parts::time(page.changed_ms, precision)) } } } th class="num" { "attempts" } th class="num" { "took" } th { "answer" } } }
            tbody { @for step in &page.steps { (step_rows(page, step)) } }
        } }
    }
}

fn step_rows(page: &InstancePage, step: &StepRow) -> Markup {
    let has_detail = step.request.is_some() || step.answer.is_some() || !step.attempts.is_empty();
    html! {
        tr class=[has_detail.then_some("with")] {
            td class="nowrap" {
                @if step.undo { span class="sub" { "undo " } }
                b { (step.name) }
                @if let Some(group) = &step.group { span class="sub" { " in " (group) } }
            }
            td class="nowrap" { (step_state(step)) }
            td class="line" { (bar(page, step)) }
            td class="num" { @if step.tries > 0 { (step.tries) } @else { span class="faint" { "–" } } }
            td class="num" { @match (step.begun_ms, step.ended_ms) { (Some(begun), Some(ended)) if ended >= begun => (lasted(begun, ended)), _ => span class="faint" { "–" } } }
            td class="nowrap" { @match step.status { Some(status) => (status), None => span class="faint" { "–" } } }
        }
        @if has_detail { tr { td class="trouble" colspan="6" { (detail(step)) } } }
    }
}

fn step_state(step: &StepRow) -> Markup {
    let class = match &*step.state {
        "failed" | "parked" => "bad-text",
        "running" | "undoing" => "warn-text",
        "done" | "undone" => "good-text",
        _ => "sub",
    };
    html! {
        span class=(class) { (step.state) }
        @if step.in_doubt { span class="warn-text" title="an attempt may have been carried out without an answer" { ", in doubt" } }
        @if let Some(due) = step.due_ms { span class="sub" { ", next " (parts::time(due, Precision::Second)) } }
    }
}

/// The request, the answer and the failed attempts of a step.
fn detail(step: &StepRow) -> Markup {
    html! {
        details {
            summary {
                @if let Some(request) = &step.request { code { (request) } }
                @if let Some(last) = step.attempts.last() {
                    " " span class="bad-text" { (last.reason) }
                    @if step.attempts.len() > 1 { span class="sub" { " · " (format::plural(step.attempts.len() as u64, "failed attempt")) } }
                }
            }
            @if let Some(body) = &step.request_body { div class="faint" { "request" } (body.value()) }
            @if let Some(answer) = &step.answer { div class="faint" { "answer" @if let Some(status) = step.status { " " (status) } } (answer.value()) }
            @if step.request_body.is_none() && step.answer.is_none() && step.attempts.is_empty() {
                div class="faint" {
                    "no body was sent"
                    @if let Some(status) = step.status { ", and " (status) " was answered without one" }
                }
            }
            @if !step.attempts.is_empty() {
                div class="faint" { "failed attempts" }
                ol class="attempts" {
                    @for attempt in &step.attempts {
                        li value=(attempt.number) {
                            (parts::time(attempt.begun_ms, Precision::Millisecond)) ", " (lasted(attempt.begun_ms, attempt.ended_ms)) ": " (attempt.reason)
                        }
                    }
                }
            }
        }
    }
}

/// The scale of the bars.
const BAR_WIDTH: f64 = 400.0;

/// An attempt shorter than this is drawn this wide.
const ATTEMPT_WIDTH_MIN: f64 = 3.0;

/// Attempts of a step on the time of the instance.
fn bar(page: &InstancePage, step: &StepRow) -> Markup {
    let span = (page.changed_ms - page.started_ms).max(1) as f64;
    let at = |ms: i64| ((ms - page.started_ms) as f64 / span).clamp(0.0, 1.0) * BAR_WIDTH;
    let block = |class: &str, from: i64, to: i64| {
        let width = (at(to) - at(from)).max(ATTEMPT_WIDTH_MIN);
        let x = at(from).min(BAR_WIDTH - width);
        html! { rect class=(class) x=(format!("{x:.1}")) y="2" width=(format!("{width:.1}")) height="10" rx="1.5" {} }
    };
    let last_failure = step.attempts.last().map(|attempt| attempt.ended_ms);
    let succeeded = matches!(&*step.state, "done" | "undone");
    html! {
        svg class="attempts" viewBox="0 0 400 14" preserveAspectRatio="none" aria-hidden="true" {
            @if let (Some(begun), Some(ended)) = (step.begun_ms, step.ended_ms) {
                line x1=(format!("{:.1}", at(begun))) y1="7" x2=(format!("{:.1}", at(ended.max(begun)))) y2="7" {}
                @for attempt in &step.attempts { (block("failed", attempt.begun_ms, attempt.ended_ms)) }
                @if succeeded { (block("done", last_failure.unwrap_or(begun).max(begun), ended)) }
            }
        }
    }
}

fn input(page: &InstancePage) -> Markup {
    html! {
        (parts::heading("Input", "", none()))
        div class="body" { (page.input.value()) }
    }
}

fn notes(page: &InstancePage) -> Markup {
    html! {
        (parts::heading("Notes", "of people on their decisions", none()))
        @if page.notes.is_empty() {
            div class="empty" {
                @if page.state == "parked" { "None yet. Decide with the buttons above, or in a terminal:" } @else { "None." }
                @if page.state == "parked" {
                    p {} pre class="plain" { (page.command("resolve")) " --note \"done by hand\"" }
                }
            }
        } @else { div class="body" { ul { @for note in &page.notes { li { (note) } } } } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_stay_in_their_frame() {
        let page = InstancePage {
            started_ms: 1000,
            changed_ms: 2000,
            ..InstancePage::default()
        };
        let attempt = StepAttempt {
            number: 1,
            begun_ms: 1999,
            ended_ms: 5000,
            reason: "<x>".into(),
        };
        let step = StepRow {
            state: "done".into(),
            begun_ms: Some(0),
            ended_ms: Some(9000),
            attempts: vec![attempt],
            ..StepRow::default()
        };
        let shown = bar(&page, &step).into_string();
        assert!(
            shown.contains("x=\"397.0\"") && shown.contains("x2=\"400.0\""),
            "{shown}"
        );
        assert!(!detail(&step).into_string().contains("<x>"));
    }
}
