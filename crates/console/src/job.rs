//! The page of one job.

use maud::{Markup, html};

use crate::format::{self, Precision, segment};
use crate::highlight::highlight;
use crate::job_list::state_tone;
use crate::json::json_text;
use crate::layout::{Screen, Span, View};
use crate::parts::{self, Action, Figure, Tone, none};
use crate::plan::{self, Step};

#[derive(Clone, Debug, Default)]
pub struct JobPage {
    pub name: String,
    pub state: &'static str,
    /// `replaying` with its progress in percent.
    pub progress_percent: Option<f64>,
    /// Why it failed.
    pub reason: Option<String>,
    pub alarms: Vec<String>,
    /// It is declared in the settings, so it has no versions.
    pub in_settings: bool,
    /// The caller may start, stop and deploy it.
    pub may_deploy: bool,
    /// `hub toll, 2 partitions`
    pub inputs: Vec<JobInput>,
    pub figures: Vec<Figure>,
    /// In milliseconds; `None` if unknown.
    pub late_bound_ms: Option<i64>,
    pub verdicts: Verdicts,
    pub plan: Vec<Step>,
    pub partitions: Vec<PartitionRow>,
    /// Partitions that are not shown.
    pub partitions_more: u64,
    pub outputs: Vec<OutputRow>,
    pub query: String,
    pub data_errors: Vec<DataError>,
    pub errors_total: u64,
    pub log: Vec<LogRow>,
    pub checkpoint: Option<CheckpointFacts>,
}

#[derive(Clone, Debug, Default)]
pub struct JobInput {
    pub name: String,
    /// The hub of each partition.
    pub hubs: Vec<String>,
}

/// Event counts by verdict.
#[derive(Clone, Copy, Debug, Default)]
pub struct Verdicts {
    pub on_time: u64,
    pub adjusted: u64,
    pub dropped: u64,
}

#[derive(Clone, Debug, Default)]
pub struct PartitionRow {
    pub input: String,
    pub hub: String,
    pub partition: u32,
    pub offset: u64,
    pub per_second: Option<f64>,
    pub backlog: u64,
    pub watermark_ms: Option<i64>,
    pub delay_seconds: Option<f64>,
    /// Of the largest delay of the job.
    pub delay_share: f64,
    pub series: usize,
}

#[derive(Clone, Debug, Default)]
pub struct OutputRow {
    pub name: String,
    pub rows: u64,
    pub waiting: u64,
    pub dropped: u64,
    pub retries: u64,
    /// Why it accepts no rows at the moment.
    pub trouble: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct DataError {
    pub time_ms: Option<i64>,
    pub place: String,
    pub text: String,
    pub event: String,
}

#[derive(Clone, Debug, Default)]
pub struct LogRow {
    pub time_ms: i64,
    pub text: String,
}

#[derive(Clone, Debug, Default)]
pub struct CheckpointFacts {
    pub number: u64,
    pub time_ms: Option<i64>,
    pub bytes: u64,
    pub pause_seconds: f64,
    pub trouble: Option<String>,
}

impl JobPage {
    fn is_running(&self) -> bool {
        matches!(self.state, "starting" | "replaying" | "running")
    }

