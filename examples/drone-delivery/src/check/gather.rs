//! Reads the evidence: journals, the ledger, and the outcomes of the workflows.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use highwater_env::{Clock, RealClock, disk};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::verify::Evidence;
use crate::journal;

/// The outcome of a workflow, as reported by the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub id: String,
    /// `completed`, `refused`, `failed`, `cancelled`, `resolved`, `parked`, or its current state.
    pub state: String,
    /// Why it did not complete.
    #[serde(default)]
    pub reason: String,
}

pub async fn gather(data: &Path) -> anyhow::Result<Evidence> {
    Ok(Evidence {
        ledger: read_lines(&data.join("ledger.jsonl"))?,
        outcomes: read_lines(&data.join("outcomes.jsonl"))?,
        packages: events(&data.join("package")).await?,
        drones: events(&data.join("drone")).await?,
        deliveries: events(&data.join("delivery/deliveries")).await?,
        histories: events(&data.join("history")).await?,
    })
}

async fn events<E: DeserializeOwned>(folder: &Path) -> anyhow::Result<Vec<E>> {
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let events = journal::events(folder, clock).await;
    events.with_context(|| format!("cannot read the journal in {}", folder.display()))
}

/// The lines of a file, each a JSON document.
pub fn read_lines<T: DeserializeOwned>(file: &Path) -> anyhow::Result<Vec<T>> {
    let text = disk::read_to_string(file);
    let text = text.with_context(|| format!("cannot read {}", file.display()))?;
    let lines = text.lines().enumerate();
    let read = lines.map(|(number, line)| {
        let place = || format!("{}:{}", file.display(), number + 1);
        serde_json::from_str(line).with_context(place)
    });
    read.collect()
}
