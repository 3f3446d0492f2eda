//! `highwater circuit`: the circuit breakers of processors, and opening or closing one.

use std::io::Write;

use serde_json::{Value, json};

use crate::client::percent_encode;
use crate::exit::ExitStatus;
use crate::node_args::{NamedArgs, NodeArgs, items, text};
use crate::runtime::block_on;

#[derive(clap::Subcommand)]
pub(crate) enum Circuit {
    /// List the circuits: closed while events are delivered, open while deliveries are stopped
    List(NodeArgs),
    /// Stop deliveries to a processor's handler until the circuit is closed
    Open(Open),
    /// Resume deliveries
    Close(NamedArgs),
}

#[derive(clap::Args)]
pub(crate) struct Open {
    name: String,
    /// The reason, shown while the circuit is open
    #[arg(long, default_value = "opened by hand")]
    why: String,
    #[command(flatten)]
    node: NodeArgs,
}

impl Circuit {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        block_on(async {
            match self {
                Circuit::List(node) => list(&node).await,
                Circuit::Open(command) => {
                    let body = json!({"why": command.why});
                    change(&command.node, &command.name, "open", &body).await
                }
                Circuit::Close(command) => {
                    change(&command.node, &command.name, "close", &json!({})).await
                }
            }
        })
    }
}

async fn list(node: &NodeArgs) -> anyhow::Result<ExitStatus> {
    let circuits = node.get("/api/circuits").await?["circuits"].take();
    node.print_with(&circuits, |out| {
        items(&circuits).try_for_each(|circuit| Ok(writeln!(out, "{}", summary(circuit))?))
    })
}

async fn change(
    node: &NodeArgs,
    name: &str,
    action: &str,
    body: &Value,
) -> anyhow::Result<ExitStatus> {
    let path = format!("/api/circuits/{}/{action}", percent_encode(name));
    let circuit = node.post(&path, body).await?;
    node.print(&circuit, || summary(&circuit))
}

fn summary(circuit: &Value) -> String {
    let head = format!("{:20} {:9}", text(circuit, "name"), text(circuit, "state"));
    match (circuit["since"].as_str(), circuit["why"].as_str()) {
        (Some(since), Some(why)) => format!("{head} since {since}: {why}"),
        _ => head.trim_end().to_owned(),
    }
}
