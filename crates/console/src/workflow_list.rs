//! Workflows and their instances: filter, page by page, and decide about all that match.

use std::iter::once;

use maud::{Markup, html};

use crate::bulk::{self, Bulk, BulkCall};
use crate::format::{self, Precision};
use crate::json::json_object;
use crate::layout::{Screen, Span, View};
use crate::parts::{self, Tone, none};

#[derive(Clone, Debug, Default)]
pub struct WorkflowList {
    /// The workflows that the reader may see.
    pub workflows: Vec<WorkflowRow>,
    /// The states that an instance can have.
    pub states: &'static [&'static str],
    pub filter: InstanceQuery,
    /// What is wrong with the filter.
    pub error: Option<String>,
    pub instances: Vec<InstanceRow>,
    /// The address of the next page, or of the next pages of each workflow.
    pub next: Vec<NextPage>,
    /// Whether the list is rendered again while the page is open.
    pub live: bool,
}

#[derive(Clone, Debug, Default)]
pub struct WorkflowRow {
    pub name: String,
    pub version: String,
    /// Instances in progress, the parked ones among them.
    pub running: u64,
    pub parked: u64,
    /// Ended instances that are still kept.
    pub ended: u64,
    /// The steps that can be skipped.
    pub steps: Vec<String>,
    pub may_manage: bool,
}

/// The filter as the reader wrote it; an empty text selects all.
#[derive(Clone, Debug, Default)]
pub struct InstanceQuery {
    pub workflow: String,
    pub state: String,
    pub version: String,
    pub id: String,
    pub from: String,
    pub until: String,
}

/// One instance in a list.
#[derive(Clone, Debug, Default)]
pub struct InstanceRow {
    pub workflow: String,
    pub id: String,
    pub version: String,
    pub state: String,
    pub started_ms: i64,
    pub changed_ms: i64,
    /// The step in progress, or the failed one.
    pub step: Option<String>,
    pub reason: Option<String>,
}

/// Where a list continues.
#[derive(Clone, Debug, Default)]
pub struct NextPage {
    pub workflow: String,
    pub address: String,
}

/// The colour of an instance's state.
pub(crate) fn state_pill(state: &str) -> Markup {
    let tone = match state {
        "parked" => Tone::Bad,
        "failing" | "undoing" => Tone::Warn,
        "running" | "completed" => Tone::Good,
        _ => Tone::Quiet,
    };
    parts::pill(tone, state)
}

/// The address of an instance's page.
pub(crate) fn instance_path(workflow: &str, id: &str) -> String {
    let (workflow, id) = (format::segment(workflow), format::segment(id));
    format!("/console/workflows/{workflow}/{id}")
}

/// How long something took.
pub(crate) fn lasted(from_ms: i64, to_ms: i64) -> String {
    match (to_ms - from_ms).max(0) {
        0 => "< 1 ms".to_owned(),
        ms => format::seconds(ms as f64 / 1000.0),
    }
}

impl InstanceQuery {
    /// The address of the list with this filter.
    pub fn address(&self, after: &str) -> String {
        let fields = [
            ("workflow", &*self.workflow),
            ("state", &*self.state),
            ("version", &*self.version),
            ("id", &*self.id),
            ("from", &*self.from),
            ("until", &*self.until),
            ("after", after),
        ];
        let fields = fields.iter().filter(|(_, value)| !value.is_empty());
        let fields: Vec<String> = fields
            .map(|(name, value)| format!("{name}={}", format::segment(value)))
            .collect();
        match fields.is_empty() {
            true => "/console/workflows".to_owned(),
            false => format!("/console/workflows?{}", fields.join("&")),
        }
    }

    fn is_narrow(&self) -> bool {
        let InstanceQuery {
            version,
            id,
            from,
            until,
            ..
        } = self;
        [version, id, from, until]
            .iter()
            .any(|text| !text.is_empty())
    }
}

