//! Sharded hubs. // proves L7

use std::collections::BTreeMap;
use std::sync::Arc;

use highwater_access::{Key, KeyScope, Right};
use highwater_log::{HubName, HubSpec, Log, partition_for_key, shard_for_key};
use highwater_server::http::Backend;
use highwater_server::sharded::{ReservedNames, ShardedHub};
use serde_json::{Value, json};

use crate::http::node::{Node, memory, options, request, start_on};

const HUBS: [(&str, u32); 3] = [("t0", 2), ("t1", 4), ("t2", 2)];

fn name(text: &str) -> HubName {
    HubName::new(text).unwrap()
}

async fn node() -> Node {
    node_with(Vec::new()).await
}

/// A sharded hub `t` of three hubs of several sizes.
async fn node_with(keys: Vec<Key>) -> Node {
    let log = memory();
    for (hub, partitions) in HUBS {
        let spec = HubSpec {
            name: name(hub),
            partitions,
            settings: Default::default(),
        };
        log.create(spec).await.unwrap();
    }
    let sharded = ShardedHub {
        name: name("t"),
        hubs: HUBS.map(|(hub, _)| name(hub)).to_vec(),
    };
    let log = Arc::new(ReservedNames {
        log: Arc::new(log),
        names: vec![name("t")],
    });
    let backend = Backend {
        sharded: vec![sharded],
        ..Backend::new(log)
    };
    start_on(options(), keys, backend).await
}

/// The events of the three hubs, as (hub, partition) and value.
async fn stored(node: &Node) -> Vec<(String, u32, Value)> {
    let mut all = Vec::new();
    for (hub, partitions) in HUBS {
        for partition in 0..partitions {
            let path = format!("/hubs/{hub}/partitions/{partition}/messages");
            let page = node.get(&path).await.json();
            for message in page["messages"].as_array().unwrap() {
                all.push((hub.to_owned(), partition, message["value"].clone()));
            }
        }
    }
    all
}

#[tokio::test]
async fn a_key_goes_to_one_partition_of_one_hub() {
    let node = node().await;
    for number in 0..40 {
        let key = format!("device-{number}");
        let (hub, partitions) = HUBS[shard_for_key(key.as_bytes(), 3) as usize];
        let partition = partition_for_key(key.as_bytes(), partitions);
        for turn in 0..2 {
            let path = format!("/hubs/t/messages?key={key}");
            let placed = node.post(&path, "application/json", "1").await;
            assert_eq!(placed.status, 201, "{}", placed.body);
            let placed = placed.json();
            assert_eq!(
                (&placed["hub"], &placed["partition"]),
                (&json!(hub), &json!(partition))
            );
            assert!(placed["offset"].as_i64().unwrap() >= turn);
        }
    }
}

#[tokio::test]
async fn events_without_a_key_reach_every_partition() {
    let node = node().await;
    for number in 0..80 {
        let body = number.to_string();
        node.post("/hubs/t/messages", "application/json", &body)
            .await;
        node.clock.advance(std::time::Duration::from_millis(1));
    }
    let mut counts: BTreeMap<(String, u32), usize> = BTreeMap::new();
    for (hub, partition, _) in stored(&node).await {
        *counts.entry((hub, partition)).or_default() += 1;
    }
    assert_eq!(counts.len(), 8);
    assert!(counts.values().all(|count| *count == 10), "{counts:?}");
}

#[tokio::test]
async fn the_answer_to_several_events_has_the_partition_of_each() {
    let node = node().await;
    let event = |number: u32| json!({"Body": number.to_string(), "BrokerProperties": {"PartitionKey": format!("k{number}")}});
    let body = Value::from((0..20).map(event).collect::<Vec<_>>()).to_string();
    let kind = "application/vnd.microsoft.servicebus.json";
    let answer = node.post("/hubs/t/messages", kind, &body).await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    let stored = stored(&node).await;
    assert_eq!(stored.len(), 20);
    for placed in answer.json()["placed"].as_array().unwrap() {
        for event in placed["events"].as_array().unwrap() {
            let found = stored.iter().find(|(.., value)| value == event).unwrap();
            assert_eq!(
                (&json!(found.0), &json!(found.1)),
                (&placed["hub"], &placed["partition"])
            );
        }
    }
    // The same in the dialect of Event Hubs.
    assert_eq!(node.post("/t/messages", kind, &body).await.status, 201);
}

