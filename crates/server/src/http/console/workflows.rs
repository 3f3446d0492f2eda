//! Workflows with their instances, and the page of one instance.

use highwater_access::{Resource, Right};
use highwater_console::View;
use highwater_console::payload::Payload;
use highwater_console::workflow::{InstancePage, StepAttempt, StepRow};
use highwater_console::workflow_list::{
    InstanceQuery, InstanceRow, NextPage, WorkflowList, WorkflowRow,
};
use highwater_workflow::{Handle, InstanceSummary, ListFilter, STATES, STATES_IN_PROGRESS};

use super::Context;
use super::payload::{PAGE_BYTES, payload};
use crate::http::app::Backend;
use crate::http::error::Error;
use crate::http::workflows::{ListRequest, no_instance, workflow};
use crate::text::percent_decode;

/// Instances of a page.
const ROWS_MAX: usize = 50;

/// Above these, a list is not made again every second: it looks at each instance in progress, and with a filter at many
/// ended ones.
const LIVE_RUNNING_MAX: usize = 10_000;
const LIVE_ENDED_MAX: usize = 1000;

pub(in crate::http) async fn list(context: &Context<'_>) -> Result<View, Error> {
    let workflows = visible(context, context.app.backend()?);
    let query = query(context);
    let chosen = |flow: &&Handle| query.workflow.is_empty() || query.workflow == flow.name();
    let chosen: Vec<&Handle> = workflows.iter().filter(chosen).collect();
    let mut list = WorkflowList {
        workflows: workflows.iter().map(|flow| row(context, flow)).collect(),
        states: STATES,
        live: is_cheap(&query, &chosen),
        filter: query,
        ..WorkflowList::default()
    };
    if context.live && !list.live {
        return Ok(View::from(&list));
    }
    match filter(context, &list.filter) {
        Ok(filter) => fill(&mut list, &chosen, &filter).await?,
        Err(error) => list.error = Some(format!("{}: {}", error.message, error.hint)),
    }
    Ok(View::from(&list))
}

/// The workflows that the caller may see.
pub(super) fn visible(context: &Context<'_>, backend: &Backend) -> Vec<Handle> {
    let mut workflows = backend.workflows.list();
    workflows.retain(|flow| context.may_see(Resource::Workflow(flow.name())));
    workflows
}

fn query(context: &Context<'_>) -> InstanceQuery {
    let field = |name| context.field(name).unwrap_or_default();
    InstanceQuery {
        workflow: field("workflow"),
        state: field("state"),
        version: field("version"),
        id: field("id"),
        from: field("from"),
        until: field("until"),
    }
}

fn filter(context: &Context<'_>, query: &InstanceQuery) -> Result<ListFilter, Error> {
    let some = |text: &String| (!text.is_empty()).then(|| text.clone());
    ListRequest {
        state: some(&query.state),
        version: some(&query.version),
        id: some(&query.id),
        from: some(&query.from),
        until: some(&query.until),
        after: context.field("after"),
    }
    .filter(ROWS_MAX)
}

fn is_cheap(query: &InstanceQuery, chosen: &[&Handle]) -> bool {
    let running: usize = chosen.iter().map(|flow| flow.running()).sum();
    let ended: usize = chosen.iter().map(|flow| flow.ended()).sum();
    let plain = InstanceQuery {
        workflow: query.workflow.clone(),
        ..InstanceQuery::default()
    };
    let in_progress = STATES_IN_PROGRESS.contains(&&*query.state);
    let reads_few = query.address("") == plain.address("") || in_progress;
    running <= LIVE_RUNNING_MAX && (reads_few || ended <= LIVE_ENDED_MAX)
}

fn may_manage(context: &Context<'_>, workflow: &str) -> bool {
    let resource = Resource::Workflow(workflow);
    context.caller.may(Right::Manage, resource)
}

