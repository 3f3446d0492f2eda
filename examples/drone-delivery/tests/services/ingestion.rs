//! The public API.

use drone_delivery::chaos::Faults;
use drone_delivery::ingestion::{CANCELLATIONS, HubWriters, Ingestion, REQUESTS, RESCHEDULES};
use highwater_env::random::Random;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::hub::FakeNode;
use crate::support::*;

async fn ingestion(node: &Running) -> Running {
    let service = Ingestion {
        writers: HubWriters::open(&node.address),
        random: Mutex::new(Random::seeded(1)),
        delivery_url: "http://delivery".into(),
    };
    run(service, Faults::default()).await
}

fn request() -> Value {
    json!({
        "ownerId": "ann", "pickupLocation": "here", "dropOffLocation": "there", "expedited": true,
        "packageInfo": {"packageId": "p1", "size": "Large", "weight": 3},
    })
}

const POST: &str = "POST /v0.1.0/api/deliveryrequests";

// proves D1
#[tokio::test]
async fn a_request_is_answered_with_202_once_the_hub_has_it_and_not_before() {
    let fake = FakeNode::new();
    fake.open.send_replace(false);
    let node = run(fake.clone(), Faults::default()).await;
    let mut ingestion = ingestion(&node).await;
    let asking = ingestion.ask(POST, request());
    let mut asking = std::pin::pin!(asking);
    // The node has the request but does not respond, so the customer gets no response either.
    while *fake.batches.lock() == 0 {
        tokio::select! {
            answer = asking.as_mut() => panic!("answered {answer:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    assert_eq!(fake.events(REQUESTS), Vec::<Value>::new());
    fake.open.send_replace(true);
    let (status, answer) = asking.await;
    assert_eq!((status, &answer["dropOffLocation"]), (202, &json!("there")));
    let events = fake.events(REQUESTS);
    assert_eq!(events.len(), 1);
    assert_eq!(
        events[0][0], answer["deliveryId"],
        "the key is the delivery"
    );
    assert_eq!(events[0][2]["deliveryId"], answer["deliveryId"]);
    assert_eq!(events[0][2]["expedited"], true);
    assert_eq!(events[0][2]["dropoffLocation"], "there");
}

#[tokio::test]
async fn cancellations_and_reschedules_are_not_taken_for_deliveries() {
    let fake = FakeNode::new();
    let node = run(fake.clone(), Faults::default()).await;
    let mut ingestion = ingestion(&node).await;
    let cancelled = ingestion
        .status("DELETE /api/deliveryrequests/d1", Value::Null)
        .await;
    let later = json!({"deadline": "2026-11-15T12:00:00Z"});
    let changed = ingestion.ask("PATCH /api/deliveryrequests/d1", later).await;
    assert_eq!((cancelled, changed), (204, (200, json!("d1"))));
    assert_eq!(fake.events(REQUESTS), Vec::<Value>::new());
    assert_eq!(
        fake.events(CANCELLATIONS)[0][2],
        json!({"deliveryId": "d1"})
    );
    let change = &fake.events(RESCHEDULES)[0];
    assert_eq!(
        (&change[0], &change[2]["deadline"]),
        (&json!("d1"), &json!("2026-11-15T12:00:00Z"))
    );
    assert_eq!(change[2]["pickupLocation"], Value::Null);
}

#[tokio::test]
async fn what_cannot_be_read_is_a_400_with_the_reason() {
    let node = run(FakeNode::new(), Faults::default()).await;
    let mut ingestion = ingestion(&node).await;
    let (status, answer) = ingestion.ask(POST, json!({"pickupLocation": "here"})).await;
    assert_eq!(status, 400);
    assert!(
        answer["message"].as_str().unwrap().contains("ownerId"),
        "{answer}"
    );
    assert_eq!(ingestion.status(POST, json!("a text")).await, 400);
}

#[tokio::test]
async fn a_batch_that_the_node_denied_is_sent_again_under_the_same_ids() {
    let fake = FakeNode::new();
    *fake.denials.lock() = 2;
    let node = run(fake.clone(), Faults::default()).await;
    let mut ingestion = ingestion(&node).await;
    let (status, answer) = ingestion.ask(POST, request()).await;
    assert_eq!(status, 202);
    let keys: Vec<_> = fake
        .events(REQUESTS)
        .iter()
        .map(|event| event[0].clone())
        .collect();
    assert_eq!(keys, vec![answer["deliveryId"].clone(); 3]);
}
