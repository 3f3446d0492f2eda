//! Topics, subscriptions and rules over HTTP: created, changed and deleted at run time.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use highwater_env::RealClock;
use highwater_server::node::Node as WholeNode;
use serde_json::{Value, json};

use crate::http::node::{Answer, call};
use crate::whole_node;

pub(super) async fn start(folder: &Path, settings: &str) -> (WholeNode, SocketAddr) {
    let node = whole_node::start(folder, settings, Arc::new(RealClock::new())).await;
    let address = node.http_address().unwrap();
    (node, address)
}

async fn send(address: SocketAddr, line: &str, body: Value) -> Answer {
    let kind = ["content-type: application/json"];
    call(address, line, &kind, body.to_string()).await
}

#[track_caller]
fn created(answer: Answer) -> Value {
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()
}

// proves A3
#[tokio::test(flavor = "multi_thread")]
async fn entities_of_run_time_outlive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (node, address) = start(folder.path(), "").await;
    let topic = json!({"name": "prices", "time_to_live": "1d", "duplicates_within": "10m",
        "auto_delete_on_idle": "2d"});
    let topic = created(send(address, "POST /api/topics", topic).await);
    assert_eq!(topic["time_to_live_seconds"], 86_400.0);
    assert_eq!(topic["auto_delete_on_idle_seconds"], 172_800.0);
    let rules = json!([{"name": "red", "sql": "colour = 'red'", "action": "SET sold = TRUE"}]);
    let red = json!({"name": "red", "lock": "30s", "sessions": true, "rules": rules});
    let line = "POST /api/topics/prices/subscriptions";
    created(send(address, line, red).await);
    created(send(address, line, json!({"name": "all"})).await);
    created(send(address, line, json!({"name": "gone"})).await);
    let correlation = json!({"label": "fruit", "properties": {"count": 7, "ripe": true}});
    let rule = json!({"name": "a rule", "correlation": correlation});
    let line = "POST /api/topics/prices/subscriptions/all/rules";
    created(send(address, line, rule).await);

    let line = "PATCH /api/topics/prices/subscriptions/red";
    let changed = send(address, line, json!({"deliveries_max": 3})).await;
    assert_eq!(changed.json()["deliveries_max"], 3, "{}", changed.body);
    assert_eq!(changed.json()["lock_seconds"], 30.0);
    let line = "PUT /api/topics/prices/subscriptions/red/rules/red";
    let replaced = send(address, line, json!({"sql": "colour = 'blue'"})).await;
    assert_eq!(replaced.json()["action"], Value::Null, "{}", replaced.body);
    for line in [
        "DELETE /api/topics/prices/subscriptions/all/rules/$Default",
        "DELETE /api/topics/prices/subscriptions/gone",
    ] {
        assert_eq!(call(address, line, &[], "").await.status, 204, "{line}");
    }
    let line = "PATCH /api/topics/prices";
    let changed = send(address, line, json!({"duplicates_within": "off"})).await;
    assert_eq!(changed.status, 200, "{}", changed.body);
    let before = call(address, "GET /api/topics/prices", &[], "")
        .await
        .json();
    node.stop().await;

    let (node, address) = start(folder.path(), "").await;
    let after = call(address, "GET /api/topics/prices", &[], "")
        .await
        .json();
    assert_eq!(after, before);
    let names = after["subscriptions"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|of| of["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["all", "red"]);
    let rule = &after["subscriptions"][0]["rules"][0];
    assert_eq!(
        rule["correlation"],
        json!({"label": "fruit", "properties": {"count": 7, "ripe": true}})
    );
    assert_eq!(
        call(address, "DELETE /api/topics/prices", &[], "")
            .await
            .status,
        204
    );
    let line = "GET /api/topics/prices/subscriptions/red";
    call(address, line, &[], "").await.is(404, "not_found");
    node.stop().await;
}

// proves A3
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_request_is_refused_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (node, address) = start(
        folder.path(),
        "[queues.work]\n[topics.prices.subscriptions.s]\n",
    )
    .await;
    let topics = "POST /api/topics";
    let subscriptions = "POST /api/topics/prices/subscriptions";
    let rules = "POST /api/topics/prices/subscriptions/s/rules";
    let many: Vec<Value> = (0..11).map(|n| json!({"name": format!("r{n}")})).collect();
    for (line, body, status, code) in [
        (topics, json!({"name": "prices"}), 409, "exists"),
        (topics, json!({"name": "PRICES"}), 409, "exists"),
        (topics, json!({"name": "work"}), 409, "exists"),
        ("POST /api/queues", json!({"name": "Prices"}), 409, "exists"),
        (topics, json!({}), 400, "bad_request"),
        (topics, json!({"name": "api"}), 400, "bad_request"),
        (topics, json!({"name": "a/b"}), 400, "bad_request"),
        (topics, json!({"name": "x".repeat(151)}), 400, "bad_request"),
        (
            topics,
            json!({"name": "x", "lock": "1m"}),
            400,
            "bad_request",
        ),
        (topics, json!({"name": "x", "typo": 1}), 400, "bad_request"),
        (subscriptions, json!({"name": "s"}), 409, "exists"),
        (
            subscriptions,
            json!({"name": "t", "duplicates_within": "10m"}),
            400,
            "bad_request",
        ),
        (
            subscriptions,
            json!({"name": "t", "rules": [{"name": "r", "sql": "="}]}),
            400,
            "bad_request",
        ),
        (
            subscriptions,
            json!({"name": "t", "rules": many}),
            400,
            "bad_request",
        ),
        (
            "POST /api/topics/other/subscriptions",
            json!({"name": "t"}),
            404,
            "not_found",
        ),
        (rules, json!({"name": "$Default"}), 409, "exists"),
        (
            rules,
            json!({"name": "r", "sql": "a", "all": true}),
            400,
            "bad_request",
        ),
        (
            rules,
            json!({"name": "r", "correlation": {"typo": "x"}}),
            400,
            "bad_request",
        ),
        (
            rules,
            json!({"name": "r", "correlation": {}}),
            400,
            "bad_request",
        ),
        (
            rules,
            json!({"name": "r", "action": "SET"}),
            400,
            "bad_request",
        ),
        (
            "PUT /api/topics/prices/subscriptions/s/rules/other",
            json!({}),
            404,
            "not_found",
        ),
        (
            "PUT /api/topics/prices/subscriptions/s/rules/a",
            json!({"name": "b"}),
            400,
            "bad_request",
        ),
        (
            "DELETE /api/topics/prices/subscriptions/s/rules/other",
            json!({}),
            404,
            "not_found",
        ),
        (
            "PATCH /api/topics/prices/subscriptions/s",
            json!({"sessions": true}),
            400,
            "bad_request",
        ),
        (
            "PATCH /api/topics/prices",
            json!({"name": "other"}),
            400,
            "bad_request",
        ),
    ] {
        let answer = send(address, line, body.clone()).await;
        let found = (answer.status, answer.json()["code"].clone());
        assert_eq!(
            found,
            (status, code.into()),
            "{line} {body}: {}",
            answer.body
        );
    }
    let listed = call(address, "GET /api/topics", &[], "").await.json();
    let listed = listed["topics"].as_array().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["subscriptions"].as_array().unwrap().len(), 1);
    node.stop().await;
}