fn row(context: &Context<'_>, workflow: &Handle) -> WorkflowRow {
    let definition = workflow.definition();
    let steps = definition.iter().flat_map(|definition| &definition.steps);
    let undoable = steps.filter(|step| step.undo.is_some());
    WorkflowRow {
        name: workflow.name().to_owned(),
        version: workflow.version().to_string(),
        running: workflow.running() as u64,
        parked: context.app.console.figures.parked(workflow.name()),
        ended: workflow.ended() as u64,
        steps: undoable.map(|step| step.name.clone()).collect(),
        may_manage: may_manage(context, workflow.name()),
    }
}

/// A page of instances: of one workflow, or the first ones of each.
async fn fill(
    list: &mut WorkflowList,
    chosen: &[&Handle],
    filter: &ListFilter,
) -> Result<(), Error> {
    for workflow in chosen {
        let page = workflow.list(filter).await?;
        let name = workflow.name();
        let rows = page.instances.into_iter();
        list.instances
            .extend(rows.map(|summary| instance_row(name, summary)));
        let query = InstanceQuery {
            workflow: name.to_owned(),
            ..list.filter.clone()
        };
        list.next.extend(page.next.map(|next| NextPage {
            workflow: name.to_owned(),
            address: query.address(&next.to_string()),
        }));
    }
    Ok(())
}

fn instance_row(workflow: &str, summary: InstanceSummary) -> InstanceRow {
    InstanceRow {
        workflow: workflow.to_owned(),
        id: summary.id,
        version: summary.version,
        state: summary.state,
        started_ms: summary.started_ms,
        changed_ms: summary.changed_ms,
        step: summary.step,
        reason: summary.reason,
    }
}

pub(in crate::http) async fn view(context: &Context<'_>) -> Result<View, Error> {
    let [name, id] = context.variables.all();
    let (name, id) = (percent_decode(name), percent_decode(id));
    let workflow = workflow(context.app, &name)?;
    let shown = workflow.show(&id).await?;
    let shown = shown.ok_or_else(|| no_instance(&name, &id))?;
    Ok(View::from(&page(context, shown)))
}

fn page(context: &Context<'_>, view: highwater_workflow::View) -> InstancePage {
    let attempts = |step: &str, undo: bool| {
        let own = view.attempts.iter();
        let own = own.filter(|attempt| attempt.step == step && attempt.undo == undo);
        own.map(|attempt| StepAttempt {
            number: attempt.number,
            begun_ms: attempt.begun_ms,
            ended_ms: attempt.ended_ms,
            reason: attempt.reason.clone(),
        })
        .collect::<Vec<_>>()
    };
    let mut steps = Vec::new();
    let done = view.steps.iter().map(|step| (step, None));
    // Compensations run from the last step to the first.
    let undone = view.steps.iter().rev();
    let undone = undone.filter_map(|step| Some((step, Some(step.undo.as_ref()?))));
    for (step, undo) in done.chain(undone) {
        let times = undo.map_or(&step.times, |undo| &undo.times);
        let request = times.request.as_ref();
        steps.push(StepRow {
            name: step.name.clone(),
            undo: undo.is_some(),
            state: undo.map_or(&step.state, |undo| &undo.state).clone(),
            group: step.group.clone(),
            in_doubt: step.in_doubt && undo.is_none(),
            tries: times.tries,
            begun_ms: times.begun_ms,
            ended_ms: times.ended_ms,
            due_ms: times.due_ms.filter(|_| times.tries > 0),
            request: request.map(|request| request.line.clone()),
            request_body: request.and_then(|request| Some(readable(request.body.as_ref()?))),
            status: times.status,
            answer: times.body.as_ref().map(|body| readable(body)),
            attempts: attempts(&step.name, undo.is_some()),
        });
    }
    InstancePage {
        may_manage: may_manage(context, &view.workflow),
        input: readable(view.input.get()),
        steps,
        notes: view
            .notes
            .into_iter()
            .filter(|note| !note.is_empty())
            .collect(),
        workflow: view.workflow,
        id: view.id,
        version: view.version,
        state: view.state,
        reason: view.reason,
        blame: view.blame,
        started_ms: view.started_ms,
        changed_ms: view.changed_ms,
    }
}

/// A text of the journal, for a page.
fn readable(text: &str) -> Payload {
    payload(text.as_bytes(), text.len(), None, PAGE_BYTES)
}
