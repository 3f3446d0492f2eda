//! Queues over HTTP.

use std::sync::Arc;

use highwater_access::{Key, KeyScope, Right};
use highwater_env::SimClock;
use highwater_env::random::Random;
use highwater_queue::Queues;
use highwater_server::http::{Backend, Options};
use serde_json::{Value, json};

use crate::http::node::{Answer, NOW_SECONDS, Node, memory, options, start_on};

async fn node_with_keys(keys: Vec<Key>) -> (Node, Arc<SimClock>) {
    node_with(keys, options()).await
}

async fn node_with(keys: Vec<Key>, options: Options) -> (Node, Arc<SimClock>) {
    let log = Arc::new(memory());
    let nanos = i128::from(NOW_SECONDS) * 1_000_000_000;
    let clock = Arc::new(SimClock::at_unix_nanos(nanos));
    let options_of_queues = highwater_queue::Options::default();
    let opened = Queues::open(
        log.clone(),
        clock.clone(),
        Random::seeded(1),
        options_of_queues,
    );
    let (queues, _) = opened.await;
    let backend = Backend {
        queues: Some(queues),
        ..Backend::new(log)
    };
    (start_on(options, keys, backend).await, clock)
}

/// A node with a queue `orders` as the settings say, and its clock.
async fn node(settings: Value) -> (Node, Arc<SimClock>) {
    let (node, clock) = node_with_keys(Vec::new()).await;
    let mut body = json!({"name": "orders"});
    for (name, value) in settings.as_object().unwrap() {
        body[name] = value.clone();
    }
    let made = post(&node, "/api/queues", body).await;
    assert_eq!(made.status, 201, "{}", made.body);
    (node, clock)
}

async fn post(node: &Node, path: &str, body: Value) -> Answer {
    let kind = ["content-type: application/json"];
    node.call(&format!("POST {path}"), &kind, &body.to_string())
        .await
}

async fn receive(node: &Node, query: &str) -> Vec<Value> {
    let got = post(node, &format!("/queues/orders/receive{query}"), json!({})).await;
    assert_eq!(got.status, 200, "{}", got.body);
    got.json()["messages"].as_array().unwrap().clone()
}

fn token(message: &Value) -> String {
    message["token"].as_str().unwrap().to_owned()
}

// proves Q1
#[tokio::test]
async fn a_message_is_sent_received_and_completed_once() {
    let (node, _) = node(json!({})).await;
    let sent = node
        .call(
            "POST /queues/orders/messages",
            &[
                "content-type: application/json",
                "x-message-id: 7",
                "x-property-from: web",
            ],
            "{\"order\": 1}",
        )
        .await;
    assert_eq!((sent.status, sent.json()), (201, json!({"sequence": 1})));
    let got = receive(&node, "?max=10").await;
    let token = token(&got[0]);
    assert_eq!(
        got[0],
        json!({
            "sequence": 1, "enqueued": "2026-01-01T00:00:00.000Z", "deliveries": 1,
            "token": token, "locked_until": "2026-01-01T00:01:00.000Z", "id": "7",
            "content_type": "application/json", "properties": {"from": "web"},
            "body": {"order": 1},
        })
    );
    assert!(receive(&node, "").await.is_empty());
    let tokens = json!({"tokens": [token, "1-2"]});
    let settled = post(&node, "/queues/orders/complete", tokens.clone()).await;
    assert_eq!(settled.json()["settled"], 1);
    assert_eq!(settled.json()["failed"][0]["code"], "lock_lost");
    let again = post(&node, "/queues/orders/complete", tokens).await;
    again.is(410, "lock_lost");
    assert_eq!(again.json()["failed"].as_array().unwrap().len(), 2);
}