    /// Names and hubs of the inputs for the script, as JSON.
    fn inputs_json(&self) -> String {
        let inputs = self.inputs.iter().map(|input| {
            let hubs: Vec<String> = input.hubs.iter().map(|hub| json_text(hub)).collect();
            format!(
                "{{\"name\":{},\"hubs\":[{}]}}",
                json_text(&input.name),
                hubs.join(",")
            )
        });
        format!("[{}]", inputs.collect::<Vec<_>>().join(","))
    }
}

impl From<&JobPage> for View {
    fn from(job: &JobPage) -> View {
        let mut view = View::new(Screen::Jobs, job.name.clone(), heading(job));
        view.figures(&job.figures);
        if job.reason.is_some() || !job.alarms.is_empty() {
            view.live("troubles", Span::Full, problems(job));
        }
        view.fixed("time", Span::Main, picture(job));
        view.fixed("fate", Span::Side, fate());
        view.live("plan", Span::Full, plan_panel(job));
        view.live("query", Span::Main, query(job));
        view.live("partitions", Span::Side, partitions(job));
        view.live("errors", Span::Main, data_errors(job));
        view.live("outputs", Span::Side, outputs(job));
        view.live("log", Span::Full, log(job));
        view.dialogs = dialogs(job);
        view.scripts = &["picture.js", "job.js"];
        view
    }
}

fn heading(job: &JobPage) -> Markup {
    let troubled = !job.alarms.is_empty();
    let state = match job.progress_percent {
        Some(percent) => format!("{} {percent:.0} %", job.state),
        None => job.state.to_owned(),
    };
    html! {
        h1 { (job.name) }
        (parts::pill(state_tone(job.state, troubled), &state))
        span class="sub" { (sources(job)) " → " (targets(job)) }
        span class="grow" {}
        @if job.may_deploy {
            @if job.in_settings { span class="sub" { "declared in the settings" } }
            @else { button type="button" id="open-new-version" { "New version…" } }
            @if job.is_running() { (parts::action(&stop(job))) }
            @else { button type="button" class="primary" data-dialog="start" { "Start…" } }
        }
    }
}

fn stop(job: &JobPage) -> Action {
    Action {
        label: "Stop",
        call: format!("POST /api/jobs/{}/stop", segment(&job.name)),
        confirm: format!(
            "{} stores a checkpoint, then stops. Its events wait in their hubs.",
            job.name
        ),
        done: format!("{} has stopped.", job.name),
        danger: true,
        ..Action::default()
    }
}

fn sources(job: &JobPage) -> Markup {
    let mut hubs: Vec<(&str, u64)> = Vec::new();
    for hub in job.inputs.iter().flat_map(|input| &input.hubs) {
        match hubs.iter_mut().find(|(name, _)| name == hub) {
            Some((_, partitions)) => *partitions += 1,
            None => hubs.push((hub, 1)),
        }
    }
    html! {
        @if hubs.is_empty() { "no input yet" }
        @for (at, (hub, partitions)) in hubs.iter().take(4).enumerate() {
            @if at > 0 { ", " }
            "hub " a href={ "/console/hubs/" (segment(hub)) } { (hub) } ", " (format::plural(*partitions, "partition"))
        }
        @if hubs.len() > 4 { " and " (hubs.len() - 4) " more" }
    }
}

fn targets(job: &JobPage) -> Markup {
    html! {
        @if job.outputs.is_empty() { "no output yet" }
        @for (at, output) in job.outputs.iter().take(4).enumerate() {
            @if at > 0 { ", " }
            (output.name)
        }
        @if job.outputs.len() > 4 { " and " (job.outputs.len() - 4) " more" }
    }
}

fn problems(job: &JobPage) -> Markup {
    let failed = job
        .reason
        .iter()
        .map(|reason| (Tone::Bad, "The job failed", reason));
    let alarms = job.alarms.iter().map(|alarm| (Tone::Warn, "Alarm", alarm));
    html! {
        ul class="problems" {
            @for (tone, what, why) in failed.chain(alarms) {
                li class=(tone.class()) { span class="dot" aria-hidden="true" {} div { b { (what) } p { (why) } } div {} }
            }
        }
    }
}

fn picture(job: &JobPage) -> Markup {
    let late = job.late_bound_ms.map(|late| late.to_string());
    html! {
        header {
            h2 { "How time moves" }
            span class="sub" id="skipped" {}
            span class="grow" {}
            div class="tabs" role="group" aria-label="Span" {
                button type="button" data-span="60000" aria-pressed="true" { "1 min" }
                button type="button" data-span="300000" aria-pressed="false" { "5 min" }
            }
            button type="button" id="pause" data-pause { "Pause" }
        }
        div class="body" {
            div class="picture" id="picture" data-job=(job.name) data-late=[late] data-inputs=(job.inputs_json()) {}
            div class="legend" {
                span { "● on time" }
                span { "○→● adjusted" }
                span class="bad-text" { "✕ dropped" }
                @for (at, (name, partition)) in series(job).into_iter().enumerate() {
                    span class={ "p" (at) } { "━ watermark of " (name) " / " (partition) }
                }
                span { "wheel: zoom, drag: move, double click: back" }
            }
        }
    }
}

/// The first partitions, in the order of their colours.
fn series(job: &JobPage) -> Vec<(&str, u32)> {
    let rows = job.partitions.iter().filter(|row| row.series < 4);
    let mut series: Vec<(usize, &str, u32)> = rows
        .map(|row| (row.series, &*row.input, row.partition))
        .collect();
    series.sort_by_key(|(series, ..)| *series);
    series.dedup_by_key(|(series, ..)| *series);
    series
        .into_iter()
        .map(|(_, name, partition)| (name, partition))
        .collect()
}

fn fate() -> Markup {
    html! {
        header {
            h2 { "Fate of one event" }
            span class="grow" {}
            button type="button" class="link" id="fate-copy" data-copy="" hidden { "copy as command" }
        }
        div class="body" id="fate-body" aria-live="polite" tabindex="0" {
            p class="sub" { "Point at or click an event of the picture to see its fate and the reason." }
        }
    }
}

fn plan_panel(job: &JobPage) -> Markup {
    let Verdicts {
        on_time,
        adjusted,
        dropped,
    } = job.verdicts;
    html! {
        (parts::heading("Plan", "rows, state and watermark of each step; amber and red: late, or more waits than it takes", none()))
        @if job.plan.is_empty() { div class="empty" { "The plan is known when the job has started." } }
        @else { div class="body scroll" tabindex="0" { (plan::diagram(&job.plan)) } }
        div class="note legend" {
            span { "on time " (format::count(on_time)) }
            span class="late" { "adjusted " (format::count(adjusted)) }
            span class="dropped" { "dropped " (format::count(dropped)) }
            @if let Some(checkpoint) = &job.checkpoint {
                span {
                    "checkpoint " (format::count(checkpoint.number))
                    @if let Some(time) = checkpoint.time_ms { " at " (parts::time(time, Precision::Second)) }
                    ", " (format::bytes(checkpoint.bytes)) ", held the job up for " (format::seconds(checkpoint.pause_seconds))
                }
                @if let Some(trouble) = &checkpoint.trouble { span class="bad-text" { (trouble) } }
            }
        }
    }
}

fn partitions(job: &JobPage) -> Markup {
    html! {
        (parts::heading("Partitions", "", none()))
        @if job.partitions.is_empty() { div class="empty" { "No partition is read at the moment." } }
        @else {
            div class="scroll short" tabindex="0" { (parts::table(&["input", "#events", "#backlog", "watermark"], html! {
                @for row in &job.partitions {
                    tr {
                        td class="nowrap" title=(row.hub) { (row.input) " / " (row.partition) br; span class="faint" { "offset " (format::count(row.offset)) } }
                        td class="num" { @match row.per_second { Some(rate) => (format::rate(rate)), None => "–" } }
                        td class="num nowrap" { (format::plural(row.backlog, "event")) }
                        td class="nowrap" { (watermark(row)) }
                    }
                }
            })) }
            @if job.partitions_more > 0 { div class="note" { "and " (format::count(job.partitions_more)) " more" } }
        }
    }
}

fn watermark(row: &PartitionRow) -> Markup {
    html! {
        @match row.watermark_ms { Some(time) => (parts::time(time, Precision::Second)), None => "–" }
        @if let Some(delay) = row.delay_seconds {
            br; (parts::bar(row.delay_share, row.series)) " " span class="faint" { (format::seconds(delay)) }
        }
    }
}

fn query(job: &JobPage) -> Markup {
    html! {
        (parts::heading("Query", "", html! {
            button type="button" class="link" data-copy=(job.query) { "copy" }
            a href={ "/console/playground?job=" (segment(&job.name)) } { "open in playground" }
        }))
        div class="body" { pre tabindex="0" { (highlight(&job.query)) } }
    }
}

fn outputs(job: &JobPage) -> Markup {
    html! {
        (parts::heading("Outputs", "", none()))
        @if job.outputs.is_empty() { div class="empty" { "The outputs are known when the job has started." } }
        @else { div class="scroll short" tabindex="0" { (parts::table(&["output", "#rows", "state"], html! {
            @for output in &job.outputs {
                tr class=[output.trouble.as_ref().map(|_| "with")] {
                    td { (parts::name(&output.name)) }
                    td class="num" { (format::count(output.rows)) }
                    td { (output_state(output)) }
                }
                @if let Some(trouble) = &output.trouble { tr { td class="trouble" colspan="3" { (trouble) } } }
            }
        })) } }
    }
}

fn output_state(output: &OutputRow) -> Markup {
    html! {
        @match &output.trouble {
            Some(_) => (parts::pill(Tone::Bad, "does not answer")),
            None => (parts::pill(Tone::Good, "takes rows")),
        }
        @if output.waiting > 0 { br; span class="sub" { (format::plural(output.waiting, "row")) " waiting" } }
        br; span class="sub" { (format::count(output.retries)) @if output.retries == 1 { " retry" } @else { " retries" } }
        @if output.dropped > 0 { br; span class="dropped" { (format::plural(output.dropped, "row")) " dropped" } }
    }
}

fn data_errors(job: &JobPage) -> Markup {
    let count = match job.errors_total {
        0 => none(),
        total => parts::pill(
            Tone::Warn,
            &format!("{} lost", format::plural(total, "event")),
        ),
    };
    html! {
        (parts::heading("Data errors", "", count))
        @if job.data_errors.is_empty() {
            div class="empty" { "Every event could be read. One that cannot would be counted here, with the reason." }
        } @else { div class="scroll short" tabindex="0" { table { tbody { @for error in &job.data_errors {
            tr {
                td class="nowrap sub" { @if let Some(time) = error.time_ms { (parts::time(time, Precision::Second)) } }
                td class="nowrap" { (error.place) }
                td { (error.text) @if !error.event.is_empty() { br; code { (error.event) } } }
            }
        } } } } }
    }
}

fn log(job: &JobPage) -> Markup {
    html! {
        (parts::heading("Log", "latest first", none()))
        @if job.log.is_empty() { div class="empty" { "The log is empty." } }
        @else { div class="scroll short" tabindex="0" { table class="log" { tbody { @for line in &job.log {
            tr { td class="nowrap sub" { (parts::time(line.time_ms, Precision::Second)) } td { (line.text) } }
        } } } } }
    }
}

fn dialogs(job: &JobPage) -> Markup {
    if !job.may_deploy {
        return none();
    }
    let names: Vec<String> = job
        .inputs
        .iter()
        .map(|input| json_text(&input.name))
        .collect();
    html! {
        dialog id="start" aria-labelledby="start-title" {
            form data-call={ "POST /api/jobs/" (segment(&job.name)) "/start" } data-done={ (job.name) " starts." } {
                h2 id="start-title" { "Start " (job.name) }
                (start_point())
                (parts::dialog_buttons("Cancel", "primary", "Start"))
            }
        }
        @if !job.in_settings {
            dialog id="new-version" class="broad" aria-labelledby="version-title" data-job=(job.name) data-inputs={ "[" (names.join(",")) "]" } {
                div class="body" {
                    h2 id="version-title" { "New version of " (job.name) }
                    div class="tabs" id="files" role="group" aria-label="File" {}
                    textarea class="lines" aria-label="Content of the file" spellcheck="false" {}
                    h2 { "Difference" }
                    pre class="plain" id="difference" tabindex="0" { "Nothing differs." }
                    p class="field-error" role="alert" {}
                    (start_point())
                    div class="buttons" {
                        button type="button" data-close { "Cancel" }
                        button type="button" id="plans" { "Compare plans" }
                        button type="button" class="primary" id="deploy" { "Deploy and start" }
                    }
                }
            }
        }
    }
}

/// Where the job begins to read.
fn start_point() -> Markup {
    html! {
        label class="field" {
            span { "Begin" }
            input name="start" list="start-points" placeholder="where it stopped: its last checkpoint" autocomplete="off";
            datalist id="start-points" {
                option value="now" { "only events that arrive from now on" }
                option value="beginning" { "all events of its hubs" }
            }
            span { "Empty, " code { "now" } ", " code { "beginning" } ", or a time such as " code { "2026-01-31T10:00:00Z" } "." }
        }
    }
}
