//! The rows of one node. A new kind of resource needs a function here and a line in [`of_this_node`].

use highwater_flow::{NodeInfo, SlotOwner};
use highwater_job::live::JobStatus;

use super::{ClusterRow, ClusterView, NodeRow};
use crate::http::app::{App, Backend};
use crate::http::error::Error;
use crate::http::{jobs, processors};
use crate::owners::{OwnedKind, Owners};

const RUNNING: &str = "running";

/// The resources on this node.
pub(super) async fn of_this_node(app: &App) -> Result<Vec<ClusterRow>, Error> {
    let backend = app.backend()?;
    let node = app.node_name();
    let mut rows = Vec::new();
    rows.extend(queue_rows(backend, &node));
    rows.extend(workflow_rows(backend, &node));
    rows.extend(processor_rows(app, backend, &node).await);
    rows.extend(job_rows(backend, &node));
    Ok(rows)
}

fn row(kind: &str, name: &str, node: &str, state: &str) -> ClusterRow {
    ClusterRow {
        kind: kind.to_owned(),
        name: name.to_owned(),
        node: Some(node.to_owned()),
        state: state.to_owned(),
        backlog: None,
        partitions: None,
        why: None,
    }
}

fn queue_rows(backend: &Backend, node: &str) -> Vec<ClusterRow> {
    let queues = backend.queues.iter().flat_map(|queues| queues.list());
    queues
        .map(|queue| {
            let counts = queue.counters().0;
            let fenced = "another node has claimed its journal";
            ClusterRow {
                backlog: Some(counts.active + counts.locked),
                why: queue.is_fenced().then(|| fenced.to_owned()),
                ..row(OwnedKind::Queue.name(), queue.name(), node, RUNNING)
            }
        })
        .collect()
}

fn workflow_rows(backend: &Backend, node: &str) -> Vec<ClusterRow> {
    let workflows = backend.workflows.list();
    let row = |workflow: &highwater_workflow::Handle| ClusterRow {
        backlog: Some(workflow.running() as u64),
        ..row(OwnedKind::Workflow.name(), workflow.name(), node, RUNNING)
    };
    workflows.iter().map(row).collect()
}

async fn processor_rows(app: &App, backend: &Backend, node: &str) -> Vec<ClusterRow> {
    let mut rows = Vec::new();
    for entry in backend.processors.iter().flat_map(|all| all.entries()) {
        let here = entry.activity.partitions();
        let circuit = processors::circuits::state_name(&entry.circuit.state());
        let trouble = here.values().flatten().next().cloned();
        let why = match (circuit, trouble, here.is_empty()) {
            (circuit, _, _) if circuit != "closed" => Some(format!("its circuit is {circuit}")),
            (_, Some(trouble), _) => Some(trouble),
            (_, None, true) => Some("the group has given it no partition".to_owned()),
            (_, None, false) => None,
        };
        let state = if why.is_some() { "waiting" } else { RUNNING };
        rows.push(ClusterRow {
            backlog: processors::behind_here(app, entry).await,
            partitions: Some(here.len() as u64),
            why,
            ..row("processor", &entry.spec.name, node, state)
        });
    }
    rows
}

/// A job runs on the nodes that it was started on. Of a shared one each has some partitions.
fn job_rows(backend: &Backend, node: &str) -> Vec<ClusterRow> {
    let jobs = backend.jobs.iter().flat_map(|jobs| jobs.list());
    jobs.map(|job| ClusterRow {
        backlog: jobs::running(&job).map(JobStatus::backlog),
        partitions: jobs::running(&job).map(|status| status.partitions_here() as u64),
        why: jobs::reason(&job).map(str::to_owned),
        ..row("job", &job.name, node, jobs::state_name(&job))
    })
    .collect()
}

/// The nodes, the rows of this one, and resources that are open nowhere.
pub(super) fn view(app: &App, own: Vec<ClusterRow>) -> Result<ClusterView, Error> {
    let backend = app.backend()?;
    let mut view = ClusterView {
        log: if backend.hub.is_some() {
            "own"
        } else {
            "kafka"
        },
        nodes: Vec::new(),
        rows: own,
    };
    let Some(owners) = &backend.owners else {
        view.nodes.push(NodeRow {
            name: app.node_name(),
            url: String::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            this: true,
            slots: 0,
            why: None,
        });
        return Ok(view);
    };
    let directory = owners.directory();
    for (at, entry) in directory.nodes.iter().enumerate() {
        view.nodes.push(NodeRow {
            name: entry.node.name.clone(),
            url: entry.node.url.clone(),
            version: entry.node.version.clone(),
            this: at == directory.own,
            slots: entry.slots.len(),
            why: None,
        });
    }
    let node = app.node_name();
    for (kind, name) in known(backend, owners) {
        let is_listed = |row: &ClusterRow| row.kind == kind.name() && row.name == name;
        if view.rows.iter().any(is_listed) {
            continue;
        }
        match owners.locate(kind, &name) {
            SlotOwner::Elsewhere(_) => {}
            SlotOwner::Here => view.rows.push(ClusterRow {
                why: owners.failure(kind, &name),
                ..row(kind.name(), &name, &node, "opening")
            }),
            SlotOwner::Nobody => view.rows.push(ClusterRow {
                node: None,
                why: Some(match directory.nodes.is_empty() {
                    true => "this node is not in the group of nodes: see its log".to_owned(),
                    false => "its former owner closes it first".to_owned(),
                }),
                ..row(kind.name(), &name, &node, "moving")
            }),
        }
    }
    Ok(view)
}

/// Everything that has one owner, as far as this node knows.
fn known(backend: &Backend, owners: &Owners) -> Vec<(OwnedKind, String)> {
    let queues = backend
        .queues
        .iter()
        .flat_map(|queues| queues.stored_names());
    let queues = queues.map(|name| (OwnedKind::Queue, name));
    let workflows = owners.workflows().iter();
    let workflows = workflows.map(|name| (OwnedKind::Workflow, name.clone()));
    queues.chain(workflows).collect()
}

/// Placeholders for the resources of other nodes, or of one, whose rows are missing: in this state, for this reason.
pub(super) fn add_elsewhere(
    app: &App,
    view: &mut ClusterView,
    only: Option<&NodeInfo>,
    state: &str,
    why: Option<&str>,
) -> Result<(), Error> {
    for row in view.nodes.iter_mut() {
        if only.is_some_and(|node| node.name == row.name) {
            row.why = why.map(str::to_owned);
        }
    }
    let backend = app.backend()?;
    let Some(owners) = &backend.owners else {
        return Ok(());
    };
    for (kind, name) in known(backend, owners) {
        if let SlotOwner::Elsewhere(node) = owners.locate(kind, &name)
            && only.is_none_or(|only| *only == node)
        {
            view.rows.push(ClusterRow {
                why: why.map(str::to_owned),
                ..row(kind.name(), &name, &node.name, state)
            });
        }
    }
    Ok(())
}
