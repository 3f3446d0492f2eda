//! Simulated drones: follows created deliveries, moves them and returns the drones.
//!
//! It simulates the outside world and stores nothing: a flight lost in a restart is a drone that never returns, and
//! shows up among the overdue deliveries.

use std::time::Duration;

use highwater_env::random::Random;
use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client::Client;
use crate::node::Node;
use crate::services::delivery::publish::HUB;

/// Where the services are.
#[derive(Clone, Debug)]
pub struct Fleet {
    pub node: String,
    pub delivery: String,
    pub drone: String,
    /// Average duration of a flight.
    pub flight: Duration,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TrackedDelivery {
    delivery_id: String,
    stage: String,
    location: Value,
}

const TIMEOUT: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(250);
const TRIES: u32 = 40;

impl Fleet {
    /// Runs forever.
    pub async fn run(self) {
        let partitions = loop {
            match Node::new(&self.node, TIMEOUT).partitions(HUB).await {
                Ok(partitions) => break partitions,
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        };
        let mut following = JoinSet::new();
        for partition in 0..partitions {
            following.spawn(self.clone().follow(partition));
        }
        following.join_all().await;
    }

    async fn follow(self, partition: u32) {
        let mut node = Node::new(&self.node, TIMEOUT);
        let mut flights = JoinSet::new();
        let mut random = Random::seeded(u64::from(partition));
        let mut next = 0;
        loop {
            let Ok(page) = node.read(HUB, partition, next, 5).await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            next = page.next;
            let values = page
                .messages
                .into_iter()
                .filter_map(|message| message.value);
            let events = values
                .filter_map(|value| serde_json::from_str::<TrackedDelivery>(value.get()).ok());
            for event in events.filter(|event| event.stage == "Created") {
                let most = 2 * self.flight.as_millis() as u64;
                let takes = Duration::from_millis(random.below(most));
                flights.spawn(self.clone().fly(event, takes));
            }
            while flights.try_join_next().is_some() {}
        }
    }

    /// A flight ends early if the delivery is cancelled meanwhile.
    async fn fly(self, event: TrackedDelivery, takes: Duration) {
        let id = event.delivery_id;
        let position = |stage: &str| json!({"stage": stage, "location": event.location});
        let path = format!("/api/deliveries/{id}/position");
        for stage in ["HeadedToPickup", "HeadedToDropoff"] {
            tokio::time::sleep(takes / 2).await;
            if !ask(&self.delivery, Method::PUT, &path, &position(stage)).await {
                return;
            }
        }
        let confirmation = json!({"geoCoordinates": event.location, "confirmationType": "Picture"});
        let path = format!("/api/deliveries/{id}/confirmations");
        if ask(&self.delivery, Method::POST, &path, &confirmation).await {
            let path = format!("/api/dronedeliveries/{id}/return");
            ask(&self.drone, Method::POST, &path, &Value::Null).await;
        }
    }
}

/// Whether the service accepted the request; failures are retried.
async fn ask(address: &str, method: Method, path: &str, body: &Value) -> bool {
    let mut client = Client::new(address, TIMEOUT);
    for _ in 0..TRIES {
        match client.json(method.clone(), path, body).await {
            Ok(reply) if reply.status < 500 => return reply.is_success(),
            _ => tokio::time::sleep(PAUSE).await,
        }
    }
    false
}
