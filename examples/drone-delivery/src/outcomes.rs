//! The outcomes of workflows, as reported by the node.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use highwater_env::disk;
use serde::Deserialize;
use tokio::task::JoinSet;

use crate::check::Outcome;
use crate::client::Client;

const TIMEOUT: Duration = Duration::from_secs(60);
const CONNECTIONS: usize = 8;

/// Numbers of instances of all workflows: in progress (parked ones included), parked, and ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub running: u64,
    pub parked: u64,
    pub ended: u64,
}

#[derive(Deserialize)]
struct Workflows {
    workflows: Vec<Workflow>,
}

#[derive(Deserialize)]
struct Workflow {
    name: String,
    running: u64,
    ended: u64,
}

#[derive(Deserialize)]
struct InstanceList {
    instances: Vec<serde::de::IgnoredAny>,
}

pub async fn counts(node: &str) -> anyhow::Result<Counts> {
    let mut client = Client::new(node, TIMEOUT);
    let reply = client.get("/api/workflows").await?;
    let workflows: Workflows = serde_json::from_slice(&reply.body)?;
    let mut counts = Counts::default();
    for Workflow {
        name,
        running,
        ended,
    } in workflows.workflows
    {
        let path = format!("/api/workflows/{name}?state=parked&limit=10000");
        let reply = client.get(&path).await?;
        let listed: InstanceList = serde_json::from_slice(&reply.body)?;
        counts.parked += listed.instances.len() as u64;
        counts.running += running;
        counts.ended += ended;
    }
    Ok(counts)
}

/// Reads the outcome of each delivery.
pub async fn of(node: &str, ids: Vec<String>) -> anyhow::Result<Vec<Outcome>> {
    let ids = Arc::new(ids);
    let next = Arc::new(AtomicUsize::new(0));
    let mut asking = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (ids, next) = (ids.clone(), next.clone());
        let mut client = Client::new(node, TIMEOUT);
        asking.spawn(async move {
            let mut outcomes = Vec::new();
            while let Some(id) = ids.get(next.fetch_add(1, Ordering::Relaxed)) {
                outcomes.extend(one(&mut client, id).await?);
            }
            anyhow::Ok(outcomes)
        });
    }
    let mut outcomes = Vec::new();
    while let Some(part) = asking.join_next().await {
        outcomes.extend(part??);
    }
    outcomes.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(outcomes)
}

/// `None` if the node does not know it.
async fn one(client: &mut Client, id: &str) -> anyhow::Result<Option<Outcome>> {
    #[derive(Deserialize)]
    struct InstanceResponse {
        state: String,
        #[serde(default)]
        reason: String,
        #[serde(default)]
        blame: String,
    }
    let reply = client.get(&format!("/api/workflows/delivery/{id}")).await?;
    match reply.status {
        404 => Ok(None),
        200 => {
            let shown: InstanceResponse = serde_json::from_slice(&reply.body)
                .with_context(|| format!("the node's answer for {id} cannot be parsed"))?;
            let reason = match shown.blame.is_empty() {
                true => shown.reason,
                false => format!("{}: {}", shown.blame, shown.reason),
            };
            Ok(Some(Outcome {
                id: id.to_owned(),
                state: shown.state,
                reason,
            }))
        }
        status => anyhow::bail!("the node answered {status} for {id}: {}", reply.text()),
    }
}

/// Writes one line per outcome, for the checker.
pub fn write(path: &Path, outcomes: &[Outcome]) -> anyhow::Result<()> {
    let mut text = Vec::new();
    for outcome in outcomes {
        serde_json::to_writer(&mut text, outcome)?;
        text.push(b'\n');
    }
    let mut file = disk::create_atomic(path)?;
    file.write_all(&text)?;
    Ok(file.commit()?)
}