impl From<&WorkflowList> for View {
    fn from(list: &WorkflowList) -> View {
        let parked: u64 = list.workflows.iter().map(|row| row.parked).sum();
        let heading = html! {
            h1 { "Workflows" }
            @if parked > 0 { (parts::pill(Tone::Bad, &format!("{} parked", format::count(parked)))) }
            span class="sub" { "transactions across services, undone step by step when one fails" }
        };
        let mut view = View::new(Screen::Workflows, "Workflows", heading);
        if list.workflows.is_empty() {
            let content = parts::empty(
                "No workflow is set up. A workflow calls services in order and undoes what was done when a step fails.",
                "[workflows.order]\nfile = \"order.toml\"",
            );
            view.live("workflows", Span::Full, content);
            return view;
        }
        let rows = instances(list);
        view.live("workflows", Span::Full, workflows(list));
        view.fixed("filter", Span::Full, filter(list));
        match list.live {
            true => view.live("instances", Span::Full, rows),
            false => view.fixed("instances", Span::Full, rows),
        }
        view.dialogs = bulk::dialog();
        view.scripts = bulk::SCRIPT;
        view
    }
}

fn workflows(list: &WorkflowList) -> Markup {
    let link = |row: &WorkflowRow, state: &str| {
        let query = InstanceQuery {
            workflow: row.name.clone(),
            state: state.to_owned(),
            ..InstanceQuery::default()
        };
        query.address("")
    };
    html! {
        (parts::heading("Workflows", "", none()))
        div class="scroll" { (parts::table(&["workflow", "version of new instances", "#in progress", "#parked",
            "#ended, kept"], html! {
            @for row in &list.workflows {
                tr {
                    td { a href=(link(row, "")) { (parts::name(&row.name)) } }
                    td { code { (row.version) } }
                    td class="num" { (format::count(row.running)) }
                    td class="num" { @if row.parked > 0 { a class="bad-text" href=(link(row, "parked")) { (format::count(row.parked)) } } @else { "0" } }
                    td class="num" { (format::count(row.ended)) }
                }
            }
        })) }
    }
}

fn filter(list: &WorkflowList) -> Markup {
    let query = &list.filter;
    let tab = |state: &str| {
        InstanceQuery {
            state: state.to_owned(),
            ..query.clone()
        }
        .address("")
    };
    html! {
        (parts::heading("Find", "", actions(list)))
        div class="scroll" { div class="tabs states" role="group" aria-label="State" {
            @for (state, label) in once(("", "all states")).chain(list.states.iter().map(|state| (*state, *state))) {
                a href=(tab(state)) aria-current=[(query.state == state).then_some("true")] { (label) }
            }
        } }
        form class="tools filter" method="get" action="/console/workflows" {
            input type="hidden" name="state" value=(query.state);
            label { "workflow" select name="workflow" {
                option value="" selected[query.workflow.is_empty()] { "all" }
                @for row in &list.workflows { option value=(row.name) selected[row.name == query.workflow] { (row.name) } }
            } }
            label { "id" input name="id" value=(query.id) placeholder="begins with" size="16"; }
            label { "version" input name="version" value=(query.version) placeholder="begins with" size="10"; }
            label { "started from, UTC" input type="datetime-local" step="1" name="from" value=(query.from); }
            label { "until, UTC" input type="datetime-local" step="1" name="until" value=(query.until); }
            button { "Filter" }
            @if query.is_narrow() { a href=(InstanceQuery { workflow: query.workflow.clone(), state: query.state.clone(), ..InstanceQuery::default() }.address("")) { "clear" } }
            @if let Some(error) = &list.error { p class="field-error" role="alert" { (error) } }
        }
    }
}

