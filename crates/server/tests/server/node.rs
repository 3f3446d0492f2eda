//! A whole node on a real disk: acknowledged events are there after a restart, and Kafka clients see them too.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use highwater_env::{RealClock, disk};
use highwater_server::config::Sources;
use highwater_server::node::{Node, NodeError};
use serde_json::Value;

use crate::http;

async fn start(data: &Path) -> Result<Node, NodeError> {
    start_with(data, &[]).await
}

async fn start_with(data: &Path, more: &[(&str, &str)]) -> Result<Node, NodeError> {
    let flag = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let mut sources = Sources {
        flags: vec![
            flag("data", &data.display().to_string()),
            flag("http.listen", "127.0.0.1:0"),
            flag("kafka.listen", "127.0.0.1:0"),
            flag("amqp.listen", "127.0.0.1:0"),
            flag("hubs.t.partitions", "2"),
        ],
        ..Sources::default()
    };
    let more = more.iter().map(|(key, value)| flag(key, value));
    sources.flags.extend(more);
    let config = sources.load().unwrap().config;
    Node::start(config, Arc::new(RealClock::new())).await
}

async fn call(address: SocketAddr, line: &str, body: &str) -> Value {
    http::node::call(address, line, &[], body).await.json()
}

// proves L3
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_events_are_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path()).await.unwrap();
    let address = node.http_address().unwrap();
    assert_eq!(node.kafka_addresses().len(), 1);
    for n in 0..10 {
        let placed = call(
            address,
            "POST /hubs/t/partitions/1/messages",
            &n.to_string(),
        )
        .await;
        assert_eq!(placed["offset"], n);
    }
    let described = call(address, "GET /api/hubs/t", "").await;
    assert_eq!(described["places"][1]["end"], 10);
    assert_eq!(
        call(address, "GET /api/groups", "").await["groups"],
        Value::Array(Vec::new())
    );
    let page = http::node::call(address, "GET /metrics", &[], "")
        .await
        .body;
    for line in [
        "highwater_hub_append_records_total 10",
        "highwater_kafka_requests_total{api=\"Produce\"} 0",
        "highwater_amqp_connections 0",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}: {page}");
    }
    // More than the settings say, which must not keep the node from starting again.
    let grown = call(address, "PATCH /api/hubs/t", "{\"partitions\":3}").await;
    assert_eq!(grown["partitions"], 3);
    node.stop().await;

    let again = start(folder.path()).await.unwrap();
    let page = call(
        again.http_address().unwrap(),
        "GET /hubs/t/partitions/1/messages",
        "",
    )
    .await;
    let values: Vec<i64> = page["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["value"].as_i64().unwrap())
        .collect();
    assert_eq!(values, (0..10).collect::<Vec<_>>());
    again.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_in_use_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path()).await.unwrap();
    let error = start(folder.path())
        .await
        .err()
        .expect("the folder is locked")
        .to_string();
    assert!(
        error.contains("another process uses") && error.contains("--data"),
        "{error}"
    );
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_in_use_is_named_before_the_log_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let data = folder.path().join("data");
    let error = start_with(&data, &[("kafka.listen", &address)]).await;
    let error = error.err().expect("the address is taken").to_string();
    assert!(
        error.contains(&address) && error.contains("something else listens there"),
        "{error}"
    );
    assert!(!data.exists(), "the log was opened first");
}

// proves L7
#[tokio::test(flavor = "multi_thread")]
async fn the_hubs_of_a_shared_name_are_made_and_the_name_must_be_free() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_with(folder.path(), &[("sharded.all.hubs", "t,u")]).await;
    let node = node.unwrap();
    let address = node.http_address().unwrap();
    let placed = call(address, "POST /hubs/all/messages?key=k", "1").await;
    assert!(placed["hub"] == "t" || placed["hub"] == "u", "{placed}");
    let made = call(address, "GET /api/hubs/u", "").await;
    assert_eq!(made["partitions"], 4);
    node.stop().await;

    let refused = start_with(folder.path(), &[("sharded.u.hubs", "t")]).await;
    let error = refused.err().expect("there is a hub `u`").to_string();
    assert!(error.starts_with("`u` is a hub"), "{error}");
}

/// The file is what IncrementalAlterConfigs of the broker writes.
// proves K4
#[tokio::test(flavor = "multi_thread")]
async fn hubs_take_the_defaults_of_the_node_and_give_them_back() {
    let folder = tempfile::tempdir().unwrap();
    let make = |name: &str, more: &str| format!(r#"{{"name":"{name}"{more}}}"#);
    let node = start(folder.path()).await.unwrap();
    let address = node.http_address().unwrap();
    call(address, "POST /api/hubs", &make("plain", "")).await;
    call(
        address,
        "POST /api/hubs",
        &make("own", r#","retention":"7d""#),
    )
    .await;
    node.stop().await;

    let file = folder.path().join("kafka.json");
    let settings = r#"{"version": 1, "settings": [{"owner": "every_broker", "values":
        {"log.retention.ms": "3600000", "log.cleanup.policy": "compact,delete"}}]}"#;
    disk::write_private(&file, settings.as_bytes()).unwrap();
    let node = start(folder.path()).await.unwrap();
    let address = node.http_address().unwrap();
    call(
        address,
        "POST /api/hubs",
        &make("new", r#","cleanup":"delete""#),
    )
    .await;
    let facts = async |name: &str| {
        let hub = call(address, &format!("GET /api/hubs/{name}"), "").await;
        let cleanup = hub["cleanup"].as_str().unwrap().to_owned();
        (hub["retention_seconds"].as_u64().unwrap(), cleanup)
    };
    let (week, both, delete) = (604_800, "compact,delete".to_owned(), "delete".to_owned());
    assert_eq!(facts("plain").await, (3600, both.clone()));
    assert_eq!(facts("own").await, (week, both.clone()), "its retention");
    assert_eq!(facts("new").await, (3600, delete.clone()), "its cleanup");
    assert_eq!(facts("t").await, (week, delete.clone()), "of the settings");
    call(address, "PATCH /api/hubs/plain", r#"{"retention":"1h"}"#).await;
    node.stop().await;

    disk::write_private(&file, br#"{"version": 1, "settings": []}"#).unwrap();
    let node = start(folder.path()).await.unwrap();
    let address = node.http_address().unwrap();
    let facts = async |name: &str| {
        let hub = call(address, &format!("GET /api/hubs/{name}"), "").await;
        (
            hub["retention_seconds"].as_u64().unwrap(),
            hub["cleanup"].clone(),
        )
    };
    assert_eq!(
        facts("plain").await,
        (3600, delete.clone().into()),
        "now its own"
    );
    assert_eq!(facts("own").await, (week, delete.clone().into()));
    assert_eq!(facts("new").await, (week, delete.into()));
    node.stop().await;
}
