//! Owner, progress and blocking reason of each resource.
//!
//! Every node knows the owners, but only the owner knows the progress of a queue or workflow. So the node that gets the
//! request queries the others as the same caller, and merges the rows.

mod rows;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::app::App;
use super::dispatch::ApiRequest;
use super::error::Error;
use super::forward::{self, Gathered};
use super::json_answer::JsonAnswer;
use super::reply::Reply;

/// Something that runs on a node, or should.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub(super) struct ClusterRow {
    /// `queue`, `workflow`, `processor` or `job`.
    pub kind: String,
    pub name: String,
    /// `None` while it is handed over.
    pub node: Option<String>,
    /// `running`, `opening`, `moving`, `waiting`, `unknown`, or a state of jobs.
    pub state: String,
    /// Messages, instances or events that wait; `None` if that is not known cheaply.
    pub backlog: Option<u64>,
    /// The partitions of a hub that this node has.
    pub partitions: Option<u64>,
    pub why: Option<String>,
}

/// A node and its resources.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub(super) struct NodeRow {
    pub name: String,
    pub url: String,
    pub version: String,
    /// Whether it is the one that answers.
    pub this: bool,
    pub slots: usize,
    /// Why its rows are missing.
    pub why: Option<String>,
}

/// The whole answer.
pub(super) struct ClusterView {
    /// `kafka` or `own`.
    pub log: &'static str,
    pub nodes: Vec<NodeRow>,
    pub rows: Vec<ClusterRow>,
}

impl ClusterView {
    fn sort(&mut self) {
        self.rows
            .sort_by(|a, b| (&a.kind, &a.name, &a.node).cmp(&(&b.kind, &b.name, &b.node)));
    }
}

pub(super) async fn describe(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let own_only = rows::of_this_node(request.app).await?;
    let elsewhere = forward::gather(&request, "/api/cluster").await;
    let view = assemble(&request, own_only, &elsewhere)?;
    let mut answer = JsonAnswer::new(&request.app.budget)?;
    answer.fields(&json!({"log": view.log, "node": request.app.node_name()}))?;
    answer.rows("nodes", &view.nodes)?;
    answer.rows("rows", &view.rows)?;
    answer.finish()
}

/// The rows of this node alone.
pub(super) async fn local_view(app: &App) -> Result<ClusterView, Error> {
    let own = rows::of_this_node(app).await?;
    let mut view = rows::view(app, own)?;
    rows::add_elsewhere(app, &mut view, None, "elsewhere", None)?;
    view.sort();
    Ok(view)
}

fn assemble(
    request: &ApiRequest<'_>,
    own: Vec<ClusterRow>,
    elsewhere: &[Gathered],
) -> Result<ClusterView, Error> {
    let mut view = rows::view(request.app, own)?;
    for (node, answer) in elsewhere {
        match answer {
            Ok(answer) => view.rows.extend(rows_of(answer, &node.name)),
            Err(error) => {
                let why = error.message.as_str();
                rows::add_elsewhere(request.app, &mut view, Some(node), "unknown", Some(why))?;
            }
        }
    }
    view.sort();
    Ok(view)
}

/// The rows that another node has itself; unknown fields are left out.
fn rows_of(answer: &Value, node: &str) -> Vec<ClusterRow> {
    let rows = answer["rows"].as_array().into_iter().flatten();
    let rows = rows.filter_map(|row| ClusterRow::deserialize(row).ok());
    rows.filter(|row| row.node.as_deref() == Some(node))
        .collect()
}
