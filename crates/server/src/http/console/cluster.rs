//! The nodes over the cluster, as this one knows them: the progress of other nodes is on their own pages.

use highwater_console::View;
use highwater_console::cluster::{Cluster, ClusterItem, ClusterNode};

use super::Context;
use crate::http::cluster;
use crate::http::error::Error;

/// Rows of the page.
const ROWS_MAX: usize = 500;

pub(in crate::http) async fn view(context: &Context<'_>) -> Result<View, Error> {
    let seen = cluster::local_view(context.app).await?;
    let total = seen.rows.len();
    let nodes = seen.nodes.into_iter().map(|node| ClusterNode {
        name: node.name,
        url: node.url,
        version: node.version,
        this: node.this,
        slots: node.slots as u64,
    });
    let rows = seen.rows.into_iter().take(ROWS_MAX);
    let rows = rows.map(|row| ClusterItem {
        kind: row.kind,
        name: row.name,
        node: row.node,
        state: row.state,
        backlog: row.backlog,
        partitions: row.partitions,
        why: row.why,
    });
    Ok(View::from(&Cluster {
        nodes: nodes.collect(),
        rows: rows.collect(),
        more: total.saturating_sub(ROWS_MAX) as u64,
        shared: context.app.backend()?.owners.is_some(),
    }))
}