// proves Q1
#[tokio::test]
async fn one_request_settles_and_receives() {
    let (node, _) = node(json!({})).await;
    let batch = json!([{"body": 1}, {"body": 2}, {"body": 3}]);
    post(&node, "/queues/orders/batch", batch).await;
    let first = receive(&node, "?max=2").await;
    let handed_in =
        json!({"complete": [token(&first[0]), "nonsense"], "abandon": [token(&first[1])]});
    let got = post(&node, "/queues/orders/receive?max=9", handed_in.clone()).await;
    let got = got.json();
    assert_eq!(got["settled"], 2);
    let failed = got["failed"].as_array().unwrap();
    assert_eq!(failed.len(), 1);
    assert_eq!(
        (&failed[0]["of"], &failed[0]["code"]),
        (&json!("nonsense"), &json!("lock_lost"))
    );
    let messages = got["messages"].as_array().unwrap();
    let bodies: Vec<&Value> = messages.iter().map(|message| &message["body"]).collect();
    assert_eq!(
        bodies,
        [&json!(2), &json!(3)],
        "what was given back is there again"
    );
    // Failed settlements do not keep the receiver from receiving.
    let got = post(&node, "/queues/orders/receive", handed_in).await;
    assert_eq!(got.status, 200, "{}", got.body);
    assert_eq!(
        (&got.json()["settled"], &got.json()["messages"]),
        (&json!(0), &json!([]))
    );
    let bare = node.call("POST /queues/orders/receive", &[], "").await;
    assert_eq!(
        bare.json(),
        json!({"messages": []}),
        "nothing was handed in"
    );
    let wrong = post(&node, "/queues/orders/receive", json!({"done": []})).await;
    wrong.is(400, "bad_request");
}

// proves Q1
#[tokio::test]
async fn settlements_are_answered_though_the_node_stops() {
    let (node, _) = node(json!({})).await;
    post(&node, "/queues/orders/messages", json!(1)).await;
    let handed_in = json!({"complete": [token(&receive(&node, "").await[0])]});
    let waiting = post(&node, "/queues/orders/receive?wait=60s", handed_in);
    let stop = async {
        // Once it is settled, the request waits for more.
        while node.get("/api/queues/orders").await.json()["locked"] != 0 {
            tokio::task::yield_now().await;
        }
        node.app.stop();
    };
    let (got, ()) = tokio::join!(waiting, stop);
    assert_eq!(got.status, 200, "{}", got.body);
    assert_eq!(
        (&got.json()["settled"], &got.json()["messages"]),
        (&json!(1), &json!([]))
    );
}

// proves Q1
#[tokio::test]
async fn a_lock_expires_unless_it_is_renewed() {
    let (node, clock) = node(json!({"lock": "30s"})).await;
    post(&node, "/queues/orders/messages", json!(1)).await;
    let tokens = json!({"tokens": [token(&receive(&node, "").await[0])]});
    clock.advance(std::time::Duration::from_secs(29));
    let renewed = post(&node, "/queues/orders/renew", tokens).await;
    let until = &renewed.json()["locks"][0]["locked_until"];
    assert_eq!(until, "2026-01-01T00:00:59.000Z");
    clock.advance(std::time::Duration::from_secs(30));
    let again = receive(&node, "?mode=delete").await;
    assert_eq!(again[0]["deliveries"], 2);
    assert!(again[0].get("token").is_none());
}

// proves Q2
#[tokio::test]
async fn a_batch_is_taken_whole_with_ids_times_and_bytes() {
    let (node, clock) = node(json!({"duplicates_within": "10m"})).await;
    let batch = json!([
        {"body": {"a": 1}, "id": "1"},
        {"body_base64": "AAE=", "id": "1"},
        {"body_base64": "AAE=", "schedule_at": "2026-01-01T00:00:10Z", "time_to_live": "5s"},
    ]);
    let sent = post(&node, "/queues/orders/batch", batch).await;
    let expected = json!([{"sequence": 1}, {"sequence": 1, "duplicate": true}, {"sequence": 2}]);
    assert_eq!(sent.json()["messages"], expected);
    assert_eq!(receive(&node, "?max=9&mode=delete").await.len(), 1);
    clock.advance(std::time::Duration::from_secs(10));
    let later = receive(&node, "?max=9").await;
    assert_eq!(later[0]["body_base64"], "AAE=");
    assert_eq!(later[0]["expires"], "2026-01-01T00:00:15.000Z");
    let wrong = post(&node, "/queues/orders/batch", json!([{"bodi": 1}])).await;
    wrong.is(400, "bad_request");
}

