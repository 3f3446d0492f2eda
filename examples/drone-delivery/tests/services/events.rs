//! From a delivery to its history: the journal is the outbox, and repetitions are harmless.

use std::sync::Arc;
use std::time::Duration;

use drone_delivery::chaos::Faults;
use drone_delivery::node::Node;
use drone_delivery::services::delivery::{DeliveryService, publish};
use drone_delivery::services::history::{self, HistoryService};
use serde_json::{Value, json};

use crate::backends::body;
use crate::hub::FakeNode;
use crate::support::*;

#[tokio::test]
async fn what_happens_to_a_delivery_is_in_its_history_once() {
    let folder = folder();
    let fake = FakeNode::new();
    // The hub gets the first batch twice.
    *fake.denials.lock() = 1;
    let node = run(fake.clone(), Faults::default()).await;
    let deliveries = Arc::new(store(&folder.path().join("deliveries")).await);
    let published = store(&folder.path().join("published")).await;
    let sender = Node::new(&node.address, Duration::from_secs(30));
    let publishing = tokio::spawn(publish::run(deliveries.clone(), published, sender));
    let service = DeliveryService {
        store: deliveries,
        clock: clock(),
    };
    let mut delivery = run(service, Faults::default()).await;

    let histories = Arc::new(store(&folder.path().join("history")).await);
    let address = node.address.clone();
    let store = histories.clone();
    let following = tokio::spawn(async move {
        history::follow_hub(store, &address, Duration::from_secs(30)).await;
    });
    let mut history = run(HistoryService { store: histories }, Faults::default()).await;

    delivery
        .ask("PUT /api/deliveries/d1", body("drone-1"))
        .await;
    delivery.ask("DELETE /api/deliveries/d2", Value::Null).await;
    delivery.ask("DELETE /api/deliveries/d1", Value::Null).await;
    let told = loop {
        let (status, told) = history
            .ask("GET /api/deliveryhistory/d1", Value::Null)
            .await;
        let events = told["deliveryTrackingEvents"]
            .as_array()
            .map_or(0, Vec::len);
        if status == 200 && events >= 2 {
            break told;
        }
        tokio::task::yield_now().await;
    };
    let events = told["deliveryTrackingEvents"].as_array().unwrap();
    let stages: Vec<_> = events.iter().map(|event| &event["stage"]).collect();
    assert_eq!(stages, ["Created", "Cancelled"]);
    assert_eq!(
        told["deliveryTrackingEvents"][0]["time"],
        "2025-11-15T12:00:00Z"
    );
    let (_, summary) = history.ask("GET /api/deliveryhistory", Value::Null).await;
    assert_eq!(summary["stages"], json!({"Created": 1, "Cancelled": 1}));
    assert!(fake.events(publish::HUB).len() > 2, "the hub has repeats");
    publishing.abort();
    following.abort();
}