#[tokio::test]
async fn a_live_stream_reads_all_members_and_resumes() {
    let node = node().await;
    let mut last = None;
    for round in 0..2 {
        for (hub, partitions) in HUBS {
            let path = format!("/hubs/{hub}/partitions/{}/messages", partitions - 1);
            let body = json!({"round": round, "hub": hub}).to_string();
            node.post(&path, "application/json", &body).await;
        }
        let resume = last.map(|id: String| format!("last-event-id: {id}"));
        let headers: Vec<&str> = ["accept: text/event-stream"]
            .into_iter()
            .chain(resume.as_deref())
            .collect();
        let mut wire = node.connect().await;
        let line = "GET /hubs/t/messages?from=earliest";
        wire.send(&request(line, &headers, b"")).await;
        wire.head().await.unwrap();
        let (mut seen, mut id) = (Vec::new(), None);
        while seen.len() < 3 || id.is_none() {
            let block = wire.block().await.unwrap();
            if let Some(data) = block.lines().find_map(|line| line.strip_prefix("data: ")) {
                let message: Value = serde_json::from_str(data).unwrap();
                assert_eq!(message["hub"], message["value"]["hub"]);
                assert_eq!(message["value"]["round"], round, "nothing twice");
                seen.push(message["hub"].clone());
                id = None;
            }
            if let Some(found) = block.lines().find_map(|line| line.strip_prefix("id: ")) {
                id = Some(found.to_owned());
            }
        }
        seen.sort_by_key(Value::to_string);
        assert_eq!(seen, ["t0", "t1", "t2"]);
        last = id;
    }
}

#[tokio::test]
async fn the_name_is_shown_and_is_no_hub() {
    let node = node().await;
    let shown = json!({"name": "t", "hubs": ["t0", "t1", "t2"]});
    assert_eq!(
        node.get("/api/hubs").await.json()["sharded"],
        json!([shown])
    );
    assert_eq!(node.get("/api/hubs/t").await.json(), shown);
    node.post("/api/hubs", "application/json", r#"{"name":"t"}"#)
        .await
        .is(409, "exists");
    node.post("/hubs/t/partitions/0/messages", "text/plain", "x")
        .await
        .is(400, "bad_request");
    for line in ["GET /hubs/t/partitions/0/messages", "DELETE /api/hubs/t"] {
        let answer = node.call(line, &[], "").await;
        answer.is(404, "not_found");
        assert!(
            answer.body.contains("is a sharded hub of t0, t1, t2"),
            "{}",
            answer.body
        );
    }
    // A key keeps its member: the others do not take over.
    node.call("DELETE /api/hubs/t1", &[], "").await;
    node.post("/hubs/t/messages", "text/plain", "x")
        .await
        .is(404, "not_found");
}

// proves U3
#[tokio::test]
async fn a_key_for_the_name_is_good_for_the_name_alone() {
    let rights = [Right::Send].into_iter().collect();
    let key = Key::new("k", "s3cret", rights, KeyScope::of_hubs("k", ["t"]));
    let node = node_with(vec![key]).await;
    let key = "authorization: Bearer k:s3cret";
    let sent = node.call("POST /hubs/t/messages", &[key], "x").await;
    assert_eq!(sent.status, 201, "{}", sent.body);
    for line in ["POST /hubs/t0/messages", "GET /hubs/t/messages"] {
        node.call(line, &[key], "x").await.is(403, "forbidden");
    }
}
