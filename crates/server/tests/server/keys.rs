//! Keys that are added, rotated and revoked while the node runs; quotas; the audit log.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::{RealClock, SimClock, disk};
use highwater_server::node::Node;
use serde_json::{Value, json};

use crate::http::node::{Answer, call};
use crate::whole_node;

const ROOT: &str = "root:root-secret";
const SETTINGS: &str = "[hubs.h]\npartitions = 1\n[[keys]]\nname = \"root\"\nsecret = \"root-secret\"\n\
    rights = [\"send\", \"listen\", \"manage\", \"deploy\"]\n";

async fn start(folder: &Path) -> Node {
    whole_node::start(folder, SETTINGS, Arc::new(RealClock::new())).await
}

/// A request with a key as `name:secret`.
async fn call_as(address: SocketAddr, key: &str, line: &str, body: &str) -> Answer {
    let header = format!("authorization: Bearer {key}");
    call(address, line, &[&header], body).await
}

/// Adds a key with further fields, and returns its `name:secret`.
async fn add(address: SocketAddr, name: &str, fields: Value) -> String {
    let mut body = json!({"name": name, "rights": ["send", "listen"]});
    for (field, value) in fields.as_object().unwrap() {
        body[field] = value.clone();
    }
    let added = call_as(address, ROOT, "POST /api/keys", &body.to_string()).await;
    assert_eq!(added.status, 201, "{}", added.body);
    format!("{name}:{}", added.json()["secret"].as_str().unwrap())
}

async fn rotate(address: SocketAddr, name: &str, body: &str) -> String {
    let line = format!("POST /api/keys/{name}/rotate");
    let rotated = call_as(address, ROOT, &line, body).await;
    assert_eq!(rotated.status, 200, "{}", rotated.body);
    format!("{name}:{}", rotated.json()["secret"].as_str().unwrap())
}

async fn send(address: SocketAddr, key: &str) -> u16 {
    call_as(address, key, "POST /hubs/h/messages", "1")
        .await
        .status
}