// proves Q2
#[tokio::test]
async fn a_dead_letter_is_looked_at_and_sent_back() {
    let (node, _) = node(json!({})).await;
    post(&node, "/queues/orders/messages", json!(1)).await;
    let token = token(&receive(&node, "").await[0]);
    let why = json!({"tokens": [token], "reason": "BadOrder", "description": "no customer"});
    let dead = post(&node, "/queues/orders/dead-letter", why).await;
    assert_eq!(dead.status, 200, "{}", dead.body);
    let seen = node.get("/queues/orders/$deadletter/messages").await.json();
    assert_eq!(seen["messages"][0]["dead_letter"]["reason"], "BadOrder");
    assert_eq!(seen["messages"][0]["state"], "active");
    let back = json!({"sequences": [1]});
    let back = post(&node, "/queues/orders/$deadletter/resubmit", back).await;
    assert_eq!(back.json()["settled"], 1);
    assert_eq!(receive(&node, "").await[0]["deliveries"], 1);
}

// proves Q1
#[tokio::test]
async fn a_deferred_message_is_fetched_by_number() {
    let (node, _) = node(json!({})).await;
    post(&node, "/queues/orders/messages", json!(1)).await;
    let first = token(&receive(&node, "").await[0]);
    post(&node, "/queues/orders/defer", json!({"tokens": [first]})).await;
    assert!(receive(&node, "").await.is_empty());
    let body = json!({"sequences": [1]});
    let got = post(&node, "/queues/orders/deferred", body.clone()).await;
    assert_ne!(token(&got.json()["messages"][0]), first);
    let again = post(&node, "/queues/orders/deferred", body).await;
    again.is(404, "not_found");
}

// proves Q2
#[tokio::test]
async fn a_session_is_accepted_read_in_order_and_released() {
    let (node, _) = node(json!({"sessions": true})).await;
    let batch = json!([{"body": 1, "session": "a"}, {"body": 2, "session": "a"}]);
    post(&node, "/queues/orders/batch", batch).await;
    let none = post(&node, "/queues/orders/receive", json!({})).await;
    none.is(400, "bad_request");
    let accepted = post(&node, "/queues/orders/sessions/accept", json!({})).await;
    let accepted = accepted.json();
    assert_eq!(
        (&accepted["session"], &accepted["state"]),
        (&json!("a"), &Value::Null)
    );
    let token = accepted["token"].as_str().unwrap();
    let query = format!("?max=9&session=a&session_token={token}");
    let got = receive(&node, &query).await;
    assert_eq!((&got[0]["body"], &got[1]["body"]), (&json!(1), &json!(2)));
    let handed_in = json!({"complete": [got[0]["token"]]});
    // The answer has the settlements although the receive itself was refused.
    let without = post(&node, "/queues/orders/receive", handed_in).await;
    without.is(400, "bad_request");
    assert_eq!(without.json()["settled"], 1);
    let state = json!({"session": "a", "token": token, "state": {"at": 1}});
    let set = post(&node, "/queues/orders/sessions/state", state).await;
    assert_eq!(set.status, 204);
    let taken = post(&node, "/queues/orders/sessions/accept?session=a", json!({})).await;
    taken.is(423, "locked");
    let held = json!({"session": "a", "token": token});
    let free = post(&node, "/queues/orders/sessions/release", held.clone()).await;
    assert_eq!(free.status, 204);
    let again = post(&node, "/queues/orders/sessions/accept", json!({})).await;
    assert_eq!(again.json()["state"], json!({"at": 1}));
    let lost = post(&node, "/queues/orders/sessions/renew", held).await;
    lost.is(410, "lock_lost");
}

#[tokio::test]
async fn a_receiver_that_waits_is_answered_when_a_message_comes() {
    let (node, _) = node(json!({})).await;
    let node = Arc::new(node);
    let waiting = tokio::spawn({
        let node = node.clone();
        async move { receive(&node, "?wait=60s").await }
    });
    post(&node, "/queues/orders/messages", json!("late")).await;
    assert_eq!(waiting.await.unwrap()[0]["body"], "late");
}

