//! One decision about all instances that match a filter. A dry run lists them.

use futures_util::{StreamExt, stream};
use highwater_workflow::{Handle, InstanceSummary, JournalError, ListFilter, OperatorCommand};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ListRequest, NOTE_CHARS_MAX, workflow};
use crate::http::dispatch::ApiRequest;
use crate::http::error::Error;
use crate::http::reply::{self, Reply};

/// Instances of one request.
const COUNT_DEFAULT: usize = 100;
const COUNT_MAX: usize = 1000;

/// Decisions that share a sync of the journal.
const CONCURRENCY: usize = 64;

/// Which instances a decision is about. Without `ids`, those that the filter selects.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BulkDecision {
    #[serde(default)]
    note: String,
    /// The step to skip.
    #[serde(default)]
    step: String,
    #[serde(default)]
    ids: Vec<String>,
    state: Option<String>,
    version: Option<String>,
    id: Option<String>,
    from: Option<String>,
    until: Option<String>,
    after: Option<String>,
    max: Option<usize>,
    #[serde(default)]
    dry_run: bool,
}

/// The instances of a request, and the cursor of the next one.
struct SelectedInstances {
    instances: Vec<InstanceSummary>,
    next: Option<String>,
}

/// Carries out the decision that `decision` makes of the note and the step in the body, for each selected instance.
pub(in crate::http) async fn decide_all(
    mut request: ApiRequest<'_>,
    decision: fn(String, String) -> OperatorCommand,
) -> Result<Reply, Error> {
    let [name] = request.variables();
    let workflow = &workflow(request.app, name)?;
    let example = "{\"state\":\"parked\",\"note\":\"why\",\"dry_run\":true}";
    let asked: BulkDecision = request.read_json(example).await?;
    let note = asked.note.chars().take(NOTE_CHARS_MAX).collect();
    let made = decision(note, asked.step.clone());
    let SelectedInstances { instances, next } = asked.select(workflow, &made).await?;
    let more = next.is_some();
    if asked.dry_run {
        let body = json!({"would_decide": instances, "more": more, "next": next});
        return Ok(reply::ok(&body));
    }
    let decided = stream::iter(instances).map(|InstanceSummary { id, .. }| {
        let made = made.clone();
        async move {
            let outcome = workflow.decide(&id, made).await;
            (id, outcome.map(drop))
        }
    });
    let outcomes: Vec<_> = decided.buffer_unordered(CONCURRENCY).collect().await;
    let refused: Vec<Value> = outcomes
        .iter()
        .filter_map(|(id, outcome)| {
            let error = outcome.as_ref().err()?;
            Some(json!({"id": id, "reason": error.to_string()}))
        })
        .collect();
    let count = outcomes.len() - refused.len();
    let body = json!({"decided": count, "refused": refused, "more": more, "next": next});
    Ok(reply::ok(&body))
}

/// The states in which a decision can be made.
fn allowed_states(decision: &OperatorCommand) -> &'static [&'static str] {
    match decision {
        OperatorCommand::Cancel { .. } => &["running"],
        OperatorCommand::Resolve { .. } => &["parked", "undoing"],
        OperatorCommand::Retry { .. } | OperatorCommand::Skip { .. } => &["parked"],
    }
}

impl BulkDecision {
    async fn select(
        &self,
        workflow: &Handle,
        decision: &OperatorCommand,
    ) -> Result<SelectedInstances, Error> {
        let count = self.max.unwrap_or(COUNT_DEFAULT).clamp(1, COUNT_MAX);
        let mut selected = match self.ids.is_empty() {
            true => {
                let page = workflow.list(&self.filter(decision, count)?).await?;
                SelectedInstances {
                    instances: page.instances,
                    next: page.next.map(|next| next.to_string()),
                }
            }
            false => SelectedInstances {
                instances: find_instances(workflow, &self.ids[..self.ids.len().min(COUNT_MAX)])
                    .await?,
                next: None,
            },
        };
        if let OperatorCommand::Skip { step, .. } = decision {
            selected.instances = parked_at(workflow, step, selected.instances).await?;
        }
        Ok(selected)
    }

    fn filter(&self, decision: &OperatorCommand, count: usize) -> Result<ListFilter, Error> {
        let text = |value: &Option<String>| value.clone().filter(|text| !text.is_empty());
        let mut filter = ListRequest {
            state: text(&self.state),
            version: text(&self.version),
            id: text(&self.id),
            from: text(&self.from),
            until: text(&self.until),
            after: text(&self.after),
        }
        .filter(count)?;
        let allowed = allowed_states(decision);
        if filter.states.is_empty() {
            // Undoing instances are resolved only if they are asked for.
            filter.states = vec![allowed[0].to_owned()];
        }
        filter.states.retain(|state| allowed.contains(&&**state));
        match filter.states.is_empty() {
            true => Err(Error::bad(
                "this decision cannot be made about instances in these states",
                format!("it can in these: {}", allowed.join(", ")),
            )),
            false => Ok(filter),
        }
    }
}

/// The instances of these ids. One that does not exist is refused by the decision.
async fn find_instances(
    workflow: &Handle,
    ids: &[String],
) -> Result<Vec<InstanceSummary>, JournalError> {
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        found.extend(workflow.show(id).await?.map(InstanceSummary::from));
    }
    Ok(found)
}

/// Those that are parked because this step could not be undone.
async fn parked_at(
    workflow: &Handle,
    step: &str,
    instances: Vec<InstanceSummary>,
) -> Result<Vec<InstanceSummary>, JournalError> {
    let mut parked = Vec::new();
    for instance in instances {
        let view = workflow.show(&instance.id).await?;
        let mut steps = view.iter().flat_map(|view| &view.steps);
        let is_parked = steps.any(|of| {
            let undo = of.undo.as_ref();
            of.name == step && undo.is_some_and(|undo| undo.state == "parked")
        });
        parked.extend(is_parked.then_some(instance));
    }
    Ok(parked)
}
