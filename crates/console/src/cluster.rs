//! The nodes over a cluster: owner, progress and blocking reason of each resource.

use maud::{Markup, html};

use crate::format;
use crate::layout::{Screen, Span, View};
use crate::parts::{self, Tone, none};

#[derive(Clone, Debug, Default)]
pub struct Cluster {
    pub nodes: Vec<ClusterNode>,
    pub rows: Vec<ClusterItem>,
    /// Rows beyond the shown ones.
    pub more: u64,
    /// Whether the log is a cluster that several nodes share.
    pub shared: bool,
}

/// A node.
#[derive(Clone, Debug, Default)]
pub struct ClusterNode {
    pub name: String,
    /// The address of its console; empty if it is not known.
    pub url: String,
    pub version: String,
    /// Whether it is the one that shows the page.
    pub this: bool,
    pub slots: u64,
}

/// Something that runs on a node.
#[derive(Clone, Debug, Default)]
pub struct ClusterItem {
    pub kind: String,
    pub name: String,
    /// `None` while it is handed over.
    pub node: Option<String>,
    pub state: String,
    pub backlog: Option<u64>,
    pub partitions: Option<u64>,
    pub why: Option<String>,
}

impl From<&Cluster> for View {
    fn from(cluster: &Cluster) -> View {
        let waiting = cluster.rows.iter().filter(|row| row.why.is_some()).count() as u64;
        let heading = html! {
            h1 { "Cluster" }
            @match waiting {
                0 => (parts::pill(Tone::Good, "nothing waits")),
                waiting => (parts::pill(Tone::Warn, &format!("{} waiting", format::count(waiting)))),
            }
            span class="sub" { (format::plural(cluster.nodes.len() as u64, "node")) }
        };
        let mut view = View::new(Screen::Cluster, "Cluster", heading);
        view.live("nodes", Span::Full, nodes(cluster));
        view.live("owned", Span::Full, rows(cluster));
        view
    }
}

fn nodes(cluster: &Cluster) -> Markup {
    html! {
        (parts::heading("Nodes", "", none()))
        @if cluster.shared {
            div class="scroll" tabindex="0" { (parts::table(&["node", "address", "version", "#slots"], html! {
                @for node in &cluster.nodes { tr {
                    td { b { (node.name) } @if node.this { " " span class="sub" { "this node" } } }
                    td { (address(&node.url)) }
                    td { (node.version) }
                    td class="num" { (format::count(node.slots)) }
                } }
            })) }
        } @else {
            div class="body sub" {
                "The log is in the data folder of this node, so it has everything. With " code { "log = \"kafka://..\"" }
                " several nodes share the work."
            }
        }
    }
}

/// Nodes tell their addresses themselves, so one may be anything.
fn address(url: &str) -> Markup {
    let is_link = url.starts_with("http://") || url.starts_with("https://");
    html! {
        @match (is_link, url) {
            (true, url) => a href=(url) { (url) },
            (false, "") => span class="sub" { "not known" },
            (false, url) => (url),
        }
    }
}

fn rows(cluster: &Cluster) -> Markup {
    html! {
        (parts::heading("What runs where", "", none()))
        @if cluster.rows.is_empty() {
            div class="body sub" { "There is no queue, workflow, processor or job." }
        } @else {
            div class="scroll" tabindex="0" { (parts::table(&["kind", "name", "node", "state", "#backlog",
                "#partitions", "why it waits"], html! {
                @for row in &cluster.rows { (item(row)) }
            })) }
            @if cluster.more > 0 {
                div class="body sub" { (format::count(cluster.more)) " more: GET /api/cluster lists all." }
            }
        }
    }
}

fn item(row: &ClusterItem) -> Markup {
    let number = |number: Option<u64>| number.map_or_else(String::new, format::count);
    let tone = match (row.state.as_str(), &row.why) {
        ("failed", _) => Tone::Bad,
        (_, Some(_)) => Tone::Warn,
        ("running", None) => Tone::Good,
        (_, None) => Tone::Quiet,
    };
    html! {
        tr {
            td { (row.kind) }
            td { b { (row.name) } }
            td { (row.node.as_deref().unwrap_or("none")) }
            td { (parts::pill(tone, &row.state)) }
            td class="num" { (number(row.backlog)) }
            td class="num" { (number(row.partitions)) }
            td { (row.why.as_deref().unwrap_or_default()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves X1
    #[test]
    fn a_row_says_which_node_has_it_and_why_it_waits() {
        let row = ClusterItem {
            kind: "queue".into(),
            name: "<b>".into(),
            state: "moving".into(),
            why: Some("its former owner closes it first".into()),
            ..ClusterItem::default()
        };
        let shown = item(&row).into_string();
        assert!(
            shown.contains("&lt;b&gt;") && shown.contains("closes it first"),
            "{shown}"
        );
        assert!(shown.contains("<td>none</td>"), "{shown}");
    }

    #[test]
    fn an_address_that_is_none_is_no_link() {
        assert!(
            !address("javascript:alert(1)")
                .into_string()
                .contains("href")
        );
        assert!(
            address("https://node-1:8080")
                .into_string()
                .contains("href")
        );
    }
}