#[tokio::test]
async fn queues_are_listed_described_changed_and_deleted() {
    let (node, _) = node(json!({"lock": "30s"})).await;
    post(&node, "/queues/orders/messages", json!(1)).await;
    let listed = node.get("/api/queues").await.json();
    assert_eq!(listed["queues"][0]["active"], 1);
    let hubs = node.get("/api/hubs").await.json();
    assert_eq!(
        hubs["hubs"].as_array().unwrap().len(),
        1,
        "its hub is the node's own"
    );
    let body = json!({"deliveries_max": 3}).to_string();
    let changed = node
        .call("PATCH /api/queues/orders", &[], &body)
        .await
        .json();
    assert_eq!(
        (&changed["deliveries_max"], &changed["lock_seconds"]),
        (&json!(3), &json!(30.0))
    );
    let wrong = node
        .call("PATCH /api/queues/orders", &[], "{\"lock\":\"2h\"}")
        .await;
    wrong.is(400, "bad_request");
    for (text, shown) in [("1h", json!(3600.0)), ("never", Value::Null)] {
        let body = json!({ "auto_delete_on_idle": text }).to_string();
        let changed = node.call("PATCH /api/queues/orders", &[], &body).await;
        assert_eq!(changed.json()["auto_delete_on_idle_seconds"], shown);
    }
    let body = json!({"auto_delete_on_idle": "1m"}).to_string();
    let wrong = node.call("PATCH /api/queues/orders", &[], &body).await;
    wrong.is(400, "bad_request");
    let sessions = node
        .call("PATCH /api/queues/orders", &[], "{\"sessions\":true}")
        .await;
    sessions.is(400, "bad_request");
    let metrics = node.get("/metrics").await.body;
    assert!(metrics.contains("highwater_queue_active_messages{queue=\"orders\"} 1\n"));
    let purged = post(&node, "/queues/orders/purge", json!({})).await.json();
    assert_eq!(purged["removed"], 1);
    let gone = node.call("DELETE /api/queues/orders", &[], "").await;
    assert_eq!(gone.status, 204);
    node.get("/api/queues/orders").await.is(404, "not_found");
}

#[tokio::test]
async fn a_key_does_what_its_rights_say_and_no_more() {
    let key = |name: &str, right: Right| {
        Key::new(
            name,
            "s3cret",
            [right].into_iter().collect(),
            KeyScope::UNLIMITED,
        )
    };
    let keys = vec![
        key("out", Right::Send),
        key("in", Right::Listen),
        key("boss", Right::Manage),
    ];
    let (node, _) = node_with_keys(keys).await;
    let call = async |who: &str, line: &str, body: &str| {
        let header = format!("authorization: Bearer {who}:s3cret");
        node.call(line, &[&header], body).await.status
    };
    let make = "{\"name\":\"orders\"}";
    assert_eq!(call("out", "POST /api/queues", make).await, 403);
    assert_eq!(call("boss", "POST /api/queues", make).await, 201);
    for (line, who) in [
        ("POST /queues/orders/messages", "out"),
        ("POST /queues/orders/receive", "in"),
        ("GET /queues/orders/messages", "in"),
        ("POST /queues/orders/purge", "boss"),
    ] {
        for other in ["out", "in", "boss"] {
            let status = call(other, line, "").await;
            assert_eq!(status < 300, other == who, "{other} {line}: {status}");
        }
    }
}

// proves G2
#[tokio::test]
async fn a_peek_answers_with_a_bounded_number_of_bytes() {
    let (node, _) = node(json!({})).await;
    let body = "x".repeat(200 << 10);
    for _ in 0..20 {
        let sent = node.post("/queues/orders/messages", "text/plain", &body);
        assert_eq!(sent.await.status, 201);
    }
    let peeked = node.get("/queues/orders/messages?max=10000").await;
    let messages = peeked.json()["messages"].as_array().unwrap().len();
    assert!((1..=5).contains(&messages), "{messages} messages");
    let next = node.get("/queues/orders/messages?from=20&max=10000").await;
    assert_eq!(next.json()["messages"][0]["sequence"], 20);
}

// proves G2
#[tokio::test]
async fn a_receive_without_memory_is_refused_before_it_takes_messages() {
    let mut small = options();
    small.in_flight_bytes_max = small.read_bytes_max - 1;
    let (node, _) = node_with(Vec::new(), small).await;
    post(&node, "/api/queues", json!({"name": "orders"})).await;
    // Nothing needs no memory.
    let none = post(&node, "/queues/orders/receive", json!({})).await;
    assert_eq!(none.json()["messages"], json!([]));
    let sent = node.post("/queues/orders/messages", "text/plain", "x");
    assert_eq!(sent.await.status, 201);
    let refused = post(
        &node,
        "/queues/orders/receive?mode=delete&wait=5s",
        json!({}),
    )
    .await;
    refused.is(429, "full");
    let queue = node.get("/api/queues/orders").await.json();
    assert_eq!(queue["active"], 1, "{queue}");
}