// proves G1
#[tokio::test(flavor = "multi_thread")]
async fn changes_of_topics_are_in_the_audit_log() {
    let folder = tempfile::tempdir().unwrap();
    let keys =
        "[[keys]]\nname = \"root\"\nsecret = \"s3cret\"\nrights = [\"manage\", \"listen\"]\n";
    let (node, address) = start(folder.path(), keys).await;
    let root = "authorization: Bearer root:s3cret";
    let make = |line: &'static str, body: &'static str| async move {
        call(
            address,
            line,
            &[root, "content-type: application/json"],
            body,
        )
        .await
    };
    make("POST /api/topics", r#"{"name":"t"}"#).await;
    make("POST /api/topics/t/subscriptions", r#"{"name":"s"}"#).await;
    make("PUT /q?api-version=2021-05", "no xml").await;
    let mut seen = String::new();
    for _ in 0..200 {
        let line = "GET /hubs/__audit/partitions/0/messages";
        seen = call(address, line, &[root], "").await.body;
        if seen.contains("PUT /{entity}") {
            break;
        }
        tokio::task::yield_now().await;
    }
    for expected in [
        "POST /api/topics",
        "POST /api/topics/{topic}/subscriptions",
        "PUT /{entity}",
        "bad_request",
    ] {
        assert!(seen.contains(expected), "{expected} is not in {seen}");
    }
    node.stop().await;
}
