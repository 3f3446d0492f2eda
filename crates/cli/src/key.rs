//! `highwater key`: the keys of a running node, over HTTP.

use std::io::Write;

use serde_json::{Value, json};

use crate::client::percent_encode;
use crate::exit::ExitStatus;
use crate::node_args::{Columns, NamedArgs, NodeArgs, given, items, text};
use crate::runtime::block_on;

#[derive(clap::Subcommand)]
pub(crate) enum Key {
    /// Add a key and print its secret, which is shown only once
    Add(Box<Add>),
    /// List the keys, without their secrets
    List(NodeArgs),
    /// Give a key a new secret and print it; the previous one stays valid until the next rotation
    Rotate(Rotate),
    /// Revoke a key: it is refused from the next request on
    Revoke(NamedArgs),
}

#[derive(clap::Args, serde::Serialize)]
pub(crate) struct Add {
    name: String,
    /// A right: send, listen, manage or deploy; may be repeated
    #[arg(long = "right", value_name = "RIGHT", required = true)]
    rights: Vec<String>,
    /// A hub or queue that the key is limited to, by name or prefix (app-*); may be repeated [default: no limit]
    #[arg(long = "hub", value_name = "NAME")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hubs: Vec<String>,
    /// A consumer group of the key, by name or prefix [default: all; with --hub, those that begin with the key's name]
    #[arg(long = "group", value_name = "NAME")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<String>,
    /// A transactional id of the key, by name or prefix [default: as for --group]
    #[arg(long = "transactional-id", value_name = "NAME")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    transactional_ids: Vec<String>,
    /// A job or processor of the key, by name or prefix [default: as for --group]
    #[arg(long = "deployment", value_name = "NAME")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    deployments: Vec<String>,
    /// A client certificate that acts for the key, by its CN, DNS name, URI or e-mail address; may be repeated
    #[arg(long = "certificate", value_name = "NAME")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    certificates: Vec<String>,
    /// The key expires after this time, such as 90d
    #[arg(long, value_name = "TIME")]
    expires_in: Option<String>,
    /// Let the key sign shared access signatures; the node then stores the secret itself
    #[arg(long)]
    sas: bool,
    #[command(flatten)]
    #[serde(skip)]
    quota: Quota,
    #[command(flatten)]
    #[serde(skip)]
    node: NodeArgs,
}

#[derive(clap::Args, serde::Serialize)]
struct Quota {
    /// Quota: requests a second
    #[arg(long, value_name = "COUNT")]
    requests_per_second: Option<u64>,
    /// Quota: bytes a second that clients send
    #[arg(long, value_name = "BYTES")]
    bytes_in_per_second: Option<u64>,
    /// Quota: bytes a second that clients receive
    #[arg(long, value_name = "BYTES")]
    bytes_out_per_second: Option<u64>,
    /// Quota: open connections
    #[arg(long, value_name = "COUNT")]
    connections_max: Option<u32>,
    /// Quota: partitions created in an hour
    #[arg(long, value_name = "COUNT")]
    partitions_per_hour: Option<u64>,
}

#[derive(clap::Args)]
pub(crate) struct Rotate {
    name: String,
    /// Revoke the previous secret at once
    #[arg(long)]
    revoke_previous: bool,
    #[command(flatten)]
    node: NodeArgs,
}

impl Key {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        block_on(async {
            match self {
                Key::Add(command) => command.run().await,
                Key::List(node) => list(&node).await,
                Key::Rotate(command) => command.run().await,
                Key::Revoke(NamedArgs { name, node }) => {
                    node.delete(&path(&name), "key", &name).await
                }
            }
        })
    }
}

fn path(name: &str) -> String {
    format!("/api/keys/{}", percent_encode(name))
}

impl Add {
    async fn run(self) -> anyhow::Result<ExitStatus> {
        let mut body = given(&self);
        body.insert("quota".into(), given(&self.quota).into());
        let added = self.node.post("/api/keys", &body.into()).await?;
        print_secret(&self.node, &added)
    }
}

/// The secret alone is on standard output, so that it can be piped.
fn print_secret(node: &NodeArgs, response: &Value) -> anyhow::Result<ExitStatus> {
    if !node.json {
        eprintln!(
            "the secret of key {} is shown only now:",
            text(response, "name")
        );
    }
    node.print(response, || text(response, "secret").to_owned())
}

impl Rotate {
    async fn run(self) -> anyhow::Result<ExitStatus> {
        let body = json!({"keep_previous": !self.revoke_previous});
        let path = format!("{}/rotate", path(&self.name));
        print_secret(&self.node, &self.node.post(&path, &body).await?)
    }
}

async fn list(node: &NodeArgs) -> anyhow::Result<ExitStatus> {
    let keys = node.get("/api/keys").await?["keys"].take();
    node.print_with(&keys, |out| {
        let columns = Columns([24, 32, 10, 24]);
        writeln!(
            out,
            "{}",
            columns.line(["key", "rights", "from", "expires"])
        )?;
        for key in items(&keys) {
            let rights: Vec<&str> = items(&key["rights"]).filter_map(Value::as_str).collect();
            let from = match key["in_settings"].as_bool() {
                Some(true) => "settings",
                _ => "stored",
            };
            let expires = key["expires"].as_str().unwrap_or("never");
            let line = columns.line([text(key, "name"), &rights.join(","), from, expires]);
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    })
}
