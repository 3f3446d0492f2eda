//! What happens when something goes wrong. proves P1, P2, P3, P4, C2, C4

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::processing::receiver::{OK, Receiver, Request};
use crate::processing::world::{QUICK, World};

fn webhook(receiver: &Receiver, more: &str) -> String {
    format!(
        "{QUICK}{more}\nhandler = {{ url = \"{}\" }}\n",
        receiver.url()
    )
}

fn bodies(ledger: &[Request]) -> Vec<&str> {
    ledger.iter().map(|request| request.body.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_posted_with_its_id_attempt_and_position() {
    let receiver = Receiver::start(|_| OK).await;
    let mut world = World::start(&webhook(&receiver, "")).await;
    let placed = "POST /hubs/orders/partitions/1/messages?key=k1";
    world.json(placed, "{\"n\":1}").await;
    let ledger = receiver.until(|ledger| ledger.len() == 1).await;
    let request = &ledger[0];
    assert_eq!(
        (request.line.as_str(), request.body.as_str()),
        ("POST /hook?a=b HTTP/1.1", "{\"n\":1}")
    );
    for (name, value) in [
        ("highwater-id", "orders/1@0"),
        ("idempotency-key", "orders/1@0"),
        ("highwater-processor", "billing"),
        ("highwater-attempt", "1"),
        ("highwater-partition", "1"),
        ("highwater-offset", "0"),
        ("content-type", "application/json"),
    ] {
        assert_eq!(
            request.headers.get(name).map(String::as_str),
            Some(value),
            "{name}"
        );
    }
    assert!(request.headers["highwater-enqueued"].ends_with('Z'));
    world.done().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_events_are_one_array() {
    let receiver = Receiver::start(|_| OK).await;
    let mut world = World::start(&webhook(&receiver, "batch = 10")).await;
    let lines = "POST /hubs/orders/partitions/0/messages";
    let body = "{\"n\":1}\n{\"n\":2}\n{\"n\":3}";
    let mut events = 0;
    let sent = world
        .call(
            &format!("{lines} HTTP/1.1\r\ncontent-type: application/x-ndjson\r\nx: y"),
            body,
        )
        .await;
    assert!(sent.0 < 300 || sent.0 == 400, "{sent:?}");
    world.send(&["{\"n\":4}", "not json"]).await;
    world.done().await;
    for request in receiver.ledger() {
        let array: Value = serde_json::from_str(&request.body).unwrap();
        let array = array.as_array().unwrap();
        assert_eq!(request.headers["highwater-count"], array.len().to_string());
        for event in array {
            assert_eq!(event["id"], format!("orders/0@{events}"));
            assert_eq!(
                (&event["offset"], &event["attempt"]),
                (&json!(events), &json!(1))
            );
            events += 1;
        }
    }
    assert!(events >= 2);
    let last = receiver.ledger().pop().unwrap();
    assert!(
        last.body.contains("\"value_base64\":\"bm90IGpzb24=\""),
        "{}",
        last.body
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_corrupted_event_is_a_dead_letter_and_the_others_go_on() {
    let receiver = Receiver::start(|_| OK).await;
    let mut world = World::start(&webhook(
        &receiver,
        "order = \"partition\"\nformat = \"json\"",
    ))
    .await;
    world.send(&["1", "{\"half\":", "3"]).await;
    let facts = world.done().await;
    assert_eq!(
        (&facts["handled"], &facts["dead_letters"]),
        (&json!(2), &json!(1))
    );
    let shown = world
        .json("GET /api/dead-letters/billing/orders%2F0%401", "")
        .await;
    let reason = shown["attempts"][0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("the value is no JSON"), "{reason}");
    assert_eq!(shown["event"]["value_base64"], "eyJoYWxmIjo=");
    assert_eq!(bodies(&receiver.ledger()), ["1", "3"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_fails_on_one_event_is_tried_again_and_the_event_set_aside() {
    let refuses = |request: &Request| match request.body.as_str() {
        "2" => Some("500 Oops"),
        "3" if request.attempt() < 3 => Some("503 Busy"),
        "4" => Some("422 Nonsense"),
        _ => OK,
    };
    let receiver = Receiver::start(refuses).await;
    let mut world = World::start(&webhook(&receiver, "order = \"partition\"")).await;
    world.send(&["1", "2", "3", "4", "5"]).await;
    let facts = world.done().await;
    assert_eq!(
        (&facts["handled"], &facts["dead_letters"]),
        (&json!(3), &json!(2))
    );
    let ledger = receiver.ledger();
    assert_eq!(
        bodies(&ledger),
        ["1", "2", "2", "2", "3", "3", "3", "4", "5"]
    );
    let attempts: Vec<_> = ledger.iter().map(Request::attempt).collect();
    assert_eq!(attempts, [1, 1, 2, 3, 1, 2, 3, 1, 1]);
    let letters = world.json("GET /api/dead-letters/billing", "").await;
    let reasons: Vec<_> = letters["letters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|letter| &letter["reason"])
        .collect();
    assert_eq!(reasons, ["status 500", "status 422"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_hangs_is_given_up_after_its_time() {
    let hangs = |request: &Request| match (request.body.as_str(), request.attempt()) {
        ("2", 1) => None,
        _ => OK,
    };
    let receiver = Receiver::start(hangs).await;
    let mut world = World::start(&webhook(
        &receiver,
        "order = \"partition\"\ntimeout = \"200ms\"",
    ))
    .await;
    world.send(&["1", "2", "3"]).await;
    let facts = world.done().await;
    assert_eq!(bodies(&receiver.ledger()), ["1", "2", "2", "3"]);
    assert_eq!(
        (&facts["handled"], &facts["failures"]),
        (&json!(3), &json!(1))
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_downstream_is_offline_nothing_is_lost_and_order_is_kept() {
    let receiver = Receiver::start(|_| OK).await;
    let more = "order = \"partition\"\ncircuit = { failures = 5, open_for = \"300ms\" }";
    let mut world = World::start(&webhook(&receiver, more)).await;
    world.send(&["1"]).await;
    world.done().await;
    receiver.behave(|_| Some("503 Down"));
    world.send(&["2", "3", "4"]).await;
    world
        .until("GET /api/circuits/billing", |circuit| {
            circuit["state"] == "open"
        })
        .await;
    receiver.behave(|_| OK);
    let facts = world.done().await;
    let ledger = receiver.ledger();
    let mut taken = bodies(&ledger);
    taken.dedup();
    assert_eq!(taken, ["1", "2", "3", "4"]);
    // Three tries each: one has used them up before six failures show the outage.
    assert_eq!(facts["dead_letters"], 1);
    world.send(&["5"]).await;
    world
        .until("GET /api/circuits/billing", |circuit| {
            circuit["state"] == "closed"
        })
        .await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_circuit_outlives_a_restart_and_a_link_resumes_it_once() {
    let receiver = Receiver::start(|_| OK).await;
    let mailbox = Receiver::start(|_| OK).await;
    let more = "circuit = { failures = 2, open_for = \"forever\" }";
    let settings = format!(
        "{}\n[notify]\nurl = \"{}\"\n",
        webhook(&receiver, more),
        mailbox.url()
    );
    let mut world = World::start(&settings).await;
    receiver.behave(|_| Some("503 Down"));
    world.send(&["1", "2"]).await;
    let ledger = mailbox.until(|ledger| ledger.len() == 1).await;
    let notice: Value = serde_json::from_str(&ledger[0].body).unwrap();
    assert_eq!(
        (&notice["event"], &notice["processor"]),
        (&json!("circuit.opened"), &json!("billing"))
    );
    receiver.behave(|_| OK);
    world.restart().await;
    let opened = world.json("GET /api/circuits/billing", "").await;
    assert_eq!(opened["state"], "open");
    let before = receiver.count();
    world.send(&["3"]).await;

    let link = notice["resume"].as_str().unwrap();
    let path = &link[link.find("/resume/").unwrap()..];
    for _ in 0..2 {
        let (status, page) = world.call(&format!("GET {path}"), "").await;
        assert!(
            status == 200 && page.contains("<form method=\"post\">"),
            "{page}"
        );
    }
    assert_eq!(
        world.json("GET /api/circuits/billing", "").await["state"],
        "open",
        "looking changes nothing"
    );
    assert_eq!(
        receiver.count(),
        before,
        "nothing is delivered while it is open"
    );
    let (status, _) = world.call(&format!("POST {path}x"), "").await;
    assert_eq!(status, 410, "a forged one");
    let (status, _) = world.call(&format!("POST {path}"), "").await;
    assert_eq!(status, 200);
    let facts = world.done().await;
    assert_eq!(facts["circuit"], "closed");
    let (status, _) = world.call(&format!("POST {path}"), "").await;
    assert_eq!(status, 410, "it works once");
    let ledger = receiver.ledger();
    let mut taken: Vec<_> = ledger[before..]
        .iter()
        .map(|request| request.body.as_str())
        .collect();
    taken.sort();
    assert_eq!(taken, ["1", "2", "3"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_under_way_when_an_instance_ended_is_delivered_again() {
    let down = Arc::new(AtomicBool::new(true));
    let is_down = Arc::clone(&down);
    let fails = move |request: &Request| match request.body.as_str() {
        "2" if is_down.load(Ordering::Relaxed) => Some("503 Busy"),
        _ => OK,
    };
    let receiver = Receiver::start(fails).await;
    let settings = webhook(&receiver, "")
        .replace("tries = 3", "tries = \"forever\"")
        .replace("10ms", "20s");
    let mut world = World::start(&settings).await;
    world.send(&["1", "2", "3"]).await;
    receiver.until(|ledger| ledger.len() == 3).await;
    down.store(false, Ordering::Relaxed);
    world.restart().await;
    world.done().await;
    let ledger = receiver.ledger();
    let again: Vec<_> = ledger[3..]
        .iter()
        .map(|request| (request.id(), request.attempt()))
        .collect();
    assert!(again.contains(&("orders/0@1", 1)), "{again:?}");
    assert!(
        !again.contains(&("orders/0@0", 1)),
        "what was stored is not delivered again"
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_cannot_be_set_aside_is_not_passed() {
    let receiver = Receiver::start(|request| match request.body.len() > 1000 {
        true => Some("422 Nonsense"),
        false => OK,
    })
    .await;
    let mut world = World::start(&webhook(&receiver, "order = \"partition\"")).await;
    world.send(&["1"]).await;
    world.done().await;
    world
        .json("PATCH /api/hubs/billing.dead", "{\"batch_bytes_max\":2000}")
        .await;
    world.send(&[&"x".repeat(3000), "3"]).await;
    receiver.until(|ledger| ledger.len() >= 2).await;
    let facts = world.json("GET /api/processors/billing", "").await;
    assert!(facts["behind"].as_u64() >= Some(1), "{facts}");
    world
        .json(
            "PATCH /api/hubs/billing.dead",
            "{\"batch_bytes_max\":200000}",
        )
        .await;
    let facts = world.done().await;
    assert_eq!(facts["dead_letters"], 1);
    assert_eq!(receiver.ledger().last().unwrap().body, "3");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_retention_removed_before_they_were_handled_are_passed() {
    let receiver = Receiver::start(|_| OK).await;
    let mut world = World::start(&webhook(&receiver, "")).await;
    world.json("POST /api/circuits/billing/open", "").await;
    world.send(&["1", "2", "3"]).await;
    world
        .json(
            "POST /api/hubs/orders/partitions/0/trim",
            "{\"before\":\"2\"}",
        )
        .await;
    world.restart().await;
    world.json("POST /api/circuits/billing/close", "").await;
    world.done().await;
    assert_eq!(bodies(&receiver.ledger()), ["3"]);
    world.stop().await;
}
