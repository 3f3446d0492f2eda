//! Delivery history: the events of every delivery, collected from the hub.
//!
//! `GET /api/deliveryhistory/{id}` returns all events of a delivery, `GET /api/deliveryhistory` a summary. Events and
//! read position are one journal event, so a crash neither loses nor repeats anything; duplicates on the hub are
//! detected by their stage.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hyper::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::delivery::publish::HUB;
use super::no_such_path;
use crate::http::{Answer, Request, Service};
use crate::journal::{State, Store};
use crate::node::{Node, NodeError};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReadEvents {
    pub partition: u32,
    pub next: i64,
    pub events: Vec<Value>,
}

#[derive(Debug, Default)]
pub struct Histories {
    /// Tracking events of a delivery, in the order of the hub.
    pub by_id: BTreeMap<String, Vec<Value>>,
    /// Number of events by stage.
    stages: BTreeMap<String, u64>,
    /// Next offset by partition.
    next: BTreeMap<u32, i64>,
}

impl State for Histories {
    type Event = ReadEvents;

    fn apply(&mut self, read: &ReadEvents) {
        self.next.insert(read.partition, read.next);
        for event in &read.events {
            let Some(id) = event["deliveryId"].as_str() else {
                continue;
            };
            let known = self.by_id.entry(id.to_owned()).or_default();
            if !known.contains(event) {
                known.push(event.clone());
                let stage = event["stage"].as_str().unwrap_or_default();
                *self.stages.entry(stage.to_owned()).or_default() += 1;
            }
        }
    }
}

pub struct HistoryService {
    pub store: Arc<Store<Histories>>,
}

impl Service for HistoryService {
    async fn answer(&self, request: Request<'_>) -> Answer {
        match (&request.method, &request.parts()[..]) {
            (&Method::GET, ["api", "deliveryhistory"]) => {
                let summary = self.store.read(|histories| {
                    let deliveries = histories.by_id.len();
                    json!({
                        "deliveries": deliveries, "stages": histories.stages, "read": histories.next,
                    })
                });
                Answer::json(StatusCode::OK, &summary.await)
            }
            (&Method::GET, ["api", "deliveryhistory", id]) => {
                match self
                    .store
                    .read(|histories| histories.by_id.get(*id).cloned())
                    .await
                {
                    Some(events) => Answer::json(
                        StatusCode::OK,
                        &json!({"id": id, "deliveryTrackingEvents": events}),
                    ),
                    None => Answer::not_found(),
                }
            }
            _ => no_such_path(),
        }
    }
}

/// Follows every partition forever.
pub async fn follow_hub(store: Arc<Store<Histories>>, node: &str, timeout: Duration) {
    let partitions = loop {
        match Node::new(node, timeout).partitions(HUB).await {
            Ok(partitions) => break partitions,
            Err(error) => wait(&error).await,
        }
    };
    let mut following = JoinSet::new();
    for partition in 0..partitions {
        following.spawn(follow(store.clone(), Node::new(node, timeout), partition));
    }
    following.join_all().await;
}

async fn follow(store: Arc<Store<Histories>>, mut node: Node, partition: u32) {
    loop {
        if let Err(error) = read_more(&store, &mut node, partition).await {
            wait(&error).await;
        }
    }
}

async fn wait(error: &NodeError) {
    eprintln!("history: waiting for the node: {error}");
    tokio::time::sleep(Duration::from_millis(250)).await;
}

async fn read_more(
    store: &Store<Histories>,
    node: &mut Node,
    partition: u32,
) -> Result<(), NodeError> {
    const WAIT_SECONDS: u64 = 10;
    let from = store.read(|histories| histories.next.get(&partition).copied());
    let from = from.await.unwrap_or(0);
    let page = node.read(HUB, partition, from, WAIT_SECONDS).await?;
    if page.next > from {
        let values = page
            .messages
            .into_iter()
            .filter_map(|message| message.value);
        let events = values
            .map(|value| serde_json::from_str(value.get()))
            .collect::<Result<_, _>>()?;
        let next = page.next;
        store
            .change(|_| {
                (
                    Some(ReadEvents {
                        partition,
                        next,
                        events,
                    }),
                    (),
                )
            })
            .await;
    }
    Ok(())
}
