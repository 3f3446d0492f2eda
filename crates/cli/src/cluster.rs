//! `highwater cluster`: the nodes over a cluster and what each one owns, over HTTP.

use std::io::Write;

use serde_json::Value;

use crate::exit::ExitStatus;
use crate::node_args::NodeArgs;
use crate::runtime::block_on;

#[derive(clap::Args)]
pub(crate) struct Cluster {
    #[command(flatten)]
    node: NodeArgs,
}

impl Cluster {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        block_on(async {
            let response = self.node.get("/api/cluster").await?;
            self.node
                .print_with(&response, |out| write_text(&response, out))
        })
    }
}

fn write_text(response: &Value, out: &mut impl Write) -> anyhow::Result<()> {
    let list = |name: &str| response[name].as_array().cloned().unwrap_or_default();
    writeln!(
        out,
        "{:<24} {:>5} {:<10} ADDRESS",
        "NODE", "SLOTS", "VERSION"
    )?;
    for node in list("nodes") {
        let why = node["why"].as_str().map(|why| format!("  ({why})"));
        let (name, version) = (text(&node["name"]), text(&node["version"]));
        let (slots, url) = (text(&node["slots"]), text(&node["url"]));
        writeln!(
            out,
            "{name:<24} {slots:>5} {version:<10} {url}{}",
            why.unwrap_or_default()
        )?;
    }
    writeln!(out)?;
    writeln!(
        out,
        "{:<10} {:<24} {:<24} {:<10} {:>9} {:>10} WHY",
        "KIND", "NAME", "NODE", "STATE", "BACKLOG", "PARTITIONS"
    )?;
    for row in list("rows") {
        let [kind, name, node, state] = ["kind", "name", "node", "state"].map(|of| text(&row[of]));
        let [backlog, partitions] = ["backlog", "partitions"].map(|of| text(&row[of]));
        let why = row["why"].as_str().unwrap_or_default();
        writeln!(
            out,
            "{kind:<10} {name:<24} {node:<24} {state:<10} {backlog:>9} {partitions:>10} {why}"
        )?;
    }
    Ok(())
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
