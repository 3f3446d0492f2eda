//! A fake node with hubs in memory, which can delay its responses or append events and return an error.

use std::collections::BTreeMap;
use std::sync::Arc;

use drone_delivery::http::{Answer, Request, Service};
use hyper::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

#[derive(Clone)]
pub(crate) struct FakeNode {
    /// Events of every hub, each with one partition, as `[key, type, data]`.
    pub hubs: Arc<Mutex<BTreeMap<String, Vec<Value>>>>,
    /// Number of requests.
    pub batches: Arc<Mutex<usize>>,
    /// Responses wait until this is true.
    pub open: Arc<watch::Sender<bool>>,
    /// How often events are appended and an error is returned.
    pub denials: Arc<Mutex<usize>>,
}

impl FakeNode {
    pub(crate) fn new() -> FakeNode {
        FakeNode {
            hubs: Arc::default(),
            batches: Arc::default(),
            open: Arc::new(watch::Sender::new(true)),
            denials: Arc::default(),
        }
    }

    pub(crate) fn events(&self, hub: &str) -> Vec<Value> {
        self.hubs.lock().get(hub).cloned().unwrap_or_default()
    }

    async fn take(&self, hub: &str, body: Vec<Value>) -> Answer {
        *self.batches.lock() += 1;
        let _ = self.open.subscribe().wait_for(|open| *open).await;
        let events = body
            .iter()
            .map(|event| json!([event["subject"], event["type"], event["data"]]));
        self.hubs
            .lock()
            .entry(hub.to_owned())
            .or_default()
            .extend(events);
        let mut denials = self.denials.lock();
        match *denials {
            0 => Answer::empty(StatusCode::CREATED),
            _ => {
                *denials -= 1;
                Answer::problem(StatusCode::INTERNAL_SERVER_ERROR, "no")
            }
        }
    }

    fn page(&self, hub: &str, from: usize) -> Answer {
        let events = self.events(hub);
        let messages: Vec<_> = events
            .iter()
            .skip(from)
            .map(|event| json!({"value": event[2]}))
            .collect();
        let next = from.max(events.len());
        Answer::json(StatusCode::OK, &json!({"messages": messages, "next": next}))
    }
}

impl Service for FakeNode {
    async fn answer(&self, request: Request<'_>) -> Answer {
        match (&request.method, &request.parts()[..]) {
            (
                &Method::POST,
                ["hubs", hub, "messages"] | ["hubs", hub, "partitions", "0", "messages"],
            ) => self.take(hub, request.json().unwrap_or_default()).await,
            (&Method::GET, ["hubs", hub, "partitions", "0", "messages"]) => {
                let from = request.parameter("from").and_then(|from| from.parse().ok());
                self.page(hub, from.unwrap_or(0))
            }
            (&Method::GET, ["api", "hubs", _]) => {
                Answer::json(StatusCode::OK, &json!({"partitions": 1}))
            }
            _ => Answer::not_found(),
        }
    }
}
