//! Server-sent events.

use highwater_log::batch::{Batch, BatchBuilder, BatchOptions, NewRecord};
use serde_json::Value;

use crate::http::node::{Node, Wire, node, request};

const LIVE: &str = "accept: text/event-stream";

async fn open(node: &Node, path: &str, headers: &[&str]) -> Wire {
    let mut wire = node.connect().await;
    let headers: Vec<&str> = [LIVE].iter().chain(headers).copied().collect();
    wire.send(&request(&format!("GET {path}"), &headers, b""))
        .await;
    let head = wire.head().await.unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"),
        "{head}"
    );
    assert_eq!(wire.block().await.as_deref(), Some(": highwater"));
    wire
}

async fn put(node: &Node, partition: u32, value: &str) {
    let path = format!("/hubs/h/partitions/{partition}/messages");
    assert_eq!(
        node.post(&path, "application/json", value).await.status,
        201
    );
}

/// The id and the value of a block.
fn parts(block: &str) -> (Option<String>, Option<Value>) {
    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
    let data: Option<Value> = field("data: ").map(|text| serde_json::from_str(text).unwrap());
    (
        field("id: ").map(str::to_owned),
        data.map(|data| data["value"].clone()),
    )
}

#[tokio::test]
async fn events_come_as_they_are_stored_and_a_reader_goes_on_where_it_was() {
    let node = node().await;
    put(&node, 0, "1").await;
    let path = "/hubs/h/partitions/0/messages";
    let mut wire = open(&node, &format!("{path}?from=earliest"), &[]).await;
    assert_eq!(
        parts(&wire.block().await.unwrap()),
        (Some("0:1".into()), Some(1.into()))
    );
    put(&node, 0, "{\"a\":\n2}").await;
    let block = wire.block().await.unwrap();
    assert_eq!(parts(&block).1, Some(serde_json::json!({"a": 2})));
    drop(wire);
    put(&node, 0, "3").await;
    let mut again = open(&node, path, &["last-event-id: 0:1"]).await;
    assert_eq!(
        parts(&again.block().await.unwrap()).0.as_deref(),
        Some("0:2")
    );
    assert_eq!(parts(&again.block().await.unwrap()).1, Some(3.into()));
}

#[tokio::test]
async fn all_partitions_are_one_stream_with_one_id() {
    let node = node().await;
    for partition in 0..4 {
        put(&node, partition, &partition.to_string()).await;
    }
    let mut wire = open(&node, "/hubs/h/messages?from=earliest", &[]).await;
    let mut seen = Vec::new();
    let mut id = String::new();
    while seen.len() < 4 || id.split(',').count() < 4 {
        let (new_id, value) = parts(&wire.block().await.unwrap());
        seen.extend(value.and_then(|value| value.as_u64()));
        id = new_id.unwrap_or(id);
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3]);
    assert_eq!(id, "0:1,1:1,2:1,3:1");
    put(&node, 2, "9").await;
    let header = format!("last-event-id: {id}");
    let mut again = open(&node, "/hubs/h/messages", &[&header]).await;
    assert_eq!(parts(&again.block().await.unwrap()).1, Some(9.into()));
}

#[tokio::test]
async fn a_strange_id_is_refused() {
    let node = node().await;
    for id in ["last-event-id: 7", "last-event-id: a:b"] {
        node.call("GET /hubs/h/messages", &[LIVE, id], "")
            .await
            .is(400, "bad_request");
    }
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_is_kept_alive() {
    let node = node().await;
    let mut wire = open(&node, "/hubs/h/messages", &[]).await;
    assert_eq!(wire.block().await.as_deref(), Some(": still here"));
    assert_eq!(wire.block().await.as_deref(), Some(": still here"));
}

/// A stream that was woken for nothing comes back at once if it has read something. The clock is stopped,
/// so that a pause would show the time going by.
#[tokio::test(start_paused = true)]
async fn time_that_goes_by_is_not_shown_and_delays_nothing() {
    let node = node().await;
    let mut wire = open(&node, "/hubs/h/messages", &[]).await;
    let started = tokio::time::Instant::now();
    for n in 0..5 {
        node.post("/api/hubs/h/partitions/2/punctuate", "", "")
            .await;
        put(&node, 2, &n.to_string()).await;
        let (_, value) = parts(&wire.block().await.unwrap());
        assert_eq!(value, Some(n.into()));
        let (id, _) = parts(&wire.block().await.unwrap());
        assert!(id.unwrap().ends_with(&format!("2:{},3:0", 2 * n + 2)));
    }
    assert_eq!(started.elapsed(), std::time::Duration::ZERO);
}

#[tokio::test]
async fn a_stream_ends_with_its_hub_and_with_its_node() {
    let node = node().await;
    let mut wire = open(&node, "/hubs/h/messages", &[]).await;
    assert_eq!(node.call("DELETE /api/hubs/h", &[], "").await.status, 204);
    let last = wire.block().await.unwrap();
    assert!(
        last.starts_with("event: error") && last.contains("not_found"),
        "{last}"
    );

    assert_eq!(
        node.post("/api/hubs", "application/json", r#"{"name":"h"}"#)
            .await
            .status,
        201
    );
    let mut wire = open(&node, "/hubs/h/messages", &[]).await;
    node.app.stop();
    assert_eq!(wire.block().await, None);
}

/// Appends a batch that claims to be compressed and is not, as older versions accepted it.
async fn put_damaged(node: &Node) {
    let mut builder = BatchBuilder::new();
    builder.push(&NewRecord {
        key: None,
        value: Some(b"2"),
        headers: &[],
    });
    let batch = builder.build(&BatchOptions::default()).unwrap();
    let mut bytes = batch.to_bytes().to_vec();
    bytes[22] |= 1;
    let checksum = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&checksum.to_be_bytes());
    let (batch, _) = Batch::parse(bytes.into()).unwrap();
    let partition = node.log.partition("h", 0).unwrap();
    partition.append(batch).await.unwrap();
}

// proves L2
#[tokio::test]
async fn a_damaged_batch_is_reported_with_its_offset_and_hides_nothing_around_it() {
    let node = node().await;
    let path = "/hubs/h/partitions/0/messages";
    put(&node, 0, "1").await;
    put_damaged(&node).await;
    put(&node, 0, "3").await;
    let before = node.get(path).await.json();
    assert_eq!(
        (&before["messages"][0]["value"], &before["next"]),
        (&1.into(), &1.into())
    );
    let damaged = node.get(&format!("{path}?from=1")).await;
    damaged.is(500, "internal");
    assert!(
        damaged
            .body
            .contains("the batch at offset 1 cannot be read"),
        "{}",
        damaged.body
    );
    assert!(damaged.body.contains("from=2"), "{}", damaged.body);

    let mut wire = open(&node, &format!("{path}?from=earliest"), &[]).await;
    assert_eq!(parts(&wire.block().await.unwrap()).1, Some(1.into()));
    assert!(wire.block().await.unwrap().starts_with("event: error"));
    assert_eq!(parts(&wire.block().await.unwrap()).1, Some(3.into()));
}