// proves G4
#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_added_rotated_and_revoked_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path()).await;
    let address = node.http_address().unwrap();
    let first = add(address, "app", json!({"hubs": ["h"]})).await;
    assert_eq!(send(address, &first).await, 201);
    let second = rotate(address, "app", "").await;
    assert_eq!(send(address, &second).await, 201);
    assert_eq!(send(address, &first).await, 201, "the previous secret");
    let third = rotate(address, "app", r#"{"keep_previous":false}"#).await;
    assert_eq!(send(address, &third).await, 201);
    assert_eq!(send(address, &second).await, 401);
    node.stop().await;

    let stored = disk::read_to_string(folder.path().join("data/keys.json")).unwrap();
    assert!(!stored.contains(third.strip_prefix("app:").unwrap()));
    let node = start(folder.path()).await;
    let address = node.http_address().unwrap();
    assert_eq!(send(address, &third).await, 201);
    let listed = call_as(address, ROOT, "GET /api/keys", "").await;
    let names: Vec<Value> = listed.json()["keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| key["name"].clone())
        .collect();
    assert_eq!(names, ["root", "app"]);
    assert!(!listed.body.contains("stored_key"), "{}", listed.body);
    let revoked = call_as(address, ROOT, "DELETE /api/keys/app", "").await;
    assert_eq!(revoked.status, 204, "{}", revoked.body);
    assert_eq!(send(address, &third).await, 401);
    call_as(address, ROOT, "DELETE /api/keys/root", "")
        .await
        .is(409, "conflict");
    node.stop().await;
}

/// The rules are those that CreateAcls stores.
// proves G1
#[tokio::test(flavor = "multi_thread")]
async fn what_a_rule_denies_is_denied_over_http_and_in_the_console() {
    let folder = tempfile::tempdir().unwrap();
    disk::create_folder(folder.path().join("data")).unwrap();
    let rules = json!([
        {"effect": "deny", "access": "listen", "kind": "hub", "name": "h"},
        {"effect": "allow", "access": "listen", "kind": "hub", "name": "i*"},
        {"effect": "deny", "access": "manage", "kind": "new_hub", "name": "new-*"},
    ]);
    let file = json!({"version": 1, "keys": [], "everybody": rules}).to_string();
    disk::write_private(folder.path().join("data/keys.json"), file.as_bytes()).unwrap();
    let node = start(folder.path()).await;
    let address = node.http_address().unwrap();
    call_as(address, ROOT, "POST /api/hubs", r#"{"name":"i1"}"#).await;
    let rights = json!({"rights": ["send", "listen", "manage"], "hubs": ["h", "new-*"]});
    let app = add(address, "app", rights).await;
    assert_eq!(send(address, &app).await, 201);
    let read = "GET /hubs/h/partitions/0/messages";
    call_as(address, &app, read, "").await.is(403, "forbidden");
    let page = call_as(address, &app, "GET /console/hubs/h", "").await;
    assert_eq!(page.status, 403);
    let allowed = call_as(address, &app, "GET /hubs/i1/partitions/0/messages", "").await;
    assert_eq!(allowed.status, 200, "{}", allowed.body);
    let created = call_as(address, &app, "POST /api/hubs", r#"{"name":"new-1"}"#).await;
    created.is(403, "forbidden");
    let created = call_as(address, &app, "POST /new-2/messages", "1").await;
    assert_ne!(created.status, 201, "{}", created.body);
    assert_eq!(call_as(address, ROOT, read, "").await.status, 200);
    let listed = call_as(address, ROOT, "GET /api/keys", "").await.json();
    assert_eq!(listed["everybody"], rules);
    node.stop().await;
}

// proves G4
#[tokio::test(flavor = "multi_thread")]
async fn a_key_expires_and_gives_no_right_that_its_maker_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(SimClock::at_unix_nanos(1_800_000_000_000_000_000));
    let node = whole_node::start(folder.path(), SETTINGS, clock.clone()).await;
    let address = node.http_address().unwrap();
    let key = add(address, "app", json!({"expires_in": "1h"})).await;
    assert_eq!(send(address, &key).await, 201);
    clock.set_unix_nanos(1_800_003_600_000_000_000);
    assert_eq!(send(address, &key).await, 401);

    let manager = add(address, "manager", json!({"rights": ["manage"]})).await;
    let body = r#"{"name":"more","rights":["send"]}"#;
    let refused = call_as(address, &manager, "POST /api/keys", body).await;
    refused.is(403, "forbidden");
    let rotated = call_as(address, &manager, "POST /api/keys/app/rotate", "").await;
    rotated.is(403, "forbidden");
    for name in ["", "a:b", "anonymous", "a b"] {
        let body = json!({"name": name, "rights": ["send"]}).to_string();
        let wrong = call_as(address, ROOT, "POST /api/keys", &body).await;
        wrong.is(400, "bad_request");
    }
    node.stop().await;
}

// proves G5
#[tokio::test(flavor = "multi_thread")]
async fn a_key_over_its_quota_is_delayed_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(SimClock::at_unix_nanos(0));
    let node = whole_node::start(folder.path(), SETTINGS, clock.clone()).await;
    let address = node.http_address().unwrap();
    let key = add(address, "app", json!({"quota": {"requests_per_second": 2}})).await;
    for _ in 0..3 {
        assert_eq!(send(address, &key).await, 201);
    }
    let over = call_as(address, &key, "POST /hubs/h/messages", "1").await;
    over.is(429, "over_quota");
    assert!(over.head.contains("retry-after: 1"), "{}", over.head);
    assert_eq!(send(address, ROOT).await, 201, "others go on");
    clock.advance(Duration::from_secs(2));
    assert_eq!(send(address, &key).await, 201);
    let bytes = add(
        address,
        "bytes",
        json!({"quota": {"bytes_in_per_second": 10}}),
    )
    .await;
    let body = "1".repeat(50);
    let large = call_as(address, &bytes, "POST /hubs/h/messages", &body).await;
    assert_eq!(large.status, 201);
    let over = call_as(address, &bytes, "POST /hubs/h/messages", "1").await;
    assert!(over.head.contains("retry-after: 4"), "{}", over.head);
    node.stop().await;
}

// proves G6
#[tokio::test(flavor = "multi_thread")]
async fn changes_and_refusals_are_in_the_audit_log() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path()).await;
    let address = node.http_address().unwrap();
    let key = add(address, "app", json!({})).await;
    call_as(address, ROOT, "POST /api/hubs", r#"{"name":"new"}"#).await;
    call_as(address, &key, "DELETE /api/hubs/new", "")
        .await
        .is(403, "forbidden");
    call_as(address, "app:wrong", "GET /api/hubs", "")
        .await
        .is(401, "unauthorized");
    call_as(address, ROOT, "DELETE /api/hubs/new", "").await;
    send(address, &key).await;
    let expected = [
        ("root", "POST /api/keys", "app", "ok"),
        ("root", "POST /api/hubs", "new", "ok"),
        ("app", "DELETE /api/hubs/{hub}", "new", "forbidden"),
        ("app", "login", "", "unauthorized"),
        ("root", "DELETE /api/hubs/{hub}", "new", "ok"),
    ];
    let line = "GET /hubs/__audit/partitions/0/messages?wait=10s";
    let mut events = Vec::new();
    for _ in 0..200 {
        let page = call_as(address, ROOT, line, "").await;
        let page: Value = serde_json::from_str(&page.body).unwrap();
        events = page["messages"].as_array().cloned().unwrap_or_default();
        if events.len() >= expected.len() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let field = |event: &Value, name: &str| event["value"][name].as_str().unwrap().to_owned();
    let found: Vec<[String; 4]> = events
        .iter()
        .map(|event| ["who", "operation", "resource", "outcome"].map(|name| field(event, name)))
        .collect();
    let expected = expected.map(|(who, operation, resource, outcome)| {
        [who, operation, resource, outcome].map(str::to_owned)
    });
    assert_eq!(found, expected);
    assert!(field(&events[0], "from").starts_with("127.0.0.1:"));
    node.stop().await;
}

// proves G4
#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_the_issuer_has_the_rights_of_the_key_it_names() {
    let folder = tempfile::tempdir().unwrap();
    let vectors: Value =
        serde_json::from_str(include_str!("../../../access/src/token_vectors.json")).unwrap();
    whole_node::write(
        &folder.path().join("jwks.json"),
        &vectors["jwks"].to_string(),
    );
    let settings = format!(
        "{SETTINGS}[[keys]]\nname = \"app\"\nsecret = \"app-secret\"\nrights = [\"send\"]\n\
         [tokens]\njwks = \"jwks.json\"\nissuer = \"https://id.example\"\naudience = \"highwater\"\n"
    );
    let clock = Arc::new(SimClock::at_unix_nanos(1_500_000_000_000));
    let node = whole_node::start(folder.path(), &settings, clock.clone()).await;
    let address = node.http_address().unwrap();
    let token = vectors["rsa"].as_str().unwrap();
    assert_eq!(send(address, token).await, 201);
    call_as(address, token, "GET /metrics", "")
        .await
        .is(403, "forbidden");
    let other = vectors["other_audience"].as_str().unwrap();
    assert_eq!(send(address, other).await, 401);
    clock.set_unix_nanos(2_100_000_000_000);
    assert_eq!(send(address, token).await, 401, "it has expired");
    assert_eq!(send(address, "app:app-secret").await, 201);
    node.stop().await;
}
