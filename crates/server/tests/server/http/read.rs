//! Reading one partition.

use std::sync::Arc;

use highwater_log::batch::{BatchBuilder, BatchOptions, NewRecord, TimestampType};
use highwater_log::{HubName, Producer, TransactionMarker};
use serde_json::{Value, json};

use crate::http::node::{Node, node, request};

async fn numbered(count: usize) -> Node {
    let node = node().await;
    let lines: String = (0..count).map(|n| format!("{n}\n")).collect();
    node.post(
        "/hubs/h/partitions/0/messages",
        "application/x-ndjson",
        &lines,
    )
    .await;
    node
}

async fn values(node: &Node, query: &str) -> (Vec<Value>, Value) {
    let page = node
        .get(&format!("/hubs/h/partitions/0/messages?{query}"))
        .await
        .json();
    let values = page["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["value"].clone())
        .collect();
    (values, page["next"].clone())
}

// proves L2
#[tokio::test]
async fn a_reader_starts_anywhere_and_reads_again() {
    let node = numbered(10).await;
    for _ in 0..2 {
        assert_eq!(
            values(&node, "max=3").await,
            (vec![json!(0), json!(1), json!(2)], json!(3))
        );
    }
    assert_eq!(
        values(&node, "from=8").await,
        (vec![json!(8), json!(9)], json!(10))
    );
    assert_eq!(values(&node, "from=latest").await, (vec![], json!(10)));
    assert_eq!(
        values(&node, "from=earliest&max=1").await,
        (vec![json!(0)], json!(1))
    );
    assert_eq!(
        values(&node, "from=2025-12-31T23:59:59Z&max=1").await,
        (vec![json!(0)], json!(1))
    );
    assert_eq!(
        values(&node, "from=2026-01-02T00:00:00Z").await,
        (vec![], json!(10))
    );
}

#[tokio::test]
async fn a_wrong_request_gets_a_hint() {
    let node = numbered(1).await;
    let ask = async |query: &str| {
        node.get(&format!("/hubs/h/partitions/0/messages?{query}"))
            .await
    };
    ask("from=yesterday").await.is(400, "bad_request");
    ask("from=99").await.is(400, "bad_request");
    ask("max=0").await.is(400, "bad_request");
    ask("wait=long").await.is(400, "bad_request");
    node.get("/hubs/h/partitions/9/messages")
        .await
        .is(404, "not_found");
    node.get("/hubs/none/partitions/0/messages")
        .await
        .is(404, "not_found");
    node.get("/hubs/h/messages").await.is(406, "not_acceptable");
    let partition = node.log.partition("h", 0).unwrap();
    partition.trim(highwater_log::Offset(1)).await.unwrap();
    ask("from=0").await.is(410, "trimmed");
}

#[tokio::test]
async fn a_long_poll_is_woken_by_an_event() {
    let node = node().await;
    let mut waiting = node.connect().await;
    let line = "GET /hubs/h/partitions/0/messages?wait=60s";
    waiting.send(&request(line, &[], b"")).await;
    // A second request on the same connection would wait its turn; this one is on another.
    node.post("/hubs/h/partitions/0/messages", "application/json", "5")
        .await;
    let page = waiting.answer().await.json();
    assert_eq!(page["messages"][0]["value"], 5);
    assert_eq!(page["next"], 1);
}

#[tokio::test]
async fn a_punctuation_does_not_end_a_long_poll() {
    let node = node().await;
    let mut waiting = node.connect().await;
    let line = "GET /hubs/h/partitions/0/messages?wait=60s";
    waiting.send(&request(line, &[], b"")).await;
    for _ in 0..3 {
        node.post("/api/hubs/h/partitions/0/punctuate", "", "")
            .await;
    }
    node.post("/hubs/h/partitions/0/messages", "application/json", "5")
        .await;
    let page = waiting.answer().await.json();
    assert_eq!(page["messages"][0]["value"], 5);
    assert_eq!(page["next"], 4);
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_without_events_ends_in_time() {
    let node = node().await;
    let page = node
        .get("/hubs/h/partitions/0/messages?wait=20s")
        .await
        .json();
    assert_eq!(
        (page["messages"].clone(), page["next"].clone()),
        (json!([]), json!(0))
    );
}

#[tokio::test]
async fn only_committed_records_are_shown() {
    let node = node().await;
    let partition = node.log.partition("h", 0).unwrap();
    let producer = Producer { id: 9, epoch: 0 };
    let transactional = |value: &str, sequence: i32| {
        let mut builder = BatchBuilder::new();
        builder.push(&NewRecord {
            key: None,
            value: Some(value.as_bytes()),
            headers: &[],
        });
        let seal = BatchOptions {
            producer: Some((producer, sequence)),
            transactional: true,
            ..BatchOptions::default()
        };
        partition.append(builder.build(&seal).unwrap())
    };
    transactional("1", 0).await.unwrap();
    partition
        .append_marker(producer, TransactionMarker::Abort)
        .await
        .unwrap();
    transactional("2", 1).await.unwrap();
    partition
        .append_marker(producer, TransactionMarker::Commit)
        .await
        .unwrap();
    transactional("3", 2).await.unwrap();
    let (values, next) = values(&node, "").await;
    assert_eq!(values, [json!(2)]);
    assert_eq!(next, 4, "the open transaction is still ahead");
    drop(Arc::clone(&partition));
}

// proves K4
#[tokio::test]
async fn an_event_shows_its_enqueue_time_whatever_its_producer_says() {
    let node = node().await;
    let mut settings = node.log.hub("h").unwrap().settings.clone();
    settings.timestamps.kind = TimestampType::Create;
    let name = HubName::new("h").unwrap();
    node.log.change(&name, settings).await.unwrap();
    let mut builder = BatchBuilder::new();
    builder.push(&NewRecord {
        key: None,
        value: Some(b"7"),
        headers: &[],
    });
    let options = BatchOptions {
        timestamp: Some(5),
        ..BatchOptions::default()
    };
    let partition = node.log.partition("h", 0).unwrap();
    let batch = builder.build(&options).unwrap();
    partition.append(batch).await.unwrap();
    let page = node.get("/hubs/h/partitions/0/messages").await.json();
    assert_eq!(page["messages"][0]["enqueued"], "2026-01-01T00:00:00.123Z");
    let found = values(&node, "from=2025-12-31T23:59:59Z&max=1").await;
    assert_eq!(found, (vec![json!(7)], json!(1)));
}