/// Decisions about all that match.
fn actions(list: &WorkflowList) -> Markup {
    let query = &list.filter;
    let chosen = |row: &&WorkflowRow| {
        row.may_manage && (query.workflow.is_empty() || query.workflow == row.name)
    };
    let rows: Vec<&WorkflowRow> = list.workflows.iter().filter(chosen).collect();
    let state = match &*query.state {
        state @ ("running" | "undoing" | "parked") => state,
        "" => "parked",
        _ => return none(),
    };
    if rows.is_empty() {
        return none();
    }
    let body = json_object([
        ("state", state),
        ("version", &*query.version),
        ("id", &*query.id),
        ("from", &*query.from),
        ("until", &*query.until),
    ]);
    let make = |label, verb, path: &str, danger| Bulk {
        label,
        verb,
        noun: "instance",
        calls: rows
            .iter()
            .map(|row| BulkCall {
                name: row.name.clone(),
                path: format!("/api/workflows/{}/{path}", format::segment(&row.name)),
                body: body.clone(),
            })
            .collect(),
        note: true,
        danger,
        ..Bulk::default()
    };
    let mut steps: Vec<String> = rows.iter().flat_map(|row| row.steps.clone()).collect();
    steps.sort();
    steps.dedup();
    let skip = Bulk {
        steps,
        ..make("Skip a step of all parked…", "Skip", "skip", true)
    };
    html! {
        @match state {
            "running" => (bulk::button(&make("Cancel all that match…", "Cancel", "cancel", true))),
            "undoing" => (bulk::button(&make("Resolve all that match…", "Resolve", "resolve", true))),
            _ => {
                (bulk::button(&make("Retry all parked…", "Retry", "retry", false)))
                (bulk::button(&skip))
                (bulk::button(&make("Resolve all parked…", "Resolve", "resolve", true)))
            },
        }
    }
}

fn instances(list: &WorkflowList) -> Markup {
    let sub = match list.live {
        true => "in progress first, then ended ones, each the newest first",
        false => {
            "in progress first, then ended ones, each the newest first; reload for the current list"
        }
    };
    let several = list.workflows.len() > 1 && list.filter.workflow.is_empty();
    html! {
        (parts::heading("Instances", sub, none()))
        @if list.instances.is_empty() { (no_instances(list)) } @else { (instance_rows(&list.instances, several)) }
        @match list.next.as_slice() {
            [] => {},
            [one] if !several => (parts::next_page(Some(&one.address))),
            many => div class="pages" {
                span class="grow" {} "Next of "
                @for next in many { a class="button small" href=(next.address) { (next.workflow) } }
            },
        }
    }
}

fn no_instances(list: &WorkflowList) -> Markup {
    let query = &list.filter;
    if list.error.is_some() {
        return none();
    }
    if !list.next.is_empty() {
        return html! { div class="empty" { "None among the newest. Older ones are on the next page." } };
    }
    if query.is_narrow() || !query.state.is_empty() {
        let what = if query.state == "parked" && !query.is_narrow() {
            "No instance is parked: nothing waits for a person."
        } else {
            "No instance matches the filter."
        };
        return html! { div class="empty" { (what) } };
    }
    let name = list.workflows.first().map_or("order", |row| &row.name);
    parts::empty(
        "No instance was started yet.",
        &format!("highwater workflow start {name} first-1 '{{}}'"),
    )
}

fn instance_rows(instances: &[InstanceRow], several: bool) -> Markup {
    html! {
        div class="scroll" { table {
            thead { tr { th { "instance" } @if several { th { "workflow" } } th { "state" } th { "step" } th { "started" } th class="num" { "took" } th { "reason" } } }
            tbody {
                @for row in instances {
                    tr {
                        td class="nowrap" { a href=(instance_path(&row.workflow, &row.id)) { (parts::name(&row.id)) } }
                        @if several { td { (parts::name(&row.workflow)) } }
                        td { (state_pill(&row.state)) }
                        td { @match &row.step { Some(step) => (parts::name(step)), None => span class="faint" { "–" } } }
                        td class="nowrap" { (parts::time(row.started_ms, Precision::Full)) }
                        td class="num" { (lasted(row.started_ms, row.changed_ms)) }
                        td class="reason" { @match &row.reason { Some(reason) => (reason), None => span class="faint" { "–" } } }
                    }
                }
            }
        } }
    }
}
